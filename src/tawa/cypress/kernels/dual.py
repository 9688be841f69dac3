"""C = A B1 + A B2: both products share each tile of A."""

# ruff: noqa: N803, D103 - tensors are matrices
# Annotations of variants are values, which `cy.inner` reads; leaves are tile language.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import tawa.cypress as cy
from tawa.cypress import Tensor, f16, f32
from tawa.cypress.kernels.gemm import around

T16 = Tensor[f16, 2]


@cy.inner("dual", reads="A B1 B2", writes="C")
def dual_host(C: T16, A: T16, B1: T16, B2: T16, *, U: int, V: int):
    cy.same(A.shape[1], B1.shape[0])
    cy.same(A.shape[1], B2.shape[0])
    c, a = cy.blocks(C, (U, V)), cy.blocks(A, (U, A.shape[1]))
    b1, b2 = (cy.blocks(b, (b.shape[0], V)) for b in (B1, B2))
    for i, j in cy.prange(*c.grid):
        cy.launch("dual", c[i, j], a[i, 0], b1[0, j], b2[0, j])


@cy.inner("dual", reads="A B1 B2", writes="C")
def dual_block(C: T16, A: T16, B1: T16, B2: T16, *, W: int):
    a = cy.blocks(A, (A.shape[0], W))
    b1, b2 = (cy.blocks(b, (W, b.shape[1])) for b in (B1, B2))
    acc = cy.make_tensor(f32, C.shape)
    cy.launch("clear", acc)
    for k in cy.srange(a.grid[1]):
        cy.launch("mma", acc, a[0, k], b1[k, 0])
        cy.launch("mma", acc, a[0, k], b2[k, 0])
    cy.launch("copy", C, acc)


def dual(
    WGS: int = 2,
    U: int = 128,
    V: int = 192,
    W: int = 64,
    pipeline: int | dict[str, int] = 3,
    **how: Any,
) -> cy.Mapping:
    """Return a mapping: WGS warpgroups on a tile of U x V, a ring of three tiles, or rings by name.

    `how` are further fields of the block.
    """
    return around(dual_host, dual_block, WGS, U, V, W, pipeline=pipeline, **how)


def mappings() -> dict[str, cy.Mapping]:
    """Return the mappings by name: two warpgroups on 128 rows, three on 192, two on 256, and wide
    tiles whose first product begins before the operand of the second is there.
    """
    return {
        "two warpgroups": dual(),
        "three warpgroups": dual(WGS=3, U=192, V=128),
        "256 rows": dual(U=256, V=128),
        "two rings": dual(V=256, pipeline={"A B1": 2, "B2": 2}),
    }
