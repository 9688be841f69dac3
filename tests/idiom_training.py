"""Fused layers and losses of training libraries: two walks over a row, gradients written over
their inputs, flags as constants, sums over programs.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal
from tawa.language.extra import libdevice

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF = np.float16


def rows(x: np.ndarray, n: int) -> np.ndarray:
    return x.reshape(-1, n).astype(np.float64)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# --- norms ----------------------------------------------------------------------------------------


def group_reference(X, W, B, channels_per_group, hidden, eps, **_):
    x = X.reshape(-1, channels_per_group * hidden).astype(np.float64)
    mean, var = x.mean(1), x.var(1)
    y = (x - mean[:, None]) / np.sqrt(var[:, None] + eps)
    y = y.reshape(-1, len(W), hidden) * W[:, None] + B[:, None]
    return {"Y": y.ravel(), "Mean": mean, "RSTD": 1 / np.sqrt(var + eps)}


@case((2, 3), group_reference, 1e-5, Y=blank(2 * 12 * 50), X=normal(2 * 12 * 50), Mean=blank(6),
      RSTD=blank(6), W=normal(12), B=normal(12), Y_row_stride=600, Y_col_stride=200,
      channels_per_group=4, hidden=50, eps=1e-5, BLOCK=64)  # fmt: skip
@tawa.jit
def group_norm(Y, Y_row_stride, Y_col_stride, X, Mean, RSTD, W, B, channels_per_group, hidden,
               eps, BLOCK: tl.constexpr):  # fmt: skip
    """Sums and squares over one walk, then channel by channel."""
    batch_idx = tl.program_id(0)
    group_idx = tl.program_id(1)
    size = hidden * channels_per_group
    X += batch_idx * Y_row_stride + group_idx * Y_col_stride
    Y += batch_idx * Y_row_stride + group_idx * Y_col_stride
    block = tl.arange(0, BLOCK)
    s = 0.0
    squared_sum = 0.0
    for i in tl.range(0, size, BLOCK):
        offsets = i + block
        mask = offsets < size
        x = tl.load(X + offsets, mask=mask, other=0.0)
        s += tl.sum(x)
        squared_sum += tl.sum(x * x)
    m = s / size
    variance = (squared_sum / size) - (m * m)
    rstd = tl.rsqrt(variance + eps)
    for channel_idx in tl.range(group_idx * channels_per_group, (group_idx + 1)
                                * channels_per_group):  # fmt: skip
        w = tl.load(W + channel_idx)
        b = tl.load(B + channel_idx)
        for i in range(0, hidden, BLOCK):
            offsets = i + block
            mask = offsets < hidden
            x = tl.load(X + offsets, mask=mask, other=m)
            tl.store(Y + offsets, (x - m) * rstd * w + b, mask=mask)
        X += hidden
        Y += hidden
    at = batch_idx * tl.num_programs(1) + group_idx
    tl.store(Mean + at, m)
    tl.store(RSTD + at, rstd)


_LLAMA: tl.constexpr = tl.constexpr(0)
_GEMMA: tl.constexpr = tl.constexpr(1)


def added_reference(X, R, W, n_cols, eps, offset, **_):
    s = (X.astype(np.float32) + R.astype(np.float32)).astype(HALF)
    x = rows(s, n_cols)
    rstd = 1 / np.sqrt((x**2).mean(1) + eps)
    return {"S": s, "Y": (x * rstd[:, None] * (offset + W)).ravel(), "RSTD": rstd}


@case((7,), added_reference, 1e-3, Y=blank(700, dtype=HALF), S=blank(700, dtype=HALF),
      X=normal(700, dtype=HALF), R=normal(700, dtype=HALF), W=normal(100, dtype=HALF),
      RSTD=blank(7), stride=100, n_cols=100, eps=1e-6, offset=1.0, casting_mode=1,
      BLOCK=128)  # fmt: skip
@tawa.jit
def fused_add_rms_norm(Y, S, X, R, W, RSTD, stride, n_cols, eps, offset,
                       casting_mode: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Modes are constants of the module."""
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK)
    mask = col_offsets < n_cols
    at = row_idx * stride + col_offsets
    x_row = tl.load(X + at, mask=mask, other=0)
    x_dtype = x_row.dtype
    s_row = x_row + tl.load(R + at, mask=mask, other=0)
    tl.store(S + at, s_row, mask=mask)
    w_row = tl.load(W + col_offsets, mask=mask, other=0)
    if casting_mode == _LLAMA:
        s_row = s_row.to(tl.float32)
    if casting_mode == _GEMMA:
        w_row = w_row.to(tl.float32)
        s_row = s_row.to(tl.float32)
    mean_square = tl.sum(s_row * s_row, axis=0) / n_cols
    rstd = tl.math.rsqrt(mean_square + eps)
    tl.store(RSTD + row_idx, rstd)
    s_row = s_row * rstd
    if casting_mode == _LLAMA:
        s_row = s_row.to(x_dtype)
    y_row = s_row * (offset + w_row)
    if casting_mode == _GEMMA:
        y_row = y_row.to(x_dtype)
    tl.store(Y + at, y_row, mask=mask)


