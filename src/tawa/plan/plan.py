"""The plan: what is done to a kernel, as one frozen value. Passes only carry it out.

Loads, loops, dots and arefs are named by the variable they define and its line (``a@12``,
``for k@10``), so that a plan written for a kernel can be read, edited and pinned by its author.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

Arrangement = Literal["cooperative", "pingpong"]
Schedule = Literal["none", "fine", "coarse"]
Walk = Literal["forward", "serpentine", "dynamic"]
Grouped = Literal["rows", "columns"]
Split = Literal["rows", "columns"]


@dataclass(frozen=True, slots=True)
class RolePlan:
    """A role: its warps (per instance), register budget a thread, and instances."""

    label: str
    warps: int
    registers: int
    instances: int = 1


@dataclass(frozen=True, slots=True)
class ArefPlan:
    """A ring: the loads in its payload and its depth D (slots).

    `also` are further payloads of the same types, of later loops or the same body, that go through
    the same slots.
    `via` is who moves the tiles: TMA, the producer's threads by cp.async, or the role
    "transpose" (the producer, where there is none), which takes them from the ring that loads them
    and transposes them for wgmma; `interleaved` then brings K into the order in which registers
    hold the other operand.
    """

    payload: tuple[str, ...]
    depth: int
    also: tuple[tuple[str, ...], ...] = ()
    via: Literal["tma", "copy_async", "transpose"] = "tma"
    interleaved: bool = False

    @property
    def label(self) -> str:
        """The payload's names joined: ``a@14+b@15``."""
        return "+".join(self.payload)


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A loop's software schedule; `mma_depth` is P, the product groups in flight over a wait.

    `pins`: in a coarse schedule, values computed under a product are kept before the wait for it.
    `shared` names tensors that it carries from iteration to iteration in shared memory: each
    iteration reads and writes them there, and registers hold them only in between.
    """

    loop: str
    schedule: Schedule = "fine"
    mma_depth: int = 1
    pins: bool = False
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StorePlan:
    """How a store leaves: by TMA through shared memory, in `parts` sub-tiles, or from registers.

    Parts take `places` in shared memory in turn: one waits until the part that had its place is on
    its way. `stage` names a load: the store goes through the slot in which that tile lay.
    """

    store: str
    via: Literal["tma", "registers"]
    parts: int = 1
    eviction: Literal["", "first", "last"] = ""
    stage: str = ""
    places: int = 1


@dataclass(frozen=True, slots=True)
class OperandPlan:
    """Where wgmma takes its first operand from in a product, by the product's name.

    "registers": a tile that lies in shared memory is loaded first. "shared": a computed one is
    stored first, behind a barrier of its warps, each time it is.
    """

    product: str
    a: Literal["registers", "shared"]


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """Which thread of a role holds which element of the tensors of a name and shape: the text of a
    `tawa.layouts.register.RegisterLayout`, with ";" for its blanks.
    """

    tensor: str
    layout: str


@dataclass(frozen=True, slots=True)
class Declined:
    """Something the planner did not do: the feature and the named reason, for `explain`."""

    feature: str
    reason: str


BREAKPOINT = "breakpoint()"
"""The feature that every compiled kernel declines: it stops the oracle alone."""

FULL_SPEED = "full speed"
"""The feature that a kernel declines whose products a block has no room for; a launch warns."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided about one kernel.

    `arrangement` "pingpong": consumers take turns at the tensor cores. Those of one role share a
    tile; instances of a role compute tiles of their own. `roles` empty means: not specialized, an
    ordinary kernel of `warps` warps. `group` is the number of tiles walked together for the L2
    cache (0: the program order), `grouped` says whether these are rows or columns of tiles;
    `walk` "serpentine": every other round of blocks takes its tiles backwards, so that who had
    the longest of one round has the shortest of the next; "dynamic": a block that is done takes
    the next tile nobody has taken; `cluster` the blocks that share loads by multicast,
    `blocks` those that share a multiprocessor, its memory and registers. `guards`
    are pairs of arguments (loaded, stored) whose memory must not overlap: where it does at a
    launch, the ordinary kernel runs. `sharing`: loads of an ordinary kernel whose tiles are never
    needed at once take the same shared memory, and those that feed no product take none.
    It is the last that is tried. `direct`: descriptor loads that the threads which compute make by
    themselves, from global memory into registers. `operands`: products whose first operand is not
    where it would be. `tensors`: how threads hold those whose distribution is not left open.
    `split`: what the warpgroups that share a tile have of its products, as far as 64 rows each.

    >>> tawa.Plan(warps=8).specialized
    False
    """

    roles: tuple[RolePlan, ...] = ()
    arefs: tuple[ArefPlan, ...] = ()
    loops: tuple[LoopPlan, ...] = ()
    stores: tuple[StorePlan, ...] = ()
    direct: tuple[str, ...] = ()
    operands: tuple[OperandPlan, ...] = ()
    tensors: tuple[TensorPlan, ...] = ()
    arrangement: Arrangement = "cooperative"
    warps: int = 4
    persistent: bool = False
    group: int = 0
    grouped: Grouped = "rows"
    walk: Walk = "forward"
    cluster: int = 1
    load_eviction: Literal["", "last"] = ""
    blocks: int = 1
    sharing: bool = False
    split: Split = "rows"
    declined: tuple[Declined, ...] = ()
    guards: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the plan's text, which `plan=` and `tawa.plan.text.parse_plan` read back."""
        return _text(self)

    @property
    def consumers(self) -> tuple[RolePlan, ...]:
        """The roles that compute."""
        return tuple(role for role in self.roles if role.label not in ("load", "transpose"))

    def role_of(self, label: str) -> RolePlan | None:
        """Return the role of a label; its instances are numbered behind it."""
        for role in self.roles:
            if label == role.label or label in (f"{role.label}{n}" for n in range(role.instances)):
                return role
        return None

    @property
    def held(self) -> Plan:
        """What of the plan decides what threads hold: all but the depths of its rings."""
        return replace(
            self, arefs=tuple(replace(ring, depth=0) for ring in self.arefs), declined=()
        )

    @property
    def order(self) -> Plan:
        """What of the plan decides who reaches global memory, how and when: neither the depths of
        its rings nor registers nor the number of blocks.
        """
        roles = tuple(replace(role, registers=0) for role in self.roles)
        return replace(self.held, roles=roles, blocks=1)

    def takes_directly(self, load: str) -> bool:
        """Tell whether threads make a load, or a copy of it, by themselves."""
        return load.partition("#")[0] in self.direct or load in self.direct

    def keeps_apart(self, names: Sequence[str], pairs: Iterable[tuple[int, int]]) -> bool:
        """Tell whether guards see to it that no pair of arguments, by number, shares memory."""
        guarded = {frozenset(pair) for pair in self.guards}
        return all(frozenset((names[a], names[b])) in guarded for a, b in pairs)

    @property
    def specialized(self) -> bool:
        """Whether the kernel is split into roles."""
        return bool(self.roles)


