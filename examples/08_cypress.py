# ruff: noqa: C408 - tunables are given as keywords are
"""A GEMM as tasks and a mapping: three mappings of one program, equal bit for bit.

python examples/08_cypress.py
"""

import sys

import tawa.cypress as cy
import tawa.language as tl
from tawa.cypress import (
    BLOCK,
    GLOBAL,
    HOST,
    NONE,
    REGISTER,
    SHARED,
    THREAD,
    WARP,
    WARPGROUP,
    Tensor,
    f16,
    f32,
)

T16, T32, I = Tensor[f16, 2], Tensor[f32, 2], cy.Instance  # noqa: E741


@cy.inner("gemm", reads="A B", writes="C")
def gemm_host(C: T16, A: T16, B: T16, *, U: int, V: int):
    cy.same(A.shape[1], B.shape[0])
    c, a = cy.blocks(C, (U, V)), cy.blocks(A, (U, A.shape[1]))
    b = cy.blocks(B, (B.shape[0], V))
    for i, j in cy.prange(*c.grid):
        cy.launch("gemm", c[i, j], a[i, 0], b[0, j])


@cy.inner("gemm", reads="A B", writes="C")
def gemm_block(C: T16, A: T16, B: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, B.shape[1]))
    acc = cy.make_tensor(f32, C.shape)
    cy.launch("clear", acc)
    for k in cy.srange(a.grid[1]):
        cy.launch("mma", acc, a[0, k], b[k, 0])
    cy.launch("copy", C, acc)


@cy.inner("mma", reads="C A B", writes="C")
def mma_tile(C: T32, A: T16, B: T16, *, WGS: int):
    c, a = (cy.blocks(t, (t.shape[0] // WGS, t.shape[1])) for t in (C, A))
    for i in cy.prange(WGS):
        cy.launch("mma", c[i, 0], a[i, 0], B)


@cy.inner("mma", reads="C A B", writes="C")
def mma_split(C: T32, A: T16, B: T16, *, PROC: cy.Level, N: int):
    parts = ((C, "C"), (A, "A"), (B, "B"))
    c, a, b = (cy.mma(t, cy.wgmma(64, N, 16), PROC, at) for t, at in parts)
    for i in cy.prange(c.grid[0]):
        cy.launch("mma", c[i], a[i], b[i])


@cy.leaf("mma", reads="C A B", writes="C")
def mma_leaf(C, A, B):
    return tl.dot(A, B, C)  # the new value of what it writes


def mapping(N=128):
    """Two warpgroups share a tile of 128 x N, a third one loads, three steps ahead."""
    operands = [NONE, SHARED, SHARED]
    how = dict(specialize=True, pipeline=3, persistent=True)
    calls = ["clear", "tile", "copy"]
    return cy.Mapping(
        [
            I("host", gemm_host, HOST, [GLOBAL] * 3, dict(U=128, V=N), calls=["block"], entry=True),
            I("block", gemm_block, BLOCK, [GLOBAL] * 3, dict(W=64), calls=calls, **how),
            I("tile", mma_tile, BLOCK, operands, dict(WGS=2), calls=["wg"]),
            I("wg", mma_split, WARPGROUP, operands, dict(PROC=WARP, N=N), calls=["warp"]),
            I("warp", mma_split, WARP, operands, dict(PROC=THREAD, N=N), calls=["leaf"]),
            I("leaf", mma_leaf, THREAD, [REGISTER, SHARED, SHARED]),
            *cy.lib.clear("clear", like="tile"),
            *cy.lib.copy("copy", like="tile", stage=SHARED),
        ]
    )


def mappings(N=128):
    """One, two and three warpgroups, by edits."""
    two = mapping(N)
    plain = dict(specialize=False, pipeline=1, persistent=False)
    yield "two warpgroups", two
    yield "three warpgroups", two.with_("tile", WGS=3).with_("host", U=192)
    yield (
        "one warpgroup, no roles",
        two.with_("tile", WGS=1).with_("host", U=64).with_("block", **plain),
    )


def in_simulator(np):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((200, 136), (136, 264)))
    for name, each in mappings():
        gemm = cy.program(each)
        c, wanted = np.empty((200, 264), np.float16), np.empty((200, 264), np.float16)
        gemm(c, a, b)
        gemm.sequential(wanted, a, b)
        yield name, bool((c == wanted).all() and (c == a.astype(int) @ b.astype(int)).all())


def on_gpu(torch):
    a, b = (torch.randint(-2, 3, (4096, 4096), device="cuda").half() for _ in range(2))
    for name, each in mappings(256):
        c = torch.empty(4096, 4096, device="cuda", dtype=torch.float16)
        cy.program(each)(c, a, b)
        yield name, bool((c == a @ b).all())


def main():
    if "--explain" in sys.argv:
        print(cy.program(mapping()).explain())
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        found = on_gpu(torch)
    else:
        import numpy as np

        found = in_simulator(np)
    for name, equal in found:
        print(f"{name}: {'equal' if equal else 'NOT equal'}")


if __name__ == "__main__":
    main()
