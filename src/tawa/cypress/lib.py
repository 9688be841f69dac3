"""Sub-trees that programs share: clear, copy, and the product of tiles by wgmma."""

# Annotations of variants are values, which `cy.inner` reads; leaves are tile language.
# ruff: noqa: N803, D103, C408 - tensors are matrices, tunables are given as keywords are
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

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
from tawa.cypress.place import here
from tawa.cypress.task import Variant, inner, leaf
from tawa.cypress.tensor import Tensor
from tawa.cypress.trace import launch as _launch
from tawa.cypress.trace import prange as _prange

T = Tensor[None, 2]


@leaf("clear", writes="C")
def clear_leaf(C):
    return tl.zeros(C.shape, C.dtype)


@leaf("copy", reads="S", writes="D")
def copy_leaf(D, S):
    return S.to(D.dtype)


def _parted(task: str, b_is: str) -> tuple[Variant, Variant]:
    """Return what parts a product by rows over warpgroups, and for wgmma over what is in them."""

    def tile(C: T, A: T, B: T, *, WGS: int):
        c, a = (_blocks(t, (t.shape[0] // WGS, t.shape[1])) for t in (C, A))
        for i in _prange(WGS):
            _launch(task, c[i, 0], a[i, 0], B)

    def split(C: T, A: T, B: T, *, PROC: Level, N: int | Auto):
        parts = ((C, "C"), (A, "A"), (B, b_is))
        c, a, b = (_mma(t, _wgmma(64, N, 16), PROC, at) for t, at in parts)
        for i in _prange(c.grid[0]):
            _launch(task, c[i], a[i], b[i])

    tile.__name__, split.__name__ = f"{task}_tile", f"{task}_split"
    of_task = inner(task, reads="C A B", writes="C")
    return of_task(tile), of_task(split)


mma_tile, mma_split = _parted("mma", "B")
mma_t_tile, mma_t_split = _parted("mma_t", "BT")


@inner("mma", reads="C A B", writes="C")
def mma_columns(C: T, A: T, B: T, *, WGS: int):
    c, b = (_blocks(t, (t.shape[0], t.shape[1] // WGS)) for t in (C, B))
    for i in _prange(WGS):
        _launch("mma", c[0, i], A, b[0, i])


SPLITS = mma_tile, mma_columns
"""The ways to share a product out over warpgroups."""


@leaf("mma", reads="C A B", writes="C")
def mma_leaf(C, A, B):
    return tl.dot(A, B, C)


@leaf("mma_t", reads="C A B", writes="C")
def mma_t_leaf(C, A, B):
    return tl.dot(A, B.T, C)


def _instance(*given: Any, **named: Any) -> Instance:
    """Return an instance that stands where this module is called."""
    return Instance(*given, **named, place=here(__name__))


def clear(name: str, *, like: str) -> tuple[Instance, ...]:
    """Return a leaf that writes zeros, spread as the first tensor of the instance `like` is."""
    return (_instance(name, clear_leaf, THREAD, [REGISTER], like=like),)


def copy(name: str, *, like: str, stage: Memory | None = None) -> tuple[Instance, ...]:
    """Return a leaf that copies registers to GLOBAL, by TMA through `stage` where it is SHARED."""
    return (_instance(name, copy_leaf, THREAD, [GLOBAL, REGISTER], like=like, stage=stage),)


def elementwise(
    name: str, variant: Variant, *, like: str, mems: Sequence[Memory] | None = None
) -> tuple[Instance, ...]:
    """Return a leaf on elements, spread over threads as the first tensor of `like` is.

    `mems` is REGISTER for all tensors where it is not given: what the leaf reads of the program is
    SHARED or GLOBAL.
    """
    given = mems or [REGISTER] * len(variant.parameters)
    return (_instance(name, variant, THREAD, given, like=like),)


def rows(
    name: str, variant: Variant, *, like: str, mems: Sequence[Memory] | None = None
) -> tuple[Instance, ...]:
    """Return a leaf that may reduce rows: each warpgroup has the rows that it has of `like`."""
    given = mems or [REGISTER] * len(variant.parameters)
    return (_instance(name, variant, WARPGROUP, given, like=like),)


def mma(
    name: str,
    *,
    WGS: int,
    N: int | Auto = auto,
    A: Memory = SHARED,
    split: Literal["rows", "columns"] = "rows",
    leaf: Variant = mma_leaf,
) -> tuple[Instance, ...]:
    """Return the tree of C += A B on one tile: WGS warpgroups by rows, wgmma of 64 x N x 16.

    `N` is by default the width of what a warpgroup has, `split` says what that is: rows of the
    tile, or columns. `A` is where wgmma takes its first operand from: SHARED or REGISTER. `leaf` is
    what multiplies: one of your own may ask for another precision.
    """
    tile = mma_tile if split == "rows" else mma_columns
    return _tree(name, tile, mma_split, leaf, WGS, N, A)


def mma_t(
    name: str,
    *,
    WGS: int,
    N: int | Auto = auto,
    A: Memory = SHARED,
    leaf: Variant = mma_t_leaf,
) -> tuple[Instance, ...]:
    """Return the tree of the task "mma_t", C += A B^T, by rows; else as `mma`."""
    return _tree(name, mma_t_tile, mma_t_split, leaf, WGS, N, A)


def _tree(
    name: str, tile: Variant, split: Variant, last: Variant, WGS: int, N: int | Auto, A: Memory
) -> tuple[Instance, ...]:
    mems = [NONE, SHARED if A == SHARED else NONE, SHARED]
    wg, warp, end = f"{name}_wg", f"{name}_warp", f"{name}_leaf"
    return (
        _instance(name, tile, BLOCK, mems, dict(WGS=WGS), calls=[wg]),
        _instance(wg, split, WARPGROUP, mems, dict(PROC=WARP, N=N), calls=[warp]),
        _instance(warp, split, WARP, mems, dict(PROC=THREAD, N=N), calls=[end]),
        _instance(end, last, THREAD, [REGISTER, A, SHARED]),
    )
