"""Kernels without Python source: a GEMM and a sum of rows, built by calls and run as one program.

Both are written as kernels here too, and the CUDA text is the same, byte for byte. With `--cuda` it
is printed.

python examples/05_without_source.py
"""

import inspect
import sys

import tawa
import tawa.language as tl
from tawa.ir.build import KernelBuilder

BM, BN, BK = 128, 128, 64


@tawa.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc)


@tawa.jit
def row_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * n
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n, BLOCK):
        inside = first + columns < n
        total += tl.load(x_ptr + start + first + columns, mask=inside, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


# A plan speaks of statements by their names, and so does the CUDA text. A statement of a written
# kernel is named by its variable and line, one of a built kernel as its builder likes: here as its
# twin above.
def names(kernel, **statements):
    """The names of statements of a written kernel: of each its variable and how its line begins."""
    lines, first = inspect.getsourcelines(kernel.fn)
    found = {}
    for key, (variable, start) in statements.items():
        line = next(number for number, text in enumerate(lines) if text.strip().startswith(start))
        found[key] = f"{variable}@{first + line}"
    return found


MATMUL = names(
    matmul,
    k=("for k", "for k in"),
    a=("a", "a ="),
    b=("b", "b ="),
    acc=("acc", "acc = tl.dot"),
    c=("c_desc", "c_desc.store"),
)
MATMUL_PLAN = """
plan specialized warps=12 arrangement=cooperative persistent=yes group=8 cluster=1
role load warps=4 registers=40
role mma warps=8 registers=232
aref {a} + {b} depth=4
loop {k} schedule=fine mma_depth=1
store {c} via=tma parts=1 eviction=first
guard a_desc, c_desc
guard b_desc, c_desc
""".format(**MATMUL)

ROW_SUMS = names(
    row_sums,
    first=("for first", "for first in"),
    x=("x_ptr", "total += tl.load"),
    out=("out_ptr", "tl.store"),
)
ROW_SUMS_PLAN = """
plan ordinary warps=4 arrangement=cooperative persistent=no group=0 cluster=1
loop {first} schedule=none mma_depth=1
store {out} via=registers parts=1
""".format(**ROW_SUMS)


def built_matmul():
    """The tile IR of `matmul`."""
    k = KernelBuilder("matmul")
    a_desc = k.descriptor("a_desc", "bf16", (BM, BK))
    b_desc = k.descriptor("b_desc", "bf16", (BK, BN))
    c_desc = k.descriptor("c_desc", "f32", (BM, BN))
    extent = k.scalar("K", "i32", divisible=16)
    row = (k.program_id(0) * BM).named("row")
    column = (k.program_id(1) * BN).named("column")
    acc = k.zeros((BM, BN), "f32").named("acc")
    with k.range(0, extent, BK, carry=[acc], name=MATMUL["k"]) as loop:
        a = a_desc.load([row, loop.index], name=MATMUL["a"])
        b = b_desc.load([loop.index, column], name=MATMUL["b"])
        loop.yield_(k.dot(a, b, loop.carried[0], name=MATMUL["acc"]))
    c_desc.store([row, column], loop.results[0], name=MATMUL["c"])
    return k.finish()


def built_row_sums(block):
    """The tile IR of `row_sums`."""
    k = KernelBuilder("row_sums")
    x, out = k.pointer("x_ptr", "f32"), k.pointer("out_ptr", "f32")
    n = k.scalar("n", "i32", divisible=16)
    start = (k.program_id(0) * n).named("start")
    columns = k.arange(0, block).named("columns")
    total = k.zeros((block,), "f32").named("total")
    with k.range(0, n, block, carry=[total], name=ROW_SUMS["first"]) as loop:
        inside = (loop.index + columns < n).named("inside")
        part = k.load(x + start + loop.index + columns, inside, 0.0, name=ROW_SUMS["x"])
        loop.yield_((loop.carried[0] + part).named("total"))
    k.store(out + k.program_id(0), loop.results[0].sum(0), name=ROW_SUMS["out"])
    return k.finish()


def compiled():
    """Each kernel twice: as written, and as built."""
    describe, array = tawa.TensorDescriptor.from_tensor, tawa.array
    a, b, c = array((256, 192), "bf16"), array((192, 256), "bf16"), array((256, 256), "f32")
    blocks = describe(a, [BM, BK]), describe(b, [BK, BN]), describe(c, [BM, BN])
    yield (
        matmul.compile(*blocks, 192, BM=BM, BN=BN, BK=BK, plan=MATMUL_PLAN),
        tawa.compile_ir(built_matmul(), plan=MATMUL_PLAN),
    )
    yield (
        row_sums.compile(c, array((256,), "f32"), 256, BLOCK=128, plan=ROW_SUMS_PLAN),
        tawa.compile_ir(built_row_sums(128), plan=ROW_SUMS_PLAN),
    )


def program():
    """sums = the sums of the rows of a @ b; the product lies in a buffer between the kernels."""
    (_, product), (_, sums) = compiled()
    between = tawa.Buffer("c", "f32", lambda v: (v["a"].shape[0], v["b"].shape[1]))
    first = tawa.Step(
        product,
        lambda v: (tawa.cdiv(v["a"].shape[0], BM), tawa.cdiv(v["b"].shape[1], BN)),
        {"a_desc": "a", "b_desc": "b", "c_desc": "c", "K": lambda v: v["a"].shape[1]},
    )
    second = tawa.Step(
        sums,
        lambda v: (v["a"].shape[0],),
        {"x_ptr": "c", "out_ptr": "sums", "n": lambda v: v["b"].shape[1]},
    )
    return tawa.Program("sums_of_a_product", ("a", "b", "sums"), (between,), (first, second))


def in_simulator(np):
    import ml_dtypes

    a, b = (np.random.randn(*s).astype(ml_dtypes.bfloat16) for s in ((256, 192), (192, 256)))
    sums = np.empty(256, np.float32)
    program()(a, b, sums)
    wanted = (a.astype(np.float64) @ b.astype(np.float64)).sum(1)
    return float(np.linalg.norm(sums - wanted) / np.linalg.norm(wanted))


def on_gpu(torch):
    a = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16)
    sums = torch.empty(4096, device="cuda")
    program()(a, b, sums)
    wanted = (a.double() @ b.double()).sum(1)
    return float((sums - wanted).norm() / wanted.norm())


def main():
    for written, built in compiled():
        same = written.asm["cuda"] == built.asm["cuda"]
        print(f"{built.name}: {'the' if same else 'NOT the'} CUDA text of the written kernel")
        if "--cuda" in sys.argv:
            print(built.asm["cuda"])
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        print(f"on the GPU, relative error {on_gpu(torch):.1e}")
    else:
        import numpy as np

        print(f"in the simulator, relative error {in_simulator(np):.1e}")


if __name__ == "__main__":
    main()
