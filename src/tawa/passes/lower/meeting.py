"""Whether the warps of a warpgroup meet between the wait for a slot and its release.

The threads of a role pass a wait one by one. One of them may free the slot for its warpgroup only
when none can still be before the wait, two phases behind: a wgmma or a barrier in between, on every
path, sees to that.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.ir.walk import all_of
from tawa.passes.lower.context import Ring


def is_together(role: hopper.Role, ring: Ring) -> bool:
    """Tell whether warpgroups meet between each wait for a slot of `ring` and its release."""
    waits = [op for op in all_of(role, hopper.Wait) if op.barriers is ring.filled.result]
    return all(_meets_from(wait.next_op, wait, ring, set()) for wait in waits)


def _meets_from(
    operation: Operation | None, last: Operation, ring: Ring, seen: set[Operation]
) -> bool:
    """Tell whether all paths from `operation` meet before they release; `last` stood before it."""
    while operation is not None and operation not in seen:
        seen.add(operation)
        last = operation
        match operation:
            case hopper.Wgmma() | hopper.NamedBarrier():
                return True
            case hopper.Arrive() if operation.barriers is ring.freed.result:
                return False
            case scf.ForOp() | scf.IfOp() | scf.WhileOp() if _releases(operation, ring):
                firsts = [r.block.first_op for r in operation.regions if r.blocks]
                if not all(_meets_from(first, operation, ring, seen) for first in firsts if first):
                    return False
                if isinstance(operation, scf.IfOp) and len(firsts) == len(operation.regions):
                    return True  # both paths go on to what follows and were judged by then
            case _:
                pass
        operation = operation.next_op
    if operation is not None:
        return True  # a path walked before
    match last.parent_op():
        case scf.IfOp() as branch:
            return _meets_from(branch.next_op, branch, ring, seen)
        case scf.ForOp() as loop:
            again = _meets_from(loop.body.block.first_op, loop, ring, seen)
            return again and _meets_from(loop.next_op, loop, ring, seen)
        case hopper.Role() | None:
            return True
        case _:
            return False


def _releases(operation: Operation, ring: Ring) -> bool:
    return any(inner.barriers is ring.freed.result for inner in all_of(operation, hopper.Arrive))
