"""What a user fixes in the plan; all that is not fixed the planner decides.

A pin that cannot be honoured raises `PlanError` with the reason: here where its value is none the
field can have, in the planner where it does not suit the kernel. Triton's own options are not pins
but hints: see `tawa.plan.planner`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from tawa.errors import PlanError
from tawa.plan.plan import Arrangement, Grouped, Plan, Schedule, Split, StorePlan, Walk
from tawa.syntax import in_ascii

Names = str | Sequence[str] | None
ByName = int | Mapping[str, int] | tuple[tuple[str, int], ...] | None
StoreWay = Literal["tma", "slot", "registers"]
OperandWay = Literal["registers", "shared"]

ROLES = ("load", "transpose", "mma")
"""The roles the planner makes, by the names a pin of registers uses."""

_YES_OR_NO = ("specialize", "persistent")
_WORDS = {
    "arrangement": get_args(Arrangement),
    "grouped": get_args(Grouped),
    "schedule": get_args(Schedule),
    "split": get_args(Split),
    "store": get_args(StoreWay),
    "walk": get_args(Walk),
}
_NAMES = {
    "direct": "loads that threads make by themselves, from global memory into registers",
    "shared": "tensors that loops carry from iteration to iteration in shared memory",
}
_OF_ROLES = (
    *("arrangement", "blocks", "cluster", "consumers", "depth", "mma_depth", "schedule"),
    *("persistent", "registers", "group", "grouped", "walk", "split", "parts", "places", "store"),
)
# The least a count can be, and what the least means.
_COUNTS = {
    "consumers": (1, "it counts the warpgroups that compute; 1 is one warpgroup"),
    "cluster": (1, "it counts the blocks that share loads: 2, 4 or 8; 1 is no cluster"),
    "blocks": (1, "it counts the blocks that share a multiprocessor; 1 has it alone"),
    "group": (0, "it counts the tiles walked together; 0 is the program order"),
    "parts": (1, "it counts the pieces a store leaves in; 1 is the whole tile"),
    "places": (1, "it counts the stages that these pieces take in turn; 1 is one for all"),
    "ceiling": (1, "it counts the bytes of shared memory that a block may take"),
}
_COUNTS_BY_NAME = {
    "depth": (1, "it counts the slots of a ring, and a ring has slots: 1 or more"),
    "mma_depth": (1, "it counts the products in flight over a wait; 1 waits for each"),
    "registers": (1, "it counts the registers of a thread: multiples of 8 in 24..256"),
}


@dataclass(frozen=True, slots=True)
class Pins:
    """Fixed fields of a plan; None leaves a field to the planner.

    `consumers` counts consumer warpgroups, `blocks` those that share a multiprocessor; `depth` is D
    for all rings or by a load's variable (``{"a": 4}`` or ``{"a@12": 4}``), `mma_depth` P for all
    loops or by a loop's name, `registers` a thread's budget by role (``{"load": 40, "mma": 232}``).
    `split`: what of a product each warpgroup has. `store`: "tma" goes through a stage of its own,
    "slot" through the slot of a loaded tile that is done with. `ceiling` is the most shared memory
    that a block may take, in bytes. `shared` names tensors that loops carry in shared memory
    (``"acc"``), `direct` loads that threads make by themselves, `operands` where wgmma takes the
    first operand of a product from (``{"s": "registers"}``), `tensors` which thread holds which
    element, by variable (`tawa.plan.plan.TensorPlan`). `plan` is a whole plan, or its text, and
    stands alone. Raises PlanError for a value that a field cannot have in any kernel.
    """

    specialize: bool | None = None
    consumers: int | None = None
    arrangement: Arrangement | None = None
    depth: ByName = None
    mma_depth: ByName = None
    schedule: Schedule | None = None
    persistent: bool | None = None
    cluster: int | None = None
    blocks: int | None = None
    registers: Mapping[str, int] | tuple[tuple[str, int], ...] | None = None
    group: int | None = None
    grouped: Grouped | None = None
    walk: Walk | None = None
    split: Split | None = None
    store: StoreWay | None = None
    parts: int | None = None
    places: int | None = None
    ceiling: int | None = None
    shared: Names = None
    direct: Names = None
    operands: Mapping[str, OperandWay] | tuple[tuple[str, OperandWay], ...] | None = None
    tensors: Mapping[str, str] | tuple[tuple[str, str], ...] | None = None
    plan: Plan | str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                # Mappings become tuples, so that pins are hashable: they are part of a
                # compilation's key.
                object.__setattr__(self, field.name, _checked(field.name, value))
        others = [name for name in self.given if name != "plan"]
        if self.plan is not None and others:
            raise PlanError(
                f"plan= together with {', '.join(f'{name}=' for name in others)}",
                why="a whole plan decides all, and nothing is left to pin",
                remedy="edit the plan's text, or drop plan=",
            )

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the fields that are fixed."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)

    @property
    def of_roles(self) -> tuple[str, ...]:
        """The pins, as ``name=value``, that only a kernel split into roles can honour.

        ``arrangement="cooperative"``, ``persistent=False``, ``blocks=1``, ``cluster=1``,
        ``group=0``, ``grouped="rows"``, ``walk="forward"``, ``split="rows"``, ``parts=1`` and
        ``places=1`` hold for an ordinary kernel too.
        """
        values = {name: getattr(self, name) for name in _OF_ROLES}
        ordinary = {each.name: each.default for kind in (StorePlan, Plan) for each in fields(kind)}
        values["store"] = "slot" if self.store == "slot" else None
        return tuple(
            f"{name}={dict(_items(value)) if isinstance(value, tuple) else value!r}"
            for name, value in values.items()
            if value is not None and value != ordinary.get(name)
        )


def _checked(name: str, value: Any) -> Any:
    """Return a pin's value in its hashable form; raises PlanError when the field cannot have it."""
    if name in _YES_OR_NO and not isinstance(value, bool):
        raise _wrong(name, value, f"{name} is a bool", "use True or False")
    if name in _WORDS and not (isinstance(value, str) and value in _WORDS[name]):
        words = " or ".join(repr(word) for word in _WORDS[name])
        raise _wrong(name, value, f"{name} is one word for the whole kernel", f"use {words}")
    if name == "plan" and not isinstance(value, Plan | str):
        raise _wrong(name, value, "a plan is a Plan or its text", "use kernel.plan, or its str()")
    if name in _NAMES:
        given = (value,) if isinstance(value, str) else value
        if not isinstance(given, Sequence) or not all(isinstance(n, str) for n in _items(given)):
            raise _wrong(name, value, f"it names {_NAMES[name]}", f'write {name}=["x", "y"]')
        return tuple(dict.fromkeys(map(in_ascii, _items(given))))
    if name == "operands":
        pairs = _pairs(name, value, "{'s': 'registers'}")
        ways = get_args(OperandWay)
        for product, way in pairs:
            if way not in ways:
                why = "wgmma takes its first operand from registers or from shared memory"
                raise _wrong(f"{name}[{product!r}]", way, why, f"use {ways[0]!r} or {ways[1]!r}")
        return tuple(sorted(pairs))
    if name == "tensors":
        pairs = _pairs(name, value, form := "{'x': '64x32;r[16:(0,1)];l[..];w[..]'}")
        if not all(isinstance(layout, str) for _, layout in pairs):
            raise _wrong(name, value, "layouts are given by their text", f"write {name}={form}")
        return tuple(sorted(pairs))
    if name in _COUNTS:
        return _count(name, name, value, *_COUNTS[name])
    if name in _COUNTS_BY_NAME:
        return _counts(name, value, *_COUNTS_BY_NAME[name])
    return value


