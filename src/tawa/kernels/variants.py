"""Which kernel and which tile for a product: the variants worth trying, the likely best first.

A *variant* is a form (which kernel, how K is dealt out) and a configuration (tile sizes and pins of
the plan). The order comes from a model of waves of tiles and bytes moved; it need not be exact,
since a tuner times the first few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

import tawa
from tawa.kernels.arrays import BYTES
from tawa.kernels.few_rows import MOST_ROWS, few_rows
from tawa.kernels.problem import Problem, Variant, tile_sizes
from tawa.target import H200, Target

# (BLOCK_M, BLOCK_N, share of the peak rate that a full multiprocessor reaches with this tile). The
# larger the tile, the fewer bytes of shared memory the tensor cores read for each product.
_TILES = (
    (128, 256, 1.00),
    (256, 128, 0.98),
    (128, 192, 0.97),
    (192, 128, 0.94),
    (128, 160, 0.90),
    (128, 128, 0.87),
    (64, 256, 0.80),
    (64, 192, 0.74),
    (64, 128, 0.62),
    (128, 64, 0.62),
    (64, 64, 0.40),
    (64, 32, 0.22),
)
# The same of tiles that one consumer computes alone while another stores: the epilogue is hidden.
# Measured on an H200, M = N = 8192, K from 512 to 16384.
_OWN_TILES = (
    (128, 192, 1.05),
    (128, 176, 1.05),
    (128, 168, 1.04),
    (128, 160, 1.02),
    (128, 128, 1.02),
)
# Tiles of a multiprocessor from which on epilogues are hidden, all but the last; through pointers,
# where only what an odd output costs is worth it.
_OWN_WAVES, _OWN_WAVES_BY_POINTERS = 1.5, 4
# From so many on, a store in two parts is not worth its larger stage.
_MANY_WAVES = 8
# Bytes of K up to which the store of a tile takes longer than its products: two parts of it leave
# without a wait.
_SHORT = 512
# Products a second of one multiprocessor at full rate, by bytes of an element; bytes a second of
# the memory; seconds to fill the pipeline and drain the last store. H200, rounded.
_RATE = {1: 9.8e12, 2: 4.9e12, 4: 2.4e12}
_BANDWIDTH = 4.3e12
_FIXED = 4e-6
# How much longer a product takes whose operands threads load element by element: 4100 cubed.
_ELEMENTWISE = 5.0
# Seconds until a persistent program knows its first tile.
_ORDERING = 0.4e-6


def _seconds(problem: Problem, tile: tuple[int, int, float], splits: int, target: Target) -> float:
    """Estimate a variant's time: waves of tiles, or the bytes, whichever is longer."""
    rows, columns, share = tile
    item = BYTES[problem.dtype]
    tiles = _tiles(problem, rows, columns) * splits
    waves = ceil(tiles / target.multiprocessors)
    one = 2 * rows * columns * ceil(problem.k / splits) / (_RATE[item] * share)
    busy = min(1.0, tiles / target.multiprocessors)
    moved = problem.batch * (
        item * problem.k * (problem.m + problem.n) + BYTES[problem.out] * problem.m * problem.n
    )
    parts = 8 * splits * problem.m * problem.n if splits > 1 else 0
    # A multiprocessor alone draws about three times its even share of the bandwidth.
    stream = (moved + parts) / (_BANDWIDTH * min(1.0, 3 * busy))
    return max(waves * one, stream) + _FIXED * (2 if splits > 1 else 1)


def variants(problem: Problem, target: Target = H200, most: int = 12) -> list[Variant]:
    """Return the variants worth trying for `problem`, the likely best first, at most `most`."""
    ranked = _ranked(problem, target)
    refused = problem.unaligned.strip("c")
    for names in dict.fromkeys((refused, "".join(sorted({*refused, *problem.off_lines})))):
        if names:
            copying = _copying(problem, names)
            ranked += [
                (seconds + copying, replace(variant, copied=names))
                for seconds, variant in _ranked(problem.lined_up(names), target)
            ]
    ranked.sort(key=lambda pair: pair[0])
    return _mixed([variant for _, variant in ranked], most)


