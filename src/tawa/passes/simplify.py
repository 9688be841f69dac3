"""Purpose: compute what is known now, once: constants, repeated values, branches that are decided.

Before -> after::

    %one = tile.constant 1                       scf.for %k = .. {
    scf.for %k = .. {                              %a = tile.desc_load %d[%m, %k]
      %m1 = tile.elementwise "mul"(%m, %one)  ->   %b = tile.desc_load %e[%m, %k]
      %a = tile.desc_load %d[%m1, %k]            }
      %m2 = tile.elementwise "mul"(%one, %m)
      %b = tile.desc_load %e[%m2, %k]
    }

Requires: tile IR. Ensures: the same effects in the same order; no two pure statements of one scope
are equal, nor two loads of a block with no write between; no condition is asked again under itself;
what both sides of a branch hand on is computed before it, without what one of them promises;
scalars, descriptors and pointers that do not change in a loop are computed before it, and blocks of
memory that nothing in the loop writes are read before it; no dead statement; views stand where they
are first used; the names of statements (`tawa.analysis.statements`) are different.
Declines: never.

Purpose: a kernel with `breakpoint()` compiles as if that were not there, and says so.

Before -> after::

    tile.breakpoint "f" ["x"] (%x) : i32      ->      (nothing)

The oracle (`tawa.simulate(..., level="tile")`) runs the tile IR from before this pass: it stops.
A launch of what was compiled warns. Requires: tile IR. Ensures: no breakpoint. Declines: to stop
what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from xdsl.dialects import scf
from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.contiguity import HINTS
from tawa.analysis.polynomial import trip_count
from tawa.analysis.ranges import range_of
from tawa.analysis.statements import (
    CONTROL,
    VIEWS,
    WRITES,
    has_effect,
    name_statements,
    orders_others,
)
from tawa.ir import line_of, tile
from tawa.ir.functions import FUNCTIONS
from tawa.ir.types import shape_of
from tawa.ir.walk import (
    all_of,
    around,
    is_terminator,
    marked_pure,
    move_before,
    operations_of,
    terminator,
    walk,
)
from tawa.passes.dead import sweep
from tawa.passes.fold import constant, fold, integer_of
from tawa.passes.lower.emit import erase
from tawa.plan.plan import BREAKPOINT, Declined, Plan
from tawa.target import Target

# A conjunction that holds says so of its parts, a disjunction that does not says that of its.
_FOLLOWS = {True: "and", False: "or"}
_EQUAL = {True: "eq", False: "ne"}

_Key = tuple[object, ...]
_Scope = dict[_Key, Operation]
_NONE: Mapping[SSAValue, SSAValue] = MappingProxyType({})


def simplify(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Fold, share, hoist and drop."""
    simplify_kernel(kernel)
    return ()


def simplify_kernel(kernel: tile.Kernel) -> None:
    """Simplify before there is a plan."""
    sweep(kernel.body.block, has_effect)
    _simplify_block(kernel.body.block, [])
    sweep(kernel.body.block, has_effect)
    _sink_views(kernel.body.block)
    name_statements(kernel)


def _simplify_block(block: Block, scopes: list[_Scope]) -> None:
    """Walk a block once in order: definitions come before uses, so one walk sees all folds."""
    scopes = [*scopes, {}]
    operation = block.first_op
    while operation is not None:
        following = operation.next_op
        if isinstance(operation, CONTROL):
            following = _simplify_control(operation, scopes) or following
        elif isinstance(operation, tile.DescLoad):
            _hoist(operation, _is_quiet)
            if (equal := _loaded_before(operation)) is not None:
                _replace(operation, [equal.result])
        elif isinstance(operation, tile.Assert) and integer_of(operation.condition) == 1:
            erase(operation)
        elif not is_terminator(operation) and marked_pure(operation):
            _simplify_pure(operation, scopes)
        operation = following


def _simplify_pure(operation: Operation, scopes: list[_Scope]) -> None:
    if not any(shape_of(result.type) for result in operation.results):
        # Tensors stay where they are used: hoisted they would occupy registers through the loop.
        _hoist(operation)

    def emit(new: Operation) -> SSAValue:
        new.location = operation.location
        home_block = operation.parent
        assert home_block is not None, "a statement that is folded stands in a block"
        home_block.insert_op_before(new, operation)
        return _share(new, scopes).results[0]

    if (value := fold(operation, emit)) is not None:
        _replace(operation, [value])
        return
    _share(operation, scopes)


def _share(operation: Operation, scopes: list[_Scope]) -> Operation:
    """Return the statement that stands for `operation` from here on: an equal earlier one or it."""
    if operation.regions:
        return operation
    key = _key(operation)
    for scope in scopes:
        if (equal := scope.get(key)) is not None:
            _replace(operation, list(equal.results))
            return equal
    scopes[_depth(operation, scopes)][key] = operation
    return operation


