"""Which kernel and which tile for a product: the variants worth trying, the likely best first.

A *variant* is a form (which kernel, how K is dealt out) and a configuration (tile sizes and pins of
the plan). The order comes from a model of waves of tiles and bytes moved; it need not be exact,
since a tuner times the first few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import Any

import tawa
from tawa.kernels.arrays import BYTES
from tawa.kernels.few_rows import MOST_ROWS, few_rows
from tawa.kernels.problem import Problem, Variant, tile_sizes
from tawa.target import H200, Target

# What a tile may be: rows, and the columns that split the output evenly, up to a width.
_ROWS = (64, 128, 192, 256)
_NARROWEST, _WIDEST = 32, 256
# Elements: sums of more find no room in registers. Products of float32 have parts of operands and
# a sum of each step beside them.
_LARGEST, _LARGEST_OF_PARTS = 192 * 256, 128 * 160
# Those that one consumer computes alone while another stores: the epilogue is hidden.
_OWN_ROWS, _OWN_WIDEST = 128, 192
# Tiles of a multiprocessor from which on epilogues are hidden, all but the last; through pointers,
# where only what an odd output costs is worth it.
_OWN_WAVES, _OWN_WAVES_BY_POINTERS = 1.5, 4
# From so many on, a store in two parts is not worth its larger stage.
_MANY_WAVES = 8
# Bytes of K up to which the store of a tile takes longer than its products: two parts of it leave
# without a wait.
_SHORT = 512
# Products a second of one multiprocessor, by bytes of an element: what large tiles reach where each
# multiprocessor has as many. Where some rest, the power they leave lets the others run faster: time
# goes with this power of the waves that are begun over the waves that there are.
_RATE = {1: 11e12, 2: 5.6e12, 4: 2.8e12}
_RESTING = 0.68
# Bytes a second that one multiprocessor draws from L2 through TMA in whole lines of 128 bytes; how
# much more a row takes that begins inside one, and one cut into panels, for each panel more. And
# what wgmma reads from shared memory: A once, B for each 64 rows. They set the pace together with
# the products: their times are added in this power.
_L2, _OFF_LINES, _PANEL = 130e9, 1.6, 1.4
_SHARED = 175e9
_TOGETHER = 5
# Bytes a second at which a tile is stored that nothing hides.
_STORED = 90e9
# Bytes a second of the memory; seconds to fill the pipeline and drain the last store. Rounded. All
# from one H100 and one H200.
_BANDWIDTH = 4.3e12
_FIXED = 5e-6
# Bytes a second that are copied.
_COPIED = 1.2e12
# How much longer a product takes whose operands threads load element by element: 4100 cubed.
_ELEMENTWISE = 5.0
# Seconds until a persistent program knows its first tile.
_ORDERING = 0.4e-6
# Seconds by which a step of 128 bytes of K is longer in clusters, whose blocks wait for each other,
# and until they have met; what of the multiprocessors clusters of four find a place on.
_IN_STEP = {1: 0.0, 2: 20e-9, 4: 15e-9}
_MEETING = 1e-6
_PLACED = {1: 1.0, 2: 1.0, 4: 120 / 132}


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile, and how many blocks of a cluster share one of its operands: B, `across` them A.

    `own`: two consumers have a tile each.
    """

    rows: int
    columns: int
    cluster: int = 1
    across: bool = False
    own: bool = False

    def sizes(self, depth: int) -> dict[str, Any]:
        """Return the meta-parameters."""
        turned = {"ACROSS": True} if self.across else {}
        return tile_sizes(self.rows, self.columns, depth) | turned

    @property
    def pins(self) -> dict[str, Any]:
        """What is pinned of the plan."""
        own = {"arrangement": "pingpong"} if self.own else {}
        return own | ({"cluster": self.cluster} if self.cluster > 1 else {})


