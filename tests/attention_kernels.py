"""Attention in the forms its authors write it, nothing about warps in any of them.

`two_stages` has the shape of Triton's tutorial on fused attention: descriptors from the host or
made inside, a helper called twice for the stages of a causal mask, options of `tl.range`, a branch
for 8-bit floats. `one_loop` masks inside its loop. `by_pointers` computes addresses and masks by
hand, `by_block_pointers` advances block pointers, as earlier editions of the tutorial do.
"""

import numpy as np

import tawa
import tawa.language as tl
from tawa.runtime.dtypes import numpy_dtype


@tawa.jit
def as_descriptor(given, shape, strides, block_shape):
    if isinstance(given, tl.tensor_descriptor):
        return given
    else:
        return tl.make_tensor_descriptor(given, shape, strides, block_shape)


@tawa.jit
def take_keys(
    out,
    mass,
    peak,
    queries,
    k_desc,
    v_desc,
    base,
    kind: tl.constexpr,
    block,
    factor,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PART: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    LENGTH: tl.constexpr,
    specialize: tl.constexpr,
    HOPPER: tl.constexpr,
):
    # 1: the keys before the block of queries; 2: those beside it, masked; 3: all.
    if PART == 1:
        begin, end = 0, block * ROWS
    elif PART == 2:
        begin, end = block * ROWS, (block + 1) * ROWS
        begin = tl.multiple_of(begin, ROWS)
    else:
        begin, end = 0, LENGTH
    k_row = base + begin
    if kind == tl.float8e5:
        v_row = base * WIDTH + begin
    else:
        v_row = base + begin
    for at in tl.range(begin, end, COLUMNS, warp_specialize=specialize):
        at = tl.multiple_of(at, COLUMNS)
        keys = k_desc.load([k_row, 0]).T
        scores = tl.dot(queries, keys)
        if PART == 2:
            seen = rows[:, None] >= (at + columns[None, :])
            scores = scores * factor + tl.where(seen, 0, -1.0e6)
            higher = tl.maximum(peak, tl.max(scores, 1))
            scores -= higher[:, None]
        else:
            higher = tl.maximum(peak, tl.max(scores, 1) * factor)
            scores = scores * factor - higher[:, None]
        weights = tl.math.exp2(scores)
        shrink = tl.math.exp2(peak - higher)
        added = tl.sum(weights, 1)
        if not HOPPER and specialize and ROWS == 128 and WIDTH == 128:
            M: tl.constexpr = out.shape[0]
            N: tl.constexpr = out.shape[1]
            left, right = out.reshape([M, 2, N // 2]).permute(0, 2, 1).split()
            left = left * shrink[:, None]
            right = right * shrink[:, None]
            out = tl.join(left, right).permute(0, 2, 1).reshape([M, N])
        else:
            out = out * shrink[:, None]
        if kind == tl.float8e5:
            values = v_desc.load([0, v_row]).T
        else:
            values = v_desc.load([v_row, 0])
        weights = weights.to(kind)
        out = tl.dot(weights, values, out)
        mass = mass * shrink + added
        peak = higher
        k_row += COLUMNS
        v_row += COLUMNS
    return out, mass, peak


@tawa.jit
def two_stages(
    scale,
    lines,
    batch,
    heads,
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    LENGTH,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FP8: tl.constexpr,
    STAGE: tl.constexpr,
    specialize: tl.constexpr,
    HOPPER: tl.constexpr,
):
    """Grid (LENGTH / ROWS, batch * heads, 1); STAGE is 3 under a causal mask, else 1.

    Arrays are dense [batch, heads, LENGTH, WIDTH], with FP8 the values [.., WIDTH, LENGTH].
    """
    kind = tl.float8e5 if FP8 else tl.float16
    tl.static_assert(COLUMNS <= WIDTH)
    block = tl.program_id(0)
    pair = tl.program_id(1)
    sequence = pair // heads
    head = pair % heads

    total = batch * heads * LENGTH
    q_desc = as_descriptor(
        q_desc, shape=[total, WIDTH], strides=[WIDTH, 1], block_shape=[ROWS, WIDTH]
    )
    if FP8:
        v_desc = as_descriptor(
            v_desc, shape=[WIDTH, total], strides=[LENGTH, 1], block_shape=[WIDTH, COLUMNS]
        )
    else:
        v_desc = as_descriptor(
            v_desc, shape=[total, WIDTH], strides=[WIDTH, 1], block_shape=[COLUMNS, WIDTH]
        )
    k_desc = as_descriptor(
        k_desc, shape=[total, WIDTH], strides=[WIDTH, 1], block_shape=[COLUMNS, WIDTH]
    )
    o_desc = as_descriptor(
        o_desc, shape=[total, WIDTH], strides=[WIDTH, 1], block_shape=[ROWS, WIDTH]
    )

    base = sequence * (LENGTH * heads) + head * LENGTH
    place = base + block * ROWS
    rows = block * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    peak = tl.zeros([ROWS], dtype=tl.float32) - float("inf")
    mass = tl.zeros([ROWS], dtype=tl.float32) + 1.0
    out = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    factor = scale
    factor *= 1.44269504
    queries = q_desc.load([place, 0])
    if STAGE & 1:
        out, mass, peak = take_keys(
            out, mass, peak, queries, k_desc, v_desc, base, kind, block, factor,
            ROWS, WIDTH, COLUMNS, 4 - STAGE, rows, columns, LENGTH, specialize, HOPPER,
        )  # fmt: skip
    if STAGE & 2:
        out, mass, peak = take_keys(
            out, mass, peak, queries, k_desc, v_desc, base, kind, block, factor,
            ROWS, WIDTH, COLUMNS, 2, rows, columns, LENGTH, specialize, HOPPER,
        )  # fmt: skip
    peak += tl.math.log2(mass)
    out = out / mass[:, None]
    at = lines + pair * LENGTH + rows
    tl.store(at, peak)
    o_desc.store([place, 0], out.to(kind))


@tawa.jit
def one_loop(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    heads,
    length,
    scale,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Grid (length / ROWS, batch * heads); descriptors of [batch * heads * length, width]."""
    block = tl.program_id(0)
    base = tl.program_id(1) * length
    rows = block * ROWS + tl.arange(0, ROWS)
    q = q_desc.load([base + block * ROWS, 0])
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, q.shape[1]], tl.float32)
    end = length
    if CAUSAL:
        end = (block + 1) * ROWS
    for at in range(0, end, COLUMNS):
        k = k_desc.load([base + at, 0])
        scores = tl.dot(q, k.T) * (scale * 1.44269504)
        if CAUSAL:
            columns = at + tl.arange(0, COLUMNS)
            scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        mass = mass * shrink + tl.sum(weights, 1)
        v = v_desc.load([base + at, 0])
        out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
        peak = higher
    o_desc.store([base + block * ROWS, 0], (out / mass[:, None]).to(o_desc.dtype))


@tawa.jit
def by_pointers(
    Q, K, V, O, L, scale,
    qz, qh, qm, qd, kz, kh, kn, kd, vz, vh, vn, vd, oz, oh, om, od,
    heads, queries, keys,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Any lengths; grid (cdiv(queries, ROWS), batch * heads); q..d, k..d are element strides."""
    block = tl.program_id(0)
    pair = tl.program_id(1)
    z = pair // heads
    h = pair % heads
    rows = block * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    wide = tl.arange(0, WIDTH)
    q_ptrs = Q + z * qz + h * qh + rows[:, None] * qm + wide[None, :] * qd
    k_ptrs = K + z * kz + h * kh + columns[None, :] * kn + wide[:, None] * kd
    v_ptrs = V + z * vz + h * vh + columns[:, None] * vn + wide[None, :] * vd
    peak = tl.zeros([ROWS], tl.float32) - float("inf")
    mass = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, WIDTH], tl.float32)
    q = tl.load(q_ptrs, mask=rows[:, None] < queries, other=0.0)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, (block + 1) * ROWS)
    for at in range(0, end, COLUMNS):
        at = tl.multiple_of(at, COLUMNS)
        k = tl.load(k_ptrs + at * kn, mask=(at + columns)[None, :] < keys, other=0.0)
        scores = tl.zeros([ROWS, COLUMNS], tl.float32)
        scores += tl.dot(q, k)
        scores *= scale
        scores = tl.where((at + columns)[None, :] < keys, scores, float("-inf"))
        if CAUSAL:
            scores = tl.where(rows[:, None] >= (at + columns)[None, :], scores, float("-inf"))
        higher = tl.maximum(tl.max(scores, 1), peak)
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(peak - higher)
        mass = mass * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None]
        v = tl.load(v_ptrs + at * vn, mask=(at + columns)[:, None] < keys, other=0.0)
        out += tl.dot(weights.to(V.dtype.element_ty), v)
        peak = higher
    out = out / mass[:, None]
    tl.store(L + pair * queries + rows, peak + tl.log(mass), mask=rows < queries)
    o_ptrs = O + z * oz + h * oh + rows[:, None] * om + wide[None, :] * od
    tl.store(o_ptrs, out.to(O.type.element_ty), mask=rows[:, None] < queries)


