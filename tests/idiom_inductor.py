"""What compilers write: loops over reductions, helper functions, masks and hints everywhere."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal
from tawa.language.extra import libdevice

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


# --- helper functions -----------------------------------------------------------------------------


@tawa.jit
def is_floating(x):
    return promote_to_tensor(x).dtype.is_floating()


@tawa.jit
def promote_to_tensor(x):
    return x + tl.zeros((1,), tl.int1)


@tawa.jit
def maximum(a, b):
    mask = a > b
    if is_floating(a):
        mask |= a != a
    return tl.where(mask, a, b)


@tawa.jit
def max2(a, dim):
    return tl.reduce(a, dim, maximum)


@tawa.jit
def maximum_with_index(a_value, a_index, b_value, b_index):
    mask = a_value > b_value
    equal = a_value == b_value
    if is_floating(a_value):
        a_isnan = a_value != a_value
        b_isnan = b_value != b_value
        mask |= a_isnan and not b_isnan
        equal |= a_isnan and b_isnan
    mask |= equal & (a_index < b_index)
    return tl.where(mask, a_value, b_value), tl.where(mask, a_index, b_index)


@tawa.jit
def max_with_index(value, index, dim):
    return tl.reduce((value, index), dim, maximum_with_index)


@tawa.jit
def welford_reduce(value, mean, m2, weight, first_iteration):
    if first_iteration:
        new_weight = tl.full(weight.shape, 1, weight.dtype)
        new_mean = value
        new_m2 = tl.zeros_like(m2)
    else:
        delta = value - mean
        new_weight = weight + 1
        new_mean = mean + delta / new_weight
        new_m2 = m2 + delta * (value - new_mean)
    return new_mean, new_m2, new_weight


@tawa.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    delta = mean_2 - mean_1
    new_weight = weight_1 + weight_2
    w2_over_w = tl.where(new_weight == 0.0, 0.0, weight_2 / new_weight)
    return (
        mean_1 + delta * w2_over_w,
        m2_1 + m2_2 + delta * delta * weight_1 * w2_over_w,
        new_weight,
    )


@tawa.jit
def welford(mean, m2, weight, dim):
    return tl.reduce((mean, m2, weight), dim, welford_combine)


@tawa.jit
def any_of(a, b):
    return a | b


# --- element-wise ---------------------------------------------------------------------------------


def pointwise_reference(in_ptr0, in_ptr1, xnumel, **_):
    x, y = in_ptr0[:xnumel].astype(np.float64), in_ptr1[np.arange(xnumel) // 4 % 16]
    return {"out_ptr0": x * sigmoid(x) + y, "out_ptr1": (x <= 0)}


@case((3,), pointwise_reference, 1e-6, in_ptr0=normal(333), in_ptr1=normal(16),
      out_ptr0=blank(333), out_ptr1=blank(333, dtype=np.bool_), xnumel=333, XBLOCK=128)  # fmt: skip
@tawa.jit
def fused_silu_add(in_ptr0, in_ptr1, out_ptr0, out_ptr1, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x1 = (xindex // 4) % 16
    tmp0 = tl.load(in_ptr0 + (x2), xmask)
    tmp1 = tl.load(in_ptr1 + (x1), xmask, eviction_policy="evict_last")
    tmp2 = tmp0.to(tl.float32)
    tmp3 = tl.sigmoid(tmp2)
    tmp4 = tmp2 * tmp3
    tmp5 = tmp4 + tmp1
    tmp6 = tl.full([1], 0, tl.int32)
    tmp7 = maximum(tmp6, tmp2)
    tmp8 = 0.0
    tmp9 = tmp7 <= tmp8
    tl.store(out_ptr0 + (x2), tmp5, xmask)
    tl.store(out_ptr1 + (x2), tmp9, xmask)


def pool_reference(in_ptr0, **_):
    x = in_ptr0.reshape(3, 6, 8)
    windows = np.stack([x[:, i::2, j::2] for i in range(2) for j in range(2)], -1)
    return {"out_ptr0": windows.max(-1).ravel(), "out_ptr1": windows.argmax(-1).ravel()}


@case((1,), pool_reference, in_ptr0=normal(3 * 6 * 8), out_ptr0=blank(36),
      out_ptr1=blank(36, dtype=np.int8), xnumel=36, XBLOCK=64)  # fmt: skip
@tawa.jit
def max_pool_with_indices(in_ptr0, out_ptr0, out_ptr1, xnumel, XBLOCK: tl.constexpr):
    xnumel = 36
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex % 4
    x1 = xindex // 4
    tmp0 = tl.load(in_ptr0 + (2 * x0 + 16 * x1), xmask, eviction_policy="evict_last")
    tmp1 = tl.load(in_ptr0 + (1 + 2 * x0 + 16 * x1), xmask, eviction_policy="evict_last")
    tmp3 = tl.load(in_ptr0 + (8 + 2 * x0 + 16 * x1), xmask, eviction_policy="evict_last")
    tmp5 = tl.load(in_ptr0 + (9 + 2 * x0 + 16 * x1), xmask, eviction_policy="evict_last")
    tmp2 = maximum(tmp1, tmp0)
    tmp4 = maximum(tmp3, tmp2)
    tmp6 = maximum(tmp5, tmp4)
    tmp7 = tmp1 > tmp0
    tmp8 = tl.full([1], 1, tl.int8)
    tmp9 = tl.full([1], 0, tl.int8)
    tmp10 = tl.where(tmp7, tmp8, tmp9)
    tmp11 = tmp3 > tmp2
    tmp12 = tl.full([1], 2, tl.int8)
    tmp13 = tl.where(tmp11, tmp12, tmp10)
    tmp14 = tmp5 > tmp4
    tmp15 = tl.full([1], 3, tl.int8)
    tmp16 = tl.where(tmp14, tmp15, tmp13)
    tl.store(out_ptr0 + (x0 + 4 * x1), tmp6, xmask)
    tl.store(out_ptr1 + (x0 + 4 * x1), tmp16, xmask)


def embedding_reference(in_ptr0, in_ptr1, **_):
    return {"out_ptr0": in_ptr1.reshape(50, 24)[in_ptr0 % 50].ravel()}


@case((2,), embedding_reference, in_ptr0=integers(-50, 50, 10, dtype=np.int64),
      in_ptr1=normal(1200, dtype=np.float16), out_ptr0=blank(240), xnumel=240,
            XBLOCK=128)  # fmt: skip
@tawa.jit
def embedding(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    """Negative indices wrap, and a check stands that only debugging compiles."""
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x1 = xindex // 24
    x0 = xindex % 24
    tmp0 = tl.load(in_ptr0 + (x1), xmask, eviction_policy="evict_last")
    tmp1 = tl.full([XBLOCK], 50, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert(((tmp4 >= 0) & (tmp4 < 50)) | ~(xmask), "index out of bounds: 0 <= tmp4 < 50")
    tmp6 = tl.load(in_ptr1 + (x0 + 24 * tmp4), xmask).to(tl.float32)
    tl.store(out_ptr0 + (x0 + 24 * x1), tmp6, xmask)


def transposed_reference(in_ptr0, in_ptr1, ynumel, xnumel, **_):
    x = in_ptr0.reshape(ynumel, xnumel)
    return {"out_ptr0": (x + in_ptr1[:, None]).T.ravel()}


@case((2, 3), transposed_reference, in_ptr0=normal(77 * 45), in_ptr1=normal(77),
      out_ptr0=blank(77 * 45), ynumel=77, xnumel=45, YBLOCK=32, XBLOCK=32)  # fmt: skip
@tawa.jit
def clone_transposed(in_ptr0, in_ptr1, out_ptr0, ynumel, xnumel, YBLOCK: tl.constexpr,
                     XBLOCK: tl.constexpr):  # fmt: skip
    yoffset = tl.program_id(1) * YBLOCK
    yindex = yoffset + tl.arange(0, YBLOCK)[None, :]
    ymask = yindex < ynumel
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    x1 = xindex
    y0 = yindex
    tmp0 = tl.load(in_ptr0 + (x1 + xnumel * y0), xmask & ymask, eviction_policy="evict_last")
    tmp1 = tl.load(in_ptr1 + (y0), ymask, eviction_policy="evict_last")
    tmp2 = tmp0 + tmp1
    tl.store(out_ptr0 + (y0 + ynumel * x1), tmp2, xmask & ymask)


def gelu_reference(x, **_):
    value = x.astype(np.float64)
    erf = np.array([math.erf(v / math.sqrt(2)) for v in value])
    tanh = np.tanh(0.7978845608028654 * (value + 0.044715 * value**3))
    return {"exact": 0.5 * value * (1 + erf), "fast": 0.5 * value * (1 + tanh)}


@case((2,), gelu_reference, 1e-6, x=normal(200), exact=blank(200), fast=blank(200), n=200, B=128)
@tawa.jit
def gelu_both(x, exact, fast, n, B: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(exact + i, v * 0.5 * (libdevice.erf(v * 0.7071067811865476) + 1.0), mask=i < n)
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    tl.store(fast + i, 0.5 * v * (1 + libdevice.tanh(inner)), mask=i < n)


# --- reductions -----------------------------------------------------------------------------------


def norm_reference(in_ptr0, in_ptr1, xnumel, rnumel, **_):
    x = in_ptr0.reshape(xnumel, rnumel).astype(np.float64)
    centred = x - x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return {"out_ptr0": rstd.ravel(), "out_ptr1": (centred * rstd * in_ptr1).ravel()}


@case((3,), norm_reference, 1e-5, in_ptr0=normal(5 * 203), in_ptr1=normal(203), out_ptr0=blank(5),
      out_ptr1=blank(5 * 203), xnumel=5, rnumel=203, XBLOCK=2, RBLOCK=64)  # fmt: skip
@tawa.jit
def layer_norm_welford(in_ptr0, in_ptr1, out_ptr0, out_ptr1, xnumel, rnumel,
                       XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):  # fmt: skip
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rbase = tl.arange(0, RBLOCK)[None, :]
    x0 = xindex
    tmp3_mean = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    tmp3_m2 = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    tmp3_weight = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for roffset in range(0, rnumel, RBLOCK):
        rindex = roffset + rbase
        rmask = rindex < rnumel
        r1 = rindex
        tmp0 = tl.load(in_ptr0 + (r1 + rnumel * x0), rmask & xmask, eviction_policy="evict_last",
                       other=0.0)  # fmt: skip
        tmp2 = tl.broadcast_to(tmp0, [XBLOCK, RBLOCK])
        tmp3_mean_next, tmp3_m2_next, tmp3_weight_next = welford_reduce(
            tmp2, tmp3_mean, tmp3_m2, tmp3_weight, roffset == 0
        )
        tmp3_mean = tl.where(rmask & xmask, tmp3_mean_next, tmp3_mean)
        tmp3_m2 = tl.where(rmask & xmask, tmp3_m2_next, tmp3_m2)
        tmp3_weight = tl.where(rmask & xmask, tmp3_weight_next, tmp3_weight)
    tmp3_tmp, tmp4_tmp, _tmp5_tmp = welford(tmp3_mean, tmp3_m2, tmp3_weight, 1)
    tmp3 = tmp3_tmp[:, None]
    tmp4 = tmp4_tmp[:, None]
    tmp8 = libdevice.rsqrt(tmp4 / rnumel + 1e-05)
    tl.store(out_ptr0 + (x0), tmp8, xmask)
    for roffset in range(0, rnumel, RBLOCK):
        rindex = roffset + rbase
        rmask = rindex < rnumel
        r1 = rindex
        tmp9 = tl.load(in_ptr0 + (r1 + rnumel * x0), rmask & xmask, eviction_policy="evict_first",
                       other=0.0)  # fmt: skip
        tmp10 = tl.load(in_ptr1 + (r1), rmask, eviction_policy="evict_last", other=0.0)
        tl.store(out_ptr1 + (r1 + rnumel * x0), (tmp9 - tmp3) * tmp8 * tmp10, rmask & xmask)


def argmax_reference(in_ptr0, xnumel, rnumel, **_):
    x = in_ptr0.reshape(xnumel, rnumel)
    return {"out_ptr0": x.argmax(1), "out_ptr1": x.max(1), "out_ptr2": (x > 2).any(1)}


SPECIAL = np.random.default_rng(8).standard_normal((7, 150)).astype(np.float32)
SPECIAL[2, 77] = SPECIAL[2, 99] = np.nan
SPECIAL[3] = -np.inf


@case((2,), argmax_reference, in_ptr0=fixed(SPECIAL.ravel()), out_ptr0=blank(7, dtype=np.int64),
      out_ptr1=blank(7), out_ptr2=blank(7, dtype=np.bool_), xnumel=7, rnumel=150, XBLOCK=4,
      RBLOCK=64)  # fmt: skip
@tawa.jit
def argmax_any(in_ptr0, out_ptr0, out_ptr1, out_ptr2, xnumel, rnumel, XBLOCK: tl.constexpr,
               RBLOCK: tl.constexpr):  # fmt: skip
    """NaN wins, the first of equals wins: maxima with their indices, in loops."""
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rbase = tl.arange(0, RBLOCK)[None, :]
    _tmp2 = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    _tmp2_index = tl.full([XBLOCK, RBLOCK], 9223372036854775807, tl.int64)
    _tmp4 = tl.full([XBLOCK, RBLOCK], False, tl.int1)
    for roffset in range(0, rnumel, RBLOCK):
        rindex = roffset + rbase
        rmask = rindex < rnumel
        tmp0 = tl.load(in_ptr0 + (rindex + rnumel * xindex), rmask & xmask, other=0.0)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, RBLOCK])
        _tmp2_next, _tmp2_index_next = maximum_with_index(_tmp2, _tmp2_index, tmp1, rindex)
        _tmp2 = tl.where(rmask & xmask, _tmp2_next, _tmp2)
        _tmp2_index = tl.where(rmask & xmask, _tmp2_index_next, _tmp2_index)
        tmp3 = tmp1 > 2.0
        _tmp4 = tl.where(rmask & xmask, _tmp4 | tmp3, _tmp4)
    tmp2_val, tmp2_idx = max_with_index(_tmp2, _tmp2_index, 1)
    tmp2 = tmp2_idx[:, None]
    tmp4 = tl.reduce(_tmp4.to(tl.int8), 1, any_of)[:, None].to(tl.int1)
    tl.store(out_ptr0 + (xindex), tmp2, xmask)
    tl.store(out_ptr1 + (xindex), tmp2_val[:, None], xmask)
    tl.store(out_ptr2 + (xindex), tmp4, xmask)


def softmax_reference(in_ptr0, xnumel, **_):
    x = in_ptr0.reshape(xnumel, 40).astype(np.float64)
    shifted = x - x.max(1, keepdims=True)
    return {"out_ptr2": (shifted - np.log(np.exp(shifted).sum(1, keepdims=True))).ravel()}


@case((4,), softmax_reference, 1e-6, in_ptr0=normal(13 * 40), out_ptr2=blank(13 * 40), xnumel=13,
      XBLOCK=4)  # fmt: skip
@tawa.jit
def log_softmax_persistent(in_ptr0, out_ptr2, xnumel, XBLOCK: tl.constexpr):
    rnumel = 40
    RBLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rindex = tl.arange(0, RBLOCK)[None, :]
    roffset = 0  # noqa: F841
    rmask = rindex < rnumel
    r1 = rindex
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r1 + 40 * x0), rmask & xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, RBLOCK])
    tmp3 = tl.where(rmask & xmask, tmp1, float("-inf"))
    tmp4 = max2(tmp3, 1)[:, None]
    tmp5 = tmp0 - tmp4
    tmp6 = tl.math.exp(tmp5)
    tmp7 = tl.broadcast_to(tmp6, [XBLOCK, RBLOCK])
    tmp9 = tl.where(rmask & xmask, tmp7, 0)
    tmp10 = tl.sum(tmp9, 1)[:, None]
    tmp11 = tl.math.log(tmp10)
    tmp12 = tmp5 - tmp11
    tl.store(out_ptr2 + (r1 + 40 * x0), tmp12, rmask & xmask)


def search_reference(values, boundaries, RIGHT, **_):
    return {"out": np.searchsorted(boundaries, values, "right" if RIGHT else "left")}


@tawa.jit
def bucketize(values, boundaries, count: tl.constexpr, dtype: tl.constexpr, right: tl.constexpr,
              SHAPE: tl.constexpr):  # fmt: skip
    low = tl.zeros(SHAPE, dtype=dtype)
    high = tl.full(SHAPE, count, dtype=dtype)
    full_range = count + 1
    while full_range > 1:
        middle = (high + low) // 2
        mask = middle < count
        upper = tl.load(boundaries + middle, mask=mask, other=0.0)
        above = values >= upper if right else values > upper
        low = tl.where(above & mask, middle + 1, low)
        high = tl.where(above, high, middle)
        full_range = (full_range + 1) // 2
    return low


@case((2,), search_reference, label="right", values=normal(100), out=blank(100, dtype=np.int32),
      boundaries=fixed(np.sort(SPECIAL[0][:37])), n=100, COUNT=37, RIGHT=True, B=64)  # fmt: skip
@case((2,), search_reference, label="left", values=fixed(SPECIAL[0][:100]),
      out=blank(100, dtype=np.int32), boundaries=fixed(np.sort(SPECIAL[0][:37])), n=100, COUNT=37,
      RIGHT=False, B=64)  # fmt: skip
@tawa.jit
def binary_search(values, boundaries, out, n, COUNT: tl.constexpr, RIGHT: tl.constexpr,
                  B: tl.constexpr):  # fmt: skip
    """A while loop over a compile-time condition that a helper keeps."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    found = bucketize(tl.load(values + at, at < n), boundaries, COUNT, tl.int32, RIGHT, [B])
    tl.store(out + at, found, at < n)


