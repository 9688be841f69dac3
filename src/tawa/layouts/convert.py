"""From one register layout to another: what it costs, and where each element comes from.

Layouts are additive, so two of them agree about lanes and warps for every register or for none:
comparing the tables of lanes and of warps decides whether elements stay within their thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from operator import add
from typing import Literal, TypeAlias

from tawa.layouts.register import Axis, Coordinate, RegisterLayout

Kind = Literal["identity", "registers", "shuffle", "shared"]
Digits: TypeAlias = tuple[int, int]
"""A digit of an index: divisor and extent."""

MANY = 4
"""Shuffles for each register stored or loaded: where it takes more, memory is cheaper."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A change of layout.

    `identity` and `registers`: register r of the target is the source's `registers[r]`. `shuffle`:
    in thread t (of the role) it is register `sources[r][t][0]` of lane `sources[r][t][1]` of the
    same warp. `shared`: elements cross warps and must go through shared memory.
    """

    kind: Kind
    registers: tuple[int, ...] = ()
    sources: tuple[tuple[tuple[int, int], ...], ...] = ()


def register_map(
    source: RegisterLayout, target: RegisterLayout, offset: Coordinate = ()
) -> tuple[int, ...] | None:
    """Return the source's register that holds each of the target's, all within the thread.

    `offset` is added to the target's coordinates. None where elements lie in other threads.
    """
    if source.lane_table != target.lane_table or not _same_warps(source, target):
        return None
    where: dict[Coordinate, int] = {}
    for register, place in enumerate(source.register_table):
        where.setdefault(place, register)
    wanted = target.register_table
    if any(offset):
        wanted = [tuple(map(add, place, offset)) for place in wanted]
    found = [where[place] for place in wanted if place in where]
    return tuple(found) if len(found) == len(wanted) else None


def _same_warps(source: RegisterLayout, target: RegisterLayout) -> bool:
    """Compare warp tables; a table of one warp stands for any number of copies."""
    have, want = source.warp_table, target.warp_table
    if len(have) == 1 or len(want) == 1:
        return not any(any(place) for place in (*have, *want))
    return have == want


def convert(source: RegisterLayout, target: RegisterLayout) -> Conversion:
    """Classify the conversion of a tensor from `source` to `target` (equal shapes)."""
    found = register_map(source, target)
    if found is not None:
        same = found == tuple(range(source.register_count))
        return Conversion("identity" if same else "registers", found)
    warps = max(source.warp_count, target.warp_count)
    rows: list[tuple[tuple[int, int], ...]] = []
    holders = [_holders(source, warp % source.warp_count) for warp in range(warps)]
    for place in target.register_table:
        row: list[tuple[int, int]] = []
        for warp in range(warps):
            base = _plus(place, target.warp_table[warp % target.warp_count])
            found_row = _row(holders[warp], base, target)
            if found_row is None:
                return Conversion("shared")
            row.extend(found_row)
        rows.append(tuple(row))
    return Conversion("shuffle", sources=tuple(rows))


def by_memory(source: RegisterLayout, target: RegisterLayout) -> bool:
    """Tell whether memory is far cheaper than shuffles: where each lane wants another register, as
    with extents that are no powers of 2, their number is that of registers squared.
    """
    have, want = source.register_count, target.register_count
    most = MANY * (have + want)
    return have * want > most and shuffles(source, target) > most


def shuffles(source: RegisterLayout, target: RegisterLayout) -> int:
    """Return the shuffles of a conversion within warps: one for each register of the source that
    some lane wants for a register of the target. Those of one warp tell those of all.
    """
    holders, base = _holders(source, 0), target.warp_table[0]
    rows = (_row(holders, _plus(place, base), target) for place in target.register_table)
    return sum(len({register for register, _ in row}) for row in rows if row is not None)


def _holders(layout: RegisterLayout, warp: int) -> dict[Coordinate, list[tuple[int, int]]]:
    """Return which (register, lane) of a warp hold each element."""
    found: dict[Coordinate, list[tuple[int, int]]] = {}
    base = layout.warp_table[warp]
    for register, place in enumerate(layout.register_table):
        start = _plus(place, base)
        for lane, more in enumerate(layout.lane_table):
            found.setdefault(_plus(start, more), []).append((register, lane))
    return found


def _row(
    holders: dict[Coordinate, list[tuple[int, int]]], base: Coordinate, target: RegisterLayout
) -> list[tuple[int, int]] | None:
    """Return where each lane of a warp finds its element: in itself where it can."""
    row: list[tuple[int, int]] = []
    for lane, more in enumerate(target.lane_table):
        held = holders.get(_plus(base, more))
        if held is None:
            return None
        row.append(next((item for item in held if item[1] == lane), held[0]))
    return row


def _plus(one: Coordinate, other: Coordinate) -> Coordinate:
    return tuple(a + b for a, b in zip(one, other))


def projected(layout: RegisterLayout, shape: Coordinate) -> RegisterLayout:
    """Return `layout` with the dimensions that have extent 1 in `shape` held at 0: what a thread
    needs of a tensor of `shape` that is broadcast to `layout`.
    """
    return layout.mapped(
        shape, lambda step: tuple(0 if n == 1 else item for item, n in zip(step, shape))
    )


def flattened(layout: RegisterLayout) -> RegisterLayout:
    """Return the layout of the same tensor as one row, elements in row-major order."""
    weights: list[int] = []
    size = 1
    for extent in reversed(layout.shape):
        weights.insert(0, size)
        size *= extent
    return layout.mapped((size,), lambda step: (sum(a * b for a, b in zip(step, weights)),))


def owns(layout: RegisterLayout) -> tuple[tuple[Digits, ...], tuple[Digits, ...]]:
    """Return the digits of the lane and of the warp that must be 0 in the one thread that counts
    as the owner of a replicated element; none where every element lives in one thread only.
    """
    return _replicas(layout.lanes), _replicas(layout.warps)


def is_replicated(layout: RegisterLayout, warps: int) -> bool:
    """Tell whether several of the threads of `warps` warps hold an element."""
    lanes = prod(axis.extent for axis in layout.lanes)
    return any(owns(layout)) or lanes < 32 or layout.warp_count < warps


def _replicas(items: tuple[Axis, ...]) -> tuple[Digits, ...]:
    digits: list[Digits] = []
    divisor = 1
    for axis in items:
        if not any(axis.step) and axis.extent > 1:
            digits.append((divisor, axis.extent))
        divisor *= axis.extent
    return tuple(digits)
