"""What a statement does besides giving values: memory it reads or writes, order it demands.

The one table of effects. A statement without effect may be repeated, moved or dropped; a statement
with effect stands in exactly one role, in program order.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import tile
from tawa.ir.walk import is_terminator, marked_pure

WRITES = (tile.Store, tile.DescStore, tile.DescAtomic, tile.Atomic, tile.CompareExchange)
READS = (tile.Load, tile.DescLoad)
ATOMICS = (tile.Atomic, tile.CompareExchange)
CONTROL = (scf.ForOp, scf.IfOp, scf.WhileOp)
VIEWS = (tile.Transpose, tile.Reshape, tile.ExpandDims)
"""Operations that name the same elements again: in shared memory they cost nothing."""


def is_write(operation: Operation) -> bool:
    """Tell whether an operation writes memory."""
    return isinstance(operation, WRITES)


def is_volatile(operation: Operation) -> bool:
    """Tell whether an operation is a load that must be done each time it stands there: memory may
    change meanwhile, says the program by `volatile` or by the cache operator "fetch again".
    """
    if not isinstance(operation, tile.Load):
        return False
    marked = operation.volatile is not None and bool(operation.volatile)
    return marked or (operation.cache is not None and operation.cache.data in (".cv", "cv"))


def has_effect(operation: Operation) -> bool:
    """Tell whether an operation, or one inside it, does more than give values.

    A read of memory alone is no effect: it may be dropped, and repeated where nothing writes.
    """
    match operation:
        case _ if marked_pure(operation):
            return False
        case tile.Load():
            return is_volatile(operation)
        case tile.DescLoad():
            return False
        case scf.ForOp() | scf.IfOp() | scf.WhileOp():
            return any(has_effect(inner) for inner in children(operation))
        case _:
            return not is_terminator(operation)


def is_pure(operation: Operation) -> bool:
    """Tell whether an operation gives the same values wherever and as often as it stands."""
    match operation:
        case _ if marked_pure(operation) or is_terminator(operation):
            return True
        case scf.ForOp() | scf.IfOp() | scf.WhileOp():
            return all(is_pure(inner) for inner in children(operation))
        case _:
            return False


def orders_others(operation: Operation) -> bool:
    """Tell whether other programs may have written memory when this operation is done.

    Atomics with acquire order, volatile loads and inline PTX that clobbers "memory": what stands
    after them must stay after them.
    """
    match operation:
        case tile.Atomic() | tile.CompareExchange():
            return operation.order.data != "relaxed"
        case tile.AsmEffect():
            return clobbers(operation)
        case _:
            return is_volatile(operation)


def releases(operation: Operation) -> bool:
    """Tell whether an operation publishes what its program wrote before, as an atomic's release
    does, or inline PTX that clobbers "memory" may.
    """
    match operation:
        case tile.Atomic() | tile.CompareExchange():
            return operation.order.data in ("release", "acq_rel")
        case tile.AsmEffect():
            return clobbers(operation)
        case _:
            return False


def clobbers(operation: tile.AsmEffect) -> bool:
    """Tell whether inline PTX says that it has to do with memory that it is not given."""
    return "memory" in operation.constraints.data


def accessed(operation: Operation) -> SSAValue:
    """Return the pointer or descriptor a memory operation goes through."""
    match operation:
        case tile.Load() | tile.Store() | tile.Atomic() | tile.CompareExchange():
            return operation.pointer
        case tile.DescLoad() | tile.DescStore() | tile.DescAtomic():
            return operation.desc
        case _:
            raise TypeError(f"{operation.name} does not go to memory")


def children(operation: Operation) -> Iterator[Operation]:
    """Give the operations directly inside the regions of one operation."""
    for region in operation.regions:
        for block in region.blocks:
            yield from block.ops


def enclosing(operation: Operation, within: Block | None = None) -> Iterator[Operation]:
    """Give the control operations around an operation, innermost first, up to block `within`."""
    block = operation.parent
    while block is not None and block is not within:
        parent = block.parent_op()
        if parent is None:
            return
        if isinstance(parent, CONTROL):
            yield parent
        block = parent.parent


def enclosing_loops(operation: Operation) -> list[Operation]:
    """Return the loops around an operation, innermost first."""
    return [op for op in enclosing(operation) if isinstance(op, (scf.ForOp, scf.WhileOp))]
