"""Sub-trees that programs share: clear, copy, and the product of tiles by wgmma."""

# Annotations of variants are values, which `cy.inner` reads; leaves are tile language.
# ruff: noqa: N803, D103, C408 - tensors are matrices, tunables are given as keywords are
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from collections.abc import Sequence

import tawa.language as tl
from tawa.cypress.machine import (
    BLOCK,
    GLOBAL,
    NONE,
    REGISTER,
    SHARED,
    THREAD,
    WARP,
    WARPGROUP,
    Auto,
    Level,
    Memory,
    auto,
)
from tawa.cypress.mapping import Instance
from tawa.cypress.partition import blocks as _blocks
from tawa.cypress.partition import mma as _mma
from tawa.cypress.partition import wgmma as _wgmma
from tawa.cypress.task import Variant, inner, leaf
from tawa.cypress.tensor import Tensor
from tawa.cypress.trace import launch as _launch
from tawa.cypress.trace import prange as _prange

T16, T32 = Tensor[tl.float16, 2], Tensor[tl.float32, 2]


@leaf("clear", writes="C")
def clear_leaf(C):
    return tl.zeros(C.shape, C.dtype)


@leaf("copy", reads="S", writes="D")
def copy_leaf(D, S):
    return S.to(D.dtype)


@inner("mma", reads="C A B", writes="C")
def mma_tile(C: T32, A: T16, B: T16, *, WGS: int):
    c, a = (_blocks(t, (t.shape[0] // WGS, t.shape[1])) for t in (C, A))
    for i in _prange(WGS):
        _launch("mma", c[i, 0], a[i, 0], B)


@inner("mma", reads="C A B", writes="C")
def mma_split(C: T32, A: T16, B: T16, *, PROC: Level, N: int | Auto):
    parts = ((C, "C"), (A, "A"), (B, "B"))
    c, a, b = (_mma(t, _wgmma(64, N, 16), PROC, at) for t, at in parts)
    for i in _prange(c.grid[0]):
        _launch("mma", c[i], a[i], b[i])


@leaf("mma", reads="C A B", writes="C")
def mma_leaf(C, A, B):
    return tl.dot(A, B, C)


@inner("mma_t", reads="C A B", writes="C")
def mma_t_tile(C: T32, A: T16, B: T16, *, WGS: int):
    c, a = (_blocks(t, (t.shape[0] // WGS, t.shape[1])) for t in (C, A))
    for i in _prange(WGS):
        _launch("mma_t", c[i, 0], a[i, 0], B)


@inner("mma_t", reads="C A B", writes="C")
def mma_t_split(C: T32, A: T16, B: T16, *, PROC: Level, N: int | Auto):
    parts = ((C, "C"), (A, "A"), (B, "BT"))
    c, a, b = (_mma(t, _wgmma(64, N, 16), PROC, at) for t, at in parts)
    for i in _prange(c.grid[0]):
        _launch("mma_t", c[i], a[i], b[i])


@leaf("mma_t", reads="C A B", writes="C")
def mma_t_leaf(C, A, B):
    return tl.dot(A, B.T, C)


def clear(name: str, *, like: str) -> tuple[Instance, ...]:
    """Return a leaf that writes zeros, spread as the first tensor of the instance `like` is."""
    return (Instance(name, clear_leaf, THREAD, [REGISTER], like=like),)


def copy(name: str, *, like: str, stage: Memory | None = None) -> tuple[Instance, ...]:
    """Return a leaf that copies registers to GLOBAL, by TMA through `stage` where it is SHARED."""
    return (Instance(name, copy_leaf, THREAD, [GLOBAL, REGISTER], like=like, stage=stage),)


def elementwise(
    name: str, variant: Variant, *, like: str, mems: Sequence[Memory] | None = None
) -> tuple[Instance, ...]:
    """Return a leaf on elements, spread over threads as the first tensor of `like` is.

    `mems` is REGISTER for all tensors where it is not given.
    """
    given = mems or [REGISTER] * len(variant.parameters)
    return (Instance(name, variant, THREAD, given, like=like),)


def rows(
    name: str, variant: Variant, *, like: str, mems: Sequence[Memory] | None = None
) -> tuple[Instance, ...]:
    """Return a leaf that may reduce rows: each warpgroup has the rows that it has of `like`."""
    given = mems or [REGISTER] * len(variant.parameters)
    return (Instance(name, variant, WARPGROUP, given, like=like),)


def mma(name: str, *, WGS: int, N: int | Auto = auto, A: Memory = SHARED) -> tuple[Instance, ...]:
    """Return the tree of C += A B on one tile: WGS warpgroups by rows, wgmma of 64 x N x 16.

    `N` is by default the width of the tile. `A` is where wgmma takes its first
    operand from: SHARED or REGISTER.
    """
    return _mma_tree(name, (mma_tile, mma_split, mma_leaf), WGS, N, A)


def mma_t(name: str, *, WGS: int, N: int | Auto = auto, A: Memory = SHARED) -> tuple[Instance, ...]:
    """Return the tree of the task "mma_t", C += A B^T; else as `mma`."""
    return _mma_tree(name, (mma_t_tile, mma_t_split, mma_t_leaf), WGS, N, A)


def _mma_tree(
    name: str, variants: tuple[Variant, Variant, Variant], WGS: int, N: int | Auto, A: Memory
) -> tuple[Instance, ...]:
    tile, split, product = variants
    wg, warp, last = f"{name}_wg", f"{name}_warp", f"{name}_leaf"
    mems = [NONE, SHARED if A == SHARED else NONE, SHARED]
    return (
        Instance(name, tile, BLOCK, mems, dict(WGS=WGS), calls=[wg]),
        Instance(wg, split, WARPGROUP, mems, dict(PROC=WARP, N=N), calls=[warp]),
        Instance(warp, split, WARP, mems, dict(PROC=THREAD, N=N), calls=[last]),
        Instance(last, product, THREAD, [REGISTER, A, SHARED]),
    )
