"""Purpose: take the part of a sum that crosses lanes out of a loop.

Before -> after (a row sum carried by ``l = l * a + sum(p)``)::

    scf.for .. (%l = %l0) {                         scf.for .. (%w = %l0 beside zeros: [M, 4]) {
      %s = tile.reduce "add" %p axis 1                %s4 = "add" of %p as [M, N/8, 4, 2] reduced
      %m = "mul"(%l, %a)                     ->         over axes 3 and 1, within threads
      %l2 = "add"(%m, %s)                             %w2 = "add"("mul"(%w, %a of [M, 4]), %s4)
      scf.yield %l2                                   scf.yield %w2
    }                                               }
                                                    %l = tile.reduce "add" %w axis 1

A row of an accumulator lies over the 4 lanes of a quad, two neighbouring columns of each 8 a lane
(PTX ISA, wgmma accumulator fragment): with four sums a row no lane asks another within the loop.
The product of few rows is computed turned (``lower.swap``): its columns lie over the 8 quads of a
warp and the 4 warps, two of each 16 to a quad, and there are 32 sums a row; no warp asks another.
What is loaded beside a product lies as its reader likes: a thread adds up runs of 32 bytes, which
``lower.anchors`` gives to one thread, and lanes of one warp have the rest of a row.
Requires: tile IR. Ensures: the same sum in another order, as the recurrence is linear. Declines
when: the row is used otherwise in the loop, its columns are no multiple of 8, or what is summed
goes, computed, into a product as well (its fragments say where the columns lie, and differ from
product to product). Not run under ``strict``.

Let a product accumulate where its result is only added.

Purpose: `acc += tl.dot(a, b)`, the common spelling, costs no pass over the accumulator.
Before -> after:
    %p = tile.dot %a, %b, %zero               %sum = tile.dot %a, %b, %acc
    %sum = tile.elementwise "add"(%acc, %p)
Requires: tile IR. Ensures: the same sum in another order: acc + (p0 + p1 + ..) becomes
((acc + p0) + p1) + .., as Triton does.
Declines when: the product has another use, starts from something else than zero, or the types
differ. Not run under ``strict``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from tawa.analysis.stages import comes_from_product, defined_in
from tawa.ir import tile
from tawa.ir.types import element_type, shape_of, with_shape
from tawa.ir.walk import all_of, home_of, reach, terminator, walk, yielded
from tawa.passes.fold import constant_of
from tawa.passes.lower.emit import Emitter, append_operands, erase, widen_for
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_UPRIGHT = 64
"""Rows that wgmma takes; a product with others is turned where its columns are such."""
_RUN = 8
"""Columns of 32 bits that fill a sector of memory: what one thread adds up of a loaded row."""
_LANES = 32
_COMPUTED = (tile.Elementwise, tile.Cast)


@dataclass(frozen=True, slots=True)
class _Spread:
    """How columns lie over threads: extents slowest first, and which of them are threads'.

    The others are the elements of one thread.
    """

    extents: tuple[int, ...]
    threads: tuple[bool, ...]

    @property
    def lanes(self) -> int:
        return prod(extent for extent, apart in zip(self.extents, self.threads) if apart)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A carried row: its place among the carried values and the statements of its recurrence."""

    index: int
    total: tile.Elementwise
    scaled: tile.Elementwise | None
    reduce: tile.Reduce


