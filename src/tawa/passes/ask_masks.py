"""Purpose: hide elements of a product only in the tiles that have any to hide.

Before -> after, in a loop (a causal mask over scores)::

    %s = tile.dot ..                          %s = tile.dot ..
    %m = "ge"(%rows, %columns)                %whole = "ge"(%first_row, %last_column)    scalars
    %t = "select"(%m, %s, %hidden)     ->     %t = scf.if %whole {
                                                scf.yield %s
                                              } else {
                                                %m = "ge"(%rows, %columns)
                                                scf.yield "select"(%m, %s, %hidden)
                                              }

The condition is a few scalar instructions, the mask a comparison and a selection of every element.
Selections on top of one another are asked about once.
Requires: tile IR. Ensures: the same values, bit for bit: the other side is taken only where the
mask is the same in the whole tile (`tawa.analysis.masks`). Declines when: nothing is known of the
mask, it is asked outside a loop, what it hides does not come from a product of the loop, or the
tile is small (a branch costs more than it saves).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from tawa.analysis.masks import Condition, Either, Every, Holds, NotNegative, uniform_when
from tawa.analysis.polynomial import Polynomial, Trip
from tawa.analysis.stages import comes_from_product
from tawa.ir import tile
from tawa.ir.types import element_type, i1, i64, is_float, shape_of
from tawa.passes.lower.emit import Emitter
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_SMALLEST = 2048
"""Elements of a tile worth a branch: sixteen a thread of a warpgroup."""


@dataclass(frozen=True, slots=True)
class _Hiding:
    """Selections on top of one another: from `shown` to the result of `last`."""

    shown: SSAValue
    last: tile.Elementwise
    whole: Condition


def ask_masks(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Put selections under the question whether they select anything."""
    for operation in list(kernel.walk(reverse=True)):
        if operation.parent is not None and (found := _find(operation)) is not None:
            _ask(found)
    return ()


def _find(operation: Operation) -> _Hiding | None:
    """Return the selections that end with `operation`, if asking about them pays."""
    block = operation.parent
    assert block is not None, "an operation of a kernel stands in a block"
    if not isinstance(block.parent_op(), scf.ForOp):
        return None
    conditions: list[Condition] = []
    current = operation
    shown: SSAValue | None = None
    while (step := _step(current, block)) is not None:
        shown, condition = step
        conditions.append(condition)
        if not isinstance(shown, OpResult) or not shown.has_one_use():
            break
        current = shown.owner
    if shown is None or not isinstance(operation, tile.Elementwise):
        return None
    source = shown.owner
    if not isinstance(source, Operation) or source.parent is not block:
        return None
    shape = shape_of(shown.type)
    if not isinstance(source, tile.Dot) and not comes_from_product(source, block, shape):
        return None
    return _Hiding(shown, operation, Every(tuple(reversed(conditions))))


def _step(operation: Operation, block: Block) -> tuple[SSAValue, Condition] | None:
    """Return what one selection shows where its mask is the same everywhere, and when that is."""
    if not isinstance(operation, tile.Elementwise) or operation.function.data != "select":
        return None
    shape = shape_of(operation.result.type)
    size = 1
    for extent in shape:
        size *= extent
    kind = element_type(operation.result.type)
    if operation.parent is not block or size < _SMALLEST or not is_float(kind):
        return None
    mask, first, second = operation.inputs
    for shown, truth in ((first, True), (second, False)):
        if _is_computed(shown) and (known := uniform_when(mask, truth)) is not None:
            return shown, known
    return None


def _is_computed(value: SSAValue) -> bool:
    """Tell whether a tile is more than one number repeated."""
    return not isinstance(value.owner, tile.Constant | tile.Splat | Block)


def _ask(found: _Hiding) -> None:
    emitter = Emitter.before(found.last)
    whole = _emit(emitter, found.whole)
    hidden = Block()
    branch = scf.IfOp(
        whole,
        [found.last.result.type],
        Region(Block([scf.YieldOp(found.shown)])),
        Region(hidden),
    )
    branch.location = found.last.location
    branch.results[0].name_hint = found.last.result.name_hint
    emitter.put(branch)
    found.last.result.replace_all_uses_with(branch.results[0])
    end = scf.YieldOp(found.last.result)
    hidden.add_op(end)
    _sink(found.last, branch)


def _sink(operation: Operation, branch: scf.IfOp) -> None:
    """Move a statement to the start of the branch, and what then nothing outside needs."""
    home = branch.false_region.block
    first = home.first_op
    assert first is not None, "the branch ends in its yield"
    operation.detach()
    home.insert_op_before(operation, first)
    for value in list(operation.operands):
        source = value.owner
        if not isinstance(source, _PURE) or source.parent is not branch.parent:
            continue
        if all(use.operation.parent is home for use in value.uses):
            _sink(source, branch)


_PURE = (
    *(tile.Constant, tile.Arange, tile.Splat, tile.ExpandDims, tile.Broadcast, tile.Reshape),
    *(tile.Transpose, tile.Elementwise, tile.Cast),
)


def _emit(emitter: Emitter, condition: Condition) -> SSAValue:
    """Compute a condition before an operation."""
    match condition:
        case Holds(value, truth):
            return value if truth else emitter.apply("xor", value, emitter.constant(1, i1))
        case NotNegative(form):
            zero = emitter.constant(0, i64)
            return emitter.apply("ge", _sum(emitter, form), zero)
        case Every(parts) | Either(parts):
            function = "and" if isinstance(condition, Every) else "or"
            total, *rest = (_emit(emitter, part) for part in parts)
            for value in rest:
                total = emitter.apply(function, total, value)
            return total


def _sum(emitter: Emitter, form: Polynomial) -> SSAValue:
    """Compute a polynomial of values in 64 bits, where nothing overflows."""
    total = emitter.constant(form.terms.get((), 0), i64)
    for monomial, number in form.terms.items():
        product: SSAValue | None = None
        for atom in monomial:
            assert not isinstance(atom, Trip), "what loops count is a value here"
            factor = emitter.cast(atom.value, i64)
            product = factor if product is None else emitter.apply("mul", product, factor)
        if product is not None:
            if number != 1:
                product = emitter.apply("mul", product, emitter.constant(number, i64))
            total = emitter.apply("add", total, product)
    return total
