"""What a set of statements needs: operands, control around them, values carried round loops.

The one backward walk of the compiler. Dead-code elimination keeps what effects need; the partition
into roles asks what the loads of the producer need.

Which tensors are other names of one tensor's registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.statements import CONTROL, children
from tawa.ir import hopper, tile
from tawa.ir.types import LayoutAttr, layout_of
from tawa.ir.walk import decisive, is_terminator, operations_of, passed_on, reach
from tawa.layouts.convert import register_map

Keep = Callable[[Operation], bool]


class Liveness:
    """The statements and values reached from the roots.

    A control operation is reached through what is inside it; of the values it carries or gives,
    only those that are needed. The operands of `stops` are not followed.
    """

    def __init__(self, stops: frozenset[Operation] = frozenset()) -> None:
        self._stops = stops
        self.operations: set[Operation] = set()
        self.values: set[SSAValue] = set()
        self._pending: list[SSAValue] = []

    def mark_roots(self, block: Block, keep: Keep) -> None:
        """Make roots of the statements of a block that `keep` chooses, nested ones included."""
        for operation in operations_of(block):
            if operation.regions and type(operation) in CONTROL:
                for region in operation.regions:
                    for inner in region.blocks:
                        self.mark_roots(inner, keep)
            elif not is_terminator(operation) and keep(operation):
                self.need(operation)

    def close(self) -> None:
        """Follow all that is wanted back to where it comes from."""
        while self._pending:
            self._follow(self._pending.pop())

    def want(self, *values: SSAValue) -> None:
        """Values are needed."""
        for value in values:
            if value not in self.values:
                self.values.add(value)
                self._pending.append(value)

    def need(self, operation: Operation) -> None:
        """A statement is needed: with it what decides whether it runs, and its operands."""
        if operation in self.operations:
            return
        self.operations.add(operation)
        match operation:
            case _ if not operation.regions:
                if operation not in self._stops:
                    self.want(*operation._operands)  # pyright: ignore[reportPrivateUsage]
            case scf.ForOp() | scf.IfOp() | scf.WhileOp():
                self.want(*decisive(operation))
            case _ if operation in self._stops:
                pass
            case _:
                self.want(*operation.operands)
                for inner in children(operation):
                    self.need(inner)
        parent = operation.parent_op()
        if parent is not None and type(parent) in CONTROL:
            self.need(parent)

    def _follow(self, value: SSAValue) -> None:
        home = value.owner
        control = home.parent_op() if isinstance(home, Block) else home
        if control is not None and type(control) in CONTROL:
            self.need(control)
            self.want(*passed_on(value), *_beside(value, control))
        elif not isinstance(home, Block):  # else an argument of the kernel, a role or a reduction
            self.need(home)


def _beside(value: SSAValue, control: Operation) -> list[SSAValue]:
    """Return the result under which a loop gives what it carries as an argument of its body, or of
    a `while` loop's result that argument: both are kept or none.
    """
    match value, control:
        case BlockArgument(index=index), scf.ForOp() if index:
            return [control.results[index - 1]]
        case BlockArgument(index=index), scf.WhileOp() if value.owner is control.after_region.block:
            return [control.results[index]]
        case OpResult(index=index), scf.WhileOp():
            return [control.after_region.block.args[index]]
        case _:
            return []


def needed_by(*statements: Operation) -> set[Operation]:
    """Return the statements that must run so that `statements` can, themselves included."""
    live = Liveness()
    for statement in statements:
        live.need(statement)
    live.close()
    return live.operations


# --- names of the same registers ------------------------------------------------------------------


_VIEWS = (tile.ExpandDims, tile.Broadcast, tile.Transpose, tile.Reshape, hopper.Columns)


def renames(operation: Operation) -> bool:
    """Tell whether the result of an operation is its operand's registers, otherwise numbered.

    Layouts are chosen; code generation writes nothing for such an operation.
    """
    if isinstance(operation, hopper.ConvertLayout):
        have, wanted = operation.value.type, operation.result.type
        return register_map(layout_of(have), layout_of(wanted)) is not None
    return isinstance(operation, _VIEWS) and _is_held(operation.operands[0])


def _is_held(value: SSAValue) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr)


def all_names(value: SSAValue) -> Iterable[SSAValue]:
    """Return all names of the registers that a tensor names."""
    *_, first = names_of(value)
    return reach(
        (first,),
        lambda name: [use.operation.results[0] for use in name.uses if renames(use.operation)],
    )


def names_of(value: SSAValue) -> Iterator[SSAValue]:
    """Yield a tensor and those whose registers it names, down to the one that has them."""
    yield value
    while isinstance(value.owner, Operation) and renames(value.owner):
        value = value.owner.operands[0]
        yield value
