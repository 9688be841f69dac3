"""C = A B, of one pair of matrices or of many, and their mappings."""

# ruff: noqa: N803, D103, C408, E741 - tensors are matrices, tunables are given as keywords are
# Annotations of variants are values, which `cy.inner` reads; leaves are tile language.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any, Literal

import tawa.cypress as cy
from tawa.cypress import BLOCK, GLOBAL, HOST, SHARED, Tensor, f16, f32

T16, B16, I = Tensor[f16, 2], Tensor[f16, 3], cy.Instance


@cy.inner("gemm", reads="A B", writes="C")
def gemm_host(C: T16, A: T16, B: T16, *, U: int, V: int):
    cy.same(A.shape[1], B.shape[0])
    c, a = cy.blocks(C, (U, V)), cy.blocks(A, (U, A.shape[1]))
    b = cy.blocks(B, (B.shape[0], V))
    for i, j in cy.prange(*c.grid):
        cy.launch("gemm", c[i, j], a[i, 0], b[0, j])


@cy.inner("batched", reads="A B", writes="C")
def batched_host(C: B16, A: B16, B: B16, *, U: int, V: int):
    """C[n] = A[n] B[n]: the blocks are those of the GEMM, batch after batch."""
    cy.same(A.shape[2], B.shape[1])
    c, a = cy.blocks(C, (None, U, V)), cy.blocks(A, (None, U, A.shape[2]))
    b = cy.blocks(B, (None, B.shape[1], V))
    for i, j, n in cy.prange(*c.grid[1:], c.grid[0]):
        cy.launch("gemm", c[n, i, j], a[n, i, 0], b[n, 0, j])


@cy.inner("gemm", reads="A B", writes="C")
def gemm_block(C: T16, A: T16, B: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, B.shape[1]))
    acc = cy.make_tensor(f32, C.shape)
    cy.launch("clear", acc)
    for k in cy.srange(a.grid[1]):
        cy.launch("mma", acc, a[0, k], b[k, 0])
    cy.launch("copy", C, acc)


def gemm(
    WGS: int = 2,
    U: int = 128,
    V: int = 256,
    W: int = 64,
    pipeline: int = 4,
    batched: bool = False,
    split: Literal["rows", "columns"] = "rows",
    **how: Any,
) -> cy.Mapping:
    """Return a mapping: WGS warpgroups on a tile of U x V, loads `pipeline` steps of W ahead.

    `split` is what each warpgroup has of the tile, `how` are further fields of the block.
    """
    host = batched_host if batched else gemm_host
    return around(host, gemm_block, WGS, U, V, W, split=split, pipeline=pipeline, **how)


def around(
    host: cy.Variant,
    block: cy.Variant,
    WGS: int,
    U: int,
    V: int,
    W: int,
    *leaves: cy.Instance,
    split: Literal["rows", "columns"] = "rows",
    **how: Any,
) -> cy.Mapping:
    """Return the mapping of a block that multiplies tiles and stores what they sum up to: `leaves`
    are what it launches besides.
    """
    calls = ["clear", "tile", "copy", *(each.name for each in leaves)]
    how = dict(specialize=True, persistent=True) | how
    places = [GLOBAL] * len(host.parameters)
    return cy.Mapping(
        [
            I("host", host, HOST, places, dict(U=U, V=V), calls=["block"], entry=True),
            I("block", block, BLOCK, places, dict(W=W), calls=calls, **how),
            *cy.lib.mma("tile", WGS=WGS, split=split),
            *cy.lib.rows("clear", cy.lib.clear_leaf, like="tile"),
            *cy.lib.copy("copy", like="tile", stage=SHARED),
            *leaves,
        ]
    )


def mappings(batched: bool = False) -> dict[str, cy.Mapping]:
    """Return the mappings by name: two warpgroups on 128 rows, three on 192, and two that have a
    tile each, of which one is stored under the products of the other. Matrices of a batch are
    small: tiles of 192 columns would pass their ends.
    """
    own: dict[str, Any] = dict(V=128, pipeline=5) if batched else dict(V=192)
    return {
        "two warpgroups": gemm(batched=batched),
        "three warpgroups": gemm(WGS=3, U=192, V=128, batched=batched),
        "a tile each": gemm(WGS=1, tiles=2, batched=batched, **own),
    }
