"""tl.dot: shapes and types checked, then one operation a matrix.

Batched products: the tensor cores multiply matrices, so a batch becomes a product of each pair.

The batch is taken apart and put together by halves, with the operations of tl.split and tl.join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tawa.errors import ShapeUnsupported
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.values import Const, Tensor, Value, describe, ir_type, spell_type
from tawa.ir.precision import PRECISIONS
from tawa.language.dtypes import bfloat16, dtype, float16, float32, float64, int8, int32, uint8

_OPERANDS = (int8, uint8, float16, bfloat16, float32, float64)
# Triton's default on sm_90: fp8 products are never promoted within a dot.
_NEVER = 1 << 30


def dot(
    c: Context,
    a: Value,
    b: Value,
    acc: Value,
    input_precision: Value,
    allow_tf32: Value,
    max_num_imprecise_acc: Value,
    out_dtype: Value,
) -> Value:
    """Emit a matrix product."""
    left, right = arg.tensor(c, a, "tl.dot"), arg.tensor(c, b, "tl.dot")
    _check_operands(c, left, right)
    shape = (*left.shape[:-1], right.shape[-1])
    result = _result_type(c, left.dtype, out_dtype)
    start = _accumulator(c, acc, result, shape)
    precision = _precision(c, input_precision, allow_tf32)
    imprecise = _imprecise(c, left, right, max_num_imprecise_acc)

    def multiply(operands: Sequence[Tensor]) -> Tensor:
        return c.builder.op(
            tile.Dot, operands, operands[2].type, precision=precision, max_imprecise=imprecise
        )

    if len(shape) == 2:
        return multiply((left, right, start))
    return multiply_each(c, (left, right, start), multiply)


def _check_operands(c: Context, left: Tensor, right: Tensor) -> None:
    shown = f"{describe(left)} and {describe(right)}"
    if len(left.shape) != len(right.shape) or len(left.shape) < 2:
        raise c.builder.mismatch(
            f"tl.dot takes two matrices (or batches of equal rank), these are {shown}",
            remedy="reshape the operands to [M, K] and [K, N]",
        )
    if left.shape[-1] != right.shape[-2]:
        raise c.builder.mismatch(
            f"the operands of tl.dot do not fit: {shown}",
            why=f"the first has {left.shape[-1]} columns (K), the second {right.shape[-2]} rows",
            remedy="transpose one with .T, or make the block sizes of K equal",
        )
    if left.shape[:-2] != right.shape[:-2]:
        raise c.builder.mismatch(
            f"the batches of tl.dot differ: {shown}",
            why=f"{list(left.shape[:-2])} against {list(right.shape[:-2])}",
        )
    _check_types(c, left, right)


def _check_types(c: Context, left: Tensor, right: Tensor) -> None:
    one, other = left.dtype, right.dtype
    if one.is_fp8() and other.is_fp8():
        return
    if one == other and one in _OPERANDS:
        return
    names = ", ".join(kind.name for kind in _OPERANDS)
    raise c.builder.mismatch(
        f"tl.dot does not multiply {one.name} by {other.name}",
        why=f"both operands have one type of {names}, or are fp8e4nv or fp8e5",
        remedy="cast one operand to the other's type",
    )


def _result_type(c: Context, operand: dtype, wanted: Value) -> dtype:
    """Return the type products are added up in, from the operands and `out_dtype`."""
    asked = None if arg.is_none(wanted) else arg.element(c, wanted, "out_dtype")
    if operand.is_int():
        return int32
    if operand == float64:
        return float64
    if asked == bfloat16:
        raise c.builder.mismatch(
            "tl.dot cannot add up in bf16",
            why="the tensor cores accumulate in fp32 or fp16",
            remedy="use out_dtype=tl.float32 and cast the result with .to(tl.bfloat16)",
        )
    if asked is None or operand in (bfloat16, float32):
        return float32
    if asked in (float16, float32):
        return asked
    raise c.builder.mismatch(f"out_dtype of tl.dot is float32 or float16, not {asked.name}")


def _accumulator(c: Context, acc: Value, result: dtype, shape: tuple[int, ...]) -> Tensor:
    if arg.is_none(acc):
        return c.builder.constant(0, result, shape)
    if isinstance(acc, Const):
        return arithmetic.to_type(c.builder, acc, result, shape)
    tensor = arg.tensor(c, acc, "the accumulator of tl.dot")
    if tensor.shape == shape and tensor.dtype == result:
        return tensor
    raise c.builder.mismatch(
        f"the accumulator of tl.dot is {describe(tensor)}",
        why=f"the product is {spell_type(result, shape)}",
        remedy=f"start from tl.zeros({list(shape)}, tl.float32)"
        if result == float32
        else "set out_dtype, or give the accumulator the type and shape of the product",
    )


def _precision(c: Context, named: Value, allow_tf32: Value) -> str:
    given = arg.text(c, named, "input_precision").lower()
    if given and not arg.is_none(allow_tf32):
        raise c.builder.mismatch(
            "tl.dot got both input_precision and allow_tf32",
            remedy="keep input_precision; allow_tf32 is its old name",
        )
    if not given:
        exact = not arg.is_none(allow_tf32) and not arg.flag(c, allow_tf32, "allow_tf32")
        return "ieee" if exact else "tf32"
    if given not in PRECISIONS:
        raise c.builder.mismatch(
            f"input_precision cannot be {given!r}",
            why=f"it is one of {', '.join(map(repr, PRECISIONS))}",
        )
    return given


def _imprecise(c: Context, left: Tensor, right: Tensor, limit: Value) -> int:
    """Return how many 8-bit products may be added up before another addition; else 0.

    Integers add up exactly, so theirs are never limited.
    """
    if left.dtype.is_int():
        return _NEVER
    both = left.dtype.is_fp8() and right.dtype.is_fp8()
    if arg.is_none(limit):
        return _NEVER if both else 0
    number, extent = arg.integer(c, limit, "max_num_imprecise_acc"), left.shape[-1]
    if both and number > extent:
        raise c.builder.mismatch(
            f"max_num_imprecise_acc is {number}, and K of this dot is {extent}",
            why="it counts products within one dot",
            remedy=f"use at most {extent}",
        )
    return number if both else 0


OPERATIONS: dict[str, Callable[..., Value]] = {"dot": dot}


# --- batches --------------------------------------------------------------------------------------


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
