"""Which form and which tile for a convolution: those worth trying, the likely best first.

A *form* is how windows are read: a view in place (`tawa.kernels.conv_views`), packed first
("im2win", "im2col"), "pointers", "merged" (groups side by side, over filters that are zero for the
others), "neighbours" (pixels side by side likewise, in the view "lines") or "direct" (strips of
pixels in registers, without tensor cores). A tile is a box of output pixels by output channels; the
model counts waves of boxes, overhang included, and bytes; a tuner times the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd, hypot, prod
from typing import Any

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError
from tawa.kernels.arrays import BYTES, View, fits_tma
from tawa.kernels.conv_geometry import PACKINGS, Geometry, ceil_to, packing
from tawa.kernels.conv_merged import Back
from tawa.kernels.conv_views import VIEWS, depth_of, packed_view, refusal, shortened, windows
from tawa.kernels.conv_windows import Epilogue
from tawa.kernels.variants import begun, shares
from tawa.target import H200, Target

METHODS = ("auto", "im2win", "im2col", "direct")
FORMS = (*VIEWS, *PACKINGS, "pointers", "merged", "neighbours", "direct")
"""Every form."""
Box = tuple[int, int, int]
"""Images, rows and columns of a tile of output pixels."""

MERGED = 64
"""Channels to which narrow groups are filled up side by side: the rows of the least product."""

TILES = {
    (128, 256): 1.00,
    (256, 128): 0.98,
    (128, 192): 0.97,
    (192, 160): 0.96,
    (192, 128): 0.94,
    (128, 160): 0.92,
    (256, 96): 0.88,
    (128, 128): 0.87,
    (256, 64): 0.80,
    (192, 96): 0.80,
    (64, 256): 0.80,
    (128, 96): 0.74,
    (192, 64): 0.70,
    (64, 128): 0.62,
    (128, 64): 0.62,
    (64, 64): 0.40,
    (256, 32): 0.40,
    (128, 32): 0.32,
    (64, 32): 0.22,
}
"""Tiles of pixels by channels, with the share of the peak rate that a multiprocessor reaches."""

_POINTERS = ((128, 256, 0.62), (128, 128, 0.62), (128, 64, 0.50), (64, 64, 0.35), (64, 32, 0.2))
# Products a second of one multiprocessor at full rate, by bytes of an element; bytes a second of
# memory; what a launch costs more; the rate of a step without tensor cores. H200, rounded.
_RATE = {1: 9.8e12, 2: 4.9e12, 4: 2.4e12}
_BANDWIDTH = 4.0e12
_FIXED = 4e-6
_SCALAR = 0.25e12  # of sums in registers, most operands in registers as well
# Through pointers, where channels are no multiple of 16 bytes and are read one by one.
_BY_ELEMENTS = 0.2
CACHED = 5.5e12  # bytes a second of the L2 cache, from which gradients' operands mostly come
# What consumers with tiles of their own gain, and what such tiles are; what groups walked together
# gain, of so many tiles of pixels, where images are larger than L2; what a program waits for its
# first tile.
_OWN_GAIN, _OWN_ROWS, _OWN_WIDEST = 0.93, 128, 192
_WHOLE_PIXELS, _ABREAST, _L2 = 0.8, 8, 50e6
_ORDERING = 0.4e-6
# Bytes a second that TMA brings a multiprocessor of rows that begin at multiples of 16 and of 32
# bytes; from so many on alignment binds nothing.
_UNALIGNED, _ALIGNED = {16: 18e9, 32: 30e9}, 64
LAUNCH = 2e-6  # seconds of a program's start and end, and of the launch that adds parts
_FAR = 1.9  # behind the best by so much no form is tried
_EXTENTS = (1, 2, 4, 8, *range(16, 257, 8))


@dataclass(frozen=True, slots=True)
class Problem:
    """What a choice depends on; strides are those of x."""

    geometry: Geometry
    dtype: str
    out: str
    strides: tuple[int, ...]
    address: int
    dense: bool  # w, channels last
    aligned: bool  # w's address, to 16 bytes
    step: int  # channels of y and the residual that TMA steps over; 0: it takes none
    epilogue: Epilogue
    back: Back | None = None  # x is dy, and y dx: `geometry` is that of a parity

    @property
    def sum(self) -> Any:
        """The type that products are added in."""
        return tl.int32 if self.dtype == "i8" else tl.float32

    @property
    def parities(self) -> int:
        """How many parities y's pixels fall into."""
        return prod(self.back.stride) if self.back else 1

    @property
    def stored(self) -> bool:
        """Whether y is stored, and a residual read, by TMA."""
        whole = self.step > 0 and self.geometry.filters % self.step == 0
        return whole and self.parities == 1

    @property
    def in_lines(self) -> bool:
        """Whether TMA reads rows of x in place as lines of elements, with nothing around them."""
        image, row, pixel, _ = self.strides[-4:]
        around = any(self.geometry.padding) or pixel != self.geometry.c
        return not around and fits_tma(self.view, (image, row, 1))

    @property
    def merged(self) -> Problem:
        """The same with so many groups side by side as a tile's channels hold."""
        g = self.geometry
        return replace(self, geometry=g.merged(g.abreast(MERGED)))

    @property
    def view(self) -> View:
        """X as the runtime sees it, but for its device."""
        from tawa.runtime.arrays import NOWHERE

        return View(self.dtype, self.geometry.images, self.strides, self.address, NOWHERE)


