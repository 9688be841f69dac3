"""Scalars in shared memory: one word, written by one thread and read by all.

A scalar is stored and loaded as a tensor of one element that every thread of the role holds, so
that nothing after this knows of scalar memory accesses.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import LayoutAttr, Tensor, bit_width, i1, scalar
from tawa.layouts.register import Axis, RegisterLayout
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.emit import Emitter


def stored_as(kind: Attribute) -> Attribute:
    """Return the element type a scalar has in memory: a truth value takes a byte."""
    return scalar("u8") if kind == i1 else kind


def word_layout(kind: Attribute) -> SharedLayout:
    """Return the placement of one scalar."""
    return SharedLayout((1,), (0,), bit_width(stored_as(kind)), 0)


def _one(kind: Attribute, warps: int) -> Tensor:
    """Return the type of a tensor of one element that all threads hold."""
    lanes, over = (Axis(32, (0,)),), (Axis(warps, (0,)),) if warps > 1 else ()
    return Tensor(kind, [1], LayoutAttr(RegisterLayout((1,), (), lanes, over)))


def store_scalar(emitter: Emitter, value: SSAValue, view: SSAValue, role: hopper.Role) -> None:
    """Write a scalar to a view of one element; for one thread."""
    if value.type == i1:
        value = emitter.put(tile.Cast(operands=[value], result_types=[stored_as(i1)])).result
    held = _one(value.type, role.warps.data)
    spread = emitter.put(tile.Splat(operands=[value], result_types=[held])).result
    emitter.put(
        hopper.SharedStore(operands=[spread, view], attributes={"via": StringAttr("plain")})
    )


def load_scalar(
    emitter: Emitter, view: SSAValue, kind: Attribute, role: hopper.Role, hint: str | None = None
) -> SSAValue:
    """Read a scalar of type `kind` from a view of one element, by every thread."""
    element = stored_as(kind)
    loaded = emitter.put(
        hopper.SharedLoad(
            operands=[view],
            attributes={"via": StringAttr("plain")},
            result_types=[_one(element, role.warps.data)],
        )
    ).result
    # One element reduced is that element: the way from a tensor to a scalar.
    body = Block(arg_types=[element, element])
    body.add_op(tile.Yield(operands=[[body.args[0]]]))
    taken = emitter.put(
        tile.Reduce(
            operands=[[loaded]],
            attributes={"axis": IntAttr(0)},
            regions=[Region(body)],
            result_types=[[element]],
        ),
        hint,
    ).res[0]
    if kind != i1:
        return taken
    return emitter.apply("ne", taken, emitter.constant(0, element), hint=hint)