def norm_gradient(dY, X, W, RSTD, n_rows, n_cols, rows_per_program, **_):
    dy, x, r = rows(dY, n_cols), rows(X, n_cols), RSTD[:, None].astype(np.float64)
    m = dy * W
    dx = r * m - r**3 * x * (m * x).sum(1, keepdims=True) / n_cols
    dw = [(dy * x * r)[i : i + rows_per_program].sum(0)
          for i in range(0, n_rows, rows_per_program)]  # fmt: skip
    return {"dY": dx.ravel(), "dW": np.concatenate(dw)}


@case((4,), norm_gradient, 1e-5, dY=normal(11 * 90), dX=None, X=normal(11 * 90), W=normal(90),
      RSTD=lambda rng: rng.uniform(0.5, 2, 11).astype(np.float32), dW=blank(4 * 90), n_rows=11,
      n_cols=90, rows_per_program=3, BLOCK=128)  # fmt: skip
@tawa.jit
def rms_norm_gradient(dY, dX, X, W, RSTD, dW, n_rows, n_cols, rows_per_program,
                      BLOCK: tl.constexpr):  # fmt: skip
    """Rows of a program one after the other, in place where there is no other array."""
    row_block_id = tl.program_id(0).to(tl.int64)
    row_start = row_block_id * rows_per_program
    row_end = min((row_block_id + 1) * rows_per_program, n_rows)
    col_offsets = tl.arange(0, BLOCK)
    mask = col_offsets < n_cols
    dW_row = tl.zeros((BLOCK,), dtype=tl.float32)
    W_row = tl.load(W + col_offsets, mask=mask, other=0.0)
    for row_idx in range(row_start, row_end):
        dY_row = tl.load(dY + row_idx * n_cols + col_offsets, mask=mask, other=0.0)
        X_row = tl.load(X + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        rstd_row = tl.load(RSTD + row_idx)
        m = (dY_row * W_row).to(tl.float32)
        dX_row = rstd_row * m
        dX_row += rstd_row * (-(1 / n_cols) * rstd_row * rstd_row * tl.sum(m * X_row, axis=0)
                              * X_row)  # fmt: skip
        dW_row += dY_row * (X_row * rstd_row)
        to = dY if dX is None else dX
        tl.store(to + row_idx * n_cols + col_offsets, dX_row, mask=mask)
    tl.store(dW + row_block_id * n_cols + col_offsets, dW_row, mask=mask)


# --- gates and rotations --------------------------------------------------------------------------


def gated_reference(dc, a, b, **_):
    x, y, z = (w.astype(np.float64) for w in (a, b, dc))
    c, k = np.sqrt(2 / np.pi), 0.044715
    t = np.tanh(c * (x + k * x**3))
    gelu = 0.5 * x * (1 + t)
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * k * x**2)
    return {"a": z * y * slope, "b": z * gelu}


