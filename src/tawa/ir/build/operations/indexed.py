"""Elements by number: chosen by an index, or counted."""

from __future__ import annotations

from collections.abc import Callable

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.values import Tensor, Value, describe, ir_type
from tawa.language.dtypes import int32, uint64


def _integers(c: Context, value: Value, name: str) -> Tensor:
    tensor = arg.tensor(c, value, name)
    if not tensor.dtype.is_int():
        raise c.builder.mismatch(f"{name} takes integers, this is {describe(tensor)}")
    return tensor


def gather(c: Context, src: Value, index: Value, axis: Value) -> Tensor:
    """Choose elements along an axis by index."""
    tensor = arg.tensor(c, src, "tl.gather")
    places = _integers(c, index, "the index of tl.gather")
    if tensor.dtype.is_ptr():
        raise c.builder.mismatch(
            f"tl.gather takes numbers, this is {describe(tensor)}",
            remedy="gather the offsets and add them to the pointer",
        )
    number = arg.axis_of(c, axis, len(tensor.shape))
    others = [shape[:number] + shape[number + 1 :] for shape in (tensor.shape, places.shape)]
    if len(tensor.shape) != len(places.shape) or others[0] != others[1]:
        raise c.builder.mismatch(
            f"tl.gather along axis {number} takes tensors that differ in that dimension alone, "
            f"these are {describe(tensor)} and {describe(places)}",
            why="each element comes from its own place in the other dimensions",
            remedy="broadcast one of them first",
        )
    kind = ir_type(tensor.dtype, places.shape)
    places = arithmetic.cast(c.builder, places, int32)
    return c.builder.op(tile.Gather, [tensor, places], kind, axis=number)


def histogram(c: Context, value: Value, bins: Value, mask: Value) -> Tensor:
    """Count the elements of a vector."""
    tensor = _integers(c, value, "tl.histogram")
    (count,) = arg.shape(c, bins)
    if len(tensor.shape) != 1:
        raise c.builder.mismatch(
            f"tl.histogram takes a vector, this is {describe(tensor)}",
            remedy="flatten it first, as in tl.ravel(x)",
        )
    if tensor.dtype.primitive_bitwidth > 32:
        # What is outside stays outside when the upper half goes.
        wide = arithmetic.bitcast(c.builder, tensor, uint64)
        most = c.builder.constant(count, uint64, tensor.shape)
        tensor = c.builder.elementwise("min", wide, most)
    counted = arithmetic.cast(c.builder, tensor, int32)
    flags = None
    if not arg.is_none(mask):
        truths = arithmetic.to_bool(c.builder, mask)
        flags = arithmetic.broadcast_to(c.builder, truths, tensor.shape)
    return c.builder.op(tile.Histogram, [counted, flags], ir_type(int32, (count,)))


OPERATIONS: dict[str, Callable[..., Value]] = {"gather": gather, "histogram": histogram}
