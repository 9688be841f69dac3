"""What the compiler decided for a plain kernel, and how to decide otherwise.

python examples/02_explain.py        (no GPU needed)
"""

import tawa
from tawa.kernels.gemm import matmul_descriptors


def compile_for(m, n, k, **pins):
    """Compile for shapes only: placeholders stand for the arrays."""
    a, b, c = (tawa.array(shape, "bf16") for shape in ((m, k), (k, n), (m, n)))
    describe = tawa.TensorDescriptor.from_tensor
    return matmul_descriptors.compile(
        describe(a, [128, 64]),
        describe(b, [64, 256]),
        describe(c, [128, 256]),
        k,
        BLOCK_M=128,
        BLOCK_N=256,
        BLOCK_K=64,
        **pins,
    )


def main():
    chosen = compile_for(8192, 8192, 4096)
    print(chosen)

    print("\nThe same with two slots a ring and one product in flight:")
    pinned = compile_for(8192, 8192, 4096, depth=2, mma_depth=1)
    print([f"{aref.label}: depth {aref.depth}" for aref in pinned.plan.arefs])

    print("\nA pin that cannot be honoured is an error that says why:")
    try:
        compile_for(8192, 8192, 4096, depth=9)
    except tawa.TawaError as error:
        print(error)

    print("\nThe first lines of the CUDA it became:")
    print("\n".join(chosen.asm.text("cuda").splitlines()[:12]))


if __name__ == "__main__":
    main()