@case((6,), gated_reference, 3e-3, dc=normal(300, dtype=HALF), a=normal(300, dtype=HALF),
      b=normal(300, dtype=HALF), stride=50, n_cols=50, BLOCK=64)  # fmt: skip
@tawa.jit
def geglu_gradient(dc, a, b, stride, n_cols: tl.constexpr, BLOCK: tl.constexpr):
    """The forward pass again, then both gradients over their inputs."""
    program_id = tl.program_id(0).to(tl.int64)
    dc += program_id * stride
    a += program_id * stride
    b += program_id * stride
    col_offsets = tl.arange(0, BLOCK)
    mask = col_offsets < n_cols
    dc_row = tl.load(dc + col_offsets, mask=mask, other=0)
    a_row = tl.load(a + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b + col_offsets, mask=mask, other=0)
    sqrt_2_over_pi = 0.7978845608028654
    a_cubed = a_row * a_row * a_row
    tanh_result = libdevice.tanh(sqrt_2_over_pi * (a_row + 0.044715 * a_cubed))
    geglu_a = (0.5 * a_row * (1 + tanh_result)).to(dc_row.dtype).to(tl.float32)
    db_row = dc_row.cast(tl.float32) * geglu_a
    term1 = 0.5 * (1 + tanh_result)
    tanh_sq = tanh_result * tanh_result
    term2 = 0.5 * a_row * (1 - tanh_sq) * (sqrt_2_over_pi * (1 + 3 * 0.044715 * a_row * a_row))
    da_row = dc_row * b_row * (term1 + term2)
    tl.store(a + col_offsets, da_row, mask=mask)
    tl.store(b + col_offsets, db_row.to(dc_row.dtype), mask=mask)


def rope_reference(Q, cos, sin, seqlen, head_dim, n_heads, BACKWARD_PASS, **_):
    q = Q.reshape(-1, n_heads, head_dim).astype(np.float64)
    half = head_dim // 2
    position = np.arange(len(q)) % seqlen
    c, s = (w.reshape(seqlen, half)[position][:, None] for w in (cos, sin))
    s = -s if BACKWARD_PASS else s
    x, y = q[..., :half], q[..., half:]
    return {"Q": np.concatenate([x * c - y * s, y * c + x * s], 2).ravel()}


def rope_case(backward: bool):
    return case(
        (10, 2), rope_reference, 2e-3, f"backward={backward}", Q=normal(10 * 6 * 32, dtype=HALF),
        Q_row_stride=192, cos=normal(5 * 16), cos_row_stride=16, sin=normal(5 * 16),
        sin_row_stride=16, seqlen=5, head_dim=32, n_heads=6, BACKWARD_PASS=backward, BLOCK=16,
    )  # fmt: skip


ROPE_GROUP_SIZE: int = 4