def _depth(operation: Operation, scopes: list[_Scope]) -> int:
    """Return the index of the scope an operation stands in: how many blocks are around it."""
    return min(len(list(around(operation))), len(scopes)) - 1


def _key(
    operation: Operation, without: Sequence[str] = (), equal: Mapping[SSAValue, SSAValue] = _NONE
) -> _Key:
    operands = [equal.get(operand, operand) for operand in operation.operands]
    if isinstance(operation, tile.Elementwise) and FUNCTIONS[operation.function.data].commutative:
        operands.sort(key=id)
    attributes = {**operation.attributes, **operation.properties}
    for name in ("label", *without):
        attributes.pop(name, None)
    return (
        operation.name,
        tuple(id(operand) for operand in operands),
        tuple(sorted(attributes.items())),
        tuple(operation.result_types),
    )


def _replace(operation: Operation, values: list[SSAValue]) -> None:
    for result, value in zip(operation.results, values, strict=True):
        if result.type != value.type:
            raise TypeError(f"{operation.name} of type {result.type} folded to {value.type}")
        result.replace_all_uses_with(value)
    erase(operation)


# --- loops and branches -------------------------------------------------------------------------


def _hoist(operation: Operation, allowed: Callable[[Operation], bool] = lambda _: True) -> None:
    """Move a statement out of the `allowed` loops in which it does not change."""
    while (loop := _loop_around(operation)) is not None:
        made_there = any(loop.is_ancestor(operand.owner) for operand in operation.operands)
        if made_there or not allowed(loop):
            return
        move_before(operation, loop)


def _loaded_before(load: tile.DescLoad) -> tile.DescLoad | None:
    """Return an equal load of the same block after which nothing has written memory."""
    key, earlier = _key(load), load.prev_op
    while earlier is not None and not _writes(earlier):
        if isinstance(earlier, tile.DescLoad) and _key(earlier) == key:
            return earlier
        earlier = earlier.prev_op
    return None


def _writes(operation: Operation) -> bool:
    """Tell whether an operation writes memory, as inline PTX may, or waits for others that do."""
    kinds = (*WRITES, tile.AsmEffect)
    return any(isinstance(op, kinds) or orders_others(op) for op in walk(operation))


def _is_quiet(loop: Operation) -> bool:
    """Tell whether nothing in a loop writes memory or waits for others that do.

    A block read through a descriptor may then be read before the loop, even if that never runs:
    no address is out of bounds for a descriptor. `tl.range(disable_licm=True)` forbids it. In the
    only iteration of a loop it is read as often, and stays where its product finds it.
    """
    if loop.attributes.get("disable_licm") == BoolAttr.from_bool(True):
        return False
    if isinstance(loop, scf.ForOp) and trip_count(loop) == 1:
        return False
    return not _writes(loop)


def _loop_around(operation: Operation) -> Operation | None:
    parent = operation.parent_op()
    return parent if isinstance(parent, (scf.ForOp, scf.WhileOp)) else None


def _simplify_control(operation: Operation, scopes: list[_Scope]) -> Operation | None:
    """Simplify what is inside; return where to go on if the operation itself is gone."""
    match operation:
        case scf.IfOp() if (decided := integer_of(operation.cond)) is not None:
            blocks = operation.regions[0 if decided else 1].blocks
            return _open(operation, blocks[0] if blocks else None, [])
        case scf.ForOp() if _never_runs(operation):
            return _open(operation, None, operation.iter_args)
        case scf.ForOp():
            _drop_constant_carries(operation)
        case scf.IfOp():
            for region, truth in zip(operation.regions, (True, False)):
                if region.blocks:
                    _tell(region.block, operation.cond, truth)
        case _:
            pass
    for region in operation.regions:
        for block in region.blocks:
            _simplify_block(block, scopes)
    if isinstance(operation, scf.IfOp) and operation.results:
        _join_sides(operation, scopes)
    return None


def _join_sides(branch: scf.IfOp, scopes: list[_Scope]) -> None:
    """Compute before a branch what both of its sides hand on, without promises of one of them."""
    one, other = (region.block for region in branch.regions)
    first = {_key(made, HINTS): made for made in one.ops if _computes(made)}
    equal: dict[SSAValue, SSAValue] = {}  # to what the other side computes, by what the first does
    for made in other.ops:
        same = first.get(_key(made, HINTS, equal)) if _computes(made) else None
        if same is not None:
            equal[made.results[0]] = same.results[0]
    twins = {value: made for made, value in equal.items()}
    moved: dict[SSAValue, SSAValue] = {}

    def before(value: SSAValue) -> SSAValue:
        if value not in twins or value in moved:
            return moved.get(value, value)
        maker, twin, home = value.owner, twins[value].owner, branch.parent
        assert isinstance(maker, Operation), "statements of both sides are equal"
        assert home is not None, "a branch stands in a block"
        made = maker.clone()
        made.operands = [before(operand) for operand in maker.operands]
        for hint in HINTS:
            if isinstance(twin, Operation) and twin.attributes.get(hint) != made.attributes.get(
                hint
            ):
                made.attributes.pop(hint, None)
        made.location = maker.location
        home.insert_op_before(made, branch)
        moved[value] = _share(made, scopes).results[0]
        return moved[value]

    for result, value, twin in zip(
        branch.results, terminator(one).operands, terminator(other).operands
    ):
        if result.uses and equal.get(twin, twin) is value:
            result.replace_all_uses_with(before(value))


