"""Functions that change the shape or the element type of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.values import Const, Tensor, Tuple, Value, describe, ir_type
from tawa.language.dtypes import dtype


def broadcast(c: Context, one: Value, other: Value) -> Value:
    """Bring two tensors to one shape."""
    left, right = (arithmetic.to_tensor(c.builder, value) for value in (one, other))
    extents = arithmetic.broadcast_shape(c.builder, left.shape, right.shape)
    parts = (arithmetic.broadcast_to(c.builder, part, extents) for part in (left, right))
    return Tuple(tuple(parts))


def broadcast_to(c: Context, value: Value, shape: Value) -> Value:
    """Repeat a tensor to a shape of the same rank, or a scalar to any."""
    extents = arg.shape(c, arg.spread(shape))
    tensor = arithmetic.to_tensor(c.builder, value)
    if tensor.is_block and len(tensor.shape) != len(extents):
        raise c.builder.mismatch(
            f"{describe(tensor)} cannot be repeated to {list(extents)}",
            why="the ranks differ",
            remedy="insert dimensions first, as in x[:, None]",
        )
    return arithmetic.broadcast_to(c.builder, tensor, extents)


def expand_dims(c: Context, value: Value, axis: Value) -> Value:
    """Insert dimensions of extent 1 at positions of the result."""
    tensor = arithmetic.to_tensor(c.builder, value)
    positions = arg.sequence(axis)
    rank = len(tensor.shape) + len(positions)
    axes = sorted(arg.axis_of(c, position, rank) for position in positions)
    if len(set(axes)) != len(axes):
        raise c.builder.mismatch(f"expand_dims got an axis twice: {axes}")
    for place in axes:
        tensor = c.builder.expand_dims(tensor, place)
    return tensor


def squeeze(c: Context, value: Value, dim: Value) -> Value:
    """Remove a dimension of extent 1."""
    tensor = arg.tensor(c, value, "tl.squeeze")
    at = arg.axis_of(c, dim, len(tensor.shape))
    if tensor.shape[at] != 1:
        raise c.builder.mismatch(
            f"tl.squeeze removes a dimension of extent 1, {at} of {describe(tensor)} is none",
            remedy="reduce it, or reshape the tensor",
        )
    return c.builder.reshape(tensor, tensor.shape[:at] + tensor.shape[at + 1 :])


def reshape(c: Context, value: Value, shape: Value, can_reorder: Value = arg.NONE) -> Value:
    """Give the elements another shape; () takes the only element out."""
    tensor = arithmetic.to_tensor(c.builder, value)
    extents = arg.shape(c, arg.spread(shape))
    if prod(extents) != prod(tensor.shape):
        raise c.builder.mismatch(
            f"{describe(tensor)} cannot be reshaped to {list(extents)}",
            why=f"{prod(tensor.shape)} elements against {prod(extents)}",
        )
    if not tensor.is_block:
        return c.builder.splat(tensor, extents)
    return c.builder.reshape(tensor, extents)


def ravel(c: Context, value: Value, can_reorder: Value) -> Value:
    """Give the elements as one dimension."""
    tensor = arithmetic.to_tensor(c.builder, value)
    return c.builder.reshape(tensor, (prod(tensor.shape),))


def item(c: Context, value: Value) -> Value:
    """Take the only element out of a tensor."""
    tensor = arithmetic.to_tensor(c.builder, value)
    if prod(tensor.shape) != 1:
        raise c.builder.mismatch(
            f"item() takes a tensor of one element, this is {describe(tensor)}"
        )
    return c.builder.reshape(tensor, ())


def trans(c: Context, value: Value, dims: Value) -> Value:
    """Permute dimensions, or swap the last two."""
    tensor = arg.tensor(c, value, "tl.trans")
    if arg.sequence(arg.spread(dims)):
        return permute(c, value, dims)
    rank = len(tensor.shape)
    if rank < 2:
        raise c.builder.mismatch(
            f"tl.trans takes two dimensions or more, this is {describe(tensor)}"
        )
    return c.builder.transpose(tensor, (*range(rank - 2), rank - 1, rank - 2))


def permute(c: Context, value: Value, dims: Value) -> Value:
    """Permute dimensions."""
    tensor = arg.tensor(c, value, "tl.permute")
    axes = arg.integers(c, arg.spread(dims), "a dimension")
    if sorted(axes) != list(range(len(tensor.shape))):
        raise c.builder.mismatch(
            f"{list(axes)} does not permute the dimensions of {describe(tensor)}",
            why=f"it must hold each of {list(range(len(tensor.shape)))} once",
        )
    return c.builder.transpose(tensor, axes)


def join(c: Context, one: Value, other: Value) -> Tensor:
    """Stack two tensors (or scalars) along a new last dimension."""
    left, right = (arithmetic.to_tensor(c.builder, value) for value in (one, other))
    if left.dtype != right.dtype:
        raise c.builder.mismatch(
            f"tl.join takes two tensors of one type, these are {describe(left)} and "
            f"{describe(right)}",
            remedy="cast one of them",
        )
    extents = arithmetic.broadcast_shape(c.builder, left.shape, right.shape) or (1,)
    parts = [arithmetic.broadcast_to(c.builder, part, extents) for part in (left, right)]
    joined = c.builder.op(tile.Join, parts, ir_type(left.dtype, (*extents, 2)))
    return joined if left.is_block or right.is_block else c.builder.reshape(joined, (2,))


def split(c: Context, value: Value) -> Value:
    """Take apart the last dimension, of extent 2."""
    tensor = arg.tensor(c, value, "tl.split")
    if tensor.shape[-1] != 2:
        raise c.builder.mismatch(
            f"tl.split takes a last dimension of extent 2, this is {describe(tensor)}",
            remedy="reshape it first, as in x.reshape(M, 2, N // 2).permute(0, 2, 1)",
        )
    whole = c.builder.expand_dims(tensor, 0) if len(tensor.shape) == 1 else tensor
    kind = ir_type(tensor.dtype, whole.shape[:-1])
    made = c.builder.emit(tile.Split.make(whole.ssa, results=[kind, kind]))
    halves = [Tensor(result) for result in made.results]
    if whole is not tensor:
        halves = [c.builder.reshape(half, ()) for half in halves]
    return Tuple(tuple(halves))


def interleave(c: Context, one: Value, other: Value) -> Value:
    """Alternate the elements of two tensors along the last dimension."""
    joined = join(c, one, other)
    if len(joined.shape) == 1:
        return joined
    return c.builder.reshape(joined, (*joined.shape[:-2], 2 * joined.shape[-2]))


def cat(c: Context, one: Value, other: Value, can_reorder: Value, dim: Value) -> Value:
    """Put two tensors of one shape one after the other along a dimension, in order."""
    left, right = (arg.tensor(c, value, "tl.cat") for value in (one, other))
    if left.shape != right.shape:
        raise c.builder.mismatch(
            f"tl.cat takes two tensors of one shape, these are {describe(left)} and "
            f"{describe(right)}"
        )
    rank = len(left.shape)
    axis = arg.axis_of(c, dim, rank)
    order = [*range(axis), rank, *range(axis, rank)]
    extents = [(1 + (at == axis)) * extent for at, extent in enumerate(left.shape)]
    return c.builder.reshape(c.builder.transpose(join(c, left, right), order), extents)


def cast(c: Context, value: Value, dtype: Value, rounding: Value, bitcast: Value) -> Value:
    """Convert elements, or read their bits as another type."""
    element = arg.element(c, dtype)
    mode = arg.text(c, rounding, "fp_downcast_rounding", ("rtne", "rtz"))
    if arg.flag(c, bitcast, "bitcast"):
        tensor = arithmetic.to_tensor(c.builder, value)
        return arithmetic.bitcast(c.builder, tensor, element)
    tensor = arithmetic.to_tensor(c.builder, value)
    if tensor.dtype == element:
        return tensor
    if mode:
        _check_rounding(c, mode, tensor, element)
    if mode == "rtz":
        return _toward_zero(c, tensor, element)
    return arithmetic.cast(c.builder, tensor, element)


def _toward_zero(c: Context, tensor: Tensor, element: dtype) -> Tensor:
    """Convert to a narrower float: where the nearest lies further from zero, the one before it.

    Floats of one sign are ordered as their bits are; before an infinity stands the largest number.
    """
    nearest = arithmetic.cast(c.builder, tensor, element)
    sizes = [c.builder.elementwise("abs", arithmetic.cast(c.builder, x, tensor.dtype))
             for x in (nearest, tensor)]  # fmt: skip
    further = c.builder.elementwise("gt", *sizes)
    bits = arithmetic.bitcast(c.builder, nearest, arithmetic.unsigned_of(element))
    before = arithmetic.binary(c.builder, "-", bits, Const(1))
    chosen = arithmetic.select(c.builder, further, before, bits)
    return arithmetic.bitcast(c.builder, chosen, element)


def _check_rounding(c: Context, mode: str, tensor: Tensor, element: dtype) -> None:
    source = tensor.dtype
    narrows = source.primitive_bitwidth > element.primitive_bitwidth
    if not (source.is_floating() and element.is_floating() and narrows):
        raise c.builder.mismatch(
            f"fp_downcast_rounding does not apply from {source.name} to {element.name}",
            why="only a conversion to a narrower float rounds",
        )
    if mode == "rtz" and element.name == "fp8e4nv":
        raise c.unsupported(
            "fp_downcast_rounding='rtz' is not supported for fp8e4nv",
            why="it has no infinity: what is too large is not rounded at all",
            remedy="leave it out, or clear the low bits through a bitcast first",
        )


def where(c: Context, condition: Value, one: Value, other: Value) -> Value:
    """Choose element by element."""
    if isinstance(condition, Const):
        left, right = arithmetic.choices(c.builder, one, other)
        return left if condition.value else right
    return arithmetic.select(c.builder, condition, one, other)


def new_axes(c: Context, value: Tensor, marks: Sequence[Any]) -> Tensor:
    """Insert a dimension of extent 1 at each None among `marks`, which have ``:`` for the others
    (or ``...`` for as many as are left); raises TypeMismatch.
    """
    marks = _fill_ellipsis(marks, len(value.shape))
    kept = sum(mark == slice(None) for mark in marks)
    if any(mark is not None and mark != slice(None) for mark in marks):
        if value.dtype.is_ptr() and not value.is_block:
            raise c.builder.mismatch(
                f"a {describe(value)} is not indexed",
                why="an array is the address of its first element in a kernel",
                remedy="read through tl.load(pointer + offsets), write through tl.store",
            )
        raise c.builder.mismatch(
            "a tensor is indexed by None, `:` and `...` only",
            why="its elements lie in the registers of many threads",
            remedy="load the part you need, or select it with tl.where and a reduction",
        )
    if value.is_block and kept > len(value.shape):
        raise c.builder.mismatch(
            f"{kept} dimensions are indexed, {describe(value)} has {len(value.shape)}"
        )
    for axis, mark in enumerate(marks):
        if mark is None:
            value = c.builder.expand_dims(value, axis)
    return value


def _fill_ellipsis(marks: Sequence[Any], rank: int) -> Sequence[Any]:
    """Replace ``...`` by as many ``:`` as make up the rank."""
    for position, mark in enumerate(marks):
        if mark is Ellipsis:
            named = sum(other is not None and other is not Ellipsis for other in marks)
            fill = [slice(None)] * max(0, rank - named)
            return [*marks[:position], *fill, *marks[position + 1 :]]
    return marks


OPERATIONS: dict[str, Callable[..., Value]] = {
    "broadcast": broadcast,
    "broadcast_to": broadcast_to,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
    "unsqueeze": expand_dims,
    "reshape": reshape,
    "view": reshape,
    "ravel": ravel,
    "item": item,
    "trans": trans,
    "permute": permute,
    "join": join,
    "split": split,
    "interleave": interleave,
    "cat": cat,
    "cast": cast,
    "where": where,
}
