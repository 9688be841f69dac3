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
mask is the same in the whole tile. Declines when: nothing is known of the
mask, it is asked outside a loop, what it hides does not come from a product of the loop, or the
tile is small (a branch costs more than it saves).

Where a mask is the same for a whole tile: conditions on scalars, from the extremes of indices.

A mask compares index tensors (``rows[:, None] >= columns[None, :]``). Each runs from a least to a
greatest value, affine in the scalars of the kernel; when the least of one side is no smaller than
the greatest of the other, the mask holds everywhere. Index arithmetic is taken not to overflow, as
in `tawa.analysis.polynomial`.

Purpose: store whole vectors where only a launch knows that they are aligned.

Before -> after, the base of an array being read from a table::

                                      %fits = (%base % 16 == 0) and (%stride % 8 == 0)    scalars
    tile.store %p, %v       ->        scf.if %fits {
                                        tile.store %p {multiple_of = [1, 16]}, %v
                                      } else {
                                        tile.store %p, %v
                                      }

What a launch passes is known when a kernel is compiled (the specialization of its arguments); what
a kernel reads is not. Arrays whose addresses and strides lie in memory mostly are aligned.
Requires: tile IR. Ensures: the same stores. Declines when: no vector would be wider if the scalars
that were read from memory, or made addresses of numbers, were multiples of its length, or the tile
is small (a branch costs more than it saves).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue

from tawa.analysis.contiguity import Contiguity, promised_numbers
from tawa.analysis.coordinates import poly_has_trip
from tawa.analysis.index import index_form
from tawa.analysis.polynomial import Iteration, Known, Leaf, Polynomial, place_of
from tawa.analysis.ranges import remembered
from tawa.analysis.stages import comes_from_product
from tawa.ir import tile
from tawa.ir.functions import OPPOSITE
from tawa.ir.types import PtrType, bit_width, element_type, i1, i64, is_float, is_signed, shape_of
from tawa.ir.walk import home_of, move_before, reach
from tawa.passes.lower.emit import Emitter, erase
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