def _seconds(
    problem: Problem, shape: Shape, target: Target, splits: int = 1, whole: int = 0
) -> float:
    """Estimate a variant's time: waves of tiles, or the bytes, whichever is longer."""
    item, units = BYTES[problem.dtype], target.multiprocessors * _PLACED[shape.cluster]
    shared = _tiles(problem, shape) - whole
    alone, dealt = whole / units, shared * splits / units
    out = 4 if splits > 1 else BYTES[problem.out]
    size = shape.rows * shape.columns
    stored = ceil(alone) * BYTES[problem.out] + (ceil(dealt) if not shape.own else 1) * out
    busy = alone * _tile_seconds(problem, shape, problem.k)
    busy += (
        begun(dealt) * _tile_seconds(problem, shape, ceil(problem.k / splits))
        + size * stored / _STORED
    )
    moved = problem.batch * (
        item * problem.k * (problem.m + problem.n) + BYTES[problem.out] * problem.m * problem.n
    )
    parts = 8 * splits * shared * size if splits > 1 else 0
    # A multiprocessor alone draws about three times its even share of the bandwidth.
    stream = (moved + parts) / (_BANDWIDTH * min(1.0, 3 * (alone + dealt)))
    fixed = _FIXED * (2 if splits > 1 else 1) + _MEETING * (shape.cluster > 1)
    # Of tiles that the memory binds alike, those whose products take less are likelier.
    return max(busy, stream) + 1e-3 * busy + fixed


def begun(waves: float) -> float:
    """Return how many whole waves take as long: those that are begun, less what resting saves."""
    return waves * (ceil(waves) / waves) ** _RESTING


def _tile_seconds(problem: Problem, shape: Shape, k: int) -> float:
    """Estimate the time of a tile's products over `k` elements of K."""
    item = BYTES[problem.dtype]
    products = 2 * shape.rows * shape.columns * k / _RATE[item]
    loads = item * k * _loaded(problem, shape) / _L2
    reads = item * k * (shape.rows + ceil(shape.rows / 64) * shape.columns) / _SHARED
    one = sum(each**_TOGETHER for each in (products, loads, reads)) ** (1 / _TOGETHER)
    return one + item * k / 128 * _IN_STEP[shape.cluster]


def _loaded(problem: Problem, shape: Shape) -> float:
    """Return the rows and columns that are loaded for a step of K, weighed by what they take.

    TMA asks for rows of a box: an operand that lies along K has whole lines; the other one has runs
    as long as the panels that fit the tile, of 128, 64 or 32 bytes.
    """

    def weight(name: str, in_runs: bool, extent: int) -> float:
        panels = 128 / gcd(128, extent * BYTES[problem.dtype]) if in_runs else 1
        return 1 + _PANEL * (panels - 1) + _OFF_LINES * (name in problem.off_lines)

    of_a = shape.rows * weight("a", problem.trans_a, shape.rows)
    of_b = shape.columns * weight("b", not problem.trans_b, shape.columns)
    if shape.across:
        return of_a / shape.cluster + of_b
    return of_a + of_b / shape.cluster


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
    return _mixed([variant for _, variant in ranked], most, problem.aligned)


def _copying(problem: Problem, names: str) -> float:
    """Estimate the time of copies of `names`, which the memory sets."""
    rows = {"a": problem.m, "b": problem.n}
    elements = sum(rows[name] * problem.k for name in names) * problem.batch
    return BYTES[problem.dtype] * elements / _COPIED + len(names) * _FIXED


def _ranked(problem: Problem, target: Target) -> list[tuple[float, Variant]]:
    """Return the variants that leave the operands where they are, with the seconds they promise."""
    depth = 128 // BYTES[problem.dtype]
    if not problem.aligned or (problem.batch > 1 and not problem.plain):
        return list(_by_pointers(problem, depth, target))
    if problem.m <= MOST_ROWS and not problem.gradient:
        return list(few_rows(problem, target))
    ranked: list[tuple[float, Variant]] = []
    for shape in _shapes(problem):
        seconds = _seconds(problem, shape, target)
        sizes = shape.sizes(depth)
        tiles = _tiles(problem, shape)
        if shape.own and (tiles < _OWN_WAVES * target.multiprocessors or problem.gradient):
            continue  # of one consumer a whole tile fills the registers: a gradient's has no room
        once = tiles <= target.multiprocessors
        for pins, gain in ({}, 1.0), *_arrangements(problem, shape, tiles / target.multiprocessors):
            given = shape.pins | pins
            ranked.append((seconds * gain, Variant("descriptors", tawa.Config(sizes, **given))))
            if once and _even(problem, shape):
                alone = tawa.Config(sizes, persistent=False, **given)
                ranked.append((seconds * gain - _ORDERING, Variant("descriptors", alone)))
        if shape.cluster == 1 and not shape.own:
            ranked += _cut(problem, shape, sizes, target)
    return ranked


