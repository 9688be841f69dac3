"""Forms of kernels that the memory bounds: element by element, row by row, through indices.

Each is written as its users write it, from plain pointers, with no thought of one compiler. Arrays
are dense and row-major unless a docstring says otherwise.
"""

from __future__ import annotations

import tawa
import tawa.language as tl

# The kernels name a global of their module only through `tl`, which Triton's twin replaces.


@tawa.jit
def rms_norm_added(x_ptr, r_ptr, w_ptr, o_ptr, columns, eps, BLOCK: tl.constexpr):
    """r += x, a row at a time; the output is r over its root mean square, times w."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(r_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(r_ptr + row * columns + at, x.to(r_ptr.dtype.element_ty), mask=inside)
    scale = tl.rsqrt(tl.sum(x * x, 0) / columns + eps)
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(o_ptr + row * columns + at, (x * scale * w).to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def layer_norm_walk(x_ptr, w_ptr, b_ptr, o_ptr, columns, eps, BLOCK: tl.constexpr):
    """Layer norm in three walks over a row: mean, deviation, result (Triton's tutorial 05)."""
    row = tl.program_id(0)
    x_ptr += row * columns
    o_ptr += row * columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        x = tl.where(at < columns, x - mean, 0.0)
        square += x * x
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        w = tl.load(w_ptr + at, mask=inside)
        b = tl.load(b_ptr + at, mask=inside)
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(o_ptr + at, ((x - mean) * scale * w + b).to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def softmax_walk(x_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """Softmax of a long row in two walks, the first with a running maximum and sum."""
    row = tl.program_id(0).to(tl.int64) * columns
    top = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)
        top = new
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        out = tl.exp(x - top) / total
        tl.store(o_ptr + row + at, out.to(o_ptr.dtype.element_ty), mask=at < columns)


@tawa.jit
def swiglu(x_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """silu(left) * right of rows [2 * columns]."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    left = tl.load(x_ptr + row * 2 * columns + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x_ptr + row * 2 * columns + columns + at, mask=inside, other=0.0)
    out = left * tl.sigmoid(left) * right.to(tl.float32)
    tl.store(o_ptr + row * columns + at, out.to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def rotary(q_ptr, cos_ptr, sin_ptr, S, H: tl.constexpr, D: tl.constexpr):
    """Rotate, in place, the halves of all heads of one token; q is [tokens, H, D]."""
    token = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, D // 2)
    cos = tl.load(cos_ptr + (token % S) * (D // 2) + half).to(tl.float32)
    sin = tl.load(sin_ptr + (token % S) * (D // 2) + half).to(tl.float32)
    heads = tl.arange(0, H)
    first = q_ptr + token * H * D + heads[:, None] * D + half[None, :]
    second = first + D // 2
    a = tl.load(first).to(tl.float32)
    b = tl.load(second).to(tl.float32)
    tl.store(first, (a * cos[None, :] - b * sin[None, :]).to(q_ptr.dtype.element_ty))
    tl.store(second, (b * cos[None, :] + a * sin[None, :]).to(q_ptr.dtype.element_ty))


@tawa.jit
def dropout(x_ptr, o_ptr, n, p, seed, BLOCK: tl.constexpr):
    """Zero for a share p of the elements, drawn from a seed; the others over 1 - p."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    keep = tl.rand(seed, at) > p
    tl.store(o_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=at < n)


@tawa.jit
def quantize_groups(x_ptr, o_ptr, s_ptr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """fp8 values of groups of a row, and the scale of each group."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, GROUP)
    place = at[:, None].to(tl.int64) * GROUP + inner[None, :]
    x = tl.load(x_ptr + place).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 1), 1e-10) / 448.0
    tl.store(o_ptr + place, (x / scale[:, None]).to(o_ptr.dtype.element_ty))
    tl.store(s_ptr + at, scale)


@tawa.jit
def quantize_rows(x_ptr, o_ptr, s_ptr, columns, BLOCK: tl.constexpr):
    """int8 values of a row, and its scale."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(x), 0) / 127.0
    q = x / scale
    q = tl.where(q >= 0, q + 0.5, q - 0.5).to(tl.int8)
    tl.store(o_ptr + row * columns + at, q, mask=at < columns)
    tl.store(s_ptr + row, scale)


@tawa.jit
def best_of_rows(x_ptr, o_ptr, i_ptr, columns, BLOCK: tl.constexpr):
    """The largest element of each row and its place."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
    top, place = tl.max(x, 0, return_indices=True)
    tl.store(o_ptr + row, top)
    tl.store(i_ptr + row, place)


@tawa.jit
def transpose(x_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """o[N, M] = x[M, N]', a tile at a time."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside)
    tl.store(o_ptr + columns[:, None] * M + rows[None, :], tl.trans(x), mask=tl.trans(inside))


@tawa.jit
def selective_scan(x_ptr, dt_ptr, a_ptr, o_ptr, T, D, BD: tl.constexpr):
    """h[t] = exp(dt[t] a) h[t - 1] + dt[t] x[t] for each of D channels; x is [batch, T, D]."""
    channel = tl.program_id(0) * BD + tl.arange(0, BD)
    base = tl.program_id(1).to(tl.int64) * T * D
    a = tl.load(a_ptr + channel)
    h = tl.zeros((BD,), tl.float32)
    for t in range(0, T):
        dt = tl.load(dt_ptr + base + t * D + channel).to(tl.float32)
        x = tl.load(x_ptr + base + t * D + channel).to(tl.float32)
        h = h * tl.exp(dt * a) + dt * x
        tl.store(o_ptr + base + t * D + channel, h.to(o_ptr.dtype.element_ty))


@tawa.jit
def embedding(id_ptr, w_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """Rows of w that the indices name."""
    row = tl.program_id(0).to(tl.int64)
    word = tl.load(id_ptr + row)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + word * columns + at, mask=at < columns)
        tl.store(o_ptr + row * columns + at, w, mask=at < columns)


@tawa.jit
def embedding_gradient(id_ptr, g_ptr, o_ptr, columns, BLOCK: tl.constexpr):
    """o[id[row]] += g[row], by atomics."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(id_ptr + row)
    g = tl.load(g_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.atomic_add(o_ptr + word * columns + at, g, mask=at < columns)


@tawa.jit
def column_sums(x_ptr, s_ptr, q_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of each column and of its squares, as batch norm has them; programs share the rows."""
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    square = tl.zeros((BM, BN), tl.float32)
    for first in range(tl.program_id(1) * BM, M, tl.num_programs(1) * BM):
        rows = first + tl.arange(0, BM)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
        x = x.to(tl.float32)
        total += x
        square += x * x
    tl.atomic_add(s_ptr + columns, tl.sum(total, 0), mask=columns < N)
    tl.atomic_add(q_ptr + columns, tl.sum(square, 0), mask=columns < N)


@tawa.jit
def group_norm(x_ptr, w_ptr, b_ptr, o_ptr, size, C, HW, GROUPS, eps, BLOCK: tl.constexpr):
    """Group norm of x [N, C, HW] with w and b for each channel; a program has one group."""
    group = tl.program_id(0)
    base = group.to(tl.int64) * size
    total = 0.0
    square = 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
        total += tl.sum(x, 0)
        square += tl.sum(x * x, 0)
    mean = total / size
    scale = tl.rsqrt(square / size - mean * mean + eps)
    first = (group % GROUPS) * (C // GROUPS)
    for channel in range(first, first + C // GROUPS):
        w = tl.load(w_ptr + channel).to(tl.float32) * scale
        b = tl.load(b_ptr + channel).to(tl.float32) - mean * w
        for start in range(0, HW, BLOCK):
            inner = start + tl.arange(0, BLOCK)
            at = base + (channel - first) * HW + inner
            x = tl.load(x_ptr + at, mask=inner < HW, other=0.0).to(tl.float32)
            tl.store(o_ptr + at, (x * w + b).to(o_ptr.dtype.element_ty), mask=inner < HW)


@tawa.jit
def adam(w_ptr, g_ptr, m_ptr, v_ptr, o_ptr, n, rate, beta1, beta2, eps, decay, BLOCK: tl.constexpr):
    """A step of AdamW on f32 weights and moments, bf16 gradients; o has the weights in bf16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(w_ptr + at, mask=inside)
    g = tl.load(g_ptr + at, mask=inside).to(tl.float32)
    m = beta1 * tl.load(m_ptr + at, mask=inside) + (1 - beta1) * g
    v = beta2 * tl.load(v_ptr + at, mask=inside) + (1 - beta2) * g * g
    w = w * (1 - rate * decay) - rate * m / (tl.sqrt(v) + eps)
    tl.store(w_ptr + at, w, mask=inside)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)
    tl.store(o_ptr + at, w.to(o_ptr.dtype.element_ty), mask=inside)


@tawa.jit
def norm_gradient(x_ptr, w_ptr, dy_ptr, r_ptr, dx_ptr, dw_ptr, rows, columns, BLOCK: tl.constexpr):
    """Gradients of RMS norm: dx, and a part of dw for each program, which walks over rows."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        r = tl.load(r_ptr + row)
        along = tl.sum(x * dy * w, 0) / columns
        dx = (dy * w - x * (along * r * r)) * r
        tl.store(dx_ptr + row * columns + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dw += dy * x * r
    tl.store(dw_ptr + tl.program_id(0) * columns + at, dw, mask=inside)
