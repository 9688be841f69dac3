"""Corners of the language: what few kernels do, each of them once wrong, refused or endless."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)


# --- atomics of few elements whose old values are used --------------------------------------------


def exchanged(locks, **_):
    double = 2 * np.arange(len(locks))
    return {"old": locks, "locks": np.where(locks == 0, double, locks)}


def exchange_case(n: int, dtype: Any) -> Any:
    some = np.where(np.arange(n) % 2 == 0, 0, np.arange(n) + 100).astype(dtype)
    name = np.dtype(dtype).name
    old = blank(n, dtype=dtype)
    return case((1,), exchanged, label=f"{n} {name}", locks=fixed(some), old=old, n=n)


@exchange_case(64, np.int64)
@exchange_case(2, np.int32)
@exchange_case(1, np.uint64)
@exchange_case(256, np.int32)
@tawa.jit
def exchange_where_zero(locks, old, n: tl.constexpr):
    at = tl.arange(0, n)
    kind: tl.constexpr = locks.dtype.element_ty
    before = tl.atomic_cas(locks + at, tl.zeros((n,), kind), (at * 2).to(kind))
    tl.store(old + at, before)


@case((1,), lambda **_: {"out": 100 * np.arange(9)[1:] + 400, "counts": np.full(8, 5)},
      out=blank(8, dtype=np.int32), counts=lambda _: np.zeros(8, np.int32),
      iterations=4)  # fmt: skip
@tawa.jit
def tickets(out, counts, iterations):
    """A tile of two dimensions, in a loop; what the second atomic gives is what the first left."""
    at = tl.arange(0, 4)[:, None] * 2 + tl.arange(0, 2)[None, :]
    total = tl.zeros((4, 2), tl.int32)
    for _ in range(iterations):
        old = tl.atomic_add(counts + at, at + 1, sem="acq_rel")
        total += (tl.atomic_xchg(counts + at, 0) - old) * 25
        total += 100
    tl.atomic_add(counts + at, 5)
    tl.store(out + tl.ravel(at), tl.ravel(total))


@case((40,), lambda keys, **_: {"count": np.array([len(set(keys.tolist()))])},
      keys=integers(1, 60, 40), table=lambda _: np.zeros(128, np.int32),
      count=lambda _: np.zeros(1, np.int32), SIZE=128)  # fmt: skip
@tawa.jit
def insert_in_table(keys, table, count, SIZE: tl.constexpr):
    """Ends when what was read says so: no trip count, and outcomes under which it never ends."""
    key = tl.load(keys + tl.program_id(0))
    h = key.to(tl.uint32)
    h ^= h >> 16
    h *= 0x85EBCA6B
    slot = (h % SIZE).to(tl.int32)
    done = 0
    while done == 0:
        old = tl.atomic_cas(table + slot, 0, key)
        if old == 0:
            tl.atomic_add(count, 1)
            done = 1
        elif old == key:
            done = 1
        else:
            slot = (slot + 1) % SIZE


# --- numbers that wrap, and values that are used many times ---------------------------------------


def multiplied(**_):
    i = np.arange(96, dtype=np.int64)
    return {"signs": ((i * 2654435 + 17).astype(np.int32) * 1013 < 0).astype(np.int32),
            "rests": np.fmod((i * 26544350).astype(np.int32), 7)}  # fmt: skip


@case((3,), multiplied, signs=blank(96, dtype=np.int32), rests=blank(96, dtype=np.int32))
@tawa.jit
def hash_of_index(signs, rests):
    """Not an index any more: the sign of what wraps is not known."""
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(signs + at, ((at * 2654435 + 17) * 1013 < 0).to(tl.int32))
    tl.store(rests + at, at * 26544350 % 7)


def mixed(x, n, **_):
    v = w = np.arange(64)
    for _ in range(40):
        v = (v + (v ^ 3)) & 63
        w = np.minimum(w + w, 63 - w // 2)
    return {"out": np.where(np.arange(64) < n, x[v] + x[np.clip(w, 0, 63)], 77)}


@case((1,), mixed, x=normal(64), out=blank(64), n=50)
@tawa.jit
def used_twice_each_time(x, out, n):
    """Written out these addresses and masks have 2**40 parts."""
    at = tl.arange(0, 64)
    v, w, live = at, at, at < n
    for t in range(1):
        for k in tl.static_range(40):
            v = (v + (v ^ 3)) & 63
            w = tl.minimum(w + w, 63 - w // 2)
            live = (live & (at < n + k + t)) | (live & (at > t - k))
    w = tl.maximum(tl.minimum(w, 63), 0)
    tl.store(out + at, tl.load(x + v, mask=v >= 0) + tl.load(x + w, mask=w < 64), mask=live)


@case((1,), lambda **_: {"out": np.arange(64)}, out=blank(64), n=1)
@tawa.jit
def long_chain(out, n):
    """Hundreds of additions, one after the other, in one address."""
    at, v, p = tl.arange(0, 64), n, out
    for _ in tl.static_range(200):
        v = v + n
        p = p + v
    for _ in tl.static_range(200):
        p = p - v
        v = v - n
    tl.store(p + v * at, at, mask=at + v < 100)


SPECIAL = np.array(
    [0.0, -0.0, 1e-45, 6e-8, -3e-6, 65519.9, 65520, -1e30, 3.4e38, np.inf, -np.inf, 1]
)


def cut_off(x, **_):
    with np.errstate(over="ignore"):
        near = x.astype(np.float16)
    bits = near.view(np.uint16) - (np.abs(near.astype(np.float32)) > np.abs(x))
    wide = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return {"half": bits.astype(np.uint16).view(np.float16), "brain": wide}


@case((1,), cut_off, x=lambda rng: np.concatenate([SPECIAL, rng.standard_normal(52)]).astype("f4"),
      half=blank(64, dtype=np.float16), brain=blank(64))  # fmt: skip
@tawa.jit
def round_to_zero(x, half, brain):
    at = tl.arange(0, 64)
    v = tl.load(x + at).to(x.dtype.element_ty, fp_downcast_rounding="rtne")  # of its own type
    tl.store(half + at, v.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(brain + at, v.to(tl.bfloat16, fp_downcast_rounding="rtz").to(tl.float32))


# --- one element ----------------------------------------------------------------------------------


def halves(x, **_):
    return {"sums": x.reshape(3, 32).sum(1), "ends": x.reshape(3, 32)[:, [0, 31, 31]].ravel()}


@case((3,), halves, x=integers(0, 100, 96), sums=blank(3, dtype=np.int32),
      ends=blank(9, dtype=np.int32))  # fmt: skip
@tawa.jit
def halved_to_one(x, sums, ends):
    """A sum by halves: the last split gives scalars; of scalars joined, and of blocks of one."""
    pid = tl.program_id(0)
    v = tl.load(x + pid * 32 + tl.arange(0, 32))
    for k in tl.static_range(4):
        a, b = tl.split(tl.reshape(v, (16 // 2**k, 2)))
        v = a + b
    a, b = tl.split(v)
    tl.store(sums + pid, a + b)
    first = tl.load(x + pid * 32 + tl.arange(0, 1)).item()
    last = tl.load(x + pid * 32 + 31)
    tl.store(ends + pid * 3 + tl.arange(0, 2), tl.join(first, last))
    tl.store(ends + pid * 3 + 2 + tl.arange(0, 1), tl.full((1,), last, tl.int32))


# --- scans along short axes -----------------------------------------------------------------------


def scanned(x, M, N, AXIS, REVERSE, **_):
    turned = np.flip(x.reshape(M, N), AXIS) if REVERSE else x.reshape(M, N)
    sums = np.cumsum(turned, AXIS, dtype=np.int32)
    most = np.maximum.accumulate(turned, AXIS)
    return {"sums": np.flip(sums, AXIS).ravel() if REVERSE else sums.ravel(),
            "most": np.flip(most, AXIS).ravel() if REVERSE else most.ravel()}  # fmt: skip


@tawa.jit
def larger(a, b):
    return tl.maximum(a, b)


def scan_case(m: int, n: int, axis: int, reverse: bool = False) -> Any:
    x = integers(-9, 9, m * n, dtype=np.int16)
    sums, most = blank(m * n, dtype=np.int32), blank(m * n, dtype=np.int16)
    return case((1,), scanned, label=f"{m} {n} {axis}", x=x, sums=sums, most=most, M=m, N=n,
                AXIS=axis, REVERSE=reverse)  # fmt: skip


@scan_case(8, 64, 0)
@scan_case(64, 8, 1, reverse=True)
@scan_case(256, 4, 0)
@tawa.jit
def scan_short_axis(x, sums, most, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr,
                    REVERSE: tl.constexpr):  # fmt: skip
    """Lanes beyond the axis hold other rows."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(v, AXIS, reverse=REVERSE, dtype=tl.int32))
    tl.store(most + at, tl.associative_scan(v, AXIS, larger, reverse=REVERSE))


