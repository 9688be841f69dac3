"""Functions of the language that move elements by number, scaled products, tuples of arguments."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)


# --- gather and histogram -------------------------------------------------------------------------


def gathered(x, index, AXIS, **_):
    return {"out": np.take_along_axis(x, index % x.shape[AXIS], AXIS)}


def gather_case(axis: int, dtype: Any, *shape: int) -> Any:
    return case(
        (1,), gathered, label=f"{np.dtype(dtype).name} along {axis}",
        x=integers(0, 2 if dtype is np.bool_ else 100, 16, 64, dtype=dtype),
        index=integers(-3, 64, *shape), out=blank(*shape, dtype=dtype),
        M=16, N=64, I=shape[0], J=shape[1], AXIS=axis,
    )  # fmt: skip


@gather_case(1, np.float32, 16, 128)
@gather_case(0, np.float16, 32, 64)
@gather_case(1, np.uint8, 16, 16)
@gather_case(0, np.int64, 4, 64)
@gather_case(1, np.bool_, 16, 64)
@tawa.jit
def gather(x, index, out, M: tl.constexpr, N: tl.constexpr, I: tl.constexpr, J: tl.constexpr,
           AXIS: tl.constexpr):  # fmt: skip
    i, j = tl.arange(0, I)[:, None], tl.arange(0, J)[None, :]
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    chosen = tl.gather(values, tl.load(index + i * J + j), axis=AXIS)
    tl.store(out + i * J + j, chosen)


def walked(parents, out, n, STEPS, **_):
    at = np.arange(len(parents))
    for _ in range(STEPS):
        at = parents[at]
    return {"out": np.where(np.arange(len(at)) < n, at, out)}


@case((1,), walked, parents=integers(0, 256, 256), out=blank(256, dtype=np.int32), n=251, STEPS=3,
      B=256)  # fmt: skip
@tawa.jit
def pointer_jumping(parents, out, n, STEPS, B: tl.constexpr):
    """A gather in a loop, of what the iteration before gathered."""
    at = tl.arange(0, B)
    table = tl.load(parents + at)
    found = at
    for _ in range(STEPS):
        found = tl.gather(table, found, 0)
    tl.store(out + at, found, mask=at < n)


def counted(x, n, BINS, **_):
    return {"out": np.array([(x[:n] == b).sum() for b in range(BINS)])}


def count_case(size: int, bins: int, dtype: Any = np.int32) -> Any:
    low = 0 if dtype is np.uint8 else -2
    return case(
        (1,), counted, label=f"{size} {np.dtype(dtype).name} in {bins}",
        x=integers(low, bins + 3, size, dtype=dtype), out=blank(bins, dtype=np.int32), n=size - 3,
        B=size, BINS=bins,
    )  # fmt: skip


@count_case(1024, 64)
@count_case(16, 4)
@count_case(256, 512, np.int64)
@count_case(32, 1)
@count_case(64, 16, np.uint8)
@tawa.jit
def histogram(x, out, n, B: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, B)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.store(out + tl.arange(0, BINS), tl.histogram(values, BINS, mask=at < n))


def ranked(x, n, BINS, **_):
    ends = np.cumsum(np.bincount(x[:n], minlength=BINS))
    return {"starts": ends - np.bincount(x[:n], minlength=BINS), "out": ends[x]}


@case((1,), ranked, x=integers(0, 32, 512), starts=blank(32, dtype=np.int32),
      out=blank(512, dtype=np.int32), n=509, B=512, BINS=32)  # fmt: skip
@tawa.jit
def counting_sort(x, starts, out, n, B: tl.constexpr, BINS: tl.constexpr):
    """The three together, as experts are sorted: a histogram, its prefix sums, and a gather."""
    at = tl.arange(0, B)
    values = tl.load(x + at)
    counts = tl.histogram(values, BINS, mask=at < n)
    ends = tl.cumsum(counts, 0)
    tl.store(starts + tl.arange(0, BINS), ends - counts)
    tl.store(out + at, tl.gather(ends, values, 0))


# --- block-scaled products ------------------------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
KINDS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
         "bf16": ml_dtypes.bfloat16, "fp16": np.float16}  # fmt: skip


def numbers(x: np.ndarray, format: str, axis: int) -> np.ndarray:
    """The values of an operand; pairs lie along `axis`."""
    if format != "e2m1":
        return x.view(KINDS[format]).astype(np.float64)
    pairs = np.stack([E2M1[x & 15], E2M1[x >> 4]], axis + 1)
    return pairs.reshape([2 * n if d == axis else n for d, n in enumerate(x.shape)])


def scaled(a, a_scale, b, b_scale, A, B, A_PACK, B_PACK, **_):
    x, y = numbers(a, A, A_PACK), numbers(b, B, 1 - B_PACK)
    power = [
        np.where(s == 255, np.nan, 2.0 ** (s - 127.0)) for s in (a_scale, b_scale) if s is not None
    ]
    x = x * np.repeat(power[0], 32, 1)
    y = y if b_scale is None else y * np.repeat(power[1], 32, 1).T
    with np.errstate(invalid="ignore"):
        return {"out": x @ y}


def scaled_case(a: str, b: str, a_pack: int = 1, b_pack: int = 1, plain: bool = False) -> Any:
    m, n, k = 64, 32, 256

    def operand(format: str, rows: int, columns: int, axis: int) -> Any:
        if format == "e2m1":
            return integers(0, 256, rows // (2 - axis), columns // (1 + axis), dtype=np.uint8)
        return normal(rows, columns, dtype=KINDS[format])

    powers = np.random.default_rng(1).integers(120, 134, (m, k // 32)).astype(np.uint8)
    powers[5, 1] = 255
    return case(
        (1,), scaled, 1e-6, f"{a} {a_pack} by {b} {b_pack}",
        a=operand(a, m, k, a_pack), a_scale=fixed(powers), b=operand(b, k, n, 1 - b_pack),
        b_scale=None if plain else integers(120, 134, n, k // 32, dtype=np.uint8),
        out=blank(m, n), K=k, M=m, N=n, BK=64, A=a, B=b, A_PACK=a_pack, B_PACK=b_pack,
    )  # fmt: skip


@scaled_case("e2m1", "e4m3")
@scaled_case("e4m3", "e2m1", b_pack=0)
@scaled_case("e2m1", "bf16", a_pack=0, plain=True)
@scaled_case("fp16", "e5m2")
@tawa.jit
def scaled_matmul(
    a, a_scale, b, b_scale, out, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr,
):  # fmt: skip
    AM: tl.constexpr = M // 2 if A == "e2m1" and not A_PACK else M
    AK: tl.constexpr = 2 if A == "e2m1" and A_PACK else 1
    BN: tl.constexpr = N // 2 if B == "e2m1" and not B_PACK else N
    BP: tl.constexpr = 2 if B == "e2m1" and B_PACK else 1
    m, n = tl.arange(0, M), tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        ak, bk = k // AK + tl.arange(0, BK // AK), k // BP + tl.arange(0, BK // BP)
        group = k // 32 + tl.arange(0, BK // 32)
        x = tl.load(a + tl.arange(0, AM)[:, None] * (K // AK) + ak[None, :])
        y = tl.load(b + bk[:, None] * BN + tl.arange(0, BN)[None, :])
        xs = tl.load(a_scale + m[:, None] * (K // 32) + group[None, :])
        ys = None
        if b_scale is not None:
            ys = tl.load(b_scale + n[:, None] * (K // 32) + group[None, :])
        acc = tl.dot_scaled(x, xs, A, y, ys, B, acc, lhs_k_pack=A_PACK == 1, rhs_k_pack=B_PACK == 1)
    tl.store(out + m[:, None] * N + n[None, :], acc)


# --- tuples of arguments --------------------------------------------------------------------------


class Strided(NamedTuple):
    pointer: Any
    stride: Any


def summed(parts, n, **_):
    return {"out": sum(x[: n * step : step] for x, step in parts)}


PAIRS = (normal(100), 1), (normal(300), 3)


@case((2,), summed, parts=PAIRS, out=blank(100), n=100, B=64)
@tawa.jit
def sum_of_tuple(parts, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for i in tl.static_range(len(parts)):
        pointer, stride = parts[i]
        total += tl.load(pointer + at * stride, mask=at < n, other=0.0)
    tl.store(out + at, total, mask=at < n)


@case((4,), lambda x, out, shape, **_: {"out": x.pointer.reshape(shape).T.ravel()},
      x=Strided(normal(7 * 9), 1), out=blank(63), shape=(7, 9), B=16)  # fmt: skip
@tawa.jit
def shape_as_tuple(x: Strided, out, shape, B: tl.constexpr):
    rows, columns = shape
    at = tl.program_id(0) * B + tl.arange(0, B)
    mask = at < rows * columns
    tl.store(
        out + at % columns * rows + at // columns, tl.load(x.pointer + at * x.stride, mask), mask
    )
