"""Whether the warps of a role hand data to one another through shared memory.

Agents stand for several warps. That is enough as long as no warp touches what another warp of the
same agent has written, or two of different agents do the same to one another: the warps of a
warpgroup beside its leader do alike, so what no barrier orders between two of them it orders
between no two. Where neither holds, more agents are made, so that the barrier is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations, product
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.layouts.register import RegisterLayout
from tawa.layouts.transpose import given, taken
from tawa.simulator.proof.accesses import WARPGROUP, layout_of
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.regions import Footprint

_TOUCHING = (
    hopper.SharedLoad,
    hopper.SharedStore,
    hopper.CopyAsync,
    hopper.SharedGather,
    hopper.FmaDot,
    hopper.SharedTranspose,
)


@dataclass(frozen=True, slots=True)
class Touch:
    """An access by the warps of a role: without a layout, each touches all of the view."""

    place: Footprint
    layout: RegisterLayout | None
    write: bool

    def mask(self, warp: int) -> int:
        """Return what a warp touches."""
        if self.layout is None:
            return self.place.mask()
        return self.place.share(self.layout, (warp,))


Parts: TypeAlias = tuple[tuple[int, ...], ...]
"""Which warps of a warpgroup are one agent each: all beside its leader."""
_PARTS: tuple[Parts, ...] = (
    ((1, 2, 3),),
    ((1,), (2, 3)),
    ((2,), (1, 3)),
    ((3,), (1, 2)),
    ((1,), (2,), (3,)),
)


def told_apart(decoder: Decoder, role: hopper.Role) -> Parts:
    """Return into which agents the warps of a role come."""
    touches, warps = dict.fromkeys(_touches(decoder, role)), role.warps.data
    groups = [
        range(start + 1, min(start + WARPGROUP, warps)) for start in range(0, warps, WARPGROUP)
    ]
    return parts_of(
        crossings
        for first, second in combinations_with_replacement(touches, 2)
        if (first.write or second.write) and _may_meet(first, second)
        for group, distance in product(groups, _distances(first, second))
        if (crossings := _crossings(first, second, distance, group))
    )


def parts_of(met: Iterable[Set[tuple[int, int]]]) -> Parts:
    """Return as few agents as show all exchanges: each is known by which two warps touch the same
    bytes, by where in their warpgroup they are.
    """
    exchanges = set(map(frozenset, met))
    return next(parts for parts in _PARTS if all(_shows(parts, each) for each in exchanges))


def _may_meet(first: Touch, second: Touch) -> bool:
    a, b = first.place.buffer, second.place.buffer
    return a.number == b.number or (not a.alone and a.group == b.group)


def _distances(first: Touch, second: Touch) -> set[int]:
    """Return by how many words their masks may be apart: slots of buffers that overlap."""
    shifts = first.place.buffer.shifts, second.place.buffer.shifts
    return {there - here for here, there in product(*shifts)}


def _crossings(first: Touch, second: Touch, distance: int, warps: range) -> set[tuple[int, int]]:
    """Return which two of some warps touch the same bytes, one by `first`, one by `second`."""
    here = {warp: first.mask(warp) << max(0, -distance) for warp in warps}
    there = {warp: second.mask(warp) << max(0, distance) for warp in warps}
    return {
        (one % WARPGROUP, other % WARPGROUP)
        for one, other in permutations(warps, 2)
        if here[one] & there[other]
    }


def _shows(parts: Parts, crossings: Set[tuple[int, int]]) -> bool:
    """Tell whether warps of two agents are among those that touch the same bytes."""
    return any(one in part and other not in part for part in parts for one, other in crossings)


def _touches(decoder: Decoder, role: hopper.Role) -> Iterator[Touch]:
    for operation in decoder.census.of(*_TOUCHING, within=role):
        if _alone(operation):
            continue
        match operation:
            case hopper.SharedLoad():
                yield _touch(decoder, operation.view, operation.result, False)
            case hopper.SharedStore():
                yield _touch(decoder, operation.view, operation.value, True)
            case hopper.CopyAsync():
                yield _touch(decoder, operation.view, operation.pointer, True)
            case hopper.SharedGather():
                yield Touch(decoder.view(operation.view)[0], None, False)
            case hopper.FmaDot():
                for view in (operation.a, operation.b):
                    yield Touch(decoder.view(view)[0], None, False)
            case hopper.SharedTranspose():
                source, target = decoder.view(operation.source)[0], decoder.view(operation.view)[0]
                rows, columns = source.shape
                warps = role.warps.data
                yield Touch(source, taken((rows, columns), warps), False)
                yield Touch(target, given((rows, columns), warps), True)


def _touch(decoder: Decoder, view: SSAValue, registers: SSAValue, write: bool) -> Touch:
    return Touch(decoder.view(view)[0], layout_of(registers), write)


def _alone(operation: Operation) -> bool:
    """Tell whether one thread, of the leader, executes an operation."""
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, (hopper.OneThread, hopper.Role)):
        parent = parent.parent_op()
    return isinstance(parent, hopper.OneThread)
