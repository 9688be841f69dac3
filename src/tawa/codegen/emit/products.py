"""Other products: mma.sync for tiles too small for wgmma, fused multiply-add for the rest."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.arithmetic import apply, convert
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.tensors import thread_offsets
from tawa.codegen.emit.values import atom
from tawa.codegen.wrappers import memory
from tawa.codegen.wrappers import tensor_cores as w
from tawa.errors import InternalError
from tawa.ir import hopper
from tawa.ir.types import ViewType, element_type, layout_of
from tawa.layouts.access import in_rows, linear, pitch_along
from tawa.layouts.fragments import mma_accumulator
from tawa.layouts.indexing import Formula, fit
from tawa.layouts.register import Coordinate, RegisterLayout
from tawa.layouts.shared import SharedLayout


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


def _view(value: SSAValue) -> tuple[SharedLayout, Element]:
    if not isinstance(value.type, ViewType):
        raise InternalError(f"an operand of type {value.type}")
    return value.type.within.data, element_of(value.type.element)


def _read(e: Emitter, element: Element, address: str, name: str) -> None:
    """Write the load of one element into a variable of its compute type."""
    if element.packed > 1:
        bits = e.call(memory.shared_load_narrow(element.bits), address)
        e.use_accessors(element)
        text = f"{element.name}_to_float({bits})" if element.is_small_float else bits
        e.line(f"{name} = {text if element.is_small_float else f'({element.storage}){text}'};")
        return
    e.do(memory.shared_load(element.word, 1), f"&{name}", address)


def _place(e: Emitter, base: str, within: SharedLayout, pitch: int, parts: tuple[str, ...]) -> str:
    """Return the address of an element whose offset has some parts; with a `pitch`, in rows that
    lie so far apart.
    """
    offset = " + ".join(part for part in parts if part != "0") or "0"
    if pitch:
        panels = f"{pitch}, {within.rows}, {within.swizzle}"
        offset = e.call(memory.PANELLED, offset, template=panels)
    if within.swizzle:
        offset = e.call(memory.SWIZZLED, offset, template=str(within.swizzle - 16))
    return f"{base} + {offset}"


def fma_dot(e: Emitter, op: Operation) -> None:
    """Write a product by multiply-add: a loop over k that reads both operands from memory."""
    assert isinstance(op, hopper.FmaDot)
    layout = layout_of(op.result.type)
    acc = e.in_place(op.acc, op.result)
    extent = _view(op.a)[0].shape[1]
    sides = [(op.a, 0, "left"), (op.b, 1, "right")]
    names: list[str] = []
    distinct = [sorted({place[dim] for place in layout.register_table}) for _, dim, _ in sides]
    for (value, _, hint), places in zip(sides, distinct):
        name = e.names.fresh(hint)
        e.line(f"{_view(value)[1].compute} {name}[{len(places)}];")
        names.append(name)
    with e.block(f"for (int step = 0; step < {extent}; ++step)"):
        for (value, dim, _), places, name in zip(sides, distinct, names):
            _read_side(e, layout, value, dim, places, name, extent)
        _accumulate(e, op, layout, acc.name, names, distinct)


def _read_side(
    e: Emitter,
    layout: RegisterLayout,
    value: SSAValue,
    dim: int,
    places: list[int],
    name: str,
    extent: int,
) -> None:
    """Write the loads of one operand's elements of a k step: one a row (column) of the thread."""
    within, element = _view(value)

    def at(mn: int, k: int) -> Coordinate:
        return (mn, k) if dim == 0 else (k, mn)

    pitch = pitch_along(layout, within, dim)

    def offset(mn: int, k: int) -> int:
        where = at(mn, k)
        return in_rows(within, where, pitch) if pitch else linear(within, where)

    thread = thread_offsets(e, layout, lambda where: offset(where[dim], 0))
    over_steps = _formula([offset(0, k) for k in range(extent)])
    over_places = _formula([offset(place, 0) for place in places])
    with e.unrolled("r", len(places)) as r:
        parts = (thread, over_places.render(r), over_steps.render("step"))
        _read(e, element, _place(e, e.view(value), within, pitch, parts), f"{name}[{r}]")


def _accumulate(
    e: Emitter,
    op: hopper.FmaDot,
    layout: RegisterLayout,
    acc: str,
    names: list[str],
    distinct: list[list[int]],
) -> None:
    result = element_of(element_type(op.result.type))
    if result.packed > 1:
        raise InternalError(f"an accumulator of {result.name} in a product by multiply-add")
    elements = [_view(op.a)[1], _view(op.b)[1]]
    indices = [
        _formula([places.index(where[dim]) for where in layout.register_table])
        for dim, places in enumerate(distinct)
    ]
    with e.unrolled("r", layout.register_count) as r:
        factors = [
            convert(f"{name}[{index.render(r)}]", element, result)
            for name, index, element in zip(names, indices, elements)
        ]
        text = apply(e, "fma", result, [*map(atom, factors), f"{acc}[{r}]"])
        e.line(f"{acc}[{r}] = {text};")


RULES: dict[type[Operation], Handler] = {hopper.Mma: mma, hopper.FmaDot: fma_dot}
