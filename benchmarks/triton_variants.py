"""Triton-only forms of the persistent product, for Triton's own warp specialization.

Triton 3.6 specializes on Hopper only in loops that are not flattened, with four warps, and with
descriptors made on the device, so that the shipped persistent kernel, whose descriptors come from
the host, gives it nothing to do. To be fair to it, this form is timed beside the others.
"""

import triton
import triton.language as tl


@triton.jit
def persistent_specialized(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """C = A @ B, dense, B stored [N, K]; grid (PROGRAMS,)."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    for tile in tl.range(
        tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=False, warp_specialize=True
    ):
        first = (tile // per_group) * GROUP_M
        rows = min(tiles_m - first, GROUP_M)
        row = (first + tile % rows) * BLOCK_M
        column = (tile % per_group) // rows * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([row, step * BLOCK_K])
            b = b_desc.load([column, step * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([row, column], acc.to(c_desc.dtype))
