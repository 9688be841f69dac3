"""Rings: which payloads share slots, and how deep each ring is, from shared memory.

Depth is what hides the latency of loads: each ring of a loop first gets the slots its products
need, then all of the innermost loops grow together while shared memory lasts. Where the stage of
the store takes the room, the store goes out in parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from tawa.analysis.effects import enclosing, enclosing_loops
from tawa.analysis.naming import name_of
from tawa.analysis.roles import Partition, Payload
from tawa.analysis.transposed import Transposed
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import bit_width
from tawa.layouts.shared import split_columns
from tawa.plan.pins import Pins, pick
from tawa.plan.plan import ArefPlan, Plan
from tawa.plan.resources import aliases, stage_bytes, tile_bytes

MOST_SLOTS = 8
"""Beyond this a ring only costs barriers: the loads in flight already cover the latency."""
ENOUGH_SLOTS = 3
"""For fewer a store goes in parts; for more it does not, since products wait for each part."""
ENOUGH_BESIDE = 5
"""The same where a store runs beside another consumer's products, and parts cost nothing: tiles of
128 x 168 x 64 run at 0.74, 0.88 and 0.93 of cuBLASLt with 3, 4 and 5 slots; with 4 slots, those of
128 x 192 at 0.95 in two parts and 0.98 in three (H200; K 1024 and 512).
"""


@dataclass(frozen=True, slots=True)
class Rings:
    """The rings of a plan.

    `depths` gives, by innermost loop, the least depth of the rings it goes through; `tiles` are the
    loaded values and their views; `parts` in how many pieces stores leave; `fit` whether all of it
    does.
    """

    arefs: tuple[ArefPlan, ...]
    parts: int
    depths: dict[Operation, int]
    tiles: frozenset[SSAValue]
    fit: bool = True


@dataclass(slots=True, eq=False)
class _Ring:
    """A ring under way. `transposed`: it holds tiles transposed; `feeds`: a role transposes from
    it.
    """

    sites: list[Payload]
    slot: int
    depth: int
    pinned: int | None
    transposed: Transposed | None = None
    feeds: Transposed | None = None

    @property
    def loop(self) -> Operation | None:
        """The innermost loop around the first payload."""
        return next(iter(enclosing_loops(self.sites[0].loads[0])), None)

    @property
    def loops(self) -> list[Operation]:
        """The innermost loops around the payloads, one each."""
        return [loop for site in self.sites for loop in enclosing_loops(site.loads[0])[:1]]

    def encloses(self, other: _Ring) -> bool:
        """Tell whether another ring wraps many times while this one wraps once."""
        return any(
            loop in enclosing_loops(site.loads[0])[1:]
            for loop in self.loops
            for site in other.sites
        )

    @property
    def bytes(self) -> int:
        return self.depth * (self.slot + 16)


def arrange_rings(
    partition: Partition,
    transposed: Mapping[Operation, Transposed],
    stores: Sequence[Operation],
    persistent: bool,
    room: int,
    pins: Pins,
    beside: bool = False,
    shares: int = 1,
) -> Rings:
    """Choose rings and depths within `room` bytes, together with the stages of `stores`.

    `stores` are those that leave by TMA; they go in parts while a ring has too few slots, and in as
    many as can be where they run `beside` the products of another consumer. `shares` warpgroups
    hold runs of their columns. Payloads of `transposed` loads have two rings: as loaded, and
    transposed.
    """
    choices = (4, 3, 2, 1) if beside else (1, 2, 3, 4)
    choices = (pins.parts,) if pins.parts is not None else choices
    enough = ENOUGH_BESIDE if beside else ENOUGH_SLOTS
    best: tuple[int, list[_Ring], int] | None = None
    places = pins.places or 1
    for parts in choices:
        if any(not divisible(store, parts, shares) for store in stores) or places > parts:
            continue
        left = room - places * sum(stage_bytes(store, parts) for store in stores)
        rings = _deepen(_make_rings(partition, transposed, pins), persistent, left)
        reached = min((min(ring.depth, enough) for ring in _waited(rings)), default=1)
        if sum(ring.bytes for ring in rings) > left:
            reached = 0
        if best is None or reached > best[0]:
            best = (reached, rings, parts)
    if best is None:
        _check_places(pins)
        raise PlanError(
            f"parts={pins.parts}",
            why="a store goes in runs of whole panels of 128 bytes, the last one narrower",
            remedy="use a number of parts that the columns have panels for, or leave parts= out",
        )
    reached, rings, parts = best
    depths: dict[Operation, int] = {}
    for ring in _waited(rings):
        for loop in ring.loops:
            depths[loop] = min(depths.get(loop, ring.depth), ring.depth)
    return Rings(
        # What loads a tile stands before what holds it transposed.
        tuple(map(_plan, sorted(rings, key=lambda ring: ring.transposed is not None)))
        + _sent_rings(partition, pins),
        parts,
        depths,
        frozenset(tiles_of(partition)),
        reached > 0,
    )


def _check_places(pins: Pins) -> None:
    """Raise PlanError where more places are pinned than a store has parts."""
    if (pins.places or 1) > (pins.parts or 4):
        raise PlanError(
            f"places={pins.places}",
            why=f"a store's parts take them in turn, and there are {pins.parts or 'at most 4'}",
            remedy="pin parts= to as many or more, or leave places= out",
        )


def _waited(rings: list[_Ring]) -> list[_Ring]:
    """Return the rings of loops that the products wait for."""
    return [ring for ring in rings if ring.loop is not None and ring.feeds is None]


def divisible(store: Operation, parts: int, shares: int) -> bool:
    """Tell whether the columns of a store's block make that many parts."""
    assert isinstance(store, tile.DescStore | tile.DescAtomic), "a store by TMA"
    kind = store.desc.type
    bits = max(8, bit_width(kind.element))
    return split_columns(kind.block_shape[-1], bits, parts, shares) is not None


