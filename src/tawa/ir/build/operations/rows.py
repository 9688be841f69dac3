"""Rows of a descriptor by number: `desc.gather` and `desc.scatter`.

Hopper's TMA has no such access (gather4 and scatter4 came with Blackwell), so the rows are read and
written through pointers, whose bounds are the descriptor's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from tawa.errors import DescriptorError
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.operations.memory import load_from, scalar, store_to
from tawa.ir.build.values import Const, Descriptor, Tensor, Value, describe
from tawa.ir.types import PtrType
from tawa.language.dtypes import int32, int64, pointer_type


def _row_numbers(c: Context, desc: Descriptor, name: str, value: Value) -> Tensor:
    """Return the numbers of the rows; raises for a descriptor whose block_shape is not one row."""
    block = desc.block_shape
    if len(block) != 2 or block[0] != 1 or desc.type.window is not None:
        raise c.builder.error(
            DescriptorError,
            f"{name} of a {describe(desc)}",
            why="it moves rows of a matrix, each by its number: block_shape is [1, columns]",
            remedy=f"describe the tensor with block_shape [1, {block[-1]}]",
        )
    rows = arg.tensor(c, value, f"the rows of {name}")
    if len(rows.shape) != 1 or not rows.dtype.is_int():
        raise c.builder.mismatch(
            f"the rows of {name} are a vector of integers, these {describe(rows)}"
        )
    return rows


def _base(c: Context, desc: Descriptor) -> Tensor:
    """Return the address of a descriptor's first element."""
    if isinstance(made := desc.ssa.owner, tile.MakeDesc):
        base = Tensor(made.base)
    else:
        kind = PtrType(desc.type.element)
        base = c.builder.op(tile.DescExtent, [Tensor(desc.ssa)], kind, what="base", axis=0)
    return arithmetic.cast(c.builder, base, pointer_type(desc.dtype))


def _addresses(c: Context, desc: Descriptor, rows: Tensor, first: Value) -> tuple[Tensor, Tensor]:
    """Return where the elements of the rows are, and which of them lie inside the tensor."""
    binary, compare = partial(arithmetic.binary, c.builder), partial(arithmetic.compare, c.builder)
    row = c.builder.expand_dims(arithmetic.cast(c.builder, rows, int64), 1)
    column = c.builder.line(desc.block_shape[1])
    column = binary("+", scalar(c, first, int32, "an offset"), column)
    column = c.builder.expand_dims(column, 0)
    inside: list[Tensor] = []
    for index, extent in zip((row, column), c.builder.extents(desc)):
        inside += [compare(">=", index, Const(0)), compare("<", index, extent)]
    pitch, _ = c.builder.strides(desc)
    address = binary("+", binary("+", _base(c, desc), binary("*", row, pitch)), column)
    return address, reduce(partial(binary, "&"), inside)


def gather(c: Context, desc: Descriptor, x_offsets: Value, y_offset: Value) -> Value:
    """Load rows by number."""
    rows = _row_numbers(c, desc, "gather", x_offsets)
    address, inside = _addresses(c, desc, rows, y_offset)
    filler = Const(float("nan") if desc.padding == "nan" else 0)
    return load_from(c, address, inside, filler, {})


def scatter(c: Context, desc: Descriptor, value: Value, x_offsets: Value, y_offset: Value) -> Value:
    """Store rows by number."""
    rows = _row_numbers(c, desc, "scatter", x_offsets)
    block, shape = arg.tensor(c, value, "scatter"), (*rows.shape, desc.block_shape[1])
    if block.shape != shape:
        raise c.builder.mismatch(
            f"scatter of {describe(block)} to {rows.shape[0]} rows of a {describe(desc)}",
            why=f"the shapes are {list(block.shape)} and {list(shape)}",
        )
    address, inside = _addresses(c, desc, rows, y_offset)
    store_to(c, address, block, inside, {})
    return arg.NONE


OPERATIONS: dict[str, Callable[..., Value]] = {
    "descriptor.gather": gather,
    "descriptor.scatter": scatter,
}
