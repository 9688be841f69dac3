"""Products and reductions as templates and generators write them: persistent and stream-K walks,
descriptors made by the kernel, epilogues in halves, scans over blocks, several arrays in a launch.
"""

# ruff: noqa: F841 -- generators leave names that nothing uses

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, normal

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)
HALF, E4M3 = np.float16, ml_dtypes.float8_e4m3fn


def wide(x: np.ndarray, *shape: int) -> np.ndarray:
    return x.reshape(shape).astype(np.float64)


# --- persistent products --------------------------------------------------------------------------


@tawa.jit
def _compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M, NUM_SMS):
    group_id = tile_id // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + (tile_id % group_size_m)
    pid_n = (tile_id % num_pid_in_group) // group_size_m
    return pid_m, pid_n


def product_reference(a_ptr, b_ptr, M, N, K, **_):
    return {"c_ptr": (wide(a_ptr, M, K) @ wide(b_ptr, N, K).T).ravel()}


@case((3,), product_reference, 2e-3, a_ptr=normal(200 * 72, dtype=HALF),
      b_ptr=normal(160 * 72, dtype=HALF), c_ptr=blank(200 * 160, dtype=HALF), M=200, N=160, K=72,
      BM=64, BN=64, BK=32, GROUP_SIZE_M=8, NUM_SMS=3, EPILOGUE_SUBTILE=True,
      WARP_SPECIALIZE=True, FLATTEN=True)  # fmt: skip
