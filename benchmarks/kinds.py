"""Kinds of kernels that were slower than by Triton: each on one source by both, in turns.

    python benchmarks/kinds.py CASE         # a GPU, Triton; one case a process

The last column is Triton's best time over that of a line: above 1 is a win.
"""

import statistics
import sys
from functools import partial

import torch
import triton
import triton.language as tl

import tawa

LAUNCHES = 6


@triton.jit
def decode(
    q,
    keys,
    values,
    rows,
    counts,
    out,
    RED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    m, d = tl.arange(0, BM), tl.arange(0, D)
    x = tl.load(q + (tl.program_id(0) * BM + m)[:, None] * D + d[None, :])
    n = tl.load(counts + tl.program_id(0))
    if RED:
        n = tl.sum((tl.load(counts + tl.arange(0, 16)) >= 0).to(tl.int32), 0) * BN
    acc = tl.zeros((BM, D), tl.float32)
    for s in range(0, n, BN):
        r = tl.load(rows + s + tl.arange(0, BN))
        k = tl.load(keys + r[None, :] * D + d[:, None])
        p = tl.exp(tl.dot(x, k)).to(tl.bfloat16)
        v = tl.load(values + r[:, None] * D + d[None, :])
        acc = tl.dot(p, v, acc)
    tl.store(out + (tl.program_id(0) * BM + m)[:, None] * D + d[None, :], acc)


@triton.jit
def tiles(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc, input_precision=P)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def chunks(k, v, w, g, h, T, D: tl.constexpr, BT: tl.constexpr):
    d = tl.arange(0, D)
    i = tl.program_id(0).to(tl.int64)
    state = tl.zeros((D, D), tl.float32)
    for c in range(0, tl.cdiv(T, BT)):
        t = c * BT + tl.arange(0, BT)
        rows = (i * T + t)[:, None] * D + d[None, :]
        keep = (t < T)[:, None] & (d < D)[None, :]
        place = h + (i * tl.cdiv(T, BT) + c) * D * D + d[:, None] * D + d[None, :]
        tl.store(place, state.to(tl.bfloat16), mask=(d < 2 * D)[:, None] & (d < D)[None, :])
        x = tl.load(v + rows, mask=keep, other=0.0) - tl.dot(
            tl.load(w + rows, mask=keep, other=0.0), state.to(tl.bfloat16)
        )
        gate = tl.load(g + i * T + t, mask=t < T, other=0.0)
        last = tl.load(g + i * T + tl.minimum(c * BT + BT, T) - 1)
        x = x * tl.exp(last - gate)[:, None]
        state = tl.dot(
            tl.trans(tl.load(k + rows, mask=keep, other=0.0)),
            x.to(tl.bfloat16),
            state * tl.exp(last),
        )


@triton.jit
def masked(
    a, b, c, M, N, K, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    if HOW == 1:
        m, n, k = m.to(tl.int64), n.to(tl.int64), k.to(tl.int64)
    acc = tl.zeros((BM, BN), tl.float32)
    p, q = a + K * m[:, None] + k[None, :], b + K * n[None, :] + k[:, None]
    for _ in range(0, tl.cdiv(K, BK)):
        x = tl.load(p, mask=(m[:, None] < M) & (k < K)[None, :], other=0.0)
        y = tl.load(q, mask=(n[None, :] < N) & (k < K)[:, None], other=0.0)
        acc = tl.dot(x, y, acc)
        p += BK
        q += BK
        k += BK
    tl.store(
        c + m[:, None] * N + n[None, :],
        acc.to(tl.bfloat16),
        mask=(m[:, None] < M) & (n[None, :] < N),
    )


@triton.jit
def norms(a, b, c, out, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc, square = tl.zeros((BM, BN), tl.float32), tl.zeros((BM,), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        f = x.to(tl.float32)
        square += tl.sum(f * f, 1)
        acc = tl.dot(x, tl.load(b + (s + k)[:, None] * N + n[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))
    tl.store(out + m, square)


@triton.jit
def attend(q, k, o, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d, j = tl.arange(0, D), tl.arange(0, BN)
    x = tl.load(q + m[:, None] * D + d[None, :])
    acc, total = tl.zeros((BM, D), tl.float32), tl.zeros((BM,), tl.float32)
    mx = tl.zeros((BM,), tl.float32) - float("inf")
    for s in range(0, n, BN):
        y = tl.load(k + (s + j)[:, None] * D + d[None, :])
        t = tl.dot(x, tl.trans(y)) * 0.05
        m2 = tl.maximum(mx, tl.max(t, 1))
        p = tl.exp(t - m2[:, None])
        scale = tl.exp(mx - m2)
        total = total * scale + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), y, acc * scale[:, None])
        mx = m2
    tl.store(o + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.bfloat16))


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def larger(a, i, b, j):
    take = (b > a) | ((b == a) & (j > i))
    return tl.where(take, b, a), tl.where(take, j, i)


@triton.jit
def prefixes(x, sums, products, maxima, places, X: tl.constexpr, R: tl.constexpr):
    row = tl.program_id(0) * X + tl.arange(0, X)[:, None]
    column = tl.arange(0, R)[None, :]
    at = row * R + column
    v = tl.load(x + at)
    (total,) = tl.associative_scan((v,), 1, plus)
    (whole,) = tl.associative_scan((v,), 1, product)
    index = tl.broadcast_to(column, [X, R]).to(tl.int64)
    most, place = tl.associative_scan((v, index), 1, larger)
    tl.store(sums + at, total)
    tl.store(products + at, whole)
    tl.store(maxima + at, most)
    tl.store(places + at, place)


def drawn(*s, t=torch.bfloat16, by=1.0):
    return (torch.randn(*s, device="cuda") * by).to(t)


def blank(*s, t=torch.bfloat16):
    return torch.zeros(*s, device="cuda", dtype=t)


def places(*s):
    return torch.randint(0, 65536, s, device="cuda", dtype=torch.int32)


def gemm(t, n=4096):
    return [drawn(n, n, t=t), drawn(n, n, t=t), blank(n, n, t=torch.float32), n, n, n]


def scanned():
    f32, s = torch.float32, (512, 2048)
    return [
        1 + drawn(*s, t=f32, by=0.01),
        *(blank(*s, t=f32) for _ in "123"),
        blank(*s, t=torch.int64),
    ]


def decoded():
    return [
        drawn(4096, 128, by=0.05),
        drawn(65536, 128),
        drawn(65536, 128),
        places(65536),
        torch.full((256,), 4096, device="cuda", dtype=torch.int32),
        blank(4096, 128, t=torch.float32),
    ]


def chunked():
    return [
        drawn(256, 2048, 64, by=0.1),
        drawn(256, 2048, 64),
        drawn(256, 2048, 64, by=0.1),
        drawn(256, 2048, t=torch.float32, by=0.01),
        blank(256, 32, 64, 64),
        2048,
    ]


# name: kernel, arguments, constants, grid, outputs, further tawa pins, Triton's options
CASES = {
    "k2": (decode, decoded, {"RED": False, "BM": 16, "BN": 64, "D": 128}, (256,), (5,), [{}], [{}]),
    "k2_reduction": (
        decode,
        decoded,
        {"RED": True, "BM": 16, "BN": 64, "D": 128},
        (256,),
        (5,),
        [{}],
        [{}],
    ),
    "k3_fma": (
        tiles,
        lambda: gemm(torch.float32),
        {"BM": 16, "BN": 16, "BK": 16, "P": "ieee"},
        (256, 256),
        (2,),
        [{}, {"blocks": 1}, {"specialize": False}],
        [{}],
    ),
    "k3_fma64": (
        tiles,
        lambda: gemm(torch.float32, 512),
        {"BM": 64, "BN": 64, "BK": 64, "P": "ieee"},
        (8, 8),
        (2,),
        [{"num_warps": 8, "num_stages": 3}, {"num_warps": 8, "consumers": 1}],
        [{"num_warps": 8, "num_stages": 3}],
    ),
    "k3_fma128": (
        tiles,
        lambda: gemm(torch.float32, 2048),
        {"BM": 128, "BN": 64, "BK": 32, "P": "ieee"},
        (16, 32),
        (2,),
        [{}],
        [{}],
    ),
    "scans": (
        prefixes,
        scanned,
        {"X": 2, "R": 2048},
        (256,),
        (1, 2, 3, 4),
        [{"num_warps": 16}],
        [{"num_warps": 16}],
    ),
    "k3_wgmma": (
        tiles,
        lambda: gemm(torch.bfloat16),
        {"BM": 64, "BN": 32, "BK": 32, "P": "tf32"},
        (64, 128),
        (2,),
        [{}, {"blocks": 1}, {"specialize": False}],
        [{}],
    ),
    "k3_mma": (
        tiles,
        lambda: gemm(torch.bfloat16),
        {"BM": 32, "BN": 32, "BK": 32, "P": "tf32"},
        (128, 128),
        (2,),
        [{}, {"blocks": 1}, {"specialize": False}],
        [{}],
    ),
    "k4": (chunks, chunked, {"D": 64, "BT": 64}, (256,), (4,), [{}], [{}]),
    "k5_carried": (
        masked,
        lambda: [drawn(4096, 4096), drawn(4096, 4096), blank(4096, 4096), 4096, 4096, 4096],
        {"HOW": 0, "BM": 128, "BN": 128, "BK": 64},
        (32, 32),
        (2,),
        [{}],
        [{"num_warps": 8}],
    ),
    "k5_int64": (
        masked,
        lambda: [drawn(4096, 4096), drawn(4096, 4096), blank(4096, 4096), 4096, 4096, 4096],
        {"HOW": 1, "BM": 128, "BN": 128, "BK": 64},
        (32, 32),
        (2,),
        [{}],
        [{"num_warps": 8}],
    ),
    "k9": (
        norms,
        lambda: [
            drawn(4096, 4096),
            drawn(4096, 4096),
            blank(4096, 4096),
            blank(4096, t=torch.float32),
            4096,
            4096,
        ],
        {"BM": 128, "BN": 128, "BK": 64},
        (32, 32),
        (2, 3),
        [{}, {"arrangement": "cooperative"}],
        [{"num_warps": 8}],
    ),
    "cliff_product": (
        tiles,
        lambda: gemm(torch.bfloat16),
        {"BM": 64, "BN": 512, "BK": 32, "P": "tf32"},
        (64, 8),
        (2,),
        [{}],
        [{"num_warps": 8}, {"num_warps": 4}],
    ),
    "cliff_attention": (
        attend,
        lambda: [drawn(16896, 512), drawn(4096, 512), blank(16896, 512), 4096],
        {"BM": 64, "BN": 64, "D": 512},
        (264,),
        (2,),
        [{}],
        [{"num_warps": 8, "num_stages": 2}, {"num_warps": 8, "num_stages": 1}],
    ),
}


def main(name):
    kernel, make, constants, grid, outputs, pins, options = CASES[name]
    torch.manual_seed(0)
    sets = [make() for _ in range(3)]
    ours = tawa.jit(kernel)
    calls = {f"triton {o or ''}": partial(kernel[grid], **constants, **o) for o in options}
    calls |= {f"tawa {p or ''}": partial(ours[grid], **constants, **p) for p in pins}
    wanted = None
    for label, call in calls.items():
        for each in outputs:
            sets[0][each].fill_(float("nan"))
        call(*sets[0])
        got = [sets[0][each].float() for each in outputs]
        wanted = wanted or [each.clone() for each in got]
        error = max(((a - b).norm() / b.norm()).item() for a, b in zip(got, wanted))
        print(name, label, f"error against {next(iter(calls))}: {error:.2e}", flush=True)
        for given in sets[1:]:
            call(*given)
    times = {label: [] for label in calls}
    for turn in range(12):
        for label, call in list(calls.items())[:: 1 if turn % 2 else -1]:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(200_000)
            begin.record()
            for launch in range(LAUNCHES):
                call(*sets[(turn + launch) % 3])
            end.record()
            torch.cuda.synchronize()
            times[label].append(begin.elapsed_time(end) / LAUNCHES * 1000)
    middle = {label: statistics.median(found) for label, found in times.items()}
    best = min(t for label, t in middle.items() if label.startswith("triton"))
    for label, t in middle.items():
        print(f"{name:16} {label:42} {t:9.1f} us  Triton's best over it {best / t:5.2f}")
    made = ours.compile(*sets[0], grid=grid, **constants)
    told = made.plan.specialized, made.plan.blocks, made.resources.spills
    print(name, "specialized {}, blocks {}, spills {}".format(*told))


if __name__ == "__main__":
    main(sys.argv[1])