def defer_sums(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Rewrite each row sum that a loop with products carries."""
    for loop in all_of(kernel, scf.ForOp):
        if not any(isinstance(op, tile.Dot) for op in loop.body.block.ops):
            continue
        current = loop
        for index in range(len(loop.iter_args)):
            if (found := _find(current, index)) is not None:
                current = _defer(current, found)
    return ()


def _find(loop: scf.ForOp, index: int) -> _Sum | None:
    block = loop.body.block
    argument, back = block.args[index + 1], yielded(block, index)
    if len(shape_of(argument.type)) != 1 or not isinstance(
        element_type(argument.type), Float32Type
    ):
        return None
    total = _lone(back, "add", block)
    if total is None or not argument.has_one_use():
        return None
    for kept, added in (tuple(total.inputs), tuple(reversed(total.inputs))):
        reduce = added.owner
        if not isinstance(reduce, tile.Reduce) or not _is_row_sum(reduce, block):
            continue
        if kept is argument:
            return _Sum(index, total, None, reduce)
        scaled = _lone(kept, "mul", block)
        if scaled is not None and argument in scaled.inputs:
            return _Sum(index, total, scaled, reduce)
    return None


def _lone(value: SSAValue, function: str, block: Block) -> tile.Elementwise | None:
    """Return the function of `block` that gives `value`, if nothing else uses it."""
    match value:
        case OpResult(owner=tile.Elementwise() as owner) if owner.parent is block:
            right = owner.function.data == function
            return owner if right and value.has_one_use() else None
        case _:
            return None


def _is_row_sum(reduce: tile.Reduce, block: Block) -> bool:
    """Tell whether a reduction adds up the columns of what a product of `block` gave."""
    shape = shape_of(reduce.inputs[0].type)
    if reduce.parent is not block or len(reduce.inputs) != 1 or not reduce.res[0].has_one_use():
        return False
    if len(shape) != 2 or reduce.axis.data != 1 or _spread_of(reduce, block) is None:
        return False
    match list(reduce.body.block.ops):
        case [tile.Elementwise() as combine, tile.Yield()]:
            adds = combine.function.data == "add"
            both = set(combine.inputs) == set(reduce.body.block.args)
            return adds and both
        case _:
            return False


def _spread_of(reduce: tile.Reduce, block: Block) -> _Spread | None:
    """Return how the columns of what is summed lie over threads, None where nothing says so."""
    rows, columns = shape_of(reduce.inputs[0].type)
    if columns % _RUN:
        return None
    if not comes_from_product(reduce, block, (rows, columns)):
        return None if _goes_into_product(reduce, block) else _in_runs(columns)
    if rows % _UPRIGHT and columns % _UPRIGHT == 0:
        return _Spread((columns // _UPRIGHT, 4, 2, 8), (False, True, False, True))
    return _Spread((columns // 8, 4, 2), (False, True, False))


def _in_runs(columns: int) -> _Spread:
    """Return the spread of a row over lanes of one warp, a run of each of them after the other."""
    runs = columns // _RUN
    lanes = gcd(runs, _LANES)
    if lanes == runs:
        return _Spread((lanes, _RUN), (True, False))
    return _Spread((runs // lanes, lanes, _RUN), (False, True, False))


def _goes_into_product(reduce: tile.Reduce, block: Block) -> bool:
    """Tell whether what a sum is computed from becomes, computed with, an operand as well."""

    def makers(made: Operation) -> list[Operation]:
        found = [v.owner for v in made.operands if defined_in(v, block)]
        return [op for op in found if isinstance(op, _COMPUTED)]

    seen = [op for op in reach(list[Operation]([reduce]), makers) if op is not reduce]
    return any(isinstance(use.operation, tile.Dot) for op in seen for use in op.results[0].uses)


def _defer(loop: scf.ForOp, found: _Sum) -> scf.ForOp:
    """Rewrite one sum; return the loop that takes the place of `loop`."""
    block = loop.body.block
    rows = shape_of(found.reduce.inputs[0].type)[0]
    spread = _spread_of(found.reduce, block)
    assert spread is not None, "the sum was found to be one that can be deferred"
    kind = with_shape((rows, spread.lanes), element_type(found.reduce.inputs[0].type))
    before = Emitter.before(loop)
    start = _beside_zeros(before, loop.iter_args[found.index], kind)
    inside = Emitter.before(found.total)
    added = inside.reshape(found.reduce.inputs[0], (rows, *spread.extents))
    for axis in reversed(range(len(spread.extents))):
        if not spread.threads[axis]:
            (added,) = inside.reduce([added], axis + 1, found.reduce.body)
    added = inside.reshape(added, shape_of(kind))
    # The carried value changes its type: a new argument beside the old one, which then is dead.
    new = widen_for(loop, [start])
    argument, kept = block.args[found.index + 1], block.args[-1]
    kept.name_hint = argument.name_hint
    wide: SSAValue = kept
    if found.scaled is not None:
        factor = next(v for v in found.scaled.inputs if v is not argument)
        wide = inside.apply("mul", kept, _repeated(inside, factor, kind))
    end = terminator(block)
    append_operands(end, [inside.apply("add", wide, added)])
    end.operands[found.index] = argument
    (total,) = Emitter.after(new).reduce([new.results[-1]], 1, found.reduce.body)
    old = new.results[found.index]
    total.name_hint, old.name_hint = old.name_hint, None
    old.replace_all_uses_with(total)
    for dead in (found.total, found.scaled, found.reduce):
        if dead is not None:
            erase(dead)
    return new


def _repeated(emitter: Emitter, row: SSAValue, kind: Attribute) -> SSAValue:
    """Return a row repeated in every column of a tensor of type `kind`."""
    return emitter.along(row, 1, shape_of(kind))


def _beside_zeros(emitter: Emitter, row: SSAValue, kind: Attribute) -> SSAValue:
    """Return the row as the first of a tile's columns, the others zero."""
    count = emitter.line(shape_of(kind)[1])
    first = emitter.apply("eq", count, emitter.constant(0, count.type))
    mask = emitter.spread(first, 1, shape_of(kind))
    zero = emitter.constant(0.0, kind)
    return emitter.apply("select", mask, _repeated(emitter, row, kind), zero)


# --- products that add to a sum -------------------------------------------------------------------


def accumulate(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Fuse each addition of a product with the product."""
    for operation in walk(kernel):
        match operation:
            case tile.Elementwise() if operation.function.data == "add":
                _fuse(operation)
            case _:
                continue
    return ()


def _fuse(addition: tile.Elementwise) -> None:
    left, right = addition.inputs
    for product, acc in ((right, left), (left, right)):
        if (dot := _lone_product(product)) is not None and product is not acc:
            break
    else:
        return
    fused = tile.Dot.make(
        dot.a, dot.b, acc, results=[addition.result.type], attributes=dot.attributes
    )
    fused.location = dot.location
    fused.result.name_hint = addition.result.name_hint or dot.result.name_hint
    block = home_of(addition)
    # At the place of the addition: the accumulator may be defined after the product.
    block.insert_op_before(fused, addition)
    addition.result.replace_all_uses_with(fused.result)
    for dead in (addition, dot):
        erase(dead)


def _lone_product(value: SSAValue) -> tile.Dot | None:
    """Return the dot that gives `value`, if it starts from zero and nothing else uses it."""
    match value.owner:
        case tile.Dot() as dot if value.has_one_use() and constant_of(dot.acc) == 0:
            return dot
        case _:
            return None