@tawa.jit
def persistent_with_descriptors(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                                BK: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
                                EPILOGUE_SUBTILE: tl.constexpr, NUM_SMS: tl.constexpr,
                                WARP_SPECIALIZE: tl.constexpr, FLATTEN: tl.constexpr):  # fmt: skip
    """Descriptors are made by the kernel; the result is stored in two halves."""
    dtype = c_ptr.dtype.element_ty
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    k_tiles = tl.cdiv(K, BK)
    num_tiles = num_pid_m * num_pid_n
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(
        c_ptr, shape=[M, N], strides=[N, 1],
        block_shape=[BM, BN if not EPILOGUE_SUBTILE else BN // 2])  # fmt: skip
    tile_id_c = start_pid - NUM_SMS
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=FLATTEN,
                            warp_specialize=WARP_SPECIALIZE):  # fmt: skip
        pid_m, pid_n = _compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M, NUM_SMS)
        offs_am = pid_m * BM
        offs_bn = pid_n * BN
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BK
            a = a_desc.load([offs_am, offs_k])
            b = b_desc.load([offs_bn, offs_k])
            accumulator = tl.dot(a, b.T, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = _compute_pid(tile_id_c, num_pid_in_group, num_pid_m, GROUP_SIZE_M, NUM_SMS)
        offs_cm = pid_m * BM
        offs_cn = pid_n * BN
        if EPILOGUE_SUBTILE:
            acc = tl.reshape(accumulator, (BM, 2, BN // 2))
            acc = tl.permute(acc, (0, 2, 1))
            acc0, acc1 = tl.split(acc)
            c0 = acc0.to(dtype)
            c_desc.store([offs_cm, offs_cn], c0)
            c1 = acc1.to(dtype)
            c_desc.store([offs_cm, offs_cn + BN // 2], c1)
        else:
            c_desc.store([offs_cm, offs_cn], accumulator.to(dtype))


def stream_reference(a, b, M, N, K, **_):
    return {"c": (wide(a, M, K) @ wide(b, K, N)).ravel()}


@tawa.jit
def mac_loop(a, b, c, locks, start_iter, end_iter, M, N, K, iters_per_tile, BM: tl.constexpr,
             BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    tile_id = start_iter // iters_per_tile
    num_n = tl.cdiv(N, BN)
    pid_m, pid_n = tile_id // num_n, tile_id % num_n
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    k0 = (start_iter % iters_per_tile) * BK
    A = a + (rm[:, None] * K + rk[None, :]) + k0
    B = b + (rk[:, None] * N + rn[None, :]) + k0 * N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for current_iter in range(start_iter, end_iter):
        inside = ((current_iter % iters_per_tile) * BK + rk) < K
        x = tl.load(A, mask=(rm < M)[:, None] & inside[None, :], other=0.0)
        y = tl.load(B, mask=inside[:, None] & (rn < N)[None, :], other=0.0)
        acc += tl.dot(x, y)
        A += BK
        B += BK * N
    C = c + rm[:, None] * N + rn[None, :]
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    if start_iter % iters_per_tile == 0:
        tl.store(C, acc, mask=mask)
        if end_iter % iters_per_tile != 0:
            tl.debug_barrier()
            tl.atomic_xchg(locks + tile_id, 1)
    else:
        while tl.atomic_cas(locks + tile_id, 1, 1) != 1:
            pass
        tl.atomic_add(C, acc, mask=mask)


@case((4,), stream_reference, 2e-3, a=normal(70 * 72, dtype=HALF), b=normal(72 * 40, dtype=HALF),
      c=blank(70 * 40), locks=fixed(np.zeros(8, np.int32)), M=70, N=40, K=72,
      total_programs=4, full_tiles_per_pid=4, remaining=2, iters_per_tile=3, BM=32, BN=32,
      BK=32)  # fmt: skip
@tawa.jit
def stream_of_trips(a, b, c, locks, M, N, K, total_programs, full_tiles_per_pid, remaining,
                    iters_per_tile, BM: tl.constexpr, BN: tl.constexpr,
                    BK: tl.constexpr):  # fmt: skip
    """Each program has equally many iterations: a tile is begun by one and finished by another."""
    pid = tl.program_id(0)
    start_iter = pid * full_tiles_per_pid + tl.minimum(pid, remaining)
    last_iter = (pid + 1) * full_tiles_per_pid + tl.minimum(pid + 1, remaining)
    while start_iter < last_iter:
        end_iter = start_iter + (iters_per_tile - start_iter % iters_per_tile)
        end_iter = tl.minimum(end_iter, last_iter)
        mac_loop(a, b, c, locks, start_iter, end_iter, M, N, K, iters_per_tile, BM, BN, BK)
        start_iter = end_iter


SIZES = np.array([[70, 64, 48], [20, 48, 32]], np.int32)


def group_reference(tensors, sizes, **_):
    """Everything in one array: two problems' operands and results, by offsets."""
    out = tensors.copy().astype(np.float64)
    at = 0
    for m, n, k in sizes.reshape(-1, 3):
        a = wide(tensors[at:][: m * k], m, k)
        b = wide(tensors[at + m * k :][: n * k], n, k)
        out[at + m * k + n * k :][: m * n] = (a @ b.T).ravel()
        at += m * k + n * k + m * n
    return {"tensors": out}


@case((3,), group_reference, 2e-3, tensors=normal(70 * 48 + 64 * 48 + 70 * 64 + 20 * 32 + 48 * 32
      + 20 * 48, dtype=HALF), sizes=fixed(SIZES.ravel()), group_size=2, NUM_SM=3, BM=32, BN=32,
      BK=32)  # fmt: skip
@tawa.jit
def grouped_with_descriptors(tensors, sizes, group_size, NUM_SM: tl.constexpr, BM: tl.constexpr,
                             BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Descriptors of matrices that a loop finds; its tiles are taken by programs in turn."""
    tile_idx = tl.program_id(0)
    last_problem_end = 0
    at = tensors
    for g in range(group_size):
        gm = tl.load(sizes + g * 3)
        gn = tl.load(sizes + g * 3 + 1)
        gk = tl.load(sizes + g * 3 + 2)
        num_m_tiles = tl.cdiv(gm, BM)
        num_n_tiles = tl.cdiv(gn, BN)
        num_tiles = num_m_tiles * num_n_tiles
        if tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
            a_desc = tl.make_tensor_descriptor(at, shape=[gm, gk], strides=[gk, 1],
                                               block_shape=[BM, BK])  # fmt: skip
            b_desc = tl.make_tensor_descriptor(at + gm * gk, shape=[gn, gk], strides=[gk, 1],
                                               block_shape=[BN, BK])  # fmt: skip
            c_desc = tl.make_tensor_descriptor(at + gm * gk + gn * gk, shape=[gm, gn],
                                               strides=[gn, 1], block_shape=[BM, BN])  # fmt: skip
            while tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
                tile_idx_in_gemm = tile_idx - last_problem_end
                tile_m_idx = tile_idx_in_gemm // num_n_tiles
                tile_n_idx = tile_idx_in_gemm % num_n_tiles
                offs_am = tile_m_idx * BM
                offs_bn = tile_n_idx * BN
                accumulator = tl.zeros((BM, BN), dtype=tl.float32)
                for kk in range(0, tl.cdiv(gk, BK)):
                    a = a_desc.load([offs_am, kk * BK])
                    b = b_desc.load([offs_bn, kk * BK])
                    accumulator += tl.dot(a, b.T)
                c_desc.store([offs_am, offs_bn], accumulator.to(tl.float16))
                tile_idx += NUM_SM
        last_problem_end = last_problem_end + num_tiles
        at += gm * gk + gn * gk + gm * gn


def by_blocks_reference(A, B, As, Bs, M, N, K, **_):
    a = wide(A, M, K) * np.repeat(wide(As, M, -1), 32, 1)[:, :K]
    b = wide(B, N, K) * np.repeat(np.repeat(wide(Bs, -1, K // 32), 32, 0)[:N], 32, 1)
    return {"C": (a @ b.T).ravel()}


@case((4,), by_blocks_reference, 5e-3, A=normal(50 * 96, dtype=E4M3), B=normal(64 * 96, dtype=E4M3),
      C=blank(50 * 64, dtype=ml_dtypes.bfloat16), As=lambda rng: rng.uniform(0.5, 2, 150)
      .astype(np.float32), Bs=lambda rng: rng.uniform(0.5, 2, 6).astype(np.float32), M=50, N=64,
      K=96, group_n=32, group_k=32, stride_am=96, stride_ak=1, stride_bk=1, stride_bn=96,
      stride_cm=64, stride_cn=1, stride_As_m=3, stride_As_k=1, stride_Bs_k=1, stride_Bs_n=3, BM=32,
      BN=32, BK=32, GROUP=8)  # fmt: skip
@tawa.jit
def fp8_by_blocks(A, B, C, As, Bs, M, N, K, group_n, group_k, stride_am, stride_ak, stride_bk,
                  stride_bn, stride_cm, stride_cn, stride_As_m, stride_As_k, stride_Bs_k,
                  stride_Bs_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  GROUP: tl.constexpr):  # fmt: skip
    """A scale for each row and 32 columns of A and for each block of B; rows wrap round."""
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    num_pid_in_group = GROUP * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + (pid % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = A + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = B + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    As_ptrs = As + offs_am * stride_As_m
    offs_bsn = offs_bn // group_n
    Bs_ptrs = Bs + offs_bsn * stride_Bs_n
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        k_start = k * BK
        offs_ks = k_start // group_k
        a_s = tl.load(As_ptrs + offs_ks * stride_As_k)
        b_s = tl.load(Bs_ptrs + offs_ks * stride_Bs_k)
        accumulator += tl.dot(a, b) * a_s[:, None] * b_s[None, :]
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    if C.dtype.element_ty == tl.bfloat16:
        c = accumulator.to(tl.bfloat16)
    elif C.dtype.element_ty == tl.float16:
        c = accumulator.to(tl.float16)
    else:
        c = accumulator.to(tl.float32)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = C + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)


def inductor_reference(arg_A, arg_B, in_ptr2, **_):
    x = wide(arg_A, 60, 80) @ wide(arg_B, 80, 56) + in_ptr2
    return {"out_ptr0": np.maximum(x, 0).ravel()}


@case((4, 1, 1), inductor_reference, 3e-3, arg_A=normal(4800, dtype=HALF),
      arg_B=normal(80 * 56, dtype=HALF), in_ptr2=normal(56, dtype=HALF),
      out_ptr0=blank(60 * 56, dtype=HALF))  # fmt: skip
@tawa.jit
def triton_tem_fused_addmm_relu_0(arg_A, arg_B, in_ptr2, out_ptr0):
    """Sizes are constants of the text; the epilogue follows from the number of an element."""
    EVEN_K: tl.constexpr = False
    USE_FAST_ACCUM: tl.constexpr = False
    ACC_TYPE: tl.constexpr = tl.float32
    BLOCK_M: tl.constexpr = 32
    BLOCK_N: tl.constexpr = 32
    BLOCK_K: tl.constexpr = 32
    GROUP_M: tl.constexpr = 8
    ALLOW_TF32: tl.constexpr = False
    INDEX_DTYPE: tl.constexpr = tl.int32
    A = arg_A
    B = arg_B
    M = 60
    N = 56
    K = 80
    if M * N == 0:
        return
    stride_am = 80
    stride_ak = 1
    stride_bk = 56
    stride_bn = 1
    pid = tl.program_id(0).to(INDEX_DTYPE)
    grid_m = (M + BLOCK_M - 1) // BLOCK_M
    grid_n = (N + BLOCK_N - 1) // BLOCK_N
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // (group_size)
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if ((stride_am == 1 and stride_ak == M) or (stride_am == K and stride_ak == 1)) and (
        M >= BLOCK_M and K > 1
    ):
        offs_a_m = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK_M), BLOCK_M)
    else:
        offs_a_m = rm % M
    if ((stride_bk == 1 and stride_bn == K) or (stride_bk == N and stride_bn == 1)) and (
        N >= BLOCK_N and K > 1
    ):
        offs_b_n = tl.max_contiguous(tl.multiple_of(rn % N, BLOCK_N), BLOCK_N)
    else:
        offs_b_n = rn % N
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_TYPE)
    for k_idx in range(0, tl.cdiv(K, BLOCK_K)):
        if not EVEN_K:
            a_mask = offs_k[None, :] < (K - k_idx * BLOCK_K)
            b_mask = offs_k[:, None] < (K - k_idx * BLOCK_K)
        a_k_idx_vals = offs_k[None, :] + (k_idx * BLOCK_K)
        b_k_idx_vals = offs_k[:, None] + (k_idx * BLOCK_K)
        idx_m = offs_a_m[:, None]
        idx_n = a_k_idx_vals
        xindex = idx_n + 80 * idx_m
        a = tl.load(A + (xindex), mask=a_mask, other=0.0)
        idx_m = b_k_idx_vals
        idx_n = offs_b_n[None, :]
        xindex = idx_n + 56 * idx_m
        b = tl.load(B + (xindex), mask=b_mask, other=0.0)
        acc += tl.dot(a, b, allow_tf32=ALLOW_TF32, out_dtype=ACC_TYPE)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    idx_m = rm[:, None]
    idx_n = rn[None, :]
    mask = (idx_m < M) & (idx_n < N)
    xindex = idx_n + 56 * idx_m
    tmp0 = tl.load(in_ptr2 + (tl.broadcast_to(idx_n, [BLOCK_M, BLOCK_N])), mask,
                   eviction_policy="evict_last").to(tl.float32)  # fmt: skip
    tmp1 = acc + tmp0
    tmp2 = tl.full([1, 1], 0, tl.int32)
    tmp3 = tl.maximum(tmp2, tmp1)
    tl.store(out_ptr0 + (tl.broadcast_to(xindex, [BLOCK_M, BLOCK_N])), tmp3, mask)


# --- generated reductions and scans ---------------------------------------------------------------


def foreach_reference(in_ptr0, in_ptr1, in_ptr2, in_ptr3, **_):
    return {"out_ptr0": in_ptr0 + in_ptr1, "out_ptr1": in_ptr2 * in_ptr3}


@case((3,), foreach_reference, in_ptr0=normal(1000), in_ptr1=normal(1000), in_ptr2=normal(700),
      in_ptr3=normal(700), out_ptr0=blank(1000), out_ptr1=blank(700))  # fmt: skip
@tawa.jit
def triton_for_fused_0(in_ptr0, in_ptr1, in_ptr2, in_ptr3, out_ptr0, out_ptr1):
    """Programs share out several arrays."""
    pid = tl.program_id(0)
    XBLOCK: tl.constexpr = 1024
    num_xblocks_0 = tl.cdiv(1000, XBLOCK)
    num_xblocks_1 = num_xblocks_0 + tl.cdiv(700, XBLOCK)
    if pid < num_xblocks_0:
        pid_offset = pid
        xnumel = 1000
        r0_numel = 1
        xoffset = pid_offset * XBLOCK
        xindex = xoffset + tl.arange(0, XBLOCK)[:]
        xmask = xindex < xnumel
        x0 = xindex
        tmp0 = tl.load(in_ptr0 + (x0), xmask)
        tmp1 = tl.load(in_ptr1 + (x0), xmask)
        tmp2 = tmp0 + tmp1
        tl.store(out_ptr0 + (x0), tmp2, xmask)
    elif pid < num_xblocks_1:
        pid_offset = pid - num_xblocks_0
        xnumel = 700
        r0_numel = 1
        xoffset = pid_offset * XBLOCK
        xindex = xoffset + tl.arange(0, XBLOCK)[:]
        xmask = xindex < xnumel
        x1 = xindex
        tmp3 = tl.load(in_ptr2 + (x1), xmask)
        tmp4 = tl.load(in_ptr3 + (x1), xmask)
        tmp5 = tmp3 * tmp4
        tl.store(out_ptr1 + (x1), tmp5, xmask)
    else:
        pass


def cat_reference(in_ptr0, in_ptr1, **_):
    return {"out_ptr0": np.concatenate([wide(in_ptr0, 9, 20), -wide(in_ptr1, 9, 12)], 1).ravel()}


@case((3,), cat_reference, in_ptr0=normal(180), in_ptr1=normal(108), out_ptr0=blank(288),
      xnumel=288, XBLOCK=128)  # fmt: skip
@tawa.jit
def triton_poi_fused_cat_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex % 32
    x1 = xindex // 32
    x2 = xindex
    tmp0 = x0
    tmp1 = tl.full([1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = tl.full([1], 20, tl.int64)
    tmp4 = tmp0 < tmp3
    tmp5 = tl.load(
        in_ptr0 + (20 * x1 + (x0)), tmp4 & xmask, eviction_policy="evict_last", other=0.0
    )
    tmp6 = tmp0 >= tmp3
    tmp7 = tl.full([1], 32, tl.int64)
    tmp8 = tmp0 < tmp7
    tmp9 = tl.load(in_ptr1 + (12 * x1 + ((-20) + x0)), tmp6 & xmask,
                   eviction_policy="evict_last", other=0.0)  # fmt: skip
    tmp10 = -tmp9
    tmp11 = tl.full(tmp10.shape, 0.0, tmp10.dtype)
    tmp12 = tl.where(tmp6, tmp10, tmp11)
    tmp13 = tl.where(tmp4, tmp5, tmp12)
    tl.store(out_ptr0 + (x2), tmp13, xmask)


def online_reference(in_ptr0, xnumel, r0_numel, **_):
    x = wide(in_ptr0, xnumel, r0_numel)
    high = x.max(1)
    return {"out_ptr0": high, "out_ptr1": np.exp(x - high[:, None]).sum(1)}


@tawa.jit
def online_softmax_combine(lhs_max, lhs_sum, rhs_max, use_fast_math: tl.constexpr):
    out_max = tl.maximum(lhs_max, rhs_max)
    lhs_scale = tl.where(out_max == float("-inf"), 1.0, tl.exp(lhs_max - out_max))
    rhs_scale = tl.where(out_max == float("-inf"), 1.0, tl.exp(rhs_max - out_max))
    if use_fast_math:
        out_sum = lhs_sum * lhs_scale + rhs_scale
    else:
        out_sum = tl.fma(lhs_sum, lhs_scale, rhs_scale)
    return out_max, out_sum


@tawa.jit
def maximum(a, b):
    mask = a > b
    mask |= a != a
    return tl.where(mask, a, b)


@tawa.jit
def max2(a, dim):
    return tl.reduce(a, dim, maximum)


@tawa.jit
def online_softmax_reduce(lhs_max, lhs_sum, dim, use_fast_math: tl.constexpr):
    out_max = max2(lhs_max, dim)
    out_max_keepdim = out_max[:, None]
    delta = tl.where(out_max_keepdim == float("-inf"), 0, lhs_max - out_max_keepdim)
    out_sum = tl.sum(lhs_sum * tl.exp(delta), dim)
    return out_max, out_sum


@case((3,), online_reference, 1e-5, in_ptr0=normal(5 * 300), out_ptr0=blank(5), out_ptr1=blank(5),
      xnumel=5, r0_numel=300, XBLOCK=2, R0_BLOCK=128)  # fmt: skip
@tawa.jit
def triton_red_fused__softmax_0(in_ptr0, out_ptr0, out_ptr1, xnumel, r0_numel,
                                XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):  # fmt: skip
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
    _tmp2_max = tl.full([XBLOCK, R0_BLOCK], float("-inf"), tl.float32)
    _tmp2_sum = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    for r0_offset in range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (r0_1 + r0_numel * x0), r0_mask & xmask,
                       eviction_policy="evict_first", other=0.0)  # fmt: skip
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        _tmp2_max_next, _tmp2_sum_next = online_softmax_combine(_tmp2_max, _tmp2_sum, tmp1, False)
        _tmp2_max = tl.where(r0_mask & xmask, _tmp2_max_next, _tmp2_max)
        _tmp2_sum = tl.where(r0_mask & xmask, _tmp2_sum_next, _tmp2_sum)
    tmp2, tmp3 = online_softmax_reduce(_tmp2_max, _tmp2_sum, 1, False)
    tmp2 = tmp2[:, None]
    tmp3 = tmp3[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
    tl.store(out_ptr1 + (x0), tmp3, xmask)


# --- a scan over blocks that look back ------------------------------------------------------------


def lookback_reference(in_ptr0, xnumel, **_):
    return {"out_ptr0": np.cumsum(in_ptr0.astype(np.float64))}


@tawa.jit
def add_two(a, b):
    return a + b


@tawa.jit
def exclusive_scan_decoupled_lookback(scratch_base, block_value, index, combine_fn,
                                      DTYPE_VALUE_AS_UINT: tl.constexpr,
                                      DTYPE_PACK: tl.constexpr):  # fmt: skip
    """A word holds a flag and a value: 1 for a block's own sum, 2 for that of all up to it."""
    DTYPE_VALUE = block_value.dtype
    pack = block_value.to(DTYPE_VALUE_AS_UINT, bitcast=True).to(DTYPE_PACK)
    pack = (pack << 32) | 1
    if index > 0:
        tl.atomic_xchg(scratch_base + index, pack, sem="relaxed")
    exclusive_prefix = tl.full([], 0, DTYPE_VALUE)
    test_target = index - 1
    while test_target >= 0:
        flag = tl.full([], 0, DTYPE_PACK)
        while flag == 0:
            pack = tl.atomic_add(scratch_base + test_target, 0, sem="relaxed")
            flag = pack & tl.full([], 3, DTYPE_PACK)
        value = (pack >> 32).to(DTYPE_VALUE_AS_UINT).to(DTYPE_VALUE, bitcast=True)
        exclusive_prefix = combine_fn(value, exclusive_prefix)
        if flag == 2:
            test_target = -1
        else:
            test_target = test_target - 1
    inclusive_block_value = combine_fn(exclusive_prefix, block_value)
    pack = inclusive_block_value.to(DTYPE_VALUE_AS_UINT, bitcast=True).to(DTYPE_PACK)
    pack = (pack << 32) | 2
    tl.atomic_xchg(scratch_base + index, pack, sem="relaxed")
    return exclusive_prefix


@case((4,), lookback_reference, 1e-5, in_ptr0=normal(450), out_ptr0=blank(450),
      ws_ptr=fixed(np.zeros(4, np.uint64)), xnumel=450, RBLOCK=128)  # fmt: skip
@tawa.jit
def split_scan(in_ptr0, out_ptr0, ws_ptr, xnumel, RBLOCK: tl.constexpr):
    pid = tl.program_id(0)
    rindex = pid * RBLOCK + tl.arange(0, RBLOCK)
    rmask = rindex < xnumel
    tmp0 = tl.load(in_ptr0 + rindex, rmask, other=0.0)
    tmp1 = tl.reduce(tmp0, 0, add_two)
    tmp2 = exclusive_scan_decoupled_lookback(ws_ptr, tmp1, pid, add_two, tl.uint32, tl.uint64)
    (tmp3,) = tl.associative_scan((tmp0,), 0, add_two)
    tl.store(out_ptr0 + rindex, add_two(tmp2, tmp3), rmask)
