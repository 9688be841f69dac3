"""Variants for products of at most 64 rows, which are as fast as memory gives the columns of B.

Three things decide. The programs must be enough to draw the memory's bandwidth, which half of the
multiprocessors do, and come out even: the width of a tile is chosen for that, and where not even
the narrowest gives enough programs, K is dealt out. Bytes must be in flight: slots of two swizzle
rows of K. And rows that do not exist must not be loaded: TMA fills them with zeros no faster than
it loads B, so that 16 rows are a tile of 16, which wgmma takes with the operands swapped (then the
width is a multiple of 64). `docs/design/few-rows.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import tawa
from tawa.kernels.arrays import BYTES
from tawa.kernels.problem import Problem, Variant, tile_sizes
from tawa.target import Target

MOST_ROWS = 64
_WIDTHS = (64, 128, 192, 256)
_SPLITS = (1, 2, 3, 4, 6, 8)
# Bytes a second of the memory, and from L2 to all multiprocessors; what one multiprocessor draws at
# most, of its even share; seconds of a launch, and of adding up parts. H200, rounded.
_MEMORY = 4.3e12
_L2 = 11e12
_ALONE = 3.0
_FIXED = 4.5e-6
_ADDING = 2e-6
# Elements of a tile whose parts one program adds up; of larger ones a second launch does.
_ADDED_BY_ONE = 64 * 64
# Shared memory for slots, and how many must fit for a product to run beside loads.
_SLOT_BYTES = 200_000
_SLOTS = 4


def few_rows(problem: Problem, target: Target) -> Iterator[tuple[float, Variant]]:
    """Yield (seconds, variant) for a product of at most `MOST_ROWS` rows."""
    rows = next(size for size in (16, 32, 64) if size >= problem.m)
    for columns in _widths(problem, rows, target):
        sizes = tile_sizes(rows, columns, _depth(problem, rows, columns))
        for splits in _SPLITS:
            programs = ceil(problem.n / columns) * splits
            if splits > 1 and not _may_split(problem, programs, splits, sizes, target):
                break
            seconds = _seconds(problem, rows, columns, splits, target)
            if splits > 1:
                form = "split_once" if rows * columns <= _ADDED_BY_ONE else "split"
                yield seconds + _ADDING, Variant(form, tawa.Config(sizes), splits)
                continue
            yield seconds, Variant("descriptors", tawa.Config(sizes, persistent=False))
            yield seconds + 1e-6, Variant("descriptors", tawa.Config(sizes))


def _widths(problem: Problem, rows: int, target: Target) -> list[int]:
    """Return widths of tiles: round ones, and where 64 rows are computed those that come out even.

    A tile of fewer rows has its operands swapped, and there the width is wgmma's M.
    """
    found = [width for width in _WIDTHS if width <= max(64, problem.n)]
    if rows == MOST_ROWS:
        even = (ceil(problem.n / (target.multiprocessors * turns) / 8) * 8 for turns in (1, 2, 3))
        found += [width for width in even if 24 <= width <= 256]
    return list(dict.fromkeys(found))


def _depth(problem: Problem, rows: int, columns: int) -> int:
    """Return BLOCK_K: two swizzle rows where enough slots of them fit, else one."""
    item = BYTES[problem.dtype]
    row = 128 // item
    fits = (rows + columns) * 2 * row * item * _SLOTS <= _SLOT_BYTES
    return 2 * row if fits and problem.k >= 4 * row else row


def _may_split(
    problem: Problem, programs: int, splits: int, sizes: dict[str, int], target: Target
) -> bool:
    if problem.batch > 1 or problem.scales:
        return False
    return programs <= 2 * target.multiprocessors and problem.k >= splits * 4 * sizes["BLOCK_K"]


def _seconds(problem: Problem, rows: int, columns: int, splits: int, target: Target) -> float:
    """Estimate a time: whole turns of all multiprocessors at the memory's rate, the rest at theirs,
    or all that L2 hands out.
    """
    item, units = BYTES[problem.dtype], target.multiprocessors
    programs = ceil(problem.n / columns) * problem.batch * splits
    turns, rest = divmod(programs, units)
    each = columns * problem.k / splits * item  # of B, for one program
    streamed = turns * units * each / _MEMORY
    if rest:
        streamed += rest * each / (_MEMORY * min(1.0, _ALONE * rest / units))
    loaded = programs * (columns + min(rows, problem.m)) * problem.k / splits * item
    return max(streamed, loaded / _L2) + _FIXED
