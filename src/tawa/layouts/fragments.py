"""Register layouts that instructions impose, and blocked ones for plain memory accesses.

Sources: PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma.mma_async (the
accumulator D and the register operand A of m64) and "Matrix Fragments for mma.m16n8k*". Fragments
of both kinds share one pattern: a quad of lanes along a row, eight quads down the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod

from tawa.errors import ShapeUnsupported
from tawa.layouts.register import LANES, Axis, Coordinate, RegisterLayout

WARPGROUP = 4
"""Warps of a warpgroup: the unit that issues wgmma."""


def axes(*items: tuple[int, Coordinate]) -> tuple[Axis, ...]:
    """Return axes from (extent, step) pairs, dropping those of extent 1."""
    return tuple(Axis(extent, step) for extent, step in items if extent > 1)


def instruction_n(n: int, limit: int = 256, *, integer: bool = False, panel: int = 8) -> int:
    """Return the widest wgmma N (a multiple of 8, at most `limit`) that divides `n` columns; of
    several instructions each is whole panels of `panel` columns wide, or a part of one.

    Of `integer` products N is a multiple of 16 beyond 32 (PTX ISA, wgmma shapes). Raises
    ShapeUnsupported when `n` is no multiple of 8.
    """
    if n % 8:
        raise ShapeUnsupported(
            f"a product {n} columns wide",
            why="wgmma takes N in multiples of 8 (PTX ISA, wgmma shapes)",
            remedy="round the block's N up to a multiple of 8",
        )
    widths = range(min(n, limit) // 8 * 8, 0, -8)
    found = (w for w in widths if n % w == 0 and not (integer and w > 32 and w % 16))
    return next(w for w in found if w == n or w % panel == 0 or panel % w == 0)


def share_out(m: int, warps: int, by_columns: bool = False) -> tuple[int, int]:
    """Return over how many warpgroups the rows of a product are shared out, and the columns.

    Rows first, while 64 remain for each, unless all are to have columns of their own.
    """
    groups = warps // WARPGROUP
    most = 1 if by_columns else groups
    down = (part for part in range(most, 0, -1) if groups % part == 0 and m % (64 * part) == 0)
    found = next(down, 1)
    return found, groups // found


def _split_warpgroups(m: int, n: int, warps: int, by_columns: bool) -> tuple[int, int]:
    if warps % WARPGROUP or m % 64:
        raise ShapeUnsupported(
            f"a {m} x {n} product over {warps} warps",
            why="wgmma works on 64 rows by the four warps of a warpgroup",
            remedy="use M in multiples of 64 and warps in multiples of 4",
        )
    down, across = share_out(m, warps, by_columns)
    if n % (8 * across):
        raise ShapeUnsupported(
            f"a {m} x {n} product over {warps} warps",
            why=f"{m} rows feed {down} warpgroups; {n} columns do not split over {across}",
            remedy="use fewer warps or a larger M",
        )
    return down, across


@lru_cache(maxsize=256)  # its tables, which each product of a kernel is compared with, stay with it
def wgmma_accumulator(m: int, n: int, warps: int, by_columns: bool = False) -> RegisterLayout:
    """Return the layout of an m x n wgmma accumulator over `warps` warps.

    Warp w of a warpgroup owns rows 16w..16w+15 of each 64; lane l rows l/4 and l/4 + 8, columns
    8j + 2(l % 4) + {0, 1}. Each warpgroup owns m / warpgroups adjacent rows (columns, once 64 rows
    each are not left, or `by_columns`). Raises ShapeUnsupported where wgmma cannot cover the tile.
    """
    down, across = _split_warpgroups(m, n, warps, by_columns)
    rows, columns = m // down, n // across
    width = instruction_n(columns)
    return RegisterLayout(
        (m, n),
        axes(
            (2, (0, 1)),
            (2, (8, 0)),
            (width // 8, (0, 8)),
            (columns // width, (0, width)),
            (rows // 64, (64, 0)),
        ),
        axes((4, (0, 2)), (8, (1, 0))),
        axes((4, (16, 0)), (down, (rows, 0)), (across, (0, columns))),
    )


def wgmma_operand(
    m: int, k: int, warps: int, bits: int, by_columns: bool = False
) -> RegisterLayout:
    """Return the layout of an m x k operand A that wgmma reads from registers.

    Each 32-bit register holds 32 / `bits` adjacent columns. For 16 bits this is the accumulator's
    own layout, so packing an accumulator pairwise gives the operand without moving data.
    """
    down, across = _split_warpgroups(m, 8 * (warps // WARPGROUP), warps, by_columns)
    packed = 32 // bits
    quad = 4 * packed
    if k % (2 * quad):
        raise ShapeUnsupported(
            f"a register operand of {k} columns of {bits} bits",
            why=f"one wgmma step takes {2 * quad} of them",
            remedy=f"use K in multiples of {2 * quad}",
        )
    rows = m // down
    return RegisterLayout(
        (m, k),
        axes((packed, (0, 1)), (2, (8, 0)), (k // quad, (0, quad)), (rows // 64, (64, 0))),
        axes((4, (0, packed)), (8, (1, 0))),
        axes((4, (16, 0)), (down, (rows, 0)), (across, (0, 0))),
    )


def _warp_grid(m: int, n: int, warps: int) -> tuple[int, int]:
    """Split warps of an mma.sync product over rows, then columns; what is left replicates."""
    down = next(part for part in range(warps, 0, -1) if warps % part == 0 and m % (16 * part) == 0)
    rest = warps // down
    across = next(part for part in range(rest, 0, -1) if rest % part == 0 and n % (8 * part) == 0)
    return down, across


def _check_mma(m: int, n: int) -> None:
    if m % 16 or n % 8:
        raise ShapeUnsupported(
            f"a {m} x {n} product",
            why="mma.sync takes 16 rows and 8 columns (PTX ISA, mma.m16n8k*)",
            remedy="use M in multiples of 16 and N in multiples of 8",
        )


def mma_accumulator(m: int, n: int, warps: int) -> RegisterLayout:
    """Return the layout of an m x n accumulator of mma.sync m16n8 fragments over `warps` warps."""
    _check_mma(m, n)
    down, across = _warp_grid(m, n, warps)
    rows, columns = m // down, n // across
    return RegisterLayout(
        (m, n),
        axes((2, (0, 1)), (2, (8, 0)), (columns // 8, (0, 8)), (rows // 16, (16, 0))),
        axes((4, (0, 2)), (8, (1, 0))),
        axes((down, (rows, 0)), (across, (0, columns)), (warps // (down * across), (0, 0))),
    )


def mma_operand_a(m: int, k: int, accumulator: RegisterLayout, bits: int) -> RegisterLayout:
    """Return the fragments of an m x k operand A that goes with `accumulator`.

    The warps are split as the accumulator's are: those beside one another hold the same rows.
    """
    packed = 32 // bits
    quad = 4 * packed
    rows = _extent_per_warp(accumulator, 0)
    return RegisterLayout(
        (m, k),
        axes((packed, (0, 1)), (2, (8, 0)), (k // quad, (0, quad)), (rows // 16, (16, 0))),
        axes((4, (0, packed)), (8, (1, 0))),
        tuple(Axis(axis.extent, (axis.step[0], 0)) for axis in accumulator.warps),
    )


def mma_operand_b(k: int, n: int, accumulator: RegisterLayout, bits: int) -> RegisterLayout:
    """Return the fragments of a k x n operand B that goes with `accumulator`."""
    packed = 32 // bits
    quad = 4 * packed
    columns = _extent_per_warp(accumulator, 1)
    return RegisterLayout(
        (k, n),
        axes((packed, (1, 0)), (k // quad, (quad, 0)), (columns // 8, (0, 8))),
        axes((4, (packed, 0)), (8, (0, 1))),
        tuple(Axis(axis.extent, (0, axis.step[1])) for axis in accumulator.warps),
    )


def _extent_per_warp(layout: RegisterLayout, dim: int) -> int:
    """Return how many rows (or columns) one warp of a layout owns along `dim`."""
    shares = prod(axis.extent for axis in layout.warps if axis.step[dim])
    return layout.shape[dim] // shares


def fma_accumulator(m: int, n: int, warps: int, vector: int) -> RegisterLayout | None:
    """Return the layout of an m x n accumulator of multiply-adds: per step of K a thread reads as
    many rows and columns as its sums span, so the block of each is as near to a square as divides.

    A thread holds `vector` neighbours of a row, or as many as there are; of blocks as good the one
    that reaches farthest along the rows, by lanes. None where the threads do not spread evenly.
    """
    held = gcd(vector, n, max(1, m * n // (LANES * warps)))
    found: list[tuple[int, int, int, RegisterLayout]] = []
    for lanes, across in product(_divisors(LANES), _divisors(warps)):
        rows, over = LANES // lanes, warps // across
        if n % (held * lanes * across) or m % (rows * over):
            continue
        columns, height = n // (lanes * across), m // (rows * over)
        wide = held * lanes * across
        layout = RegisterLayout(
            (m, n),
            axes((held, (0, 1)), (columns // held, (0, wide)), (height, (rows * over, 0))),
            axes((lanes, (0, held)), (rows, (1, 0))),
            axes((across, (0, held * lanes)), (over, (rows, 0))),
        )
        found.append((columns + height, -lanes * across, -lanes, layout))
    return min(found, key=lambda each: each[:3])[3] if found else None


def _divisors(count: int) -> list[int]:
    return [each for each in range(1, count + 1) if count % each == 0]


def fma_operand(
    accumulator: RegisterLayout, dim: int, k: int, steps: int, *, along_k: bool
) -> RegisterLayout:
    """Return what each thread reads of an operand of multiply-adds whose rows (`dim` 0) or columns
    (1) are those of `accumulator`: `steps` of K for all of them, then the next.

    Neighbours in memory come first: steps where it lies `along_k`, rows or columns elsewhere.
    """

    def step(along: int, across: int) -> Coordinate:
        return (along, across) if dim == 0 else (across, along)

    def spans(items: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(axis.extent, step(axis.step[dim], 0)) for axis in items)

    own = [axis for axis in spans(accumulator.registers) if axis.step[dim]]
    own.sort(key=lambda axis: axis.step[dim] != 1)
    run = axes((steps, step(0, 1)))
    first = (*run, *own) if along_k else (*own, *run)
    return RegisterLayout(
        step(accumulator.shape[dim], k),
        (*first, *axes((k // steps, step(0, steps)))),
        spans(accumulator.lanes),
        spans(accumulator.warps),
    )


@dataclass(frozen=True, slots=True)
class Span:
    """One dimension of the blocks that threads turn: `neighbours` in each thread, `lanes` that
    continue along it.
    """

    dim: int
    neighbours: int
    lanes: int


def blocks(
    shape: Coordinate, warps: int, along: Span, across: Span, *, across_first: bool = False
) -> tuple[RegisterLayout, RegisterLayout] | None:
    """Return the layouts to read and to write a tile that lies `along` one dimension in memory and
    shall lie `across`, along another.

    Each thread holds blocks of neighbours of both: it moves whole vectors on both sides, and turns
    its blocks by naming its registers otherwise. Lanes, then warps, that a span has no room for go
    on along the other; `across_first`: lanes begin with those of `across`. None where the blocks do
    not spread evenly over the threads.
    """
    spans = (along, across)
    covered = [1] * len(shape)
    left = list(shape)

    def take(dim: int, most: int) -> tuple[int, Coordinate]:
        share = gcd(most, left[dim])
        step = tuple(covered[dim] if index == dim else 0 for index in range(len(shape)))
        covered[dim] *= share
        left[dim] //= share
        return share, step

    def spread(count: int, *hints: tuple[int, int]) -> tuple[Axis, ...] | None:
        items: list[tuple[int, Coordinate]] = []
        others = [dim for dim in range(len(shape)) if dim not in (along.dim, across.dim)]
        rest = [(dim, count) for dim in (along.dim, across.dim, *others)]
        for dim, most in (*hints, *rest):
            items.append(take(dim, min(most, count)))
            count //= items[-1][0]
        return axes(*items) if count == 1 else None

    held = [take(span.dim, span.neighbours) for span in spans]
    if any(share != span.neighbours for (share, _), span in zip(held, spans)):
        return None
    lanes = spread(LANES, *((s.dim, s.lanes) for s in (spans[::-1] if across_first else spans)))
    over_warps = spread(warps)
    if lanes is None or over_warps is None:
        return None
    rest = [take(dim, left[dim]) for dim in (along.dim, across.dim, *range(len(shape)))]
    return (
        RegisterLayout(shape, axes(*held, *rest), lanes, over_warps),
        RegisterLayout(shape, axes(*held[::-1], *rest), lanes, over_warps),
    )


def blocked(
    shape: Coordinate, warps: int, vector: int = 1, order: Coordinate | None = None
) -> RegisterLayout:
    """Return a layout whose accesses to memory coalesce.

    `order` lists the dimensions from slowest to fastest in memory (row-major when None). A thread
    holds `vector` neighbours of the fastest dimension; lanes, then warps, continue along it before
    they step to the next. Threads beyond the tile replicate it. Extents need not be powers of two:
    each dimension takes the greatest common divisor with the threads that are left.
    """
    rank = len(shape)
    fastest_first = tuple(reversed(order if order is not None else tuple(range(rank))))
    covered = [1] * rank
    held: list[tuple[int, Coordinate]] = []

    def step(dim: int) -> Coordinate:
        return tuple(covered[dim] if index == dim else 0 for index in range(rank))

    def spread(count: int) -> tuple[Axis, ...]:
        items: list[tuple[int, Coordinate]] = []
        for dim in fastest_first:
            share = gcd(count, shape[dim] // covered[dim])
            items.append((share, step(dim)))
            covered[dim] *= share
            count //= share
        items.append((count, (0,) * rank))
        return axes(*items)

    if rank:
        width = gcd(vector, shape[fastest_first[0]])
        held.append((width, step(fastest_first[0])))
        covered[fastest_first[0]] = width
    lanes = spread(32)
    over_warps = spread(warps)
    for dim in fastest_first:
        held.append((shape[dim] // covered[dim], step(dim)))
        covered[dim] = shape[dim]
    return RegisterLayout(shape, axes(*held), lanes, over_warps)


def runs_first(layout: RegisterLayout, dim: int) -> RegisterLayout:
    """Return the layout whose first registers are neighbours along `dim`, where a thread has such.

    The others keep their order.
    """
    unit = tuple(int(index == dim) for index in range(len(layout.shape)))
    runs = tuple(axis for axis in layout.registers if axis.step == unit)
    others = tuple(axis for axis in layout.registers if axis.step != unit)
    return RegisterLayout(layout.shape, runs + others, layout.lanes, layout.warps)


def without_dimension(layout: RegisterLayout, dim: int) -> RegisterLayout:
    """Return the layout of a reduction's result: `dim` dropped, its registers folded away.

    Lanes and warps that differed along `dim` alone now hold copies.
    """

    def drop(step: Coordinate) -> Coordinate:
        return step[:dim] + step[dim + 1 :]

    return layout.mapped(drop(layout.shape), drop).folded()


def with_dimension(layout: RegisterLayout, dim: int) -> RegisterLayout:
    """Return the layout of `layout` with a dimension of extent 1 inserted at `dim`."""

    def grow(step: Coordinate, item: int) -> Coordinate:
        return (*step[:dim], item, *step[dim:])

    return layout.mapped(grow(layout.shape, 1), lambda step: grow(step, 0))


def narrowed(layout: RegisterLayout, columns: int) -> RegisterLayout | None:
    """Return the layout of that many neighbouring columns (last dimension), wherever they start.

    None unless each thread holds its share of them in whole digits of one register axis.
    """
    last = len(layout.shape) - 1
    widest = max(layout.registers, key=lambda axis: axis.step[last], default=None)
    if widest is None or any(widest.step[:last]):
        return None
    rest = [axis for axis in layout.registers if axis is not widest]
    unit = widest.step[last]
    inside = sum((a.extent - 1) * a.step[last] for a in (*rest, *layout.lanes, *layout.warps))
    if not unit or inside >= unit or columns % unit:
        return None
    count = columns // unit
    kept = [Axis(count, a.step) if a is widest else a for a in layout.registers]
    return RegisterLayout(
        (*layout.shape[:last], columns),
        tuple(axis for axis in kept if axis.extent > 1),
        layout.lanes,
        layout.warps,
    )


def permuted(layout: RegisterLayout, permutation: Coordinate) -> RegisterLayout:
    """Return the layout of the transposed tensor: dimension i is `permutation[i]` of `layout`."""

    def pick(items: Coordinate) -> Coordinate:
        return tuple(items[dim] for dim in permutation)

    return layout.mapped(pick(layout.shape), pick)


@dataclass(frozen=True, slots=True)
class WgmmaTiling:
    """How a register tile splits into the m64 blocks that one warpgroup issues.

    `n` columns an instruction; `blocks` the (row, column) of each instruction's block, in the order
    of its registers; `groups` the (row, column) where each warpgroup's share begins.
    """

    n: int
    blocks: tuple[Coordinate, ...]
    groups: tuple[Coordinate, ...]


def wgmma_tiling(
    layout: RegisterLayout, limit: int = 256, *, integer: bool = False, panel: int = 8
) -> WgmmaTiling | None:
    """Read an accumulator's layout back as wgmma instructions; None where it is no such layout.

    Instructions are at most `limit` columns wide, and whole panels of `panel` columns or parts.
    """
    registers, warps = layout.register_table, layout.warp_table
    if layout.lane_table != wgmma_accumulator(64, 8, 4).lane_table or len(warps) % WARPGROUP:
        return None
    groups = warps[::WARPGROUP]
    expected = tuple(
        (row + 16 * warp, column) for row, column in groups for warp in range(WARPGROUP)
    )
    if warps != expected:
        return None
    per_group = layout.shape[1]
    for column in sorted({column for _, column in groups} - {0})[:1]:
        per_group = column
    n = 0
    if per_group % 8 == 0:
        n = instruction_n(per_group, limit, integer=integer, panel=panel)
    size = n // 2
    if not n or len(registers) % size:
        return None
    pattern = wgmma_accumulator(64, n, 4).register_table
    blocks = registers[::size]
    for start, (row, column) in zip(range(0, len(registers), size), blocks):
        run = registers[start : start + size]
        if run != tuple((row + r, column + c) for r, c in pattern):
            return None
    return WgmmaTiling(n, blocks, groups)
