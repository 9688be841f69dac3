"""Rings: which payloads share slots, and how deep each ring is, from shared memory.

Depth is what hides the latency of loads: each ring of a loop first gets the slots its products
need, then all of the innermost loops grow together while shared memory lasts. Where the stage of
the store takes the room, the store goes out in parts.

Rings that an ordinary kernel fills and takes from itself, some iterations ahead: by cp.async, or
by TMA where a plan says so.

Roles let loads run past what the program does meanwhile. Where they must not (a store may write
what they read), the loop of a product can still load ahead of itself, as long as nothing in it
writes memory: its threads copy the tiles of later iterations while the products of this one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.traits import IsTerminator

from tawa.analysis.hardware import Run, copy_run, is_host_made
from tawa.analysis.liveness import needed_by
from tawa.analysis.roles import Partition, Payload, fed_dots, first_use, tile_uses
from tawa.analysis.statements import (
    children,
    enclosing,
    enclosing_loops,
    has_effect,
    is_volatile,
    name_of,
)
from tawa.analysis.transposed import Transposed
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.ir.types import bit_width, shape_of
from tawa.ir.walk import walk
from tawa.layouts.shared import split_columns
from tawa.plan.pins import Pins, pick
from tawa.plan.plan import ArefPlan, LoopPlan, Plan
from tawa.plan.problem import Problem
from tawa.plan.resources import aliases, check_shared, stage_bytes, tile_bytes

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
    return aliases(partition.loads)


def with_shallow_rings(plan: Plan) -> tuple[Plan, ...]:
    """Return the plan with no more slots than its products in flight need, two at least, if it has
    more: what was not proved for the length of its runs has fewer positions of its rings to run.
    """
    least = max([2, *(loop.mma_depth for loop in plan.loops)])
    rings = tuple(replace(ring, depth=min(ring.depth, least)) for ring in plan.arefs)
    return (replace(plan, arefs=rings),) if rings != plan.arefs else ()


# --- rings of an ordinary kernel ------------------------------------------------------------------


Load: TypeAlias = tile.Load | tile.DescLoad

DEPTHS = (4, 3)
"""Slots to try: three iterations ahead of the products, or two."""


def with_rings(problem: Problem, plan: Plan) -> Plan | None:
    """Return an ordinary plan with rings for the tiles of its products, None where there are none
    or they do not fit.
    """
    payloads = _payloads(problem, tile.Load)
    if not payloads or problem.pins.depth or problem.pins.mma_depth or problem.pins.shared:
        return None
    loops = tuple(LoopPlan(name_of(loop), "fine", _in_flight(loop, payloads)) for loop in payloads)
    for depth in DEPTHS:
        rings = tuple(
            ArefPlan(tuple(map(name_of, loads)), depth, (), "copy_async")
            for loads in payloads.values()
        )
        made = replace(plan, arefs=rings, loops=loops)
        try:
            check_shared(made, problem.statements, problem.target)
        except OverBudget:
            continue
        return made
    return None


def check_own_rings(problem: Problem, plan: Plan) -> None:
    """Refuse an ordinary plan with a ring of fewer slots than its loop has in use at a time: that
    of the product that runs, and that of the copy made ahead.
    """
    flying = {loop.loop: loop.mma_depth for loop in plan.loops}
    for loop, loads in _all_payloads(problem) if not plan.specialized else ():
        names = {name_of(load) for load in loads}
        least = max(flying.get(name_of(loop), 1), 2)
        for ring in plan.arefs:
            if names.intersection(ring.payload) and ring.depth < least:
                raise PlanError(
                    f"aref {ring.label} depth={ring.depth}",
                    why="the tile of a later iteration is copied while products read the slots of "
                    f"this and those before: {least} at a time in {name_of(loop)}",
                    remedy=f"write depth={least} or more, or lower mma_depth",
                )


def copied_ahead(problem: Problem) -> set[str]:
    """Return the loads that an ordinary kernel can send through rings of its own."""
    return {name_of(load) for _, loads in _all_payloads(problem) for load in loads}


def _all_payloads(problem: Problem) -> list[tuple[scf.ForOp, list[Load]]]:
    return [*_payloads(problem, tile.Load).items(), *_payloads(problem, tile.DescLoad).items()]


def _payloads(problem: Problem, kind: type[Load]) -> dict[scf.ForOp, list[Load]]:
    return {
        loop: payload
        for loop in problem.statements.values()
        if isinstance(loop, scf.ForOp) and (payload := _payload(loop, kind))
    }


def _payload(loop: scf.ForOp, kind: type[Load]) -> list[Load]:
    """Return the tiles of loads of one kind that can be copied ahead in a loop."""
    body = list(children(loop))
    if any(has_effect(inner) or is_volatile(inner) for op in body for inner in walk(op)):
        return []
    loads = [op for op in body if isinstance(op, kind) and _is_copied(op, loop)]
    if kind is tile.DescLoad:  # what uses them is moved behind the last of a ring
        return loads
    first = min((body.index(first_use(load)) for load in loads), default=0)
    return [load for load in loads if body.index(load) < first]


def _is_copied(load: Load, loop: scf.ForOp) -> bool:
    """Tell whether a tile can be copied in a loop that computes its address from no other tile:
    by TMA, or by threads for products.
    """
    if any(user.has_trait(IsTerminator) for user in tile_uses(load)):
        return False
    inside = [op for op in needed_by(load) if op is not load and loop.is_ancestor(op)]
    if any(isinstance(op, (tile.Load, tile.DescLoad, tile.Dot)) for op in inside):
        return False
    if isinstance(load, tile.DescLoad):
        return is_host_made(load.desc)
    two = len(shape_of(load.result.type)) == 2 and bool(fed_dots(load))
    return two and isinstance(copy_run(load), Run)


def _in_flight(loop: scf.ForOp, payloads: dict[scf.ForOp, list[Load]]) -> int:
    """Return P: two where nothing but tiles of the ring stands between one product and the next."""
    loaded = {load.result for load in payloads[loop]}
    dots = [op for op in children(loop) if isinstance(op, tile.Dot)]
    whole = all(
        dot.a in loaded
        and dot.b in loaded
        and all(use.operation.has_trait(IsTerminator) for use in dot.result.uses)
        for dot in dots
    )
    return 2 if dots and whole else 1