@dataclass(frozen=True, slots=True)
class Variant:
    """A form and its configuration; `splits` programs share the sum of a tile, of those beyond the
    first `whole`.
    """

    form: str
    config: tawa.Config
    splits: int = 1
    whole: int = 0

    def __str__(self) -> str:
        """Return the form, the tile and the pins in one line."""
        values = self.config.all_kwargs()
        rest = {name: each for name, each in values.items() if not name.startswith("BLOCK_")}
        if self.splits > 1:
            rest["splits"] = self.splits
        if self.whole:
            rest["whole"] = self.whole
        tile = "x".join(str(each) for name, each in values.items() if name.startswith("BLOCK_"))
        return " ".join([self.form, tile, *(f"{name}={each}" for name, each in rest.items())])

    @property
    def box(self) -> Box:
        """The tile's images, rows and columns."""
        sizes: dict[str, Any] = self.config.kwargs
        return sizes["BLOCK_I"], sizes["BLOCK_H"], sizes["BLOCK_W"]


def refused(form: str, problem: Problem) -> str:
    """Return why a form cannot compute a problem; "" where it can."""
    g = problem.geometry
    size = BYTES[problem.dtype]
    if g.volume is not None and form != "window":
        return "volumes are read in windows that TMA counts"
    if form not in forms_of(problem):
        return "the input's gradient is a sum over taps"
    if problem.back is not None and form == "direct" and g.groups == 1:
        return "one group sees all channels, which is a product of matrices"
    if form in ("pointers", "direct", "merged", "neighbours"):
        if reason := unlike(problem):
            return reason
        if max(g.h * problem.strides[1], g.pixels) >= 1 << 31:
            return "an image, or the output's pixels, need more than 31 bits"
    if form in ("pointers", "direct"):
        return ""
    if form == "merged":
        if (wide := problem.merged) == problem:
            return f"{g.groups} groups of {g.channels} channels stand alone"
        return refused("window", wide)
    if form == "neighbours":
        if g.groups > 1 or g.dilation[1] > 1:
            return f"{g.groups} groups, dilation {g.dilation}: windows are no runs of elements"
        if (least := least_beside(g, size, g.c)) == 1 or least > g.wo:
            return f"windows begin at multiples of 16 bytes {least} apart, in rows of {g.wo}"
        if not problem.step or g.wo * g.co % problem.step:
            return f"the output's rows of {g.wo} x {g.co} elements are not stored by TMA (16 bytes)"
        if next(_neighbours(problem, 0, H200), None) is None:
            return (
                f"no tile's columns divide the {g.co} channels of {least} pixels, or more of them"
            )
        return ""
    if form in PACKINGS:
        if g.groups > 1:
            return f"{g.groups} groups: windows are packed with all channels"
        if form == "im2col":
            return ""
        if g.dilation != (1, 1):
            return f"dilation {g.dilation}: a window's columns do not lie side by side"
        if form == "im2win" and g.fw <= g.stride[1]:
            wide, ours = (packing(name, g, size).images.elements for name in ("im2col", form))
            return (
                f"windows of {g.fw} columns at stride {g.stride[1]} share none, so that im2col is"
                f" no larger ({wide} elements for {ours})"
            )
        return ""
    if reason := refusal(form, g, problem.view):
        return reason
    if form == "window" and g.groups > 1 and (reason := uneven(g.channels, size)):
        return reason
    if not problem.dense:
        return "the filters are not dense, channels last"
    if not problem.aligned:
        return "the filters' address is not a multiple of 16 bytes, which TMA needs"
    seen = windows(form, g, problem.view)
    if (seen.taps > 1 and seen.k * size % 16) or g.window * size % 16:
        return f"a filter's taps of {seen.k} elements are no multiple of 16 bytes"
    return ""