def _copying(problem: Problem, names: str) -> float:
    """Estimate the time of copies of `names`, which the memory sets."""
    rows = {"a": problem.m, "b": problem.n}
    elements = sum(rows[name] * problem.k for name in names) * problem.batch
    return 2 * BYTES[problem.dtype] * elements / _BANDWIDTH + len(names) * _FIXED


def _ranked(problem: Problem, target: Target) -> list[tuple[float, Variant]]:
    """Return the variants that leave the operands where they are, with the seconds they promise."""
    depth = 128 // BYTES[problem.dtype]
    if not problem.aligned or (problem.batch > 1 and not problem.plain):
        return list(_by_pointers(problem, depth, target))
    if problem.m <= MOST_ROWS and not problem.gradient:
        return list(few_rows(problem, target))
    ranked: list[tuple[float, Variant]] = []
    for tile in (*_TILES, *_fitted(problem, target)):
        rows, columns, _ = tile
        if not _fits(problem, rows, columns):
            continue
        sizes = tile_sizes(rows, columns, depth)
        seconds = _seconds(problem, tile, 1, target)
        once = _tiles(problem, rows, columns) <= target.multiprocessors
        for pins, gain in ({}, 1.0), *_arrangements(problem, rows, columns):
            ranked.append((seconds * gain, Variant("descriptors", tawa.Config(sizes, **pins))))
            if once and "cluster" not in pins:
                alone = tawa.Config(sizes, persistent=False, **pins)
                ranked.append((seconds * gain - _ORDERING, Variant("descriptors", alone)))
        ranked += _cut(problem, tile, sizes, target)
    if not problem.gradient:  # of one consumer a whole tile fills the registers
        ranked += _own(problem, depth, target)
    return ranked


def _by_pointers(problem: Problem, depth: int, target: Target) -> Iterator[tuple[float, Variant]]:
    """Yield variants through pointers; stores of an odd output alone are worth hiding."""
    slower = _ELEMENTWISE if problem.unaligned.strip("c") else 1.0
    for tile in _TILES:
        rows, columns, _ = tile
        if _fits(problem, rows, columns):
            sizes = tile_sizes(rows, columns, depth) | {"GROUP_M": 8}
            seconds = slower * _seconds(problem, tile, 1, target)
            yield seconds, Variant("pointers", tawa.Config(sizes))
    for tile in _OWN_TILES:
        rows, columns, _ = tile
        waves = _tiles(problem, rows, columns) / target.multiprocessors
        if columns % 64 == 0 and _fits(problem, rows, columns) and waves >= _OWN_WAVES_BY_POINTERS:
            sizes = tile_sizes(rows, columns, depth) | {"GROUP_M": 8}
            alone = tawa.Config(sizes, arrangement="pingpong")
            yield slower * _seconds(problem, tile, 1, target), Variant("pointers", alone)


def _tiles(problem: Problem, rows: int, columns: int) -> int:
    return ceil(problem.m / rows) * ceil(problem.n / columns) * problem.batch


def _fitted(problem: Problem, target: Target) -> list[tuple[int, int, float]]:
    """Return a tile whose width makes the waves come out even, where that promises 1 %."""
    shares = {(rows, columns): share for rows, columns, share in _TILES}
    found: list[tuple[float, tuple[int, int, float]]] = []
    for rows, narrow, wide in ((128, 128, 160), (128, 160, 192), (128, 192, 256), (256, 64, 128)):
        low, high = shares.get((rows, narrow), 0.90), shares[rows, wide]
        for columns in range(narrow + 16, wide, 16):
            share = low + (high - low) * (columns - narrow) / (wide - narrow)
            tile = (rows, columns, share)
            found.append((_seconds(problem, tile, 1, target), tile))
    best = min(_seconds(problem, tile, 1, target) for tile in _TILES)
    seconds, tile = min(found)
    return [tile] if seconds < 0.99 * best else []