def _make_rings(
    partition: Partition, transposed: Mapping[Operation, Transposed], pins: Pins
) -> list[_Ring]:
    rings: list[_Ring] = []
    for payload in partition.payloads:
        how = transposed.get(payload.loads[0])
        if how is not None:
            # First, so that it is the first to get slots: it is what the products wait for.
            _join(rings, payload, transposed=how)
        _join(rings, payload, feeds=how)
    for ring in rings:
        names = tuple(name for site in ring.sites for name in site.names)
        ring.pinned = pick(pins.depth, names, "depth")
        if ring.pinned is not None and ring.pinned < 1:
            raise PlanError(f"depth={ring.pinned} for {'+'.join(names)}", why="a ring has slots")
        ring.depth = ring.pinned or 1
    return rings


def _join(
    rings: list[_Ring],
    payload: Payload,
    *,
    transposed: Transposed | None = None,
    feeds: Transposed | None = None,
) -> None:
    """Let a payload go through a ring that suits it, or through one of its own.

    Payloads that share the ring which loads them share that of their transposed tiles as well.
    """
    for ring in rings:
        same = _way(ring.transposed) == _way(transposed) and _way(ring.feeds) == _way(feeds)
        if same and _turns_with(ring, payload):
            ring.sites.append(payload)
            return
    slot = sum(tile_bytes(kind) for kind in payload.types)
    rings.append(_Ring([payload], slot, 1, None, transposed, feeds))


def _way(transposed: Transposed | None) -> tuple[bool, bool]:
    return transposed is not None, transposed is not None and transposed.interleaved


def _turns_with(ring: _Ring, payload: Payload) -> bool:
    """Tell whether a payload of a later loop can go through the slots of an earlier one.

    The loops stand one after the other, so that no slot is wanted by both at once.
    """
    if ring.loop is None or list(ring.sites[0].types) != list(payload.types):
        return False
    if ring.sites[0].by_threads != payload.by_threads:
        return False
    return all(_apart(site, payload) for site in ring.sites)


def _apart(a: Payload, b: Payload) -> bool:
    first, second = list(enclosing(a.loads[0])), list(enclosing(b.loads[0]))
    if not first or not second or first[0] is second[0]:
        return False
    return first[1:] == second[1:]


def _deepen(rings: list[_Ring], persistent: bool, room: int) -> list[_Ring]:
    """Give slots in the order of their worth while they fit."""

    def grow(chosen: list[_Ring], most: int) -> bool:
        chosen = [ring for ring in chosen if ring.pinned is None and ring.depth < most]
        extra = sum(ring.slot + 16 for ring in chosen)
        if not chosen or sum(ring.bytes for ring in rings) + extra > room:
            return False
        for ring in chosen:
            ring.depth += 1
        return True

    looped = [
        ring
        for ring in rings
        if ring.loop is not None and not any(ring.encloses(other) for other in rings)
    ]
    outer = [ring for ring in rings if ring not in looped]
    grow(looped, 2)
    if any(ring.depth < 2 and ring.pinned is None for ring in looped):
        for ring in looped:
            grow([ring], 2)
    if len(looped) == 1:
        grow(looped, 3)
    for ring in outer:
        if persistent or ring.loop is not None:
            grow([ring], 2)
    while grow(looped, MOST_SLOTS):
        pass
    return rings


def _plan(ring: _Ring) -> ArefPlan:
    first, *others = ring.sites
    also = tuple(site.names for site in others)
    if ring.transposed is not None:
        return ArefPlan(first.names, ring.depth, also, "transpose", ring.transposed.interleaved)
    return ArefPlan(first.names, ring.depth, also, "copy_async" if first.by_threads else "tma")


def _sent_rings(partition: Partition, pins: Pins) -> tuple[ArefPlan, ...]:
    """Scalars the producer finds out: two slots, so that it may run one ahead."""
    found: list[ArefPlan] = []
    for operation in partition.sent:
        name = name_of(operation)
        found.append(ArefPlan((name,), pick(pins.depth, (name,), "depth") or 2))
    return tuple(found)


def tiles_of(partition: Partition) -> set[SSAValue]:
    """Return the tiles that lie in rings, and the views of them."""
    return aliases(load for payload in partition.payloads for load in payload.loads)


def with_shallow_rings(plan: Plan) -> tuple[Plan, ...]:
    """Return the plan with no more slots than its products in flight need, two at least, if it has
    more: what was not proved for the length of its runs has fewer positions of its rings to run.
    """
    least = max([2, *(loop.mma_depth for loop in plan.loops)])
    rings = tuple(replace(ring, depth=min(ring.depth, least)) for ring in plan.arefs)
    return (replace(plan, arefs=rings),) if rings != plan.arefs else ()