def _computes(operation: Operation) -> bool:
    pure = not is_terminator(operation) and marked_pure(operation)
    return pure and not operation.regions and len(operation.results) == 1


def _tell(block: Block, condition: SSAValue, truth: bool) -> None:
    """Put a condition's outcome, and what follows from it, in its place within a branch: a number
    where something is equal to one.
    """
    match condition.owner:
        case tile.Elementwise(function=name, inputs=parts) if name.data == "not":
            _tell(block, parts[0], not truth)
        case tile.Elementwise(function=name, inputs=parts) if name.data == _FOLLOWS[truth]:
            for part in parts:
                _tell(block, part, truth)
        case tile.Elementwise(function=name, inputs=(value, number)) if name.data == _EQUAL[truth]:
            if (known := integer_of(number)) is not None:
                _put(block, value, known)
        case tile.Constant():
            return
        case _:
            pass
    _put(block, condition, int(truth))


def _put(block: Block, value: SSAValue, number: int) -> None:
    """Put a number in the place of a value within a block."""
    inside = [use for use in value.uses if block.is_ancestor(use.operation)]
    if inside:
        known = constant(number, value.type)
        block.insert_ops_before([known], _first(block))
        for use in inside:
            use.operation.operands[use.index] = known.result


def _first(block: Block) -> Operation:
    assert block.first_op is not None, "a branch ends with a terminator"
    return block.first_op


def _sink_views(block: Block) -> None:
    """Let a view of a tile stand before its first use: it costs nothing, and what stands between
    the load and the use may then move past.
    """
    for operation in reversed(operations_of(block)):
        for region in operation.regions:
            for inner in region.blocks:
                _sink_views(inner)
        if not isinstance(operation, VIEWS):
            continue
        users = {block.find_ancestor_op_in_block(use.operation) for use in operation.result.uses}
        following = operation.next_op
        while following is not None and following not in users:
            following = following.next_op
        if following is not None and following is not operation.next_op:
            move_before(operation, following)


def _never_runs(loop: scf.ForOp) -> bool:
    """Tell whether a loop is known to make no iteration; of a step that may be negative it is
    not.
    """
    if (range_of(loop.step).low or 0) < 1:
        return False
    first, end = integer_of(loop.lb), integer_of(loop.ub)
    if first is None or end is None:
        return loop.ub in _extreme_of(loop.lb, "max") or loop.lb in _extreme_of(loop.ub, "min")
    return first >= end


def _extreme_of(value: SSAValue, function: str) -> tuple[SSAValue, ...]:
    """Return what a value is the greatest ("max") or the least ("min") of, itself included."""
    match value.owner:
        case tile.Elementwise(function=name, inputs=parts) if name.data == function:
            return (value, *parts)
        case _:
            return (value,)


def _open(control: Operation, body: Block | None, values: Sequence[SSAValue]) -> Operation | None:
    """Put the side of a branch that is taken in its place; without one `values` for the results.
    Return the first statement to go on with.
    """
    block, first = control.parent, None
    assert block is not None, "control flow stands in a block"
    after = control.next_op
    if body is not None:
        end = terminator(body)
        values = list(end.operands)
        for inner in list(body.ops):
            inner.detach()
            if inner is end:
                continue
            first = first or inner
            block.insert_op_before(inner, control)
        end.erase()
    _replace(control, list(values))
    return first or after


def _drop_constant_carries(loop: scf.ForOp) -> None:
    """A carried value that each iteration hands on unchanged is its initial value; so is one in the
    only iteration of a loop, where nothing after the loop reads it.
    """
    body = loop.body.block
    end, once = terminator(body), trip_count(loop) == 1
    for index, argument in enumerate(body.args[1:]):
        if end.operands[index] is argument or (once and not loop.results[index].uses):
            argument.replace_all_uses_with(loop.iter_args[index])
            end.operands[index] = loop.iter_args[index]
            loop.results[index].replace_all_uses_with(loop.iter_args[index])


# --- breakpoints ----------------------------------------------------------------------------------


_ORACLE = 'it stops the oracle alone, tawa.simulate(kernel, ..., level="tile")'


def drop_breakpoints(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Remove each `breakpoint()`."""
    points = tuple(all_of(kernel, tile.Breakpoint))
    for point in points:
        erase(point)
    return tuple(Declined(BREAKPOINT, f"line {line_of(point)}: {_ORACLE}") for point in points)
