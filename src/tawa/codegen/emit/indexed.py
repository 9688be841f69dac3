"""Elements by number: gathered from shared memory, or counted by the votes of a warp."""

from __future__ import annotations

from xdsl.ir import Operation

from tawa.codegen.elements import element_of
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.tensors import thread_offsets
from tawa.codegen.emit.values import atom
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, layout_of
from tawa.layouts.indexing import fit
from tawa.layouts.register import RegisterLayout

_LANES = 32


def gather(e: Emitter, op: hopper.SharedGather) -> None:
    """Write the loads of a gather, an element each."""
    kind = op.view.type
    if kind.within.data.swizzle:
        raise InternalError(f"a gather from {kind}")
    within, axis, layout = kind.within.data, op.axis.data, layout_of(op.result.type)
    extent = within.shape[axis]

    def step(dim: int) -> int:
        return within.offset(tuple(int(d == dim) for d in range(len(within.shape))))

    def place(where: tuple[int, ...]) -> int:
        return sum(at * step(dim) for dim, at in enumerate(where) if dim != axis)

    registers = fit([place(where) for where in layout.register_table])
    if registers is None:
        raise InternalError(f"registers of {layout} have no formula")
    base = thread_offsets(e, layout, place)
    index = e.tensor(op.index)
    e.use_accessors(index.element)
    array, element = e.array(op.result), element_of(element_type(op.result.type))
    start = e.names.fresh("place")
    e.line(f"const u32 {start} = {e.view(op.view)} + {base};")
    narrow = element.bits < 32
    load = w.shared_load_narrow(max(8, element.bits)) if narrow else w.shared_load_one(element.word)

    def at(register: str) -> str:
        chosen = f"((u32){atom(index.at(register))} & {extent - 1}u) * {step(axis)}u"
        terms = [start, registers.render(register), chosen]
        return e.call(load, " + ".join(term for term in terms if term != "0"))

    e.fill(array, at, bits=narrow)


def histogram(e: Emitter, op: tile.Histogram) -> None:
    """Write the counts of one row, which a warp holds: 32 elements at a time."""
    layout, target = layout_of(op.value.type), layout_of(op.result.type)
    axis, bins = len(layout.shape) - 1, target.shape[-1]
    lanes = _distinct_lanes(layout, axis)
    _check_counts(target, axis)
    value = e.tensor(op.value)
    mask = None if op.mask is None else e.tensor(op.mask)
    for tensor in (value, *([] if mask is None else [mask])):
        e.use_accessors(tensor.element)
    counts = e.array(op.result)
    with e.unrolled("r", counts.count) as r:
        e.line(f"{counts.name}[{r}] = 0;")
    counted = e.names.fresh("counted")
    with e.unrolled("r", layout.register_count) as r:
        e.line(f"const int {counted} = {value.at(r)};")
        live = [f"(u32){counted} < {bins}u"]
        live += [] if mask is None else [atom(mask.at(r))]
        live += [] if lanes == _LANES else [f"{e.lane} < {lanes}"]
        given = counts.name, counted, " && ".join(live), e.lane
        e.do(arithmetic.COUNT_BINS, *given, template=str(bins))


def _distinct_lanes(layout: RegisterLayout, axis: int) -> int:
    """Return how many lanes hold elements of their own, the first ones; the others repeat them."""
    places = [place[axis] for place in layout.lane_table]
    lanes = len(set(places))
    held = {
        tuple(map(sum, zip(lane, register)))
        for lane in layout.lane_table
        for register in layout.register_table
    }
    once = len(held) == lanes * layout.register_count == layout.shape[axis]
    if not once or len(set(places[:lanes])) != lanes:
        raise InternalError(f"a row to be counted does not lie in one warp: {layout}")
    return lanes


def _check_counts(layout: RegisterLayout, axis: int) -> None:
    lanes = min(_LANES, layout.shape[axis])
    natural = [lane % lanes for lane in range(_LANES)]
    rounds = [_LANES * register for register in range(layout.register_count)]
    lies = [place[axis] for place in layout.lane_table], [p[axis] for p in layout.register_table]
    if lies != (natural, rounds):
        raise InternalError(f"counts lie otherwise than one a lane: {layout}")


RULES: dict[type[Operation], Handler] = {hopper.SharedGather: gather, tile.Histogram: histogram}
