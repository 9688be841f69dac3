"""C = A B and Y[j] = the sums of the rows of A, summed beside the products of column j of tiles."""

# ruff: noqa: N803, D103 - tensors are matrices
# Annotations of variants are values, which `cy.inner` reads; leaves are tile language.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import tawa.cypress as cy
import tawa.language as tl
from tawa.cypress import GLOBAL, REGISTER, SHARED, Tensor, f16, f32
from tawa.cypress.kernels.gemm import around

T16, V32, T32 = Tensor[f16, 2], Tensor[f32, 1], Tensor[f32, 2]


@cy.inner("sums", reads="A B", writes="C Y")
def sums_host(C: T16, Y: T32, A: T16, B: T16, *, U: int, V: int):
    """Y has a row for each column of tiles, all alike: blocks share nothing."""
    cy.same(A.shape[1], B.shape[0])
    c, a = cy.blocks(C, (U, V)), cy.blocks(A, (U, A.shape[1]))
    b, y = cy.blocks(B, (B.shape[0], V)), cy.blocks(Y, (None, U))
    for i, j in cy.prange(*c.grid):
        cy.launch("sums", c[i, j], y[j, i], a[i, 0], b[0, j])


@cy.inner("sums", reads="A B", writes="C Y")
def sums_block(C: T16, Y: V32, A: T16, B: T16, *, W: int):
    a, b = cy.blocks(A, (A.shape[0], W)), cy.blocks(B, (W, B.shape[1]))
    acc = cy.make_tensor(f32, C.shape)
    total = cy.make_tensor(f32, (A.shape[0], W))  # columns join after the loop alone
    cy.launch("clear", acc)
    cy.launch("clear", total)
    for k in cy.srange(a.grid[1]):
        cy.launch("mma", acc, a[0, k], b[k, 0])
        cy.launch("add", total, a[0, k])
    cy.launch("copy", C, acc)
    cy.launch("sum", Y, total)


@cy.leaf("add", reads="R A", writes="R")
def add_leaf(R, A):
    return R + A.to(tl.float32)


@cy.leaf("sum", reads="R", writes="Y")
def sum_leaf(Y, R):
    return tl.sum(R, 1)


def sums(
    WGS: int = 2, U: int = 128, V: int = 256, W: int = 64, pipeline: int = 4, **how: Any
) -> cy.Mapping:
    """Return a mapping: WGS warpgroups on a tile of U x V, each sums its rows.

    `how` are further fields of the block.
    """
    leaves = (
        *cy.lib.rows("add", add_leaf, like="tile", mems=[REGISTER, SHARED]),
        *cy.lib.rows("sum", sum_leaf, like="tile", mems=[GLOBAL, REGISTER]),
    )
    return around(sums_host, sums_block, WGS, U, V, W, *leaves, pipeline=pipeline, **how)


def mappings() -> dict[str, cy.Mapping]:
    """Return the mappings by name: two warpgroups on 128 rows, also in turns, three on 192."""
    return {
        "two warpgroups": sums(),
        "in turns": sums(pipeline=3, turns=True),
        "three warpgroups": sums(WGS=3, U=192, V=128),
    }
