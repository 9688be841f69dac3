"""Looking through IR: all that is inside, what is of a kind, and traits.

What xDSL's own `walk` and `has_trait` give, in a fifth of the time: passes look at everything many
times. The operations of our dialects have no subclasses, so a kind is a type.

What everybody asks of structured control flow (`scf`): how a block ends, and what decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cache
from typing import TypeAlias, TypeVar

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.traits import IsTerminator, OpTrait, Pure

Holder: TypeAlias = Operation | Block | Region
Kind = TypeVar("Kind", bound=Operation)
Node = TypeVar("Node", bound=Hashable)


def walk(top: Holder) -> list[Operation]:
    """Return all operations in `top`, and an operation itself, each before what is inside it.

    The list is of now: what is changed afterwards does not change it.
    """
    found: list[Operation] = []
    if isinstance(top, Operation):
        found.append(top)
        _add_regions(top, found)
    elif isinstance(top, Block):
        _add(top, found)
    else:
        for block in top.blocks:
            _add(block, found)
    return found


def _add(block: Block, found: list[Operation]) -> None:
    operation = block.first_op
    while operation is not None:
        found.append(operation)
        if operation.regions:
            _add_regions(operation, found)
        operation = operation._next_op  # pyright: ignore[reportPrivateUsage]  # twice as fast


def _add_regions(operation: Operation, found: list[Operation]) -> None:
    for region in operation.regions:
        for block in region.blocks:
            _add(block, found)


def operations_of(block: Block) -> list[Operation]:
    """Return the operations of a block: the list of its `ops`, which counts them first."""
    found: list[Operation] = []
    operation = block.first_op
    while operation is not None:
        found.append(operation)
        operation = operation._next_op  # pyright: ignore[reportPrivateUsage]
    return found


def all_of(top: Holder, *kinds: type[Kind]) -> list[Kind]:
    """Return the operations of `walk` that are of one of `kinds`."""
    return [operation for operation in walk(top) if type(operation) in kinds]  # pyright: ignore[reportReturnType]


def has(top: Holder, *kinds: type[Operation]) -> bool:
    """Tell whether an operation of one of `kinds` is among those of `walk`."""
    return any(type(operation) in kinds for operation in walk(top))


def reach(start: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> dict[Node, None]:
    """Return what is reached from `start`, that included, each once; what was met last is followed
    first.
    """
    found: dict[Node, None] = {}
    pending = list(start)
    while pending:
        each = pending.pop()
        if each not in found:
            found[each] = None
            pending.extend(following(each))
    return found


def move_before(operation: Operation, anchor: Operation) -> None:
    """Take an operation from where it stands to right before another."""
    operation.detach()
    home_of(anchor).insert_op_before(operation, anchor)


def is_inside(value: SSAValue, operation: Operation) -> bool:
    """Tell whether a value is made within the regions of an operation."""
    return operation in around(value.owner)


def around(inner: Operation | Block) -> Iterator[Operation]:
    """Yield the operations around a block or another operation, the inmost first."""
    while (operation := inner.parent_op()) is not None:
        yield operation
        inner = operation


def home_of(operation: Operation) -> Block:
    """Return the block that an operation stands in."""
    block = operation.parent
    assert block is not None, "a statement stands in a block"
    return block


def is_terminator(operation: Operation) -> bool:
    """Tell whether an operation ends its block."""
    return _has_trait(type(operation), IsTerminator)


def marked_pure(operation: Operation) -> bool:
    """Tell whether an operation is marked as without any effect."""
    return _has_trait(type(operation), Pure)


@cache
def _has_trait(kind: type[Operation], trait: type[OpTrait]) -> bool:
    return kind.has_trait(trait)


# --- structured control flow ----------------------------------------------------------------------


def terminator(block: Block) -> Operation:
    """Return the operation that ends a block of `scf`, a kernel or a body."""
    last = block.last_op
    assert last is not None, "a block ends with its terminator"
    return last


def yielded(block: Block, index: int) -> SSAValue:
    """Return what the end of a block of `scf` hands on at `index`."""
    return terminator(block).operands[index]


def passed_on(value: SSAValue) -> list[SSAValue]:
    """Return the values that control flow hands on under a name: of a loop's argument its start and
    what an iteration hands on, of a condition's result both sides; none where a value is made.
    """
    if isinstance(value, BlockArgument):
        loop, place = value.block.parent_op(), value.index
        match loop:
            case scf.ForOp() if place:
                return [loop.iter_args[place - 1], yielded(value.block, place - 1)]
            case scf.WhileOp() if value.block is loop.before_region.block:
                return [loop.arguments[place], yielded(loop.after_region.block, place)]
            case scf.WhileOp():
                return [yielded(loop.before_region.block, place + 1)]
            case _:
                return []
    match value:
        case OpResult(op=scf.IfOp() as branch, index=place):
            return [yielded(region.block, place) for region in branch.regions]
        case OpResult(op=scf.ForOp() as loop, index=place):
            return [loop.body.block.args[place + 1]]
        case OpResult(op=scf.WhileOp() as loop, index=place):
            return [yielded(loop.before_region.block, place + 1)]
        case _:
            return []


def handed_on(user: Operation, index: int) -> list[SSAValue]:
    """Return the values that operand `index` of control flow is from there on: what a loop starts
    from, or an iteration ends with, its argument and then its result, a side of a condition its
    result; none of what computes with the operand, or decides by it.
    """
    parent = user.parent_op()
    match user:
        case scf.ForOp() if index >= 3:
            return [user.body.block.args[index - 2], user.results[index - 3]]
        case scf.WhileOp():
            return [user.before_region.block.args[index]]
        case scf.ConditionOp() if index and isinstance(parent, scf.WhileOp):
            return [parent.after_region.block.args[index - 1], parent.results[index - 1]]
        case scf.YieldOp() if isinstance(parent, scf.ForOp):
            return [parent.body.block.args[index + 1], parent.results[index]]
        case scf.YieldOp() if isinstance(parent, scf.WhileOp):
            return [parent.before_region.block.args[index]]
        case scf.YieldOp() if isinstance(parent, scf.IfOp):
            return [parent.results[index]]
        case _:
            return []


def decisive(control: Operation) -> list[SSAValue]:
    """Return the scalars that decide what a loop or condition does; of others, none."""
    match control:
        case scf.ForOp():
            return [control.lb, control.ub, control.step]
        case scf.IfOp():
            return [control.cond]
        case scf.WhileOp():
            return [yielded(control.before_region.block, 0)]
        case _:
            return []