def uneven(channels: int, itemsize: int) -> str:
    """Return why steps of K do not divide a group's channels: what follows them is another's."""
    if not channels * itemsize % 32:
        return ""
    held = f"{channels} channels a group are {channels * itemsize} bytes"
    return f"{held}, and a step of 32 must divide them"


def unlike(problem: Problem) -> str:
    """Return why arrays are not read where they lie: channels side by side, filters dense."""
    if problem.strides[-1] != 1 and problem.geometry.c > 1:
        return "channels of x do not lie side by side"
    return "" if problem.dense else "the filters are not dense, channels last"


@dataclass(frozen=True, slots=True)
class Axes:
    """The images, rows and columns that boxes are cut from, and what a box reads.

    Pixels lie `steps` (rows, columns) apart, their windows reach `reach` pixels of `bytes` each.
    With `alone` a box has one column.
    """

    images: int
    rows: int
    columns: int
    steps: tuple[int, int] = (1, 1)
    reach: tuple[int, int] = (1, 1)
    bytes: int = 0
    alone: bool = False

    def tiles(self, box: Box) -> int:
        """Return how many boxes cover the pixels."""
        extents = (self.images, self.rows, self.columns)
        return prod(ceil(extent / size) for extent, size in zip(extents, box))

    def read(self, box: Box) -> int:
        """Return the bytes of all windows of a box, each pixel once."""
        down = (box[1] - 1) * self.steps[0] + self.reach[0]
        return box[0] * down * ((box[2] - 1) * self.steps[1] + self.reach[1]) * self.bytes


