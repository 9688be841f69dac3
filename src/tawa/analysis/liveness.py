"""What a set of statements needs: operands, control around them, values carried round loops.

The one backward walk of the compiler. Dead-code elimination keeps what effects need; the partition
into roles asks what the loads of the producer need.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.effects import CONTROL, children
from tawa.ir.control import terminator, yielded
from tawa.ir.walk import is_terminator, operations_of

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
            case scf.ForOp():
                self.want(operation.lb, operation.ub, operation.step)
            case scf.IfOp():
                self.want(operation.cond)
            case scf.WhileOp():
                self.want(_condition(operation).operands[0])
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
        match value:
            case OpResult(op=owner) if not owner.regions:
                self.need(owner)
            case OpResult(owner=scf.ForOp() as loop):
                self._carry(loop, value.index)
            case OpResult(owner=scf.IfOp() as branch):
                self.need(branch)
                for region in branch.regions:
                    self.want(yielded(region.block, value.index))
            case OpResult(owner=scf.WhileOp() as loop):
                self._pass_on(loop, value.index)
            case OpResult():
                self.need(value.owner)
            case BlockArgument():
                self._follow_argument(value)
            case _:
                raise TypeError(f"cannot follow {value}")

    def _follow_argument(self, value: BlockArgument) -> None:
        match value.owner.parent_op():
            case scf.ForOp() as loop if value.index == 0:
                self.need(loop)
            case scf.ForOp() as loop:
                self._carry(loop, value.index - 1)
            case scf.WhileOp() as loop if value.owner is loop.after_region.block:
                self._pass_on(loop, value.index)
            case scf.WhileOp() as loop:
                self.need(loop)
                end = terminator(loop.after_region.block)
                self.want(loop.arguments[value.index], end.operands[value.index])
            case _:
                pass  # an argument of the kernel, a role or a reduction

    def _carry(self, loop: scf.ForOp, index: int) -> None:
        self.need(loop)
        body = loop.body.block
        self.want(
            loop.results[index],
            body.args[index + 1],
            loop.iter_args[index],
            yielded(body, index),
        )

    def _pass_on(self, loop: scf.WhileOp, index: int) -> None:
        self.need(loop)
        self.want(
            loop.results[index],
            loop.after_region.block.args[index],
            _condition(loop).operands[index + 1],
        )


def _condition(loop: scf.WhileOp) -> Operation:
    return terminator(loop.before_region.block)


def needed_by(*statements: Operation) -> set[Operation]:
    """Return the statements that must run so that `statements` can, themselves included."""
    live = Liveness()
    for statement in statements:
        live.need(statement)
    live.close()
    return live.operations