def _mixed(ranked: list[Variant], most: int) -> list[Variant]:
    """Return the first `most`, of which at most half deal K out and at most four have one tile.

    The model is too coarse to bet everything on its favourite.
    """
    taken: list[Variant] = []
    cut, tiles = 0, Counter[tuple[str, str, int, int]]()
    for variant in ranked:
        sizes = variant.config.kwargs
        tile = (variant.form, variant.copied, sizes["BLOCK_M"], sizes["BLOCK_N"])
        whole = variant.form in ("descriptors", "pointers")
        if tiles[tile] == 4 or (not whole and cut == most // 2):
            continue
        tiles[tile] += 1
        cut += not whole
        taken.append(variant)
    return taken[:most]


def _arrangements(
    problem: Problem, rows: int, columns: int
) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield pins worth trying beside the planner's own choice, and the time they promise of it.

    The other number of products in flight; storing a large tile in parts leaves room for one more
    slot; blocks in pairs share one operand by multicast. The last two pay where K is long.
    """
    if rows * columns < 128 * 192:
        return
    yield {"mma_depth": 2 if columns >= 256 else 1}, 1.0002
    if problem.k >= 1024 and ceil(problem.m / rows) % 2 == 0:
        yield {"cluster": 2}, 1.0005
    if problem.k >= 2048:
        yield {"parts": 2}, 1.001


def _own(problem: Problem, depth: int, target: Target) -> Iterator[tuple[float, Variant]]:
    """Yield variants in which consumers take tiles of their own, alone and in pairs of blocks."""
    for tile in _OWN_TILES:
        rows, columns, _ = tile
        waves = _tiles(problem, rows, columns) / target.multiprocessors
        # Columns that B holds side by side are read in whole swizzled panels.
        whole = problem.trans_b or columns * BYTES[problem.dtype] % 128 == 0
        if not _fits(problem, rows, columns) or not whole or waves < _OWN_WAVES:
            continue
        seconds = _seconds(problem, tile, 1, target)
        sizes = tile_sizes(rows, columns, depth)
        alone = tawa.Config(sizes, arrangement="pingpong")
        yield seconds, Variant("descriptors", alone)
        if columns == 192 and waves < _MANY_WAVES:
            halves = tawa.Config(sizes, arrangement="pingpong", parts=2)
            yield seconds * 1.001, Variant("descriptors", halves)
        if columns == 192 and problem.k * BYTES[problem.dtype] <= _SHORT:
            early = tawa.Config(sizes, arrangement="pingpong", places=2)
            yield seconds * 0.999, Variant("descriptors", early)
        if problem.k >= 512 and columns >= 176 and ceil(problem.m / rows) % 2 == 0:
            pairs = tawa.Config(sizes, arrangement="pingpong", cluster=2)
            yield seconds * 1.002, Variant("descriptors", pairs)


def _fits(problem: Problem, rows: int, columns: int) -> bool:
    """Tell whether a tile does not overhang the output by more than its smallest sibling would."""
    return (rows <= 64 or problem.m > rows // 2) and (columns <= 64 or problem.n > columns // 2)


def _cut(
    problem: Problem, tile: tuple[int, int, float], sizes: dict[str, Any], target: Target
) -> list[tuple[float, Variant]]:
    """Return the variants of a tile that deal K out over several programs."""
    rows, columns, _ = tile
    if problem.batch > 1 or problem.scales or problem.gradient or problem.k < 8 * sizes["BLOCK_K"]:
        return []
    tiles = ceil(problem.m / rows) * ceil(problem.n / columns)
    found: list[tuple[float, Variant]] = []
    for splits in (2, 3, 4, 6, 8):
        if tiles * splits > 2 * target.multiprocessors or problem.k < splits * 4 * sizes["BLOCK_K"]:
            break
        seconds = _seconds(problem, tile, splits, target)
        found.append((seconds, Variant("split", tawa.Config(sizes), splits)))
    waves = tiles / target.multiprocessors
    if problem.plain and 1 < waves < 6 and rows * columns <= 128 * 128:
        even = _seconds(problem, tile, 1, target) * waves / ceil(waves) + 2 * _FIXED
        config = tawa.Config(sizes | {"GROUP_M": 8, "PROGRAMS": target.multiprocessors})
        found.append((even, Variant("stream", config)))
    return found
