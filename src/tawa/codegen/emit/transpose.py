"""Transposition of 8-bit tiles between two places in shared memory: ldmatrix, prmt, stmatrix.

Which bytes go where is decided in `tawa.layouts.transpose`; here it becomes a loop over blocks.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.codegen.emit.emitter import Emitter
from tawa.codegen.wrappers import memory as w
from tawa.errors import InternalError
from tawa.ir import hopper
from tawa.ir.types import ViewType
from tawa.layouts.indexing import fit
from tawa.layouts.shared import SharedLayout
from tawa.layouts.transpose import Side, sides


def transpose(e: Emitter, op: Operation) -> None:
    """Each warp moves its blocks of a tile from one view to the other."""
    assert isinstance(op, hopper.SharedTranspose)
    found = sides(_layout(op.source), _layout(op.view), e.role.warps)
    if found is None:
        raise InternalError(f"no transposition of {op.source.type} to {op.view.type}")
    source, target = found
    interleaved = bool(op.interleaved)
    row = e.lane if interleaved else e.call(w.TAKEN_ROW, e.lane)
    taken = _place(e, source, e.view(op.source), "taken", row, "")
    given = _place(e, target, e.view(op.view), "given", e.call(w.GIVEN_ROW, e.lane), e.lane)
    first, second = e.names.fresh("first"), e.names.fresh("second")
    swaps = "false" if interleaved else "true"
    e.line(f"const u32 {first} = {e.call(w.BYTE_SELECTOR, e.lane, template=swaps)};")
    e.line(f"const u32 {second} = {first} ^ 0x1111u;")
    with e.unrolled("part", len(source.blocks)) as part, e.scope():
        words = [e.names.fresh("word") for _ in range(4)]
        e.line(f"u32 {', '.join(words)};")
        e.do(w.ldmatrix(4, transposed=True), _address(source, taken, part), *words)
        made = [
            e.call(w.PERMUTE_BYTES, low, high, which)
            for low, high in (words[:2], words[2:])
            for which in (first, second)
        ]
        e.do(w.stmatrix(4), _address(target, given, part), *made)


def _layout(view: SSAValue) -> SharedLayout:
    kind = view.type
    if not isinstance(kind, ViewType) or kind.within != kind.layout:
        raise InternalError(f"a transposition of {kind}, which is no whole tile")
    return kind.layout.data


def _place(e: Emitter, side: Side, base: str, name: str, row: str, lane: str) -> str:
    """Name the address of this thread's row in its warp's first block.

    `lane` is given where lanes from 16 on take the second 16 bytes of a row.
    """
    terms = [f"{row} * {side.row_bytes}"]
    if lane:
        terms.append(f"{lane} / 16 * 16")
    if (warps := _formula(side.warps, e.warp)) != "0":
        terms.append(warps)
    offset = " + ".join(terms)
    if side.chunk_mask:
        offset = e.call(w.SWIZZLED, offset, template=str(side.chunk_mask))
    named = e.names.fresh(name)
    e.line(f"const u32 {named} = {base} + {offset};")
    return named


def _address(side: Side, place: str, part: str) -> str:
    """Return where a block begins: chunk bits are exclusive-ored, the rest is added."""
    chunk = _formula(tuple(block & side.chunk_mask for block in side.blocks), part)
    rest = _formula(tuple(block & ~side.chunk_mask for block in side.blocks), part)
    text = place if chunk == "0" else f"({place} ^ ({chunk}))"
    return text if rest == "0" else f"{text} + {rest}"


def _formula(values: tuple[int, ...], variable: str) -> str:
    formula = fit(values)
    if formula is None:
        raise InternalError(f"blocks at {values} have no formula")
    return formula.render(variable) if variable != "0" else str(formula(0))


RULES = {hopper.SharedTranspose: transpose}
