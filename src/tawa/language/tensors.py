"""Functions that change shape or element type, choose elements, or multiply matrices."""

from __future__ import annotations

from typing import Any, TypeVar

from tawa.language.dtypes import dtype as dtype_type
from tawa.language.stub import builtin

T = TypeVar("T")  # what comes in comes out: a tensor, in a kernel


@builtin
def broadcast(input: Any, other: Any) -> Any:
    """Give both tensors the shape that fits both."""
    ...


@builtin
def broadcast_to(input: T, *shape: Any) -> T:
    """Repeat `input` along its dimensions of extent 1 until it has `shape`."""
    ...


@builtin
def expand_dims(input: T, axis: Any) -> T:
    """Insert dimensions of extent 1 so that the result has them at `axis` (int or tuple)."""
    ...


@builtin
def squeeze(x: T, dim: int) -> T:
    """Remove the dimension `dim`, of extent 1."""
    ...


@builtin
def unsqueeze(x: T, dim: int) -> T:
    """Insert a dimension of extent 1 so that the result has it at `dim`."""
    ...


@builtin
def reshape(input: T, *shape: Any, can_reorder: bool = False) -> T:
    """Give the elements, in row-major order, another shape."""
    ...


@builtin
def view(input: T, *shape: Any) -> T:
    """Give the elements another shape; here the order of the elements is kept."""
    ...


@builtin
def ravel(x: T, can_reorder: bool = False) -> T:
    """Give the elements as one dimension."""
    ...


@builtin
def item(input: T) -> T:
    """Turn a tensor of one element into a scalar."""
    ...


@builtin
def trans(input: T, *dims: Any) -> T:
    """Permute dimensions; without `dims` swap the last two."""
    ...


@builtin
def permute(input: T, *dims: Any) -> T:
    """Permute dimensions: dimension i of the result is dimension ``dims[i]`` of `input`."""
    ...


@builtin
def join(a: T, b: Any) -> T:
    """Stack two tensors along a new last dimension of extent 2."""
    ...


@builtin
def split(a: T) -> tuple[T, T]:
    """Take apart the last dimension, of extent 2, into two tensors."""
    ...


@builtin
def interleave(a: T, b: Any) -> T:
    """Alternate the elements of two tensors along the last dimension."""
    ...


@builtin
def cat(input: T, other: Any, can_reorder: bool = False, dim: int = 0) -> T:
    """Put two tensors of one shape one after the other along `dim`."""
    ...


@builtin
def gather(src: T, index: Any, axis: int) -> T:
    """Choose elements of `src` along `axis` by an integer `index`, whose shape the result has."""
    ...


@builtin
def cast(
    input: T, dtype: dtype_type, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> T:
    """Convert to `dtype`: to nearest even ("rtz": to zero); `bitcast`: the same bits as `dtype`."""
    ...


@builtin
def where(condition: T, x: Any, y: Any) -> T:
    """Take `x` where the condition holds and `y` elsewhere; both sides are computed."""
    ...


@builtin
def dot(
    input: T,
    other: Any,
    acc: Any = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: dtype_type | None = None,
) -> T:
    """Multiply matrices: ``input @ other + acc``, shapes ``[.., M, K]`` and ``[.., K, N]``.

    `input_precision` says how float32 operands are multiplied: "tf32" (their upper 19 bits), "ieee"
    (fused multiply-add), or by several products of narrow parts: "tf32x3", "bf16x3", "bf16x6".
    `max_num_imprecise_acc` bounds how many fp8 products are added up before a float32 addition.
    `out_dtype` is float32 unless given (int32 for int8 operands).
    """
    ...


@builtin
def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> Any:
    """Renumber the tile (i, j) of a grid so that groups of `size_g` rows are walked by column."""
    ...
