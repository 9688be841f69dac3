"""Whether the warps of a role hand data to one another through shared memory.

Agents stand for several warps. That is enough as long as no warp touches what another warp of the
same agent has written; where one does, each warp is an agent of its own, so that the barrier
between them is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

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


def exchanges(decoder: Decoder, role: hopper.Role) -> bool:
    """Tell whether a warp touches what another one of its agent has written."""
    touches = dict.fromkeys(_touches(decoder, role))
    warps = role.warps.data
    return any(
        _may_meet(first, second) and _cross(first, second, warps)
        for first, second in combinations_with_replacement(touches, 2)
        if first.write or second.write
    )


def _may_meet(first: Touch, second: Touch) -> bool:
    a, b = first.place.buffer, second.place.buffer
    return a.number == b.number or (not a.alone and a.group == b.group)


def _cross(first: Touch, second: Touch, warps: int) -> bool:
    """Tell whether two warps other than the leader of a warpgroup touch the same bytes."""
    if first.place.buffer.number != second.place.buffer.number:
        return True  # buffers that overlap somehow
    for start in range(0, warps, WARPGROUP):
        others = range(start + 1, min(start + WARPGROUP, warps))
        if any(
            first.mask(one) & second.mask(other)
            for one, other in product(others, others)
            if one != other
        ):
            return True
    return False


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
