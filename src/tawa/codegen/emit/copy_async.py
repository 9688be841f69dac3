"""cp.async: each thread's asynchronous copies from pointers to a shared tile."""

from __future__ import annotations

from xdsl.ir import Operation

from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.global_memory import run_length, scaled
from tawa.codegen.emit.tensors import pointee_bytes, thread_offsets
from tawa.codegen.wrappers import memory as w
from tawa.codegen.wrappers import tma
from tawa.errors import InternalError
from tawa.ir import hopper
from tawa.ir.types import layout_of
from tawa.layouts.access import in_rows, linear, vector_access
from tawa.layouts.indexing import fit


def copy_async(e: Emitter, op: hopper.CopyAsync) -> None:
    """Write each thread's asynchronous copies; what the mask leaves out becomes zero."""
    layout, within = layout_of(op.pointer.type), op.view.type.within.data
    access = vector_access(layout, within)
    size = pointee_bytes(op.pointer)
    if access is None:
        raise InternalError(f"no copy of {layout} to {within}")
    run = min(run_length(e, op, op.pointer, op.mask), access.elements)
    width = next((n for n in (16, 8, 4) if n % size == 0 and run % (n // size) == 0), 0)
    if not width:
        raise InternalError(f"cp.async moves 4 bytes at least, the pointers run over {run * size}")
    each = width // size
    pointers = e.tensor(op.pointer)
    mask = None if op.mask is None else e.tensor(op.mask)

    def offset_of(place: tuple[int, ...]) -> int:
        return in_rows(within, place, access.pitch) if access.pitch else linear(within, place)

    column = [offset_of(place) for place in layout.register_table[::each]]
    formula = fit(column)
    if formula is None:
        raise InternalError(f"copies to offsets {column}")
    thread = thread_offsets(e, layout, offset_of)
    place = e.names.fresh("place")
    e.line(f"const u32 {place} = {thread};")
    base = e.view(op.view)
    with e.unrolled("part", len(column)) as part:
        first = scaled(part, each)
        offset = formula.render(part)
        address = place if offset == "0" else f"{place} + {offset}"
        if access.pitch:
            panels = f"{access.pitch}, {access.rows}, {access.swizzle}"
            address = e.call(w.PANELLED, address, template=panels)
        if within.swizzle:
            address = e.call(w.SWIZZLED, address, template=str(within.swizzle - 16))
        count = str(width) if mask is None else f"{mask.at(first)} ? {width} : 0"
        e.do(tma.copy_async(width), f"{base} + {address}", pointers.at(first), count)


def arrive(e: Emitter, op: hopper.CopyAsyncArrive) -> None:
    """Every thread leaves its arrival to its copies."""
    e.do(tma.COPY_ARRIVE, e.barrier(op.barriers, op.slot))


RULES: dict[type[Operation], Handler] = {
    hopper.CopyAsync: copy_async,
    hopper.CopyAsyncArrive: arrive,
}
