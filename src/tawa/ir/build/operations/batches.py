"""Batched products: the tensor cores multiply matrices, so a batch becomes a product of each pair.

The batch is taken apart and put together by halves, with the operations of tl.split and tl.join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tawa.errors import ShapeUnsupported
from tawa.ir import tile
from tawa.ir.build.context import Context
from tawa.ir.build.types import ir_type
from tawa.ir.build.values import Tensor, describe

_MOST = 32
"""Products one tl.dot may become: each is code of its own; 64 of 16x16 spill registers."""


def multiply_each(
    c: Context, operands: Sequence[Tensor], multiply: Callable[[Sequence[Tensor]], Tensor]
) -> Tensor:
    """Return the batch of `multiply` of the matrices of `operands`, all of one leading shape.

    Raises ShapeUnsupported for a batch that is no power of two, or has more than 32 matrices.
    """
    leading = operands[0].shape[:-2]
    count = prod(leading)
    if count & (count - 1) or count > _MOST:
        raise c.builder.error(
            ShapeUnsupported,
            f"tl.dot of {describe(operands[0])} is a batch of {count} matrices",
            why="the tensor cores multiply matrices of two dimensions; a batch becomes one product "
            f"for each, and takes a power of two of them, up to {_MOST}",
            remedy="loop over the batch, or give it an axis of the grid",
        )
    flat = [c.builder.reshape(item, (count, *item.shape[-2:])) for item in operands]
    matrices = zip(*(_apart(c, item) for item in flat), strict=True)
    result = _together(c, [multiply(each) for each in matrices])
    return c.builder.reshape(result, (*leading, *result.shape[-2:]))


def _apart(c: Context, batch: Tensor) -> list[Tensor]:
    """Return the matrices of a batch (count, rows, columns)."""
    count, *matrix = batch.shape
    if count == 1:
        return [c.builder.reshape(batch, matrix)]
    if isinstance(constant := batch.ssa.owner, tile.Constant):
        kind = ir_type(batch.dtype, matrix)
        return [c.builder.op(tile.Constant, [], kind, value=constant.value) for _ in range(count)]
    halves = c.builder.reshape(batch, (2, count // 2, *matrix))
    last = c.builder.transpose(halves, (1, 2, 3, 0))
    kind = ir_type(batch.dtype, (count // 2, *matrix))
    made = c.builder.emit(tile.Split.make(last.ssa, results=[kind, kind]))
    return [part for half in made.results for part in _apart(c, Tensor(half))]


def _together(c: Context, matrices: list[Tensor]) -> Tensor:
    """Return the batch (count, rows, columns) of matrices."""
    count, shape = len(matrices), matrices[0].shape
    if count == 1:
        return c.builder.reshape(matrices[0], (1, *shape))
    middle = count // 2
    parts = [_together(c, matrices[:middle]), _together(c, matrices[middle:])]
    joined = c.builder.op(tile.Join, parts, ir_type(parts[0].dtype, (middle, *shape, 2)))
    return c.builder.reshape(c.builder.transpose(joined, (3, 0, 1, 2)), (count, *shape))