def _shapes(problem: Problem) -> Iterator[Shape]:
    """Yield the tiles that split the output's columns evenly, alone and in clusters."""
    largest = _LARGEST_OF_PARTS if problem.precision == "ieee" else _LARGEST
    for rows in _ROWS:
        for columns in _widths(problem):
            if rows * columns > largest or not _fits(problem, rows, columns):
                continue
            # Three consumers' instructions have at most 192 columns, and begin where panels do.
            if rows == 192 < columns and not problem.trans_b and columns % 128:
                continue
            alone = Shape(rows, columns)
            yield alone
            if rows == _OWN_ROWS and columns <= _OWN_WIDEST:
                yield replace(alone, own=True)
            for cluster in (2, 4):
                for across in _shared_along(problem):
                    grouped = replace(alone, cluster=cluster, across=across)
                    count = ceil(problem.n / columns) if across else ceil(problem.m / rows)
                    if count % cluster == 0 or count > 4 * cluster:
                        yield grouped
                        if rows == _OWN_ROWS and columns <= _OWN_WIDEST:
                            yield replace(grouped, own=True)


def _shared_along(problem: Problem) -> list[bool]:
    """Return whether clusters may go along rows (False), and along columns (True).

    Their programs differ there, so that no pointer may be read that follows it: of scales, of bias.
    And only the tensor cores may read what they share, no threads that turn or split it.
    """
    along_k = problem.trans_b and not problem.trans_a
    if problem.precision == "ieee" or not (along_k or BYTES[problem.dtype] == 2):
        return []
    by_row = problem.scales == "row"
    found = [(False, by_row), (True, by_row or problem.bias)]
    return [across for across, followed in found if not followed and problem.batch == 1]