@tawa.jit
def swap_with_index(x, ids, flip, i: tl.constexpr, n_dims: tl.constexpr):
    outer: tl.constexpr = x.numel >> n_dims
    shape: tl.constexpr = [outer * 2**i, 2, 2 ** (n_dims - i - 1)]
    bits = x.to(tl.int32, bitcast=True)
    y = tl.reshape(bits, shape)
    index = tl.reshape(ids, shape)
    right_mask = tl.arange(0, 2)[None, :, None]
    left_mask = (1 - right_mask).to(tl.int32)
    left = tl.broadcast_to(tl.sum(y * left_mask, 1)[:, None, :], shape)
    right = tl.broadcast_to(tl.sum(y * right_mask, 1)[:, None, :], shape)
    left_id = tl.broadcast_to(tl.sum(index * left_mask, 1)[:, None, :], shape)
    right_id = tl.broadcast_to(tl.sum(index * right_mask, 1)[:, None, :], shape)
    left_x = tl.reshape(left, x.shape).to(x.dtype, bitcast=True)
    right_x = tl.reshape(right, x.shape).to(x.dtype, bitcast=True)
    greater = left_x > right_x
    later = (left_x == right_x) & (tl.reshape(left_id, x.shape) > tl.reshape(right_id, x.shape))
    change = (greater | later) ^ flip
    made = bits ^ tl.where(change, tl.reshape(left ^ right, x.shape), tl.zeros_like(bits))
    both = tl.reshape(left_id ^ right_id, ids.shape)
    return made.to(x.dtype, bitcast=True), ids ^ tl.where(change, both, tl.zeros_like(ids))


