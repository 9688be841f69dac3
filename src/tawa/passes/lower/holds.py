"""What a warpgroup may do while it holds the turn: nothing that waits for those who want it.

Warpgroups that take turns run one program. While one of them holds a turn, the others come as far
as its take, and no further. So in a turn a warpgroup must neither meet them at a barrier nor wait
for a slot that is loaded only when they have given one back: of a ring of D slots they keep those
they hold at the take, and the turn may wait for as many as are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.walk import walk
from tawa.passes.lower.context import Ring


def can_hold(turn: list[Operation], take: Operation, rings: Iterable[Ring]) -> bool:
    """Tell whether a turn may span the operations `turn`; the warpgroups that want it stand before
    `take`, the first product of one.
    """
    if any(_meets(inner) for operation in turn for inner in walk(operation)):
        return False
    for ring in rings:
        filled, freed = ring.filled.result, ring.freed.result
        for waited, given in ((filled, freed), (freed, filled)):
            more = sum(_waits(operation, waited) for operation in turn)
            if more and more + _held(take, waited, given) > ring.depth:
                return False
    return True


def between(first: Operation, last: Operation) -> Iterator[Operation]:
    """Yield the operations of a block after `first` and before `last`."""
    following = first.next_op
    while following is not None and following is not last:
        yield following
        following = following.next_op


def _meets(operation: Operation) -> bool:
    return isinstance(operation, hopper.NamedBarrier) and operation.scope.data == "role"


def _waits(operation: Operation, barriers: SSAValue) -> float:
    """Return for how many slots an operation waits; there is no end to those of a loop."""
    waits = [
        inner
        for inner in walk(operation)
        if isinstance(inner, hopper.Wait) and inner.barriers is barriers
    ]
    loops = isinstance(operation, (scf.ForOp, scf.WhileOp))
    return float("inf") if waits and loops else len(waits)


def _held(take: Operation, waited: SSAValue, given: SSAValue) -> int:
    """Return how many slots a warpgroup has waited for, and not given back, before `take`.

    What the body of a loop gives back before it has waited for it was held when a trip began.
    """
    held, place = 0, take
    while not isinstance(place, hopper.Role):
        block, parent = place.parent, place.parent_op()
        assert block is not None, "a product stands in a role"
        assert parent is not None, "a product stands in a role"
        counts = _running(block, waited, given)
        before = counts[block.get_operation_index(place)]
        started = -min(counts) if isinstance(parent, (scf.ForOp, scf.WhileOp)) else 0
        held, place = held + before + started, parent
    return held


def _running(block: Block, waited: SSAValue, given: SSAValue) -> list[int]:
    """Return what the operations of a block before each, and at its end, leave held."""
    counts = [0]
    for operation in block.ops:
        counts.append(counts[-1] + _change(operation, waited, given))
    return counts


def _change(operation: Operation, waited: SSAValue, given: SSAValue) -> int:
    """Return by how many slots an operation changes what is held; the trips of a loop by none."""
    match operation:
        case hopper.Wait() if operation.barriers is waited:
            return 1
        case hopper.Arrive() if operation.barriers is given:
            return -1
        case scf.IfOp():
            blocks = [region.block for region in operation.regions if region.blocks]
            changes = [_running(block, waited, given)[-1] for block in blocks]
            return max(changes, key=abs)
        case _:
            return 0