def _widths(problem: Problem) -> list[int]:
    """Return the narrowest width of tiles for each number of them beside one another.

    Columns that B holds side by side are read in panels of 64 bytes at least.
    """
    unit = 8 if problem.trans_b else 64 // BYTES[problem.dtype]
    unit = max(unit, 16 // BYTES[problem.out])  # TMA stores multiples of 16 bytes
    counts = range(1, max(1, problem.n // _NARROWEST) + 1)
    widths = {ceil(problem.n / count / unit) * unit for count in counts}
    return sorted(width for width in widths if _NARROWEST <= width <= _WIDEST) or [_NARROWEST]


def _even(problem: Problem, shape: Shape) -> bool:
    """Tell whether the grid is made of whole clusters."""
    count = ceil(problem.n / shape.columns) if shape.across else ceil(problem.m / shape.rows)
    return count % shape.cluster == 0


def _by_pointers(problem: Problem, depth: int, target: Target) -> Iterator[tuple[float, Variant]]:
    """Yield variants through pointers; stores of an odd output alone are worth hiding."""
    slower = _ELEMENTWISE if problem.unaligned.strip("c") else 1.0
    for rows in _ROWS:
        for columns in (32, 64, 128, 160, 192, 256):
            shape = Shape(rows, columns)
            if rows * columns > 128 * 256 or not _fits(problem, rows, columns):
                continue
            sizes = shape.sizes(depth) | {"GROUP_M": 8}
            yield (
                slower * _seconds(problem, shape, target),
                Variant("pointers", tawa.Config(sizes)),
            )
            own = replace(shape, own=True)
            waves = _tiles(problem, shape) / target.multiprocessors
            if rows == _OWN_ROWS and columns in (128, 192) and waves >= _OWN_WAVES_BY_POINTERS:
                alone = tawa.Config(sizes, **own.pins)
                yield slower * _seconds(problem, own, target), Variant("pointers", alone)


def _tiles(problem: Problem, shape: Shape) -> int:
    """Return the number of tiles, those of whole clusters."""
    down, along = ceil(problem.m / shape.rows), ceil(problem.n / shape.columns)
    if shape.across:
        along = ceil(along / shape.cluster) * shape.cluster
    else:
        down = ceil(down / shape.cluster) * shape.cluster
    return down * along * problem.batch


def _mixed(ranked: list[Variant], most: int, aligned: bool) -> list[Variant]:
    """Return the first `most`: at most three of one tile, at most half that deal K out or copy what
    TMA takes as it is (`aligned`), all but two in clusters, and two that deal a last wave out.

    The model is too coarse to bet everything on its favourite.
    """
    taken: list[Variant] = []
    cut, grouped, last, tiles = 0, 0, 0, Counter[tuple[str, str, int, int]]()
    for variant in ranked:
        sizes = variant.config.kwargs
        tile = (variant.form, variant.copied, sizes["BLOCK_M"], sizes["BLOCK_N"])
        whole = variant.form in ("descriptors", "pointers") and not (variant.copied and aligned)
        clusters = "cluster" in variant.config.pins
        if tiles[tile] == 3 or (not whole and cut == most // 2):
            continue
        if (clusters and grouped == most - 2) or (variant.whole and last == 2):
            continue
        grouped += clusters
        last += variant.whole > 0
        tiles[tile] += 1
        cut += not whole
        taken.append(variant)
    return taken[:most]


def _arrangements(
    problem: Problem, shape: Shape, waves: float
) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield pins worth trying beside the planner's own choice, and the time they promise of it.

    The other number of products in flight; storing a large tile in parts leaves room for one more
    slot, where K is long; two places of a tile's parts, where it is short.
    """
    if shape.own:
        if shape.columns == _OWN_WIDEST and waves < _MANY_WAVES:
            yield {"parts": 2}, 1.001
        if shape.columns == _OWN_WIDEST and problem.k * BYTES[problem.dtype] <= _SHORT:
            yield {"places": 2}, 0.999
    elif shape.cluster == 1 and shape.rows * shape.columns >= 128 * 192:
        yield {"mma_depth": 2 if shape.columns >= 256 else 1}, 1.003
        if problem.k >= 2048:
            yield {"parts": 2}, 1.005


def _fits(problem: Problem, rows: int, columns: int) -> bool:
    """Tell whether a tile does not overhang the output by more than its smallest sibling would."""
    return (rows <= 64 or problem.m > rows // 2) and (columns <= 64 or problem.n > columns // 2)


def _cut(
    problem: Problem, shape: Shape, sizes: dict[str, Any], target: Target
) -> list[tuple[float, Variant]]:
    """Return the variants of a tile that deal K out over several programs."""
    if problem.batch > 1 or problem.gradient or problem.k < 8 * sizes["BLOCK_K"]:
        return []
    config, found = tawa.Config(sizes), list[tuple[float, Variant]]()
    tiles, units = _tiles(problem, shape), target.multiprocessors
    for whole, splits in shares(tiles, ceil(problem.k / sizes["BLOCK_K"]), units):
        if splits > 1:
            seconds = _seconds(problem, shape, target, splits, whole)
            found.append((seconds, Variant("split", config, splits, whole=whole)))
    return found


def shares(tiles: int, steps: int, units: int) -> Iterator[tuple[int, int]]:
    """Yield how many of the tiles programs compute alone, and how many share a sum of the others.

    Where tiles do not fill `units` multiprocessors all are shared, else those of the last wave.
    """
    yield 0, 1
    for splits in (2, 3, 4, 6, 8, 12, 16):
        if tiles * splits > 2 * units or steps < 4 * splits:
            break
        yield 0, splits
    rest = tiles % units
    if tiles > units and rest and (splits := min(units // rest, steps // 4, 16)) > 1:
        yield tiles - rest, splits