def version_masks(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Put selections under the question whether they select anything."""
    for operation in list(kernel.walk(reverse=True)):
        if operation.parent is not None and (found := _find(operation)) is not None:
            _ask(found)
    return ()


def _find(operation: Operation) -> _Hiding | None:
    """Return the selections that end with `operation`, if asking about them pays."""
    block = home_of(operation)
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
        whole, [found.last.result.type], Region(Block([scf.YieldOp(found.shown)])), Region(hidden)
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
    move_before(operation, first)
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
        for atom in sorted(monomial, key=place_of):
            assert not isinstance(atom, Iteration), "what loops count is a value here"
            factor = emitter.cast(atom.value, i64)
            product = factor if product is None else emitter.apply("mul", product, factor)
        if product is not None:
            if number != 1:
                product = emitter.apply("mul", product, emitter.constant(number, i64))
            total = emitter.apply("add", total, product)
    return total


# --- where a mask is the same for a whole tile ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotNegative:
    """A polynomial of scalars that stand in the kernel is at least 0."""

    form: Polynomial


@dataclass(frozen=True, slots=True)
class Holds:
    """A scalar truth value is `truth`."""

    value: SSAValue
    truth: bool


@dataclass(frozen=True, slots=True)
class Every:
    """All of some conditions hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of some conditions holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = NotNegative | Holds | Every | Either


_SPREADS = (tile.Splat, tile.ExpandDims, tile.Broadcast, tile.Reshape, tile.Transpose)
"""What gives the same elements another shape."""
_MOST_PARTS = 64


def extremes(value: SSAValue) -> tuple[Polynomial, Polynomial] | None:
    """Return the least and the greatest element of an integer tensor or scalar, None where no rule
    gives them. Of one index counted twice they are further out.
    """
    form = index_form(value, _block_arguments(value))
    if form is None or form.wrapped or form.repeated or poly_has_trip(form.offset):
        return None
    least = greatest = form.offset
    for step, extent in zip(form.steps, shape_of(value.type)):
        if (number := step.as_constant) is None:
            return None
        least += Polynomial.constant(min(0, number * (extent - 1)))
        greatest += Polynomial.constant(max(0, number * (extent - 1)))
    return least, greatest


def _block_arguments(value: SSAValue) -> Known:
    """Return what loops around a value count and carry, as values and not as iterations."""
    known: dict[SSAValue, Polynomial] = {}
    block = value.owner if isinstance(value, BlockArgument) else value.owner.parent_block()
    while block is not None:
        known |= {argument: Polynomial.atom(Leaf(argument)) for argument in block.args}
        block = block.parent_block()
    return known


def uniform_when(mask: SSAValue, truth: bool) -> Condition | None:
    """Return when every element of a mask surely is `truth`, None where nothing is known.

    The condition is sufficient: the mask may be `truth` everywhere without it. Nothing is said of
    masks of many parts: a part that is used twice is asked twice.
    """
    return _uniform_when(mask, truth) if _parts(mask, {}) <= _MOST_PARTS else None


@remembered
def _parts(mask: SSAValue, known: dict[SSAValue, int]) -> int:
    """Return how many comparisons a mask has when it is written out."""
    match mask.owner:
        case op if isinstance(op, _SPREADS):
            return _parts(op.value, known)
        case tile.Elementwise() as op if op.function.data in ("and", "or"):
            return sum(_parts(item, known) for item in op.inputs)
        case _:
            return 1


def _uniform_when(mask: SSAValue, truth: bool) -> Condition | None:
    if not shape_of(mask.type):
        return Holds(mask, truth)
    match mask.owner:
        case op if isinstance(op, _SPREADS):
            return _uniform_when(op.value, truth)
        case tile.Elementwise() as op if op.function.data in ("and", "or"):
            parts = [_uniform_when(item, truth) for item in op.inputs]
            known = tuple(part for part in parts if part is not None)
            if (op.function.data == "and") is truth:
                return Every(known) if len(known) == len(parts) else None
            return Either(known) if known else None
        case tile.Elementwise() as op:
            return _compared(op, truth)
        case _:
            return None


# a OP b, as (which side is the larger, how much larger it has to be).
_ORDER = {"ge": (0, 0), "gt": (0, 1), "le": (1, 0), "lt": (1, 1)}


def _compared(op: tile.Elementwise, truth: bool) -> Condition | None:
    function = op.function.data
    if function not in _ORDER:
        return None
    kind = element_type(op.inputs[0].type)
    if not is_signed(kind):
        return None
    place, more = _ORDER[function if truth else OPPOSITE[function]]
    large, small = extremes(op.inputs[place]), extremes(op.inputs[1 - place])
    if large is None or small is None:
        return None
    return NotNegative(large[0] - small[1] - Polynomial.constant(more))


# --- vectors that only a launch knows to be aligned -----------------------------------------------


_VECTOR = 16  # bytes: the widest access of one thread


@dataclass(frozen=True, slots=True)
class _Gain:
    """A store that could move `run` neighbours along `dim` at once if `scalars` were multiples."""

    store: tile.Store
    dim: int
    run: int
    scalars: tuple[SSAValue, ...]


def version_alignment(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Ask before stores of tiles whether their vectors are aligned, where memory decides."""
    for operation in list(kernel.walk()):
        if isinstance(operation, tile.Store) and (found := _gain_of(operation)) is not None:
            _version(found)
    return ()


def _gain_of(store: tile.Store) -> _Gain | None:
    shape = shape_of(store.pointer.type)
    if prod(shape) < _SMALLEST or not isinstance(store.pointer.owner, Operation):
        return None
    scalars = tuple(dict.fromkeys(_read_scalars(store)))
    if not scalars:
        return None
    runs = [_run_if(store, dim, scalars) for dim in range(len(shape))]
    run = max(runs)
    dim = runs.index(run)
    if run <= _run_if(store, dim, ()):
        return None
    for each in scalars:
        fewer = tuple(other for other in scalars if other is not each)
        if _run_if(store, dim, fewer) == run:
            scalars = fewer
    return _Gain(store, dim, run, scalars)


def _run_if(store: tile.Store, dim: int, scalars: tuple[SSAValue, ...]) -> int:
    """Return how many neighbours one access moves if `scalars` are multiples of a vector."""
    facts = Contiguity({scalar: _multiple(store, scalar) for scalar in scalars})
    return min(facts.run(store.pointer, store.mask, dim), _VECTOR // _size(store.pointer))


def _multiple(store: tile.Store, scalar: SSAValue) -> int:
    """Return what a scalar shall be a multiple of, addresses in elements."""
    return _VECTOR // _size(scalar if isinstance(scalar.type, PtrType) else store.pointer)


def _size(pointer: SSAValue) -> int:
    kind = element_type(pointer.type)
    assert isinstance(kind, PtrType), "a store goes through pointers"
    return max(8, bit_width(kind.element)) // 8


def _read_scalars(store: tile.Store) -> Iterator[SSAValue]:
    """Yield the numbers read from memory, and the numbers taken for addresses, that decide where a
    store goes.
    """

    def is_read(value: SSAValue) -> bool:
        if isinstance(value.owner, tile.Load):
            return not shape_of(value.type) and _is_whole(value)
        return isinstance(value.owner, tile.Bitcast) and isinstance(value.type, PtrType)

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        op = value.owner
        if is_read(value) or not isinstance(op, Operation) or op.regions:
            return ()
        return op.operands

    start = [store.pointer] if store.mask is None else [store.pointer, store.mask]
    return filter(is_read, reach(start, made_of))


def _is_whole(value: SSAValue) -> bool:
    kind: Attribute = value.type
    return isinstance(kind, IntegerType) and bit_width(kind) >= 32  # pyright: ignore


def _version(found: _Gain) -> None:
    store = found.store
    block = home_of(store)
    branch = scf.IfOp(
        _fits(Emitter.before(store), found),
        [],
        Region(Block(_again(store, found.dim, found.run))),
        Region(Block(_again(store, found.dim, 1))),
    )
    branch.location = store.location
    block.insert_op_before(branch, store)
    erase(store)


def _again(store: tile.Store, dim: int, run: int) -> list[Operation]:
    """Return a branch with the store, its pointers and its mask, whose vectors are of `run`."""
    again = store.clone()
    pointer = _promised(store.pointer, dim, "multiple_of", run * _size(store.pointer))
    again.operands[0] = pointer.results[0]
    made = [pointer]
    if store.mask is not None and isinstance(store.mask.owner, Operation):
        mask = _promised(store.mask, dim, "max_constancy", run)
        again.operands[2] = mask.results[0]
        made.append(mask)
    made.append(again)
    for each in made:
        each.location = store.location
    return [*made, scf.YieldOp()]


def _promised(value: SSAValue, dim: int, hint: str, number: int) -> Operation:
    """Return what makes a tensor once more, with a promise along `dim` beside those it has."""
    owner = value.owner
    assert isinstance(owner, Operation), "found so"
    again = owner.clone()
    again.results[0].name_hint = value.name_hint
    if number == 1:
        return again
    numbers = promised_numbers(owner.attributes.get(hint), len(shape_of(value.type)))
    numbers[dim] = lcm(numbers[dim], number)
    again.attributes[hint] = ArrayAttr([IntAttr(each) for each in numbers])
    return again


def _fits(emitter: Emitter, found: _Gain) -> SSAValue:
    """Compute whether all scalars are the multiples they shall be."""
    total: SSAValue | None = None
    for scalar in found.scalars:
        unit = _multiple(found.store, scalar)
        number = scalar
        if isinstance(scalar.type, PtrType):
            unit *= _size(scalar)
            number = emitter.made(tile.Bitcast, [scalar], i64)
        rest = emitter.apply("and", number, emitter.constant(unit - 1, number.type))
        fits = emitter.apply("eq", rest, emitter.constant(0, number.type))
        total = fits if total is None else emitter.apply("and", total, fits)
    assert total is not None, "a vector is wider for some scalars"
    return total
