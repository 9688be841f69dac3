"""A GEMM in twenty lines, run on the GPU where there is one and in the simulator where not.

python examples/01_gemm.py
"""

import tawa
import tawa.language as tl


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


def multiply(a, b, c):
    """c = a @ b, whichever library the arrays belong to."""
    m, k = a.shape
    n = b.shape[1]
    describe = tawa.TensorDescriptor.from_tensor
    grid = (tawa.cdiv(m, 128), tawa.cdiv(n, 128))
    return matmul[grid](
        describe(a, [128, 64]), describe(b, [64, 128]), describe(c, [128, 128]), k, 128, 128, 64
    )


def on_gpu(torch):
    a = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(4096, 4096, device="cuda", dtype=torch.bfloat16)
    multiply(a, b, c)
    return float((c.double() - a.double() @ b.double()).norm() / c.double().norm())


def in_simulator():
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    a = random.standard_normal((200, 136)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((136, 264)).astype(ml_dtypes.bfloat16)
    c = np.full((200, 264), np.nan, dtype=ml_dtypes.bfloat16)
    multiply(a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want))


def main():
    try:
        import torch

        here = torch.cuda.is_available()
    except ImportError:
        here = False
    error = on_gpu(torch) if here else in_simulator()
    print(f"ran {'on the GPU' if here else 'in the simulator'}, relative error {error:.1e}")
    assert error < 8e-3


if __name__ == "__main__":
    main()
