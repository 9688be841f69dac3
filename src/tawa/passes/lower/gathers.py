"""Gathers: elements that cross threads by index go through shared memory.

Purpose: give every thread the elements that its index asks for.
Before -> after:
                                      hopper.named_barrier (role)
    %y = tile.gather %x, %i      ->   hopper.shared_store %x, %scratch
                                      hopper.named_barrier (role)
                                      %y = hopper.shared_gather %scratch, %i
Requires: layouts converted. Ensures: no `tile.gather` is left.
Declines when: never.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr

from tawa.ir import hopper, tile
from tawa.ir.types import bit_width, element_type, layout_of, shape_of, with_shape
from tawa.ir.walk import all_of
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.convert import as_bits, as_bytes, scratch, with_layout
from tawa.passes.lower.emit import Emitter, replace
from tawa.passes.lower.views import whole_buffer


def expand_gathers(lowering: Lowering, role: hopper.Role) -> None:
    """Expand the gathers of `role`."""
    for gather in all_of(role.body, tile.Gather):
        _expand(lowering, role, gather)


def _expand(lowering: Lowering, role: hopper.Role, gather: tile.Gather) -> None:
    emitter = Emitter.before(gather)
    value = as_bytes(emitter, gather.value)
    kind, shape = element_type(value.type), shape_of(value.type)
    # Rows one after the other: an element's address is a sum of its coordinates' steps.
    layout = SharedLayout(shape, tuple(range(len(shape))), bit_width(kind), 0)
    (buffer,) = scratch(lowering, role, [(layout, kind)])
    emitter.put(lowering.role_barrier(role))
    view = whole_buffer(emitter, buffer)
    emitter.put(hopper.SharedStore(operands=[value, view], attributes={"via": StringAttr("plain")}))
    emitter.put(lowering.role_barrier(role))
    made = with_shape(shape_of(gather.result.type), kind)
    load = hopper.SharedGather(
        operands=[view, gather.index],
        attributes={"axis": IntAttr(gather.axis.data)},
        result_types=[with_layout(made, layout_of(gather.result.type))],
    )
    result = emitter.put(load, gather.result.name_hint).result
    replace(gather, [as_bits(emitter, result) if value is not gather.value else result])
