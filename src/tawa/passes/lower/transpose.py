"""Tiles put to a ring transposed: by one copy in shared memory where the hardware can.

Purpose: find what a role puts that is a tile of another slot with its dimensions exchanged.
Before -> after:
    %v = hopper.shared_load %view              hopper.shared_transpose %view, %slot_view
    %t = tile.transpose %v             ->
    aref.put_exit %slot(%t)
Requires: the source slot is still lent. Ensures: nothing of the tile passes through registers that
need a layout.
Declines when: the elements are not 8 bits wide, the order is neither the plain nor the interleaved
one, or the warps cannot share the tile: registers are stored then.
"""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import Operation, SSAValue

from tawa.analysis.effects import VIEWS
from tawa.ir import hopper
from tawa.ir.types import shape_of
from tawa.layouts.fragments import axes
from tawa.layouts.register import RegisterLayout
from tawa.layouts.transpose import sides
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.relate import propose
from tawa.passes.lower.views import as_view, view_kind

_RUN = 16


def transposition(
    emitter: Emitter, value: SSAValue, view: SSAValue, use: Operation, warps: int
) -> hopper.SharedTranspose | None:
    """Return the copy that fills `view` with `value` at `use`; None where none does."""
    shape = shape_of(value.type)
    if len(shape) != 2 or shape[1] % _RUN:
        return None
    # One thread that holds the tile row by row: its registers count the places in `view`.
    layout = RegisterLayout(
        shape,
        axes(
            (2, (0, 1)), (2, (0, 2)), (4, (0, 4)), (shape[1] // _RUN, (0, _RUN)), (shape[0], (1, 0))
        ),
        (),
        (),
    )
    source = value
    while isinstance(source.owner, VIEWS):
        found = as_view(emitter, source, use) if layout.shape == shape[::-1] else None
        if found is not None and (order := _order(layout)) is not None:
            return _copy(found, view, order, warps)
        inner = source.owner.operands[0]
        back = dict(propose(source.owner, source, layout))
        if inner not in back:
            return None
        source, layout = inner, back[inner]
    found = as_view(emitter, source, use)
    order = _order(layout)
    return _copy(found, view, order, warps) if found is not None and order is not None else None


def _order(layout: RegisterLayout) -> bool | None:
    """Return whether rows stand interleaved; None where they stand in no order that can be had."""
    if len(layout.shape) != 2:
        return None
    rows, columns = layout.shape
    for interleaved, steps in ((False, (1, 2, 4)), (True, (1, 8, 2))):
        run = zip((2, 2, 4), steps)
        wanted = (
            *((n, (step, 0)) for n, step in run),
            (rows // _RUN, (_RUN, 0)),
            (columns, (0, 1)),
        )
        if layout.registers == axes(*wanted):
            return interleaved
    return None


def _copy(
    source: SSAValue, view: SSAValue, interleaved: bool, warps: int
) -> hopper.SharedTranspose | None:
    have, made = view_kind(source), view_kind(view)
    if have.within != have.layout or sides(have.layout.data, made.layout.data, warps) is None:
        return None
    return hopper.SharedTranspose(
        operands=[source, view], attributes={"interleaved": BoolAttr.from_bool(interleaved)}
    )