@rope_case(False)
@rope_case(True)
@tawa.heuristics({"BACKWARD_PASS": lambda args: bool(args["BACKWARD_PASS"])})
@tawa.jit
def rope_of_groups(Q, Q_row_stride, cos, cos_row_stride, sin, sin_row_stride, seqlen,
                   head_dim: tl.constexpr, n_heads: tl.constexpr, BACKWARD_PASS: tl.constexpr,
                   BLOCK: tl.constexpr):  # fmt: skip
    """Heads in groups, whose last is cut short; a flag that changes a sign."""
    ROPE_GROUP_SIZE = 4
    row_position = tl.program_id(0)
    group_head_position = tl.program_id(1)
    col_offsets = tl.arange(0, BLOCK)
    half_head_dim = head_dim // 2
    mask = col_offsets < half_head_dim
    sin1 = tl.load(sin + (row_position % seqlen) * sin_row_stride + half_head_dim * 0
                   + col_offsets, mask=mask, other=0)  # fmt: skip
    cos1 = tl.load(cos + (row_position % seqlen) * cos_row_stride + half_head_dim * 0
                   + col_offsets, mask=mask, other=0)  # fmt: skip
    if BACKWARD_PASS:
        sin1 = -sin1
    head_start = group_head_position * ROPE_GROUP_SIZE
    head_end = min((head_start + ROPE_GROUP_SIZE), n_heads)
    for k in range(head_start, head_end):
        offs_q1 = row_position * Q_row_stride + k * head_dim + col_offsets
        offs_q2 = row_position * Q_row_stride + k * head_dim + col_offsets + half_head_dim
        Q1 = tl.load(Q + offs_q1, mask=mask, other=0).to(sin1.dtype)
        Q2 = tl.load(Q + offs_q2, mask=mask, other=0).to(sin1.dtype)
        tl.store(Q + offs_q1, Q1 * cos1 - Q2 * sin1, mask=mask)
        tl.store(Q + offs_q2, Q2 * cos1 + Q1 * sin1, mask=mask)


# --- losses ---------------------------------------------------------------------------------------


def divergence_reference(y, gt, loss, n_cols, eps, log_target, reduction, **_):
    p, q = rows(gt, n_cols), rows(y, n_cols)
    each = np.exp(p) * (p - q) if log_target else p * (np.log(np.maximum(p, eps)) - q)
    return {"loss": each.sum(1) if reduction else each.ravel()}


def divergence_case(log_target: bool, reduction: int):
    def target(rng):
        p = softmax(rng.standard_normal((3, 200)))
        return (np.log(p) if log_target else p).astype(np.float32).ravel()

    return case(
        (3,), divergence_reference, 1e-4, f"{log_target} {reduction}", y=normal(600),
        y_stride=200, gt=target, gt_stride=200, loss=blank(3 if reduction else 600),
        loss_stride=1 if reduction else 200, n_cols=200, eps=1e-10, BLOCK=128,
        log_target=log_target, reduction=reduction,
    )  # fmt: skip


NONE: tl.constexpr = tl.constexpr(0)


@divergence_case(True, 0)
@divergence_case(False, 2)
@tawa.jit
def kullback_leibler(y, y_stride, gt, gt_stride, loss, loss_stride, n_cols, eps,
                     BLOCK: tl.constexpr, log_target: tl.constexpr = False,
                     reduction: tl.constexpr = 2):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    y += pid * y_stride
    gt += pid * gt_stride
    loss += pid * loss_stride
    base_offsets = tl.arange(0, BLOCK)
    loss_sum = 0.0
    for i in range(0, n_cols, BLOCK):
        offsets = i + base_offsets
        mask = offsets < n_cols
        predicted = tl.load(y + offsets, mask=mask, other=0.0)
        y_true = tl.load(gt + offsets, mask=mask, other=0.0)
        if not log_target:
            loss_row = y_true * (tl.log(tl.maximum(y_true, eps)) - predicted)
        else:
            loss_row = tl.exp(y_true) * (y_true - predicted)
        if reduction == NONE:
            tl.store(loss + offsets, loss_row, mask=mask)
        else:
            loss_sum += tl.sum(loss_row, axis=0)
    if reduction != NONE:
        tl.store(loss, loss_sum)


def shannon_reference(X, Y, labels, beta, n_non_ignore, ignore_index, n_cols, **_):
    x, y, keep = rows(X, n_cols), rows(Y, n_cols), (labels != ignore_index)[:, None]
    q, p = np.exp(x), np.exp(y)
    m = beta * p + (1 - beta) * q
    each = beta * p * (y - np.log(m)) + (1 - beta) * q * (x - np.log(m))
    grad = (1 - beta) * q * (x - np.log(m))
    return {"loss": (keep * each / n_non_ignore).ravel(),
            "dX": (keep * grad / n_non_ignore).ravel()}  # fmt: skip


