"""The matrix product as the tensor cores do it, the same code at every level.

A product runs through the instruction's k steps in order (16 elements for 16-bit operands, 32 for
8-bit, 8 for tf32; PTX ISA, "wgmma"). The products of one step are exact in f64, are summed there
and added to the accumulator with one rounding. The f64 sum does not depend on the order of its
terms, so neither does a result on how a tile is cut into rows and columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tawa.ir.precision import SPLITS, TF32_MASK, Split
from tawa.simulator.values import BF16, F8E4M3, F8E5M2, F16, F32, F64, Array, DType, convert


def to_tf32(value: Array) -> Array:
    """Return what the tensor cores read of f32 as tf32: its upper 19 bits. They do not round: an
    H200 gives the same bits for operands in registers and in shared memory.
    """
    bits = np.ascontiguousarray(value).view(np.uint32)
    return (bits & np.uint32(TF32_MASK)).view(np.float32)


def _parts(value: Array, split: Split) -> list[Array]:
    """Return the parts of f32 in the narrow type, the largest first."""
    parts: list[Array] = []
    for _ in range(split.parts):
        part = to_tf32(value) if split.narrow == "tf32" else convert(value, BF16)
        with np.errstate(invalid="ignore"):
            value = value - part.astype(np.float32)
        parts.append(part)
    return parts


def _step(dtype: DType, precision: str) -> int:
    """Return the k extent of the instruction that takes operands of `dtype`."""
    if dtype in (F8E4M3, F8E5M2):
        return 32
    if dtype == F32:
        return 1 if precision == "ieee" else 8
    return 16


# A BLAS starts threads for a product above this many multiplications. One step of a tile is too
# small to gain from them, and on a loaded machine they wait for each other.
_ONE_THREAD = 1 << 18


def _product(a: Array, b: Array, out: Array) -> None:
    """Set out = a @ b (f64), in parts that a BLAS computes on one thread."""
    rows = max(1, _ONE_THREAD // (b.shape[-2] * b.shape[-1]))
    for row in range(0, a.shape[-2], rows):
        part = slice(row, row + rows)
        np.matmul(a[..., part, :], b, out=out[..., part, :])


def _accumulate(a: Array, b: Array, acc: Array, step: int) -> Array:
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total = np.empty(acc.shape, np.float64)
    for k in range(0, a.shape[-1], step):
        _product(wide_a[..., k : k + step], wide_b[..., k : k + step, :], total)
        np.add(total, acc, out=total)
        acc = convert(total, acc.dtype)
    return acc


def dot(a: Any, b: Any, acc: Any, precision: str = "tf32") -> Array:
    """Return a @ b + acc for tiles [.., M, K] and [.., K, N].

    `precision` is the meaning of f32 operands: `tawa.ir.precision`. Integer operands accumulate
    exactly and wrap.
    """
    if a.dtype.kind in "iu":
        exact = a.astype(np.float64) @ b.astype(np.float64)
        return (exact.astype(np.int64) + acc).astype(acc.dtype)
    if a.dtype == F64:
        return a @ b + acc
    if a.dtype == F32 and (split := SPLITS.get(precision)) is not None:
        left, right = _parts(a, split), _parts(b, split)
        for i, j in split.terms:
            acc = _accumulate(left[i], right[j], acc, split.step)
        return acc
    step = _step(a.dtype, precision)
    if acc.dtype == F16:
        return _accumulate(a, b, acc, step)
    if a.dtype != F32 or precision == "ieee":
        return _accumulate(a, b, acc, step)
    return _accumulate(to_tf32(a), to_tf32(b), acc, step)