# --- rows of a descriptor by number ---------------------------------------------------------------


def rows_by_number(x, ids, out, M, **_):
    whole = np.pad(x.reshape(M, 40).astype(np.float64), ((3, 5), (0, 24)))
    wanted = out.reshape(20, 40).astype(np.float64)
    for i, target in enumerate(26 - np.arange(32)):
        if 0 <= target < 20:
            wanted[target, 24:] = whole[ids[i] + 3, 24:40]
    return {"out": wanted.ravel()}


@case((1,), rows_by_number, x=normal(30 * 40, dtype=np.float16), ids=integers(-3, 34, 32),
      out=blank(20 * 40), M=30)  # fmt: skip
@tawa.jit
def moved_rows(x, ids, out, M):
    """Numbers and columns outside of the tensor: zeros are read, nothing is written."""
    source = tl.make_tensor_descriptor(x, [M, 40], [40, 1], [1, 32])
    target = tl.make_tensor_descriptor(out, [20, 40], [40, 1], [1, 32])
    at = tl.arange(0, 32)
    target.scatter(source.gather(tl.load(ids + at), 24), 26 - at, 24)


@case((1,), lambda a, ids, b, **_: {
    "out": (a.reshape(50, 128).astype(float)[ids] @ b.reshape(128, 64).astype(float)).ravel()
}, 2e-3, a=normal(50 * 128, dtype=np.float16), ids=integers(0, 50, 64),
      b=normal(128 * 64, dtype=np.float16), out=blank(64 * 64))  # fmt: skip
@tawa.jit
def product_of_rows(a, ids, b, out):
    rows = tl.make_tensor_descriptor(a, [50, 128], [128, 1], [1, 32])
    tiles = tl.make_tensor_descriptor(b, [128, 64], [64, 1], [32, 64])
    chosen = tl.load(ids + tl.arange(0, 64))
    acc = tl.zeros((64, 64), tl.float32)
    for k in range(0, 128, 32):
        acc = tl.dot(rows.gather(chosen, k), tiles.load([k, 0]), acc)
    tl.make_tensor_descriptor(out, [64, 64], [64, 1], [1, 64]).scatter(acc, tl.arange(0, 64), 0)
