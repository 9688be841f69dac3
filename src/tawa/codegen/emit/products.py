"""Other products: mma.sync for tiles too small for wgmma, fused multiply-add for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.arithmetic import apply, convert
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.shared import clear, move, place_of
from tawa.codegen.emit.values import Array, atom
from tawa.codegen.wrappers import tensor_cores as w
from tawa.errors import InternalError
from tawa.ir import hopper
from tawa.ir.types import ViewType, element_type, layout_of
from tawa.layouts.access import Access, vector_access
from tawa.layouts.fragments import fma_operand, mma_accumulator
from tawa.layouts.indexing import Formula, fit
from tawa.layouts.register import Coordinate, RegisterLayout
from tawa.layouts.shared import SharedLayout

_VECTOR = 16  # bytes: the widest access of one thread


def _formula(values: list[int]) -> Formula:
    found = fit(values) or fit(values, uneven=True)
    if found is None:
        raise InternalError(f"registers at {values} have no formula")
    return found


def _words(layout: RegisterLayout, places: list[Coordinate], packed: int, count: int) -> Formula:
    """Return the first of `count` adjacent words that hold each fragment, by fragment."""
    where = {place: register for register, place in enumerate(layout.register_table)}
    missing = [place for place in places if place not in where or where[place] % (packed * count)]
    if missing:
        raise InternalError(f"no mma fragments at {missing} of {layout}")
    return _formula([where[place] // packed for place in places])


def _sum(name: str, *terms: str) -> str:
    text = " + ".join(term for term in terms if term != "0") or "0"
    return f"{name}[{text}]"


def mma(e: Emitter, op: Operation) -> None:
    """Write a product by mma.sync: every 16 x 8 block, every k step."""
    assert isinstance(op, hopper.Mma)
    layout, a, b = (layout_of(value.type) for value in (op.result, op.a, op.b))
    pattern = mma_accumulator(16, 8, 1)
    if layout.lane_table != pattern.lane_table:
        raise InternalError(f"an mma accumulator in layout {layout}")
    kinds = [element_of(element_type(value.type)) for value in (op.a, op.b, op.result)]
    shape = w.MmaShape(256 // kinds[0].bits, kinds[2].name, kinds[0].name, kinds[1].name)
    starts = list(layout.register_table[::4])
    steps = a.shape[1] // shape.k
    acc_words = 2 if kinds[2].name == "f16" else 4
    left, right = e.materialized(op.a).name, e.materialized(op.b).name
    acc = e.in_place(op.acc, op.result)
    # Registers of a fragment are adjacent; where each begins is a sum over block and step.
    rows = _words(a, [(m, 0) for m, _ in starts], kinds[0].packed, 1)
    columns = _words(b, [(0, n) for _, n in starts], kinds[1].packed, 1)
    a_steps = _words(a, [(0, k * shape.k) for k in range(steps)], kinds[0].packed, shape.a_words)
    b_steps = _words(b, [(k * shape.k, 0) for k in range(steps)], kinds[1].packed, shape.b_words)
    wrapper = w.mma(shape)
    with e.unrolled("step", steps) as step, e.unrolled("block", len(starts)) as block:
        items = [
            _sum(left, rows.render(block), a_steps.render(step), str(i))
            for i in range(shape.a_words)
        ]
        items += [
            _sum(right, columns.render(block), b_steps.render(step), str(i))
            for i in range(shape.b_words)
        ]
        if kinds[0].bits == 32:
            items = [f"__float_as_uint({item})" for item in items]
        d = acc.name if block == "0" else f"{acc.name} + {block} * {acc_words}"
        e.do(wrapper, d, *items)


# --- fused multiply-add -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand of a product by multiply-add, read a few steps of K at a time.

    `fragment` holds all of K for a thread's rows (columns), the steps of one read first, then the
    reads; `at` gives the element of an accumulator's register at step 0 of a read, and `stride`
    how far apart its steps lie.
    """

    access: Access
    array: Array
    address: Callable[[str], str]
    at: Formula
    stride: int

    def factor(self, r: str, k: str) -> str:
        """Return the element that register `r` takes at step `k` of a read."""
        steps = "" if k == "0" else f" + {k}" if self.stride == 1 else f" + {k} * {self.stride}"
        index = self.at.render(r) + steps
        return self.array.at(f"({index.removeprefix('0 + ')})")


def _view(value: SSAValue) -> tuple[SharedLayout, Element]:
    if not isinstance(value.type, ViewType):
        raise InternalError(f"an operand of type {value.type}")
    return value.type.within.data, element_of(value.type.element)


def _side(
    e: Emitter, value: SSAValue, dim: int, steps: int, layout: RegisterLayout, hint: str
) -> _Side:
    """Declare what a thread holds of an operand, whose rows (columns) lie along `dim`."""
    within, element = _view(value)
    fragment = fma_operand(
        layout, dim, within.shape[1 - dim], steps, along_k=within.order[-1] != dim
    )
    access = vector_access(fragment, within)
    if access is None:
        raise InternalError(f"no access of {fragment} to {within}")
    count = fragment.register_count * steps // within.shape[1 - dim]
    table = fragment.register_table[:count]
    array = Array(e.names.fresh(hint), element, count)
    e.line(f"{element.word} {array.name}[{array.words}];")
    e.use_accessors(element)
    place = tuple(table.index(_along(dim, where[dim], 0)) for where in layout.register_table)
    stride = table.index(_along(dim, 0, 1)) if steps > 1 else 0
    return _Side(access, array, place_of(e, access, e.view(value)), _formula(list(place)), stride)


def _along(dim: int, mn: int, k: int) -> Coordinate:
    return (mn, k) if dim == 0 else (k, mn)


def fma_dot(e: Emitter, op: Operation) -> None:
    """Write a product by multiply-add: steps of K in runs, as many as one vector of the narrower
    operand holds; each run is read from memory by vectors, then multiplied.
    """
    assert isinstance(op, hopper.FmaDot)
    layout = layout_of(op.result.type)
    result = element_of(element_type(op.result.type))
    if result.packed > 1:
        raise InternalError(f"an accumulator of {result.name} in a product by multiply-add")
    acc = e.in_place(op.acc, op.result)
    (within, left), (_, right) = _view(op.a), _view(op.b)
    extent = within.shape[1]
    steps = gcd(extent, _VECTOR * 8 // min(left.bits, right.bits))
    sides = [_side(e, op.a, 0, steps, layout, "left"), _side(e, op.b, 1, steps, layout, "right")]
    with e.unrolled("step", extent // steps) as step:
        for side in sides:
            reads = len(side.access.accesses) * steps // extent
            clear(e, side.access, side.array)
            with e.unrolled("part", reads) as part:
                whole = step if reads == 1 else f"({step} * {reads} + {part})"
                move(e, side.access, side.array, part, side.address(whole))
        with e.unrolled("k", steps) as k, e.unrolled("r", layout.register_count) as r:
            factors = [convert(s.factor(r, k), s.array.element, result) for s in sides]
            text = apply(e, "fma", result, [*map(atom, factors), f"{acc.name}[{r}]"])
            e.line(f"{acc.name}[{r}] = {text};")


RULES: dict[type[Operation], Handler] = {hopper.Mma: mma, hopper.FmaDot: fma_dot}