def _counts(name: str, value: Any, least: int, why: str) -> int | tuple[tuple[str, int], ...]:
    """Check a count for all, or counts by name."""
    form = "{'load': 40, 'mma': 232}" if name == "registers" else f"{{'name': {max(least, 2)}}}"
    if not isinstance(value, Mapping | tuple):
        if name == "registers":
            raise _wrong(name, value, "each role has its own budget", f"write registers={form}")
        return _count(name, name, value, least, why)
    pairs = _pairs(name, value, form)
    if name == "registers":
        _check_roles(pairs)
    checked = [(key, _count(name, f"{name}[{key!r}]", n, least, why)) for key, n in pairs]
    return tuple(sorted(checked))


def _pairs(name: str, value: Any, form: str) -> tuple[tuple[str, Any], ...]:
    """Return what is given by name, as pairs."""
    pairs = _items(value.items() if isinstance(value, Mapping) else value)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(_items(pair)) == 2 and isinstance(pair[0], str)):
            raise _wrong(name, value, f"{name} is given by name", f"write {name}={form}")
    return pairs


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(cast("Iterable[Any]", value)) if isinstance(value, Iterable) else (value,)


def _check_roles(pairs: tuple[tuple[str, Any], ...]) -> None:
    for role, _ in pairs:
        if role not in ROLES:
            raise PlanError(
                f"registers: there is no role {role!r}",
                why=f"a specialized kernel has the roles {', '.join(ROLES)}",
                remedy="use one of these names, or drop the pin",
            )


def _count(name: str, what: str, value: Any, least: int, why: str) -> int:
    """Return a whole number as an int (numpy's too); a bool is none."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise _wrong(what, value, f"{name} is a whole number", f"use an int of {least} or more")
    if number < least:
        raise _wrong(what, value, why, f"use {least} or more, or drop the pin")
    return number


def _wrong(what: str, value: Any, why: str, remedy: str) -> PlanError:
    return PlanError(f"{what}={value!r}", why=why, remedy=remedy)


def pick(pins: ByName, names: tuple[str, ...], what: str) -> int | None:
    """Return what `pins` fix for a statement that goes by any of `names`.

    A key fits a full name (``a@12``) or the variable alone (``a``). Two keys that fit and differ
    are an error.
    """
    if pins is None or isinstance(pins, int):
        return pins
    table = dict(pins)
    found = {table[key] for key in table if any(fits(key, name) for name in names)}
    if len(found) > 1:
        listed = ", ".join(f"{key}={table[key]}" for key in sorted(table))
        raise PlanError(
            f"{what} of {'+'.join(names)} is pinned twice: {listed}",
            why="these share one ring",
            remedy="pin one of them, or give them the same value",
        )
    return next(iter(found), None)


def fits(key: str, name: str) -> bool:
    """Tell whether a key of a pin speaks of a statement's name."""
    return in_ascii(key) in (name, name.split("@")[0], name.split("#")[0])


def check_keys(pins: object, names: tuple[str, ...], what: str) -> None:
    """Raise PlanError when a pin, by name or a list of names, names nothing of the kernel."""
    if pins is None or isinstance(pins, int):
        return
    for each in _items(pins):
        key = each if isinstance(each, str) else each[0]
        if not any(fits(key, name) for name in names):
            raise PlanError(
                f"{what}: the kernel has nothing named {key!r}",
                why=f"names that can be pinned: {', '.join(names) or 'none'}",
                remedy="use one of these names, or drop the pin",
            )
