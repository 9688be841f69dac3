"""Statements: what they do, and what they are called.

What a statement does besides giving values: memory it reads or writes, order it demands.

The one table of effects. A statement without effect may be repeated, moved or dropped; a statement
with effect stands in exactly one role, in program order.

Names of statements, by which plans and pins speak of them: the attribute `label`.

Who builds tile IR may give any (`tawa.ir.build`). A statement that has none is named in the words
of its source: the variable that it defines and its line. `a@12` is a load or a dot, `for k@10` a
loop, `c_desc@16` a store through `c_desc`; `if@9` a branch, which messages name and no plan does.
Where a helper function is called twice on one line, or a statement has no line, a number keeps
names apart. The attribute stands in the text of the IR, and copies of a statement in several roles
share it.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tawa.ir import LABEL, hopper, line_of, tile
from tawa.ir.walk import around, is_terminator, marked_pure, walk

WRITES = (tile.Store, tile.DescStore, tile.DescAtomic, tile.Atomic, tile.CompareExchange)
READS = (tile.Load, tile.DescLoad)
ATOMICS = (tile.Atomic, tile.CompareExchange)
CONTROL = (scf.ForOp, scf.IfOp, scf.WhileOp)
VIEWS = (tile.Transpose, tile.Reshape, tile.ExpandDims)
"""Operations that name the same elements again: in shared memory they cost nothing."""


def views_of(value: SSAValue, kinds: tuple[type, ...] = VIEWS) -> Iterator[SSAValue]:
    """Give a tile and what names its elements again."""
    yield value
    for use in value.uses:
        if isinstance(use.operation, kinds):
            yield from views_of(use.operation.results[0], kinds)


def readers(value: SSAValue, kinds: tuple[type, ...] = VIEWS) -> list[Operation]:
    """Return the statements that read a tile, and those that name its elements again."""
    return [use.operation for view in views_of(value, kinds) for use in view.uses]


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
    for parent in around(operation):
        if operation.parent is within:
            return
        if isinstance(parent, CONTROL):
            yield parent
        operation = parent


def enclosing_loops(operation: Operation) -> list[Operation]:
    """Return the loops around an operation, innermost first."""
    return [op for op in enclosing(operation) if isinstance(op, (scf.ForOp, scf.WhileOp))]


# --- names of statements --------------------------------------------------------------------------


NEXT_PROGRAM = "next_program"
"""The name of the ring through which the producer tells who computes which tile it has taken."""


def _hint(value: SSAValue) -> str:
    """Return a value's variable, or that of the pointer or descriptor it is computed from."""
    while value.name_hint is None and isinstance(value, OpResult) and value.owner.operands:
        value = value.owner.operands[0]
    return value.name_hint or "v"


_NAMED = frozenset({*READS, *WRITES, tile.Dot, scf.ForOp, scf.WhileOp, hopper.NextProgram})


def is_named(operation: Operation) -> bool:
    """Tell whether a plan may speak of this operation."""
    return type(operation) in _NAMED


def _base_name(operation: Operation) -> str:
    line = line_of(operation)
    at = f"@{line}" if line else ""
    match operation:
        case scf.ForOp():
            return f"for {_hint(operation.body.block.args[0])}{at}"
        case scf.WhileOp():
            return f"while{at}"
        case scf.IfOp():
            return f"if{at}"
        case tile.Store() | tile.DescStore() | tile.DescAtomic():
            return f"{_hint(accessed(operation))}{at}"
        case hopper.NextProgram():
            return NEXT_PROGRAM
        case _ if operation.results:
            return f"{_hint(operation.results[0])}{at}"
        case _:
            raise TypeError(f"{operation.name} has no name in a plan")


def name_of(operation: Operation) -> str:
    """Return the name of a store, a loop, a branch, or what gives a value."""
    match operation.attributes.get(LABEL):
        case StringAttr() as label:
            return label.data
        case _:
            return _base_name(operation)


def inherit_name(new: Operation, old: Operation) -> None:
    """Give a statement the name of the one that it stands for, if who wrote that named it.

    A name by variable and line is made anew: the variable may be another one now.
    """
    label = old.attributes.get(LABEL)
    if isinstance(label, StringAttr) and label.data.split("#")[0] != _base_name(old):
        new.attributes[LABEL] = label


def name_statements(kernel: tile.Kernel) -> dict[str, Operation]:
    """Make all names of a kernel different and return the statement of each.

    Repeated calls change nothing: a name once given stays.
    """
    statements: dict[str, Operation] = {}
    for operation in walk(kernel):
        if not is_named(operation):
            continue
        name = base = name_of(operation)
        count = 1
        while name in statements:
            count += 1
            name = f"{base}#{count}"
        operation.attributes[LABEL] = StringAttr(name)
        statements[name] = operation
    return statements