LINES: dict[str, tuple[str, Any, str, str]] = {
    "plan": (
        "",
        Plan,
        "warps arrangement persistent group cluster",
        "grouped walk load_eviction blocks sharing split",
    ),
    "role": ("roles", RolePlan, "warps registers", "instances"),
    "aref": ("arefs", ArefPlan, "depth", "via interleaved"),
    "loop": ("loops", LoopPlan, "schedule mma_depth", "pins shared"),
    "store": ("stores", StorePlan, "via parts", "places eviction stage"),
    "operand": ("operands", OperandPlan, "a", ""),
    "tensor": ("tensors", TensorPlan, "layout", ""),
}
"""Lines by keyword: the field of the plan that lists what they say, its class, and the options that
are always written and those that are where they are not the default.
"""


def _text(plan: Plan) -> str:
    """Return the text of a plan."""
    lines = [_line("plan", "specialized" if plan.specialized else "ordinary", plan)]
    lines.extend(_line("role", each.label, each) for each in plan.roles)
    for ring in plan.arefs:
        payloads = " = ".join(" + ".join(payload) for payload in (ring.payload, *ring.also))
        lines.append(_line("aref", payloads, ring))
    lines.extend(_line("loop", each.loop, each) for each in plan.loops)
    lines.extend(_line("store", each.store, each) for each in plan.stores)
    lines.extend(f"load {name} via=registers" for name in plan.direct)
    lines.extend(_line("operand", each.product, each) for each in plan.operands)
    lines.extend(_line("tensor", each.tensor, each) for each in plan.tensors)
    lines.extend(f"guard {read}, {written}" for read, written in plan.guards)
    lines.extend(f"declined {item.feature}: {item.reason}" for item in plan.declined)
    return "\n".join(lines) + "\n"


def _line(keyword: str, name: str, said: Any) -> str:
    _, kind, always, others = LINES[keyword]
    defaults = {each.name: each.default for each in fields(kind)}
    changed = [option for option in others.split() if getattr(said, option) != defaults[option]]
    texts = [f"{option}={_spell(getattr(said, option))}" for option in always.split() + changed]
    return " ".join([keyword, name, *texts])


def _spell(value: bool | int | str | tuple[str, ...]) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
