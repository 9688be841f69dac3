"""Names of statements, by which plans and pins speak of them: the attribute `label`.

Who builds tile IR may give any (`tawa.ir.build`). A statement that has none is named in the words
of its source: the variable that it defines and its line. `a@12` is a load or a dot, `for k@10` a
loop, `c_desc@16` a store through `c_desc`; `if@9` a branch, which messages name and no plan does.
Where a helper function is called twice on one line, or a statement has no line, a number keeps
names apart. The attribute stands in the text of the IR, and copies of a statement in several roles
share it.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, OpResult, SSAValue

from tawa.analysis.effects import READS, WRITES, accessed
from tawa.ir import LABEL, hopper, line_of, tile
from tawa.ir.walk import walk

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