@tawa.jit
def sort_with_index(x, ids, LOG: tl.constexpr):
    for stage in tl.static_range(1, LOG + 1):
        if stage < LOG:
            shape: tl.constexpr = [x.numel >> LOG << (LOG - 1 - stage), 2, 2**stage]
            flip = tl.reshape(tl.broadcast_to(tl.arange(0, 2)[None, :, None], shape), x.shape) == 1
        else:
            flip = tl.full(x.shape, False, tl.int1)
        for step in tl.static_range(stage):
            x, ids = swap_with_index(x, ids, flip, step + (LOG - stage), LOG)
    return x, ids


def sorted_reference(x, M, N, **_):
    rows = x.reshape(M, N)
    order = rows.argsort(1, kind="stable")
    return {"out": np.take_along_axis(rows, order, 1).ravel(), "ids": order.ravel()}


@case((1,), sorted_reference, x=integers(-9, 9, 256, dtype=np.float32), out=blank(256),
      ids=blank(256, dtype=np.int32), M=8, N=32, LOG=5)  # fmt: skip
@tawa.jit
def stable_sort(x, out, ids, M: tl.constexpr, N: tl.constexpr, LOG: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    index = tl.broadcast_to(tl.arange(0, N)[None, :], [M, N])
    values, order = sort_with_index(tl.load(x + at), index, LOG)
    tl.store(out + at, values)
    tl.store(ids + at, order)
