"""Register layouts: which element of a tile lives in which register of which thread.

A layout is additive and mixed-radix. Registers, lanes and warps are each a list of `Axis`, fastest
first; the digits of a register number (or lane, or warp) in those radices, each times the axis'
step, add up to the element's coordinate. Powers of two are not assumed, so a 128 x 192 accumulator
is as ordinary as a 128 x 256 one. A step of all zeros replicates: several threads hold the element.

Shared-memory swizzles need exclusive-or and live in `tawa.layouts.shared`; no register layout does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from operator import add

Coordinate = tuple[int, ...]
Change = Callable[[Coordinate], Coordinate]

LANES = 32
"""Threads of a warp."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One digit of a register, lane or warp number and how far it moves through the tile."""

    extent: int
    step: Coordinate

    def __str__(self) -> str:
        return f"{self.extent}:({','.join(map(str, self.step))})"


def _locate(index: int, axes: tuple[Axis, ...], rank: int) -> Coordinate:
    """Sum digit times step of `index` over `axes`, fastest digit first."""
    where = [0] * rank
    for axis in axes:
        index, digit = divmod(index, axis.extent)
        for dim, step in enumerate(axis.step):
            where[dim] += digit * step
    return tuple(where)


def _table(axes: tuple[Axis, ...], rank: int) -> tuple[Coordinate, ...]:
    """List the coordinate of every index over `axes`."""
    places: list[Coordinate] = [(0,) * rank]
    for axis in axes:
        moves = [tuple([digit * step for step in axis.step]) for digit in range(axis.extent)]
        places = [tuple(map(add, place, move)) for move in moves for place in places]
    return tuple(places)


@dataclass(frozen=True)
class RegisterLayout:
    """The map (register, lane, warp) -> coordinate of a tile held in registers.

    `warps` counts the warps of the role that owns the tile: a cooperative role of two warpgroups
    has eight, so that no other notion of "share of a warpgroup" exists.
    """

    shape: Coordinate
    registers: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    warps: tuple[Axis, ...]

    def mapped(self, shape: Coordinate, change: Change) -> RegisterLayout:
        """Return the layout whose steps through a tile of `shape` are those of this one changed."""

        def each(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(Axis(axis.extent, change(axis.step)) for axis in axes)

        return RegisterLayout(shape, each(self.registers), each(self.lanes), each(self.warps))

    def folded(self) -> RegisterLayout:
        """Return the layout without registers that hold copies of others."""
        return replace(self, registers=tuple(axis for axis in self.registers if any(axis.step)))

    @cached_property
    def register_count(self) -> int:
        """Number of elements each thread holds."""
        return prod(axis.extent for axis in self.registers)

    @cached_property
    def warp_count(self) -> int:
        """Number of warps the tile is spread (or replicated) over."""
        return prod(axis.extent for axis in self.warps)

    @cached_property
    def register_table(self) -> tuple[Coordinate, ...]:
        """Coordinate of each register in lane 0 of warp 0."""
        return _table(self.registers, len(self.shape))

    @cached_property
    def lane_table(self) -> tuple[Coordinate, ...]:
        """What each of the 32 lanes adds to a register's coordinate; all coordinates are such sums.

        Lanes beyond those that the axes tell apart hold copies.
        """
        table = _table(self.lanes, len(self.shape))
        return table * (LANES // len(table)) if len(table) < LANES else table

    @cached_property
    def warp_table(self) -> tuple[Coordinate, ...]:
        """What each warp adds to a register's coordinate."""
        return _table(self.warps, len(self.shape))

    def coordinate(self, register: int, lane: int, warp: int) -> Coordinate:
        """Return the element held in `register` of `lane` of `warp`."""
        rank = len(self.shape)
        parts = (
            _locate(register, self.registers, rank),
            _locate(lane, self.lanes, rank),
            _locate(warp, self.warps, rank),
        )
        return tuple(sum(terms) for terms in zip(*parts, strict=True))

    def __str__(self) -> str:
        def axes(letter: str, items: tuple[Axis, ...]) -> str:
            return f"{letter}[{' '.join(map(str, items))}]"

        return " ".join(
            (
                "x".join(map(str, self.shape)),
                axes("r", self.registers),
                axes("l", self.lanes),
                axes("w", self.warps),
            )
        )