def boxes(pixels: int, axes: Axes, seconds: float, target: Target) -> Box:
    """Return the best box of `pixels` pixels, a tile's products of which take `seconds`.

    Every tile computes overhang too, and fetches what its windows reach over: few tiles speak for
    boxes that fit the output, few bytes for compact ones.
    """
    found: list[tuple[float, int, Box]] = []
    each = _BANDWIDTH / target.multiprocessors
    for across in _EXTENTS:
        if pixels % across or (axes.alone and across > 1):
            continue
        left = pixels // across
        for down in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            if left % down or left // down not in _EXTENTS:
                continue
            box = (left // down, down, across)
            found.append((axes.tiles(box) * (seconds + axes.read(box) / each), -across, box))
    return min(found)[2]


def variants(
    problem: Problem, method: str = "auto", target: Target = H200, most: int = 12
) -> list[Variant]:
    """Return the variants worth trying, the likely best first, at most `most`.

    `method` "auto" has every form: the best two of each, then the next best of all, since the model
    tells tiles of one form from one another better than forms; but none that it has far behind.
    Raises `ArgumentError` where no form takes the problem.
    """
    forms = forms_of(problem) if method == "auto" else (method,)
    first: list[tuple[float, Variant]] = []
    others: list[tuple[float, Variant]] = []
    for form in forms:
        if not refused(form, problem):
            best, *rest = ranked(form, problem, target)
            # Parts of a last wave cost what the model knows least: one of the two has none.
            first += [best, *(pair for pair in rest if not (best[1].whole and pair[1].whole))][:2]
            others += [pair for pair in rest if pair not in first]
    if not first:
        raise ArgumentError(
            "no kernel takes these arrays",
            why="; ".join(f"{form}: {refused(form, problem)}" for form in forms),
            remedy="fill channels up with zeros, or copy the arrays to dense memory",
        )
    least = min(map(_seconds, first))
    found = [pair for pair in first + sorted(others, key=_seconds) if pair[0] < _FAR * least]
    return [variant for _, variant in sorted(found[:most], key=_seconds)]


def forms_of(problem: Problem) -> tuple[str, ...]:
    """Return the forms that method "auto" tries."""
    if problem.geometry.volume is not None:
        return ("window",)
    return FORMS if problem.back is None else ("window", "taps", "merged", "direct")


def ranked(form: str, problem: Problem, target: Target = H200) -> list[tuple[float, Variant]]:
    """Return the variants of a form that takes a problem, with the model's seconds, in order."""
    return sorted(_of(form, problem, target), key=_seconds)


def _seconds(pair: tuple[float, Variant]) -> float:
    return pair[0]


def axes_of(form: str, g: Geometry, size: int) -> Axes:
    """Return what the boxes of a form are cut from."""
    if form == "im2col":
        return Axes(1, 1, g.pixels, bytes=packing(form, g, size).images.column * size)
    if form == "window":
        return Axes(1, 1, g.pixels, (1, 1), (1, 1), g.stride[0] * g.stride[1] * g.channels * size)
    if form == "im2win":
        column = packing(form, g, size).images.column * size
        return Axes(1, g.n * g.ho, g.wo, (1, g.stride[1]), (1, g.fw), column)
    reach = tuple((f - 1) * step + 1 for f, step in zip((g.fh, g.fw), g.dilation))
    return Axes(g.n, g.ho, g.wo, g.stride, (reach[0], reach[1]), g.channels * size)


def _of(form: str, problem: Problem, target: Target) -> Iterator[tuple[float, Variant]]:
    g, size = problem.geometry, BYTES[problem.dtype]
    read = size * (g.n * g.h * g.w * g.c + g.co * g.window)
    written = BYTES[problem.out] * (2 if problem.epilogue.residual else 1)
    moved = read + written * g.pixels * g.co * problem.parities
    if form == "direct":
        yield from _strips(problem, moved, target)
        return
    if form == "merged":
        for seconds, variant in _of("window", problem.merged, target):
            if variant.splits == 1:
                yield seconds + LAUNCH, replace(variant, form=form)
        return
    if form == "neighbours":
        yield from _neighbours(problem, moved, target)
        return
    if form == "pointers":
        vectors = 1.0 if g.channels * size % 16 == 0 else _BY_ELEMENTS
        depth = shortened(g.window, size)
        for rows, columns, share in _POINTERS:
            if columns >= 2 * g.filters and columns > 32:
                continue
            count = ceil(g.pixels / rows) * ceil(g.filters / columns) * g.groups
            one = 2 * rows * columns * ceil_to(g.window, depth) / (_RATE[size] * share * vectors)
            seconds = max(ceil(count / target.multiprocessors) * one, moved / _BANDWIDTH) + _FIXED
            sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}
            yield seconds, Variant(form, tawa.Config(sizes))
        return
    extra, apart = 0.0, g.stride[1] * g.c * size
    if form in PACKINGS:
        made = packing(form, g, size)
        seen = packed_view(form, g, made)
        apart = (1 if form == "im2col" else g.stride[1]) * made.images.column * size
        extra = 2 * made.elements * size / _BANDWIDTH + 2 * _FIXED
    else:
        seen = windows(form, g, problem.view)
    taps = ceil(prod(problem.back.size) / problem.parities) if problem.back else seen.taps
    axes, sums = axes_of(form, g, size), (taps, seen.k, depth_of(seen, size))
    for seconds, variant in _tiled(problem, axes, sums, apart, moved, target):
        yield seconds + extra, replace(variant, form=form)