def log_probabilities(rng):
    return np.log(softmax(rng.standard_normal((4, 150)))).astype(np.float32).ravel()


@case((4,), shannon_reference, 1e-4, X=log_probabilities, Y=log_probabilities,
      loss=fixed(np.zeros(600, np.float32)), dX=blank(600),
      labels=fixed(np.array([3, -100, 7, 1], np.int64)), beta=0.3, n_non_ignore=3,
      ignore_index=-100, n_cols=150, BLOCK=64, HAS_LABEL=True)  # fmt: skip
@tawa.jit
def jensen_shannon(X, Y, loss, dX, labels, beta: tl.constexpr, n_non_ignore: int,
                   ignore_index: tl.constexpr, n_cols, BLOCK: tl.constexpr,
                   HAS_LABEL: tl.constexpr):  # fmt: skip
    """Rows to ignore leave early; the mixture's weight is a constant with special values."""
    pid = tl.program_id(0).to(tl.int64)
    X += pid * n_cols
    dX += pid * n_cols
    Y += pid * n_cols
    loss += pid * n_cols
    if HAS_LABEL:
        lab = tl.load(labels + pid)
        if lab == ignore_index:
            for i in range(0, n_cols, BLOCK):
                offsets = i + tl.arange(0, BLOCK)
                tl.store(dX + offsets, 0.0, mask=offsets < n_cols)
            return
    for i in range(0, n_cols, BLOCK):
        offsets = i + tl.arange(0, BLOCK)
        mask = offsets < n_cols
        x = tl.load(X + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.load(Y + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        if beta == 0.0:
            y_max = tl.max(y, axis=0)
            y_prob = tl.exp(y - y_max) * tl.exp(y_max)
            each = y_prob * (y - x)
            dx = -y_prob
        elif beta == 1.0:
            x_prob = tl.exp(x)
            each = x_prob * (x - y)
            dx = each + x_prob
        else:
            max_val = tl.maximum(tl.max(x, axis=0), tl.max(y, axis=0))
            exp_max = tl.exp(max_val)
            Q = tl.exp(x - max_val) * exp_max
            P = tl.exp(y - max_val) * exp_max
            beta_P = beta * P
            one_minus_beta_Q = (1 - beta) * Q
            log_M = tl.log(beta_P + one_minus_beta_Q)
            each = beta_P * y + one_minus_beta_Q * x - (beta_P + one_minus_beta_Q) * log_M
            dx = one_minus_beta_Q * (x - log_M)
        scale = 1.0 / n_non_ignore
        tl.store(loss + offsets, each * scale, mask=mask)
        tl.store(dX + offsets, dx * scale, mask=mask)


def chunk_reference(logits, labels, VOCAB_SIZE, N_CHUNKS, BLOCK, SOFTCAP, **_):
    x = SOFTCAP * np.tanh(rows(logits, VOCAB_SIZE) / SOFTCAP)
    lse = np.array([[np.log(np.exp(r[i : i + BLOCK]).sum())
                     for i in range(0, VOCAB_SIZE, BLOCK)] for r in x])  # fmt: skip
    picked = -x[np.arange(len(x)), np.maximum(labels, 0)]
    return {"lse": lse.ravel(), "loss": np.where(labels == -100, 0, picked)}


@case((4, 3), chunk_reference, 1e-4, logits=normal(4 * 300), stride=300, loss=blank(4),
      lse=blank(12), labels=fixed(np.array([299, -100, 0, 140], np.int64)), VOCAB_SIZE=300,
      N_CHUNKS=3, BLOCK=128, DO_SOFTCAPPING=True, SOFTCAP=2.5, DO_LOGIT_SCALING=False,
      LOGIT_SCALE=0)  # fmt: skip
@tawa.jit
def cross_entropy_of_chunks(logits, stride, loss, lse, labels, VOCAB_SIZE: tl.constexpr,
                            N_CHUNKS: tl.constexpr, BLOCK: tl.constexpr,
                            DO_SOFTCAPPING: tl.constexpr, SOFTCAP: tl.constexpr,
                            DO_LOGIT_SCALING: tl.constexpr, LOGIT_SCALE: tl.constexpr):  # fmt: skip
    row_idx = tl.program_id(0)
    chunk_idx = tl.program_id(1)
    logits += row_idx * stride.to(tl.int64)
    loss += row_idx
    lse += row_idx * N_CHUNKS + chunk_idx
    labels += row_idx
    col_offsets = chunk_idx * BLOCK + tl.arange(0, BLOCK)
    mask = col_offsets < VOCAB_SIZE
    label_idx = tl.load(labels).to(tl.int32)
    x = tl.load(logits + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    if DO_LOGIT_SCALING:
        x = LOGIT_SCALE * x
    if DO_SOFTCAPPING:
        x = SOFTCAP * libdevice.tanh(x / SOFTCAP)
    x = tl.where(mask, x, -float("inf"))
    c = tl.max(x, 0)
    logsumexp = c + tl.log(tl.sum(tl.exp(x - c), 0))
    if chunk_idx == 0:
        if label_idx != -100:
            y = tl.load(logits + label_idx).to(tl.float32)
            if DO_LOGIT_SCALING:
                y = LOGIT_SCALE * y
            if DO_SOFTCAPPING:
                y = SOFTCAP * libdevice.tanh(y / SOFTCAP)
            out = -1.0 * y
        else:
            out = 0.0
        tl.store(loss, out)
    tl.store(lse, logsumexp)


# --- optimizers -----------------------------------------------------------------------------------


def adam_reference(p, g, state, absmax, code, lr, beta, n, BLOCK, **_):
    before = code[state.astype(int)] * np.repeat(absmax, BLOCK)[: len(p)]
    m = beta * before.astype(np.float64) + (1 - beta) * g
    most = np.array([np.abs(m[i : i + BLOCK]).max() for i in range(0, n, BLOCK)])
    return {"p": p - lr * np.sign(m), "absmax": most}


CODE = np.sort(np.concatenate([[0.0, 1.0], np.random.default_rng(0).uniform(-1, 1, 254)]))


@case((3,), adam_reference, 1e-4, p=normal(300), g=normal(300),
      state=integers(0, 256, 300, dtype=np.uint8), absmax=lambda rng: rng.uniform(1, 2, 3)
      .astype(np.float32), code=fixed(CODE.astype(np.float32)), lr=0.1, beta=0.9, n=300,
      BLOCK=128)  # fmt: skip
@tawa.jit
def lion_of_bytes(p, g, state, absmax, code, lr, beta, n, BLOCK: tl.constexpr):
    """A state in bytes: dequantised by a table, quantised by a search in it."""
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    number = tl.load(state + at, mask=mask, other=0)
    most = tl.load(absmax + pid)
    m = tl.load(code + number.to(tl.int32)) * most
    m = m * beta + tl.load(g + at, mask=mask, other=0.0) * (1 - beta)
    m = tl.where(mask, m, 0.0)
    most = tl.max(tl.abs(m), 0)
    tl.store(absmax + pid, most)
    normal = m / most
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    high = tl.full((BLOCK,), 255, dtype=tl.int32)
    for _ in range(8):
        pivot = (low + high) // 2
        val = tl.load(code + pivot)
        higher = normal > val
        low = tl.where(higher, pivot, low)
        high = tl.where(higher, high, pivot)
    below, above = tl.load(code + low), tl.load(code + high)
    nearest = tl.where(normal - below < above - normal, low, high)
    tl.store(state + at, nearest.to(tl.uint8), mask=mask)
    step = tl.where(m > 0, 1.0, tl.where(m < 0, -1.0, 0.0))
    tl.store(p + at, tl.load(p + at, mask=mask) - lr * step, mask=mask)
