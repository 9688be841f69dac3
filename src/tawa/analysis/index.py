"""Index tensors as affine forms: which element of an argument each element of a tile addresses.

An `IndexForm` of rank r is ``offset + sum_d step[d] * i_d + sum wrapped``, where i_d runs along
dimension d of the tensor, `offset` and `step` are polynomials of scalars, and a `Wrapped` term is
``coefficient * (start + i_d)`` where that index is below a bound, and some other number where it is
not: tile kernels stay in bounds by ``x % bound``, ``where(x < bound, x, 0)`` and
``minimum(x, bound - 1)``. A `Repeated` term is ``coefficient * (i_d // count)``: rows that hold
several numbers in a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import BlockArgument, SSAValue

from tawa.analysis.polynomial import (
    ONE,
    ZERO,
    Iteration,
    Known,
    Polynomial,
    keeps_number,
    keeps_sum,
    polynomial,
    trip_count,
)
from tawa.analysis.ranges import range_of, remembered
from tawa.ir import hopper, tile
from tawa.ir.types import PtrType, element_type, shape_of
from tawa.ir.walk import is_inside, yielded


@dataclass(frozen=True, slots=True)
class Wrapped:
    """coefficient * (start + i_dim) where that is at least 0 and below `bound`."""

    dim: int
    start: Polynomial
    bound: Polynomial
    coefficient: Polynomial


@dataclass(frozen=True, slots=True)
class Repeated:
    """coefficient * (i_dim // count): each index stands `count` times."""

    dim: int
    count: int
    coefficient: Polynomial


@dataclass(frozen=True, slots=True)
class IndexForm:
    """offset + sum of steps along dimensions + wrapped and repeated terms; `steps` has one entry a
    dimension.
    """

    offset: Polynomial
    steps: tuple[Polynomial, ...] = ()
    wrapped: tuple[Wrapped, ...] = ()
    repeated: tuple[Repeated, ...] = ()

    def plus(self, other: IndexForm) -> IndexForm:
        """Return the sum of two forms of one rank."""
        steps = tuple(a + b for a, b in zip(self.steps, other.steps, strict=True))
        return IndexForm(
            self.offset + other.offset,
            steps,
            self.wrapped + other.wrapped,
            self.repeated + other.repeated,
        )

    def scaled(self, factor: Polynomial) -> IndexForm:
        """Return the form times a scalar."""
        wrapped = tuple(
            Wrapped(w.dim, w.start, w.bound, w.coefficient * factor) for w in self.wrapped
        )
        steps = tuple(step * factor for step in self.steps)
        repeated = tuple(Repeated(r.dim, r.count, r.coefficient * factor) for r in self.repeated)
        return IndexForm(self.offset * factor, steps, wrapped, repeated)

    @property
    def is_scalar(self) -> bool:
        """Whether every element is the same number."""
        return not self.wrapped and not self.repeated and all(s.is_zero for s in self.steps)

    @property
    def single_dim(self) -> int | None:
        """The one dimension the form moves along with step 1, or None."""
        moving = [dim for dim, step in enumerate(self.steps) if not step.is_zero]
        bent = self.wrapped or self.repeated
        if len(moving) == 1 and not bent and self.steps[moving[0]] == ONE:
            return moving[0]
        return None


class _Known(dict[SSAValue, IndexForm | None]):
    """Forms that were worked out already, and polynomials of scalars."""

    def __init__(self, scalars: Known | None = None) -> None:
        self.scalars: Known = {} if scalars is None else scalars


_SUMS = frozenset({"add", "sub", "mul", "neg"})
_DOWN = Polynomial.constant(-1)
_LINEAR = _SUMS | {"irem", "idiv", "min"}


@dataclass(frozen=True, slots=True)
class PointerForm:
    """The addresses of a tensor of pointers: a scalar pointer, an argument mostly, and an element
    index into it.
    """

    base: SSAValue
    index: IndexForm


def index_form(value: SSAValue, scalars: Known | None = None) -> IndexForm | None:
    """Return the affine form of an integer tensor or scalar, or None where there is none.

    What `scalars` are is looked up there, as `polynomial` does.
    """
    return _form(value, _Known(scalars))


@remembered
def _form(value: SSAValue, known: _Known) -> IndexForm | None:
    rank = len(shape_of(value.type))
    if not rank:
        return IndexForm(polynomial(value, known.scalars))
    if isinstance(value, BlockArgument):
        return _carried_index(value, known)
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return IndexForm(Polynomial.constant(number.data), (ZERO,) * rank)
        case tile.Splat() as op:
            return IndexForm(polynomial(op.value, known.scalars), (ZERO,) * rank)
        case tile.Arange() as op:
            return IndexForm(Polynomial.constant(op.start.data), (ONE,))
        case tile.ExpandDims() | tile.Broadcast() | tile.Transpose() as op:
            return moved(op, _form(op.value, known))
        case tile.Cast() as op if keeps_number(op):
            return _form(op.value, known)
        case hopper.ConvertLayout() as op:
            return _form(op.value, known)
        case tile.Elementwise() as op if op.function.data == "select":
            return _kept_below(op, known)
        case tile.Elementwise() as op if op.function.data in _LINEAR:
            return _combined(op, known)
        case _:
            return None


def moved(
    op: tile.ExpandDims | tile.Broadcast | tile.Transpose, form: IndexForm | None
) -> IndexForm | None:
    """Return the form of a tensor whose dimensions were inserted, repeated or permuted."""
    if form is None:
        return None
    match op:
        case tile.ExpandDims():
            at = op.axis.data
            steps = (*form.steps[:at], ZERO, *form.steps[at:])
            wrapped = tuple(
                Wrapped(w.dim + (w.dim >= at), w.start, w.bound, w.coefficient)
                for w in form.wrapped
            )
            places = {r.dim: r.dim + (r.dim >= at) for r in form.repeated}
        case tile.Broadcast():
            # Along an extent of 1 the index is always 0: what is repeated does not move.
            shape = shape_of(op.value.type)
            if any(shape[term.dim] == 1 for term in (*form.wrapped, *form.repeated)):
                return None
            steps = tuple(ZERO if extent == 1 else step for extent, step in zip(shape, form.steps))
            wrapped = form.wrapped
            places = {r.dim: r.dim for r in form.repeated}
        case tile.Transpose():
            order = [dim.data for dim in op.permutation]
            steps = tuple(form.steps[dim] for dim in order)
            wrapped = tuple(
                Wrapped(order.index(w.dim), w.start, w.bound, w.coefficient) for w in form.wrapped
            )
            places = {r.dim: order.index(r.dim) for r in form.repeated}
    repeated = tuple(Repeated(places[r.dim], r.count, r.coefficient) for r in form.repeated)
    return IndexForm(form.offset, steps, wrapped, repeated)


def _combined(op: tile.Elementwise, known: _Known) -> IndexForm | None:
    if op.function.data in _SUMS and not keeps_sum(op):
        return None
    forms = [_form(item, known) for item in op.inputs]
    match op.function.data, forms:
        case "add", [IndexForm() as a, IndexForm() as b]:
            return a.plus(b)
        case "sub", [IndexForm() as a, IndexForm() as b]:
            return a.plus(b.scaled(_DOWN))
        case "neg", [IndexForm() as a]:
            return a.scaled(_DOWN)
        case "mul", [IndexForm() as a, IndexForm() as b] if b.is_scalar:
            return a.scaled(b.offset)
        case "mul", [IndexForm() as a, IndexForm() as b] if a.is_scalar:
            return b.scaled(a.offset)
        case "irem", [IndexForm() as a, IndexForm() as b]:
            return _wrapped(a, b, ZERO)
        case "min", [IndexForm() as a, IndexForm() as b]:
            return _wrapped(a, b, ONE) or _wrapped(b, a, ONE)
        case "idiv", [IndexForm() as a, IndexForm() as b] if b.is_scalar:
            return _divided(op, a, b.offset.as_constant)
        case _:
            return None


def _wrapped(index: IndexForm, bound: IndexForm, more: Polynomial) -> IndexForm | None:
    """Return the form of what is `index` below `bound` + `more`, and anything from there on."""
    dim = index.single_dim
    if dim is None or not bound.is_scalar:
        return None
    zeros = (ZERO,) * len(index.steps)
    return IndexForm(ZERO, zeros, (Wrapped(dim, index.offset, bound.offset + more, ONE),))


def _kept_below(op: tile.Elementwise, known: _Known) -> IndexForm | None:
    """Return the form of where(x < bound, x, other)."""
    compared = op.inputs[0].owner
    if not isinstance(compared, tile.Elementwise) or compared.function.data != "lt":
        return None
    index, bound = (_form(item, known) for item in compared.inputs)
    if index is None or bound is None or _form(op.inputs[1], known) != index:
        return None
    return _wrapped(index, bound, ZERO)


def _divided(op: tile.Elementwise, form: IndexForm, count: int | None) -> IndexForm | None:
    """Return (start + i) // count where count divides the start and the extent."""
    dim = form.single_dim
    if dim is None or count is None or count < 2 or not range_of(op.inputs[0]).is_natural:
        return None
    terms = form.offset.terms
    if shape_of(op.result.type)[dim] % count or any(c % count for c in terms.values()):
        return None
    start = Polynomial.make({m: c // count for m, c in terms.items()})
    zeros = (ZERO,) * len(form.steps)
    return IndexForm(start, zeros, repeated=(Repeated(dim, count, ONE),))


def pointer_form(value: SSAValue) -> PointerForm | None:
    """Return base and index of a pointer or tensor of pointers, or None."""
    if not isinstance(element_type(value.type), PtrType):
        return None
    rank = len(shape_of(value.type))
    itself = None if rank else PointerForm(value, IndexForm(ZERO))
    if isinstance(value, BlockArgument):
        return _carried(value) or itself
    match value.owner:
        case hopper.ConvertLayout() as op:
            return pointer_form(op.value)
        case tile.Splat() as op:
            inner = pointer_form(op.value)
            if inner is None:
                return None
            return PointerForm(inner.base, IndexForm(inner.index.offset, (ZERO,) * rank))
        case tile.ExpandDims() | tile.Broadcast() | tile.Transpose() as op:
            inner = pointer_form(op.value)
            form = moved(op, inner.index if inner else None)
            return PointerForm(inner.base, form) if inner and form else None
        case tile.PtrAdd() as op:
            inner, step = pointer_form(op.pointer), index_form(op.offset)
            if inner is None or step is None:
                return None
            return PointerForm(inner.base, inner.index.plus(step))
        case _:
            return itself


def is_spread(pointer: SSAValue, loop: scf.ForOp | None = None) -> bool:
    """Tell whether all pointers of a tile are provably different; with a `loop` those of different
    iterations too, but for the same element's.

    Addresses must be linear in the indices. Strides known at launch only are taken to be those of
    a tensor whose elements do not overlap; known ones must leave room for the smaller ones.
    """
    form = pointer_form(pointer)
    if form is None or form.index.wrapped or form.index.repeated:
        return False
    shape = shape_of(pointer.type)
    moving: list[tuple[Polynomial, float]] = [
        (step, extent) for step, extent in zip(form.index.steps, shape) if extent > 1
    ]
    if any(len(step.terms) != 1 for step, _ in moving):
        return False
    if loop is not None:
        by = _moved_in(form, loop)
        if by is None or (by and any(step.as_constant is None for step, _ in moving)):
            return False  # iterations may go from row to row
        if by:
            moving.append((Polynomial.constant(by), trip_count(loop) or inf))
    known = [(abs(by), extent) for step, extent in moving if (by := step.as_constant) is not None]
    reach = 0.0
    for step, extent in sorted(known):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _moved_in(form: PointerForm, loop: scf.ForOp) -> int | None:
    """Return by how much every address grows from one iteration to the next; None: unknown."""
    moved, still = form.index.offset.parted(lambda monomial, _: monomial == (Iteration(loop),))
    parts = (still, *form.index.steps)
    if is_inside(form.base, loop) or not all(is_invariant(part, loop) for part in parts):
        return None
    return sum(moved.terms.values())


def _carried(value: BlockArgument) -> PointerForm | None:
    """A pointer carried by a loop that adds the same amount in every iteration."""
    loop = _loop_of(value)
    start = pointer_form(loop.iter_args[value.index - 1]) if loop is not None else None
    if loop is None or start is None or (moved_by := _moved_by(value, loop, _Known())) is None:
        return None
    return PointerForm(start.base, start.index.plus(moved_by))


def _carried_index(value: BlockArgument, known: _Known) -> IndexForm | None:
    """An index carried by a loop that adds the same amount in every iteration."""
    known[value] = None  # what it adds may not depend on it
    loop = _loop_of(value)
    start = _form(loop.iter_args[value.index - 1], known) if loop is not None else None
    if loop is None or start is None or (moved_by := _moved_by(value, loop, known)) is None:
        return None
    return start.plus(moved_by)


def _loop_of(value: BlockArgument) -> scf.ForOp | None:
    """Return the loop that carries a value, if that is a counted one."""
    loop = value.block.parent_op()
    return loop if isinstance(loop, scf.ForOp) and value.index else None


def _moved_by(value: BlockArgument, loop: scf.ForOp, known: _Known) -> IndexForm | None:
    """Return what the iterations so far have added to a carried pointer or index, if each the
    same.
    """
    total = IndexForm(ZERO, (ZERO,) * len(shape_of(value.type)))
    current = yielded(value.block, value.index - 1)
    while current is not value:
        match current.owner:
            case tile.PtrAdd(pointer=before, offset=by):
                sign = ONE
            case tile.Elementwise(inputs=(before, by)) as op if keeps_sum(op):
                sign = {"add": ONE, "sub": _DOWN}.get(op.function.data, ZERO)
                if op.function.data == "add" and not _is_made_in(before, loop):
                    before, by = by, before
            case _:
                return None
        step = _form(by, known)
        if sign.is_zero or step is None or not _invariant(step, loop):
            return None
        total = total.plus(step.scaled(sign))
        current = before
    return total.scaled(Polynomial.atom(Iteration(loop)))


def _is_made_in(value: SSAValue, loop: scf.ForOp) -> bool:
    """Tell whether a value is one that a loop carries or computes from what it carries."""
    made = isinstance(value, BlockArgument) or isinstance(value.owner, tile.Elementwise)
    return made and is_inside(value, loop)


def _invariant(form: IndexForm, loop: scf.ForOp) -> bool:
    parts = [form.offset, *form.steps]
    parts += [part for w in form.wrapped for part in (w.start, w.bound, w.coefficient)]
    parts += [r.coefficient for r in form.repeated]
    return all(is_invariant(part, loop) for part in parts)


def is_invariant(poly: Polynomial, loop: scf.ForOp) -> bool:
    """Tell whether a polynomial has one value in all iterations of `loop`."""
    return not any(
        (isinstance(leaf, Iteration) and leaf.loop is loop)
        or (isinstance(leaf, Iteration) and is_inside(leaf.loop.body.block.args[0], loop))
        or (not isinstance(leaf, Iteration) and is_inside(leaf.value, loop))
        for leaf in poly.leaves
    )