def least_beside(g: Geometry, size: int, column: int) -> int:
    """Return how many pixels of the output begin where TMA may begin, at multiples of 16 bytes, in
    rows of pixels of `column` elements.
    """
    return 16 // gcd(16, g.stride[1] * column * size)


def beside(g: Geometry, count: int, column: int) -> int:
    """Return the elements of a row that `count` neighbouring pixels of the output see."""
    return (g.fw + (count - 1) * g.stride[1]) * column


def _neighbours(problem: Problem, moved: int, target: Target) -> Iterator[tuple[float, Variant]]:
    """Yield the tiles of so many pixels side by side that they fill no more than a tile's widest,
    all of its columns.
    """
    g, size = problem.geometry, BYTES[problem.dtype]
    reach = ((g.fh - 1) * g.dilation[0] + 1, 1)
    for column in sorted({g.c, 1 << (g.c - 1).bit_length()}):
        extra, line = 0.0, problem.strides[1] * size
        if column > g.c or not problem.in_lines:
            elements, line = packing("padded", g, size, column).images.elements, 128
            # Packing reaches half of the bandwidth.
            extra = 2 * (g.n * g.h * g.w * g.c + elements) * size / _BANDWIDTH + _FIXED
        least = least_beside(g, size, column)
        for count in (least, 2 * least, 4 * least):
            k = beside(g, count, column)
            wide = replace(problem, geometry=replace(g, co=count * g.co))
            axes = Axes(g.n, g.ho, ceil(g.wo / count), (g.stride[0], 1), reach, k * size, True)
            apart = gcd(count * g.stride[1] * column * size, line)
            how = (g.fh, k, shortened(k, size)), apart, moved, target
            for seconds, variant in _tiled(wide, axes, *how, BESIDE=count, CHANNELS=column):
                if variant.splits == 1 and not count * g.co % variant.config.kwargs["BLOCK_N"]:
                    yield seconds + extra, replace(variant, form="neighbours")


def _tiled(
    problem: Problem,
    axes: Axes,
    sums: tuple[int, int, int],
    apart: int,
    moved: int,
    target: Target,
    **more: int,
) -> Iterator[tuple[float, Variant]]:
    """Yield the tiles cut from `axes`, over `sums` of taps, K and the elements of a step; windows
    lie so many bytes `apart`.
    """
    g, size, (taps, k, depth) = problem.geometry, BYTES[problem.dtype], sums
    rate = _UNALIGNED.get(gcd(apart, _ALIGNED))
    written = BYTES[problem.out] * (2 if problem.epilogue.residual else 1)
    seen_once = size * min(g.window, g.n * g.h * g.w * g.channels / g.pixels)
    for rows, columns in TILES:
        if columns >= 2 * g.filters and columns > 32:
            continue
        steps = taps * ceil(k / depth)
        each = product_seconds(rows, columns, depth, size)
        if rate:
            each = hypot(each, rows * depth * size / rate)
        box = boxes(rows, axes, steps * each, target)
        # A tile's part of what memory moves, at a multiprocessor's part of the bandwidth: where
        # memory binds, a last wave of few tiles costs as much as where products do.
        across = ceil(g.filters / columns)
        part = rows * (seen_once / across + columns * written) * target.multiprocessors / _BANDWIDTH
        count = axes.tiles(box) * across * g.groups * problem.parities
        sizes = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
        sizes |= {"BLOCK_N": columns, "BLOCK_K": depth, **more}
        units, plain = target.multiprocessors, tawa.Config(sizes)
        for whole, splits in shares(count, steps, units) if problem.dtype != "i8" else [(0, 1)]:
            rest, dealt = count - whole, (count - whole) * splits / units
            one = ceil(steps / splits) * each
            parts = 8 * splits * rest * rows * columns if splits > 1 else 0
            products = begun(dealt) * one
            seconds = whole // units * max(steps * each, part)
            seconds += max(products, ceil(dealt) * part / splits)
            seconds = max(seconds, moved / (_BANDWIDTH * min(1.0, 3 * (whole / units + dealt))))
            bound = products == seconds and not rate
            seconds += _FIXED + parts / CACHED + (LAUNCH if splits > 1 else 0)
            if whole + rest * splits <= units:  # nobody asks for another tile
                yield seconds, Variant("", tawa.Config(sizes, persistent=False), splits)
                continue
            yield seconds + _ORDERING, Variant("", plain, splits, whole)
            if splits == 1:
                yield from _arranged(Variant("", plain), seconds, problem, bound)


