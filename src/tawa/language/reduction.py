"""Reductions and scans along an axis, or over all elements."""

from __future__ import annotations

from typing import Any, TypeVar

from tawa.language.dtypes import dtype as dtype_type
from tawa.language.stub import builtin

T = TypeVar("T")  # what comes in comes out: a tensor, in a kernel


@builtin
def reduce(input: Any, axis: int | None, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Combine the elements of a tensor, or of a tuple of tensors, along `axis`.

    `combine_fn` is a helper function of a kernel: it takes two elements (of each tensor) and gives
    their combination. It must be associative and commutative: each thread combines what it holds,
    which need not be neighbours, before threads combine theirs. (`associative_scan` keeps order.)
    """
    ...


@builtin
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False) -> Any:
    """Give the inclusive prefix combinations along `axis`; `combine_fn` as in `reduce`."""
    ...


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1) -> Any:
    """Apply a function of scalars to the elements of tensors that are broadcast to one shape.

    `scalar_fn` is a helper function of a kernel, without access to memory; its `if` and loops
    decide for each element, though the time is that of all sides together. With `pack`, a power of
    two, a call takes so many neighbours along the last dimension of each tensor, and gives as many
    of each result. Several results give a tuple of tensors.
    """
    ...


@builtin
def sum(
    input: T, axis: int | None = None, keep_dims: bool = False, dtype: dtype_type | None = None
) -> T:
    """Add up along `axis`. Integers under 32 bits are summed as 32 bits, floats in their type."""
    ...


@builtin
def max(
    input: Any,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Take the largest element along `axis`; types under 32 bits give float32 or int32.

    NaN is passed over. `return_indices` gives (element, index as `argmax`).
    """
    ...


@builtin
def min(
    input: Any,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """Take the smallest element along `axis`; types under 32 bits give float32 or int32.

    NaN is passed over. `return_indices` gives (element, index as `argmin`).
    """
    ...


@builtin
def argmax(input: T, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> T:
    """Give the int32 index of the largest element along `axis`, of several the lowest.

    NaN is passed over; where there is nothing else, index 0.
    """
    ...


@builtin
def argmin(input: T, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> T:
    """Give the int32 index of the smallest element along `axis`, of several the lowest.

    NaN is passed over; where there is nothing else, index 0.
    """
    ...


@builtin
def histogram(input: T, num_bins: int, mask: Any = None) -> T:
    """Count in int32 how often each of 0 .. `num_bins` - 1 stands in a vector of integers.

    Elements outside are not counted, nor those whose `mask` is false.
    """
    ...


@builtin
def xor_sum(input: T, axis: int | None = None, keep_dims: bool = False) -> T:
    """Combine integers along `axis` by bitwise exclusive or."""
    ...


@builtin
def reduce_or(input: T, axis: int | None, keep_dims: bool = False) -> T:
    """Combine integers along `axis` by bitwise or."""
    ...


@builtin
def cumsum(input: T, axis: int = 0, reverse: bool = False, dtype: dtype_type | None = None) -> T:
    """Give the running sums along `axis`; bfloat16 is summed as float32."""
    ...


@builtin
def cumprod(input: T, axis: int = 0, reverse: bool = False, dtype: dtype_type | None = None) -> T:
    """Give the running products along `axis`; bfloat16 is multiplied as float32."""
    ...
