# Kernel code is read by the compiler, not run: its values have no Python types.
# pyright: basic, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false
# ruff: noqa: N803  (the names are those of the tile language: constants in capitals)
"""Copies of arrays whose axes lie in another order: through tiles, read and written by rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tawa
import tawa.language as tl
from tawa.axon.fuse.calls import Order, dense, inverse, permuted
from tawa.runtime.arrays import CPU, View, look, maker_beside

_ELEMENTS, _LONGEST = 4096, 64  # of a tile, and of its side where the other is as long


@tawa.jit
def turn(
    x_ptr,
    out_ptr,
    rows,
    columns,
    stride_b,
    stride_r,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """out[b, c, r] = x[b, r, c] for r below `rows`, c below `columns`, where `out` is dense.

    Items of a row of x lie side by side. Grid (batch * tiles of rows * tiles of columns).
    """
    across, down = tl.cdiv(columns, COLUMNS), tl.cdiv(rows, ROWS)
    tile = tl.program_id(0)
    c = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    r = tile // across % down * ROWS + tl.arange(0, ROWS)
    b = (tile // across // down).to(tl.int64)
    far = r.to(tl.int64)[:, None] * stride_r + c[None, :]
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    x = tl.load(x_ptr + b * stride_b + far, mask=inside)
    far = b * rows * columns + c.to(tl.int64)[:, None] * rows + r[None, :]
    inside = (c < columns)[:, None] & (r < rows)[None, :]
    tl.store(out_ptr + far, tl.trans(x), mask=inside)


def turning(array: Any, order: Order) -> Callable[[Any], Any]:
    """Return what copies arrays that lie as one does: dense in an order of its axes.

    The library that made them copies on the CPU, and where no row becomes a column.
    """
    view = look(array)
    groups = _groups(view, order)
    if view.device == CPU or groups is None:
        return lambda given: dense(given, order)
    return _turned(array, view, order, groups)


def _turned(
    array: Any, view: View, order: Order, groups: Sequence[tuple[int, int]]
) -> Callable[[Any], Any]:
    """Return what turns arrays by the kernel."""
    (batch, stride_b), (columns, _), (rows, stride_r) = groups
    side = min(_LONGEST, _power(rows))
    wide = min(_ELEMENTS // side, _power(columns))
    side = min(_ELEMENTS // wide, _power(rows))
    make = maker_beside(array, tuple([view.shape[axis] for axis in order]), view.dtype)
    outward = inverse(order)
    grid = (batch * -(-rows // side) * -(-columns // wide),)

    def copy(given: Any) -> Any:
        made = make(given)
        turn[grid](given, made, rows, columns, stride_b, stride_r, ROWS=side, COLUMNS=wide)
        return permuted(made, outward)

    return copy


def _groups(view: View, order: Order) -> list[tuple[int, int]] | None:
    """Return a batch, columns and rows, each as a size and a stride, in an order of axes.

    Columns lie side by side, and rows will. None where the axes are not so, or nothing is there.
    """
    found: list[tuple[int, int]] = []
    for axis in order:
        size, stride = view.shape[axis], view.strides[axis]
        if found and found[-1][1] == stride * size:
            found[-1] = found[-1][0] * size, stride
        elif size != 1:
            found.append((size, stride))
    found = [(1, 0), *found] if len(found) == 2 else found
    fits = len(found) == 3 and found[1][1] == 1 and found[2][1] > 1 and 0 not in view.shape
    return found if fits else None


def _power(number: int) -> int:
    """Return the least power of two, of 2 and more, that is not below a number."""
    return 1 << max(1, (number - 1).bit_length())