def _arranged(
    variant: Variant, seconds: float, problem: Problem, bound: bool
) -> Iterator[tuple[float, Variant]]:
    """Yield the same tiles in other arrangements: each consumer with one of its own, so that it
    stores while another multiplies, which gains where products are what is `bound`; and groups or
    parities side by side in time, so that whole pixels come from memory once, where L2 does not
    hold the images.
    """
    g, sizes = problem.geometry, dict[str, Any](variant.config.kwargs)
    if prod(variant.box) == _OWN_ROWS and sizes["BLOCK_N"] <= _OWN_WIDEST:
        own = tawa.Config(sizes, arrangement="pingpong")
        yield seconds * (_OWN_GAIN if bound else 1.01), replace(variant, config=own)
    if g.groups * problem.parities > 1:
        far = g.n * g.h * g.w * g.c * BYTES[problem.dtype] > _L2
        together = tawa.Config(sizes, group=_ABREAST)
        yield seconds * (_WHOLE_PIXELS if far else 1.01), replace(variant, config=together)


def product_seconds(rows: int, columns: int, depth: int, size: int) -> float:
    """Return what a multiprocessor takes for a product of a tile of `TILES`, elements of `size`
    bytes.
    """
    return 2 * rows * columns * depth / (_RATE[size] * TILES[rows, columns])


def _strips(problem: Problem, moved: int, target: Target) -> Iterator[tuple[float, Variant]]:
    """Yield tiles of strips by channels."""
    g, back = problem.geometry, problem.back
    down, across = back.stride[1:] if back else (1, 1)
    strip, window = strip_of(g.wo * across, across), g.window
    if back is not None:
        window = prod(back.size) * g.channels / across
    strips = g.n * g.ho * down * ceil(g.wo * across / strip)
    for rows, channels in ((16, 64), (32, 32), (8, 64), (4, 64), (4, 32)):
        if channels >= 2 * g.co and channels > 32:
            continue
        count = ceil(strips / rows) * ceil(g.co / channels)
        # A thread of eight channels reads them at once; tiles of fewer elements read more often.
        rate = _SCALAR * min(1.0, rows * channels / 1024) ** 0.5
        one = 2 * rows * channels * strip * window / rate
        busy = min(1.0, 3 * count / target.multiprocessors)
        seconds = max(ceil(count / target.multiprocessors) * one, moved / (_BANDWIDTH * busy))
        sizes = {"BLOCK_R": rows, "BLOCK_C": channels, "STRIP": strip}
        yield seconds + 2 * _FIXED, Variant("direct", tawa.Config(sizes, specialize=False))


def strip_of(columns: int, across: int = 1) -> int:
    """Return how many pixels of a row of `columns` a thread takes: the most among those, multiples
    of `across`, that overhang least.
    """
    most = max(across, min(8, columns) // across * across)
    sizes = range(most, min(4, most) - 1, -across)
    return min(sizes, key=lambda size: (ceil(columns / size) * size, -size))
