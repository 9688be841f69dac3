"""Purpose: free a slot as soon as its tile has been read for the last time, within branches too.

Before -> after::

    %q = aref.get_enter %q_ring             %q = aref.get_enter %q_ring
    scf.if %some {                          scf.if %some {
      scf.for .. { .. %q .. }                 scf.for .. { .. %q .. }
      %x2 = tile.dot %p, %v, %x        ->     aref.get_exit %q_ring
    } else {                                  %x2 = tile.dot %p, %v, %x
    }                                       } else {
    aref.get_exit %q_ring                     aref.get_exit %q_ring
                                            }

A pipelined loop ends with statements of its last iterations that no longer read what the whole
loop read; while they run, the next tile may be loaded.
Requires: aref IR, roles distributed, loops pipelined. Ensures: each path frees what it freed
before, in the same order.
Declines when: never; an exit stays where another of its ring would be overtaken, where a branch has
one side only, or where a side gives the tile itself, which is read when the side ends.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.stages import borrowed
from tawa.analysis.statements import VIEWS
from tawa.ir import aref, tile
from tawa.ir.walk import terminator, walk
from tawa.passes.lower.emit import erase
from tawa.plan.plan import Declined, Plan
from tawa.plan.staging import is_staged
from tawa.target import Target


def free_early(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Move each exit that follows a branch to the last readers in the branch."""
    for role in [op for op in kernel.body.block.ops if isinstance(op, aref.Role)]:
        for block in [b for op in [role, *walk(role)] for r in op.regions for b in r.blocks]:
            for exit_, get in borrowed(block).items():
                stages = frozenset(op for op in block.ops if is_staged(op, plan, _label(get)))
                _free(exit_, _names(get), stages)
    return ()


def _label(get: aref.GetEnter) -> str:
    create = get.aref.owner
    assert isinstance(create, aref.Create), "a ring is created before the roles"
    return create.label.data


def _names(get: aref.GetEnter) -> set[SSAValue]:
    """Return the borrowed values and all views of them."""
    found: set[SSAValue] = set()
    work = list(get.values)
    while work:
        value = work.pop()
        found.add(value)
        work += [
            v
            for use in value.uses
            if isinstance(use.operation, VIEWS)
            for v in use.operation.results
        ]
    return found


def _free(
    exit_: aref.GetExit, names: set[SSAValue], stages: frozenset[Operation] = frozenset()
) -> None:
    """Move an exit into the branch that reads last, if nothing stands against it: no store of
    `stages` goes through the slot after that.
    """
    reader = exit_.prev_op
    while reader is not None and not _reads(reader, names):
        if reader in stages or _turns(reader, exit_.aref):
            return
        reader = reader.prev_op
    if not isinstance(reader, scf.IfOp) or _turns(reader, exit_.aref):
        return
    sides = [region.block for region in reader.regions if region.blocks]
    if len(sides) < 2 or any(_reads(terminator(side), names) for side in sides):
        return
    for side in sides:
        _place(exit_, side, names)
    erase(exit_)


def _place(exit_: aref.GetExit, block: Block, names: set[SSAValue]) -> None:
    """Put a copy of an exit into a block: after its last reader, at its start without one."""
    copy = exit_.clone()
    readers = [op for op in block.ops if _reads(op, names)]
    if readers:
        block.insert_op_after(copy, readers[-1])
    else:
        block.insert_op_before(copy, next(iter(block.ops)))
    _free(copy, names)


def _reads(operation: Operation, names: set[SSAValue]) -> bool:
    return any(not names.isdisjoint(inner.operands) for inner in walk(operation))


def _turns(operation: Operation, ring: SSAValue) -> bool:
    """Tell whether an operation gets or frees a slot of `ring`."""
    kinds = (aref.GetEnter, aref.GetExit, aref.GetSkip)
    return any(isinstance(inner, kinds) and inner.aref is ring for inner in walk(operation))