@tawa.jit
def by_block_pointers(
    Q, K, V, O, scale, pair_stride, row_stride, length,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Grid (length / ROWS, batch * heads); all arrays with the same strides."""
    block = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * pair_stride
    q_block = tl.make_block_ptr(
        Q + base, (length, WIDTH), (row_stride, 1), (block * ROWS, 0), (ROWS, WIDTH), (1, 0)
    )
    k_block = tl.make_block_ptr(
        K + base, (WIDTH, length), (1, row_stride), (0, 0), (WIDTH, COLUMNS), (0, 1)
    )
    v_block = tl.make_block_ptr(
        V + base, (length, WIDTH), (row_stride, 1), (0, 0), (COLUMNS, WIDTH), (1, 0)
    )
    o_block = tl.make_block_ptr(
        O + base, (length, WIDTH), (row_stride, 1), (block * ROWS, 0), (ROWS, WIDTH), (1, 0)
    )
    peak = tl.zeros([ROWS], tl.float32) - float("inf")
    mass = tl.zeros([ROWS], tl.float32) + 1.0
    out = tl.zeros([ROWS, WIDTH], tl.float32)
    factor = scale * 1.44269504
    q = tl.load(q_block)
    for at in range(0, length, COLUMNS):
        at = tl.multiple_of(at, COLUMNS)
        k = tl.load(k_block)
        scores = tl.dot(q, k)
        higher = tl.maximum(peak, tl.max(scores, 1) * factor)
        scores = scores * factor - higher[:, None]
        weights = tl.math.exp2(scores)
        added = tl.sum(weights, 1)
        shrink = tl.math.exp2(peak - higher)
        mass = mass * shrink + added
        out = out * shrink[:, None]
        v = tl.load(v_block)
        out = tl.dot(weights.to(tl.float16), v, out)
        peak = higher
        v_block = tl.advance(v_block, (COLUMNS, 0))
        k_block = tl.advance(k_block, (0, COLUMNS))
    tl.store(o_block, (out / mass[:, None]).to(O.type.element_ty))


# --- inputs and reference -----------------------------------------------------------------------


def normal(*shape, dtype="f16", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(numpy_dtype(dtype))


def reference(q, k, v, causal=False, scale=1.0):
    """Return attention and its log-sum-exp of arrays [batch, heads, length, width] in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        seen = np.arange(q.shape[-2])[:, None] >= np.arange(k.shape[-2])
        scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v, (np.log(total) + top)[..., 0]


def call_two_stages(q, k, v, out, lines, rows, columns, causal, inside=False, scale=0.5):
    """Return grid, arguments and constants of a call; `v` is [.., width, length] for 8-bit floats.

    `inside`: the kernel gets arrays and makes the descriptors.
    """
    batch, heads, length, width = q.shape
    total = batch * heads * length
    small = q.dtype.itemsize == 1
    maps = [q, k, v, out]
    if not inside:

        def wide(array, block):
            return tawa.TensorDescriptor(array, [total, width], [width, 1], [block, width])

        maps = [wide(q, rows), wide(k, columns), wide(v, columns), wide(out, rows)]
        if small:
            maps[2] = tawa.TensorDescriptor(v, [width, total], [length, 1], [width, columns])
    constants = {
        "WIDTH": width,
        "ROWS": rows,
        "COLUMNS": columns,
        "FP8": small,
        "STAGE": 3 if causal else 1,
        "specialize": True,
        "HOPPER": True,
    }
    grid = (-(-length // rows), batch * heads, 1)
    return grid, (scale, lines, batch, heads, *maps, length), constants
