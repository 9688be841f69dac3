"""Which bytes of a tile in shared memory each warp touches, from the register layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, Operation

from tawa.ir.types import LayoutAttr, TensorType
from tawa.layouts.register import Axis, RegisterLayout
from tawa.simulator.role import Role
from tawa.simulator.shared import Access, Footprint, View


def _coordinates(axes: tuple[Axis, ...], rank: int) -> NDArray[np.int64]:
    """Return the sum of digit times step for every number in the axes' radices: [count, rank]."""
    where = np.zeros((1, rank), np.int64)
    for axis in axes:
        digits = np.arange(axis.extent)[:, None, None] * np.array(axis.step, np.int64)
        where = (digits + where[None]).reshape(-1, rank)
    return where


@lru_cache(maxsize=256)
def owners(layout: RegisterLayout) -> NDArray[np.bool_]:
    """Return [warps, *shape]: whether a warp holds an element."""
    rank = len(layout.shape)
    registers, lanes = _coordinates(layout.registers, rank), _coordinates(layout.lanes, rank)
    inside = (registers[:, None] + lanes[None]).reshape(-1, rank)
    held = np.zeros((layout.warp_count, *layout.shape), np.bool_)
    for warp, start in enumerate(_coordinates(layout.warps, rank)):
        held[(warp, *(inside + start).T)] = True
    return held


@lru_cache(maxsize=256)
def first_owner(layout: RegisterLayout) -> NDArray[np.intp]:
    """Return for each element, in row-major order, the first warp that holds it."""
    return owners(layout).argmax(axis=0).ravel()


@lru_cache(maxsize=256)
def operand_owners(layout: RegisterLayout, operand: str, k: int) -> NDArray[np.bool_]:
    """Return which elements of operand "a" [M, K] or "b" [K, N] the warps of an accumulator use."""
    axis = 2 if operand == "a" else 1
    used = np.logical_or.reduce(owners(layout), axis=axis, keepdims=True)
    return np.repeat(used, k, axis=axis)


def register_layout(kind: Attribute) -> RegisterLayout | None:
    """Return the register layout of a tensor type, None where it has none."""
    if isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr):
        return kind.encoding.data
    return None


def register_owners(kind: Attribute) -> NDArray[np.bool_] | None:
    """Return which elements of a tensor type each warp holds, None where it has no layout."""
    layout = register_layout(kind)
    return None if layout is None else owners(layout)


def groups_of(role: Role) -> Iterator[tuple[int, slice]]:
    """Yield (first warp of the role, rows) for each warpgroup, or for the whole of fewer warps."""
    for warp in range(0, role.warps, 4):
        first = role.first_row + warp
        yield warp, slice(first, first + min(4, role.warps - warp))


def touch(
    role: Role,
    view: View,
    write: bool,
    held: NDArray[np.bool_] | None,
    operation: Operation,
    *,
    kind: int = 0,
    number: int = 0,
) -> None:
    """Record an ordinary access to a tile of which each warp of the role touches what it `held`.

    `kind` 0: by the warps themselves; 2: by their cp.async copy `number`. With no `held` each warp
    touches the whole tile. Where a layout replicates an element, its holders write the same value
    at once: those are one access, and no race. Raises ProtocolError for a race.
    """
    clocks, batch = role.clocks, object()
    parts = [(0, role.active)] if role.one or held is None else groups_of(role)
    for warp, rows in parts:
        own = clocks.numbers(rows)
        columns = own + kind * clocks.rows
        now = np.full(own.size, number, np.int32) if kind else clocks.now[own, own].copy()
        part, spans = None, view.spans()
        if held is not None and not role.one:
            part = Footprint(operation, view.place, view.base, warp, 1, held)
            spans = part.spans(own.size) if role.warps > 4 else spans
        access = Access(spans, write, False, columns, now, role.where, operation, part, batch)
        role.block.shared.access(access, rows)
