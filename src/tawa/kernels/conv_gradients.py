# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Gradients of `conv2d`, and the transposed convolution, which is the input's gradient.

Arrays are as those of `tawa.kernels.conv.conv2d`. The likeliest tiles of a gradient are timed once
for each kind of problem on a GPU, and the fastest is remembered. Sums are added in an order that
the tile fixes: with the same tile the results of two calls are the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd, prod
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_backward, tuner
from tawa.kernels.arrays import empty_beside, fits_tma, look
from tawa.kernels.conv import as_given, geometry_of, keep_gradients, nhwc
from tawa.kernels.conv_geometry import Geometry, Packing, ceil_to, packing, pair
from tawa.kernels.conv_operands import dense, strides_of
from tawa.kernels.conv_prepare import by_rows, finish, pack
from tawa.kernels.conv_variants import TILES, Axes, Box, boxes, product_seconds, uneven
from tawa.kernels.conv_views import Windows, depth_of, packed_view, refusal, window_of, windows
from tawa.kernels.prepare import FLOATS, Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.kernels.straight import Recipes
from tawa.layouts.windows import Window
from tawa.runtime.arrays import View, row_major
from tawa.target import H200, Target

_INPUT = Recipes(("dy", "w"))
_WEIGHT = Recipes(("x", "dy"))
_ADDED = 1024  # elements of parts that a program adds at once
_PIXELS = 64  # of a step of the filters' gradient
_HELD = 128 * 128  # sums that a consumer warpgroup keeps in registers
_CACHED = 5.5e12  # bytes a second of the L2 cache, from which parts and operands mostly come
_LAUNCH = 2e-6  # seconds of a program's start and end, and of the launch that adds parts


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a gradient, the sum of which is dealt out in `parts`.

    Of dx it is `rows` pixels by `columns` channels; of dw filters by elements of x, at each of
    `abreast` taps, which dy is read once for. `turned`: x is the product's first operand.
    """

    rows: int
    columns: int
    parts: int
    abreast: int = 1
    turned: bool = False


def _likely(
    programs: Mapping[Tile, int],
    steps: int,
    depth: int,
    size: int,
    target: Target,
    *,
    added: bool,
    most: int = 8,
) -> list[Tile]:
    """Return the tiles worth trying, the likely best first, at most `most`.

    `programs` tells how many tiles of each kind, in one part, a gradient has; a sum has `steps` of
    `depth` elements of `size` bytes. More parts fill more multiprocessors, and have more to store
    and to add; one part too is `added` to the result where no tile stores it.
    """
    found: dict[Tile, float] = {}
    for tile, count in programs.items():
        rows, columns = tile.rows, tile.columns
        fetched = (rows + tile.abreast * columns) * depth * size * target.multiprocessors / _CACHED
        product = (columns, rows) if tile.turned else (rows, columns)
        step = max(tile.abreast * product_seconds(*product, depth, size), fetched)
        stored = count * rows * columns * tile.abreast * 4
        for waves in (0.5, 1, 2, 3):
            share = ceil(steps / max(1, int(waves * target.multiprocessors / count)))
            parts = ceil(steps / share)
            seconds = ceil(count * parts / target.multiprocessors) * (share * step + _LAUNCH)
            if added or parts > 1:
                seconds += 2 * parts * stored / _CACHED + _LAUNCH
            found[replace(tile, parts=parts)] = seconds
    return sorted(found, key=lambda tile: found[tile])[:most]


def conv2d_input_gradient(
    x_shape: tuple[int, ...],
    w: Any,
    dy: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str = "",
    launch_pdl: bool = False,
) -> Any:
    """Return dx, of `x_shape`, for dy, the gradient of conv2d(x, w)'s result.

    `x_shape` is in the order of the arrays' library. At stride s pixels of dx fall into s * s
    parities that share no tap; one launch computes all. f16, bf16, f32 (through tf32).

    Raises:
        ArgumentError: shapes, types or strides do not fit; channels of a group that TMA cannot step
            over (16 bytes).
    """
    keep_gradients(w=w, dy=dy)
    filters, grown = nhwc("w", w), nhwc("dy", dy)
    shape, window = channels_last("x_shape", x_shape, grown), tuple(look(filters).shape)
    steps = pair("stride", stride, 1)
    g = geometry_of(shape, window, steps, padding, dilation, groups)

    def write() -> Recipe:
        names = symbols({"dy": grown, "w": filters})
        kind = out_dtype or look(grown).dtype
        dx = empty_beside(names["dy"], shape, kind)
        writer = Writer(names, grown, launch_pdl)
        if 0 not in shape:
            tile = settled_input(
                window_of(g), shape, groups, grown, filters, empty_beside(grown, shape, kind)
            )
            for launch in input_launches(g, names["dy"], names["w"], dx, tile):
                writer.launch(launch)
        return writer.finish(dx)

    options = (shape, g.stride, g.padding, g.dilation, groups, out_dtype, launch_pdl)
    return as_given(_INPUT.run((grown, filters), options, write)[0])


def channels_last(name: str, shape: tuple[int, ...], like: Any) -> tuple[int, ...]:
    """Return a shape in the order of the library of `like`, an NHWC view, as NHWC."""
    if (axes := len(like.shape)) != len(shape):
        raise ArgumentError(
            f"{name}={tuple(shape)}", why=f"a convolution in {axes - 2}D has {axes} axes"
        )
    if as_given(like) is like:
        return tuple(shape)
    return (shape[0], *shape[2:], shape[1])


def _check(dy: View, shape: tuple[int, ...], groups: int, name: str, other: View) -> None:
    """Raise `ArgumentError` where dy is not the result's gradient, or of another type."""
    if dy.shape != shape:
        raise ArgumentError(
            f"dy has, with channels last, shape {dy.shape}", why=f"the result has {shape}"
        )
    if dy.dtype != other.dtype or dy.dtype not in FLOATS:
        raise ArgumentError(
            f"dy holds {dy.dtype}, {name} {other.dtype}", why=f"one type of {', '.join(FLOATS)}"
        )
    _check_described("dy", dy, shape[-1] // groups)


def _check_described(name: str, array: View, channels: int) -> None:
    """Raise `ArgumentError` where an array is not dense, or TMA does not step over its groups."""
    if not dense(array):
        raise ArgumentError(
            f"{name} has, as NHWC, strides {array.strides}",
            why="channels lie side by side, without gaps",
            remedy="torch: .contiguous(memory_format=torch.channels_last)",
        )
    if channels * array.itemsize % 16 or array.address % 16:
        raise ArgumentError(
            f"{name} has {channels} channels a group at address {array.address} mod 16",
            why="TMA steps by multiples of 16 bytes",
            remedy="fill the channels up with zeros",
        )


def input_launches(g: Geometry, dy: Any, w: Any, dx: Any, tile: Tile | None = None) -> list[Launch]:
    """Return the launches that compute dx, as `input_products` of images."""
    return input_products(window_of(g), (g.n, g.h, g.w, g.c), g.groups, dy, w, dx, tile)


@dataclass(frozen=True, slots=True)
class _Back:
    """How dy is read for dx: `met` are its windows where TMA counts them, else boxes are cut.

    `axes` are those of a parity's pixels, of which there are `parities` in all groups; each is a
    sum of `steps` of `depth` channels of dy.
    """

    view: str
    met: Window
    axes: Axes
    depth: int
    channels: int
    parities: int
    steps: int
    size: int  # bytes of an element

    def box(self, rows: int, columns: int) -> Box:
        """Return the box of a tile of so many pixels and channels."""
        if self.view != "groups":
            return (1, 1, rows)
        seconds = self.steps * product_seconds(rows, columns, self.depth, self.size)
        return boxes(rows, self.axes, seconds, H200)

    def programs(self, rows: int, columns: int) -> int:
        """Return how many tiles dx has."""
        across = ceil(self.channels / columns)
        return self.axes.tiles(self.box(rows, columns)) * across * self.parities


def _reading_back(window: Window, shape: tuple[int, ...], groups: int, dy: View, w: View) -> _Back:
    """Return how dy is read; raises `ArgumentError` where arrays do not fit, or TMA reads none."""
    n, *pixels, c = shape
    channels, size = c // groups, dy.itemsize
    _check(dy, (n, *window.counts(pixels), w.shape[0]), groups, "w", w)
    _check_described("w", w, channels)
    met = _back(window, pixels)
    parity = tuple(ceil(extent / step) for extent, step in zip(pixels, window.stride))
    k, taps = w.shape[0] // groups, prod(window.size)
    why = met.objection
    if not why and groups > 1:
        why = uneven(k, size)
    if why and met.axes == 3:
        raise ArgumentError(f"the input's gradient over {window} of volumes of {pixels}", why=why)
    view = "groups" if why else "window" if met.axes == 2 else "volume"
    (high, wide), reach = parity[-2:], (met.size[-2], met.size[-1])
    cut = Axes(n, high, wide, (1, 1), reach, k * size)
    depth = depth_of(Windows(view, dy.shape, (), taps, k, groups > 1 and not why), size)
    return _Back(
        view,
        met,
        cut if why else Axes(1, 1, n * prod(parity)),
        depth,
        channels,
        prod(window.stride) * groups,
        ceil(taps / prod(window.stride)) * ceil(k / depth),
        size,
    )


def input_tiles(
    window: Window,
    shape: tuple[int, ...],
    groups: int,
    dy: Any,
    w: Any,
    target: Target = H200,
    *,
    most: int = 8,
) -> list[Tile]:
    """Return the tiles of dx that are worth trying, the likely best first."""
    back = _reading_back(window, shape, groups, look(dy), look(w))
    sizes = (each for each in TILES if each[1] == 32 or each[1] < 2 * back.channels)
    programs = {Tile(*each, 1): back.programs(*each) for each in sizes}
    return _likely(programs, back.steps, back.depth, look(dy).itemsize, target, added=False, most=most)


def input_products(
    window: Window,
    shape: tuple[int, ...],
    groups: int,
    dy: Any,
    w: Any,
    dx: Any,
    tile: Tile | None = None,
) -> list[Launch]:
    """Return the launches that compute dx, of `shape` [n, *pixels, c], an image's or a volume's.

    dy is [n, *counts, co], w [co, *taps, c / groups]; a sum that few tiles have is dealt out, and a
    second launch adds its parts. `tile` is by default the likeliest of `input_tiles`. Raises
    `ArgumentError`.
    """
    n, *pixels, c = shape
    given = look(dy)
    back = _reading_back(window, shape, groups, given, look(w))
    if tile is None:
        tile = input_tiles(window, shape, groups, dy, w)[0]
    view, axes, depth, channels = back.view, back.axes, back.depth, back.channels
    parity = tuple(ceil(extent / step) for extent, step in zip(pixels, window.stride))
    k, taps = look(w).shape[0] // groups, prod(window.size)
    rows, columns, parts = tile.rows, tile.columns, tile.parts
    box = back.box(rows, columns)
    if view == "groups":
        lies = (n, *window.counts(pixels), groups, k)
        seen, least = by_rows(dy, lies, [*box, 1, depth]), (0, 0, 0)
    else:
        seen, least = tawa.WindowDescriptor.over(dy, back.met, [rows, depth]), back.met.lower
    whole, elements = parts * back.parities == groups, prod(shape)
    out = dx if parts == 1 else empty_beside(dx, (parts * elements,), "f32")
    if whole:
        full = (axes.images, axes.rows, axes.columns, groups, channels)
        out = by_rows(dx, full, [*box, 1, columns])
    options: dict[str, Any] = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
    options |= {"BLOCK_N": columns, "BLOCK_K": depth, "VIEW": view, "GROUPS": groups}
    options |= {"PARTS": parts, "WHOLE": whole}
    apart = tuple(s // gcd(s, d) for s, d in zip(window.stride, window.dilation))
    pads = tuple(before for before, _ in window.padding)
    for name, values, neutral in (
        ("F", window.size, 1),
        ("STRIDE_", window.stride, 1),
        ("PAD_", pads, 0),
        ("DILATION_", window.dilation, 1),
        ("APART_", apart, 1),
        ("LEAST_", least, 0),
    ):
        options |= dict(zip((f"{name}{axis}" for axis in "DHW"), _three(values, neutral)))
    filters = by_rows(w, (groups, k, taps, channels), [1, depth, 1, columns])
    deep, slices = _three(parity, 1)[0], _three(pixels, 1)[0]
    tiles = (ceil(axes.rows / box[1]), ceil(axes.columns / box[2]))
    numbers = (*tiles, deep, *parity[-2:], n, slices, *pixels[-2:], channels, k)
    grid = (axes.tiles(box), ceil(channels / columns), back.parities * parts)
    given = (seen, filters, out, *numbers)
    launches = [Launch(conv_backward.conv_input_gradient, grid, given, options)]
    return launches if parts == 1 else [*launches, finish(out, dx, parts, c, elements)]


_INPUT_TUNER: tuner.Tuner[Any, Tile] = tuner.Tuner("conv_input_gradient", ("dy", "w"))


def settled_input(
    window: Window, shape: tuple[int, ...], groups: int, dy: Any, w: Any, dx: Any
) -> Tile:
    """Return the fastest tile of dx, timed on the GPU of the arrays if the problem is new.

    Raises as `input_products`, and `TuningError`.
    """
    seen, filters = look(dy), look(w)
    key = (window, shape, groups, seen.dtype, seen.shape, filters.shape, look(dx).dtype)

    def candidates() -> list[tuner.Candidate[Tile]]:
        def one(tile: Tile) -> tuner.Candidate[Tile]:
            return tuner.Candidate(
                tile,
                lambda: tuner.ready(input_products(window, shape, groups, dy, w, dx, tile)),
            )

        return [one(tile) for tile in input_tiles(window, shape, groups, dy, w)]

    return _INPUT_TUNER.settle(key, candidates, dy)


def _three(values: Sequence[int], neutral: int) -> tuple[int, ...]:
    """Return values of three axes, those of the last as they are given."""
    return (*(neutral,) * (3 - len(values)), *values)[-3:]


def _back(window: Window, pixels: Sequence[int]) -> Window:
    """Return the windows, of stride 1, in which the pixels of a parity of dx see dy.

    Pixel i of a parity sees window i + (parity + padding - tap * dilation) / stride of each tap for
    which that is whole: the windows reach from the least of these places to the last.
    """
    sizes: list[int] = []
    sides: list[tuple[int, int]] = []
    for axis, extent in enumerate(pixels):
        step, (before, _) = window.stride[axis], window.padding[axis]
        taps = range(before, before - window.taps[axis] - 1, -window.dilation[axis])
        met = [(p + at) // step for p in range(step) for at in taps if not (p + at) % step]
        sizes.append(max(met) - min(met) + 1)
        more = ceil(extent / step) - window.count(axis, extent)
        sides.append((-min(met), more + max(met)))
    once = (1,) * len(sizes)
    return Window(tuple(sizes), once, tuple(sides), once)


_WEIGHT_TUNER: tuner.Tuner[Any, Tile] = tuner.Tuner("conv_weight_gradient", ("x", "dy"))


def settled(
    g: Geometry, x: Any, dy: Any, dw: Any, volume: Windows | None = None, window: Any = None
) -> Tile:
    """Return the fastest tile of dw, timed on the GPU of the arrays if the problem is new.

    `window` tells volumes of one image `g` apart. Raises as `weight_launches`, and `TuningError`.
    """
    seen = look(x)
    _check(look(dy), (g.n, g.ho, g.wo, g.co), g.groups, "x", seen)
    key = (g, window, seen.dtype, seen.strides, seen.address % 16, look(dw).dtype)

    def candidates() -> list[tuner.Candidate[Tile]]:
        def one(tile: Tile) -> tuner.Candidate[Tile]:
            return tuner.Candidate(
                tile,
                lambda: tuner.ready(weight_launches(g, x, dy, dw, volume=volume, tile=tile)),
            )

        return [one(tile) for tile in tiles_of(g, x, volume=volume)]

    return _WEIGHT_TUNER.settle(key, candidates, x)


def conv2d_weight_gradient(
    x: Any,
    w_shape: tuple[int, ...],
    dy: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str = "",
    deterministic: bool = True,
    launch_pdl: bool = False,
) -> Any:
    """Return dw, of `w_shape`, for dy, the gradient of conv2d(x, w)'s result.

    `w_shape` is in the order of the arrays' library, and so is dw, in channels_last memory. The
    sum over N * Ho * Wo pixels is dealt out; parts, float32, are added in a fixed order.
    `deterministic` is there for callers that ask: False changes nothing. An Inf or NaN in x reaches
    the taps that see it, and no others. f16, bf16, f32 (through tf32).

    Raises:
        ArgumentError: shapes, types or strides do not fit; strides or few channels with dilation or
            groups; channels of a group that TMA cannot step over (16 bytes).
    """
    keep_gradients(x=x, dy=dy)
    image, grown = nhwc("x", x), nhwc("dy", dy)
    window = channels_last("w_shape", w_shape, grown)
    steps = pair("stride", stride, 1)
    g = geometry_of(look(image).shape, window, steps, padding, dilation, groups)

    def write() -> Recipe:
        names = symbols({"x": image, "dy": grown})
        kind = out_dtype or look(image).dtype
        dw = empty_beside(names["x"], window, kind)
        writer = Writer(names, image, launch_pdl)
        if 0 not in window:
            tile = settled(g, image, grown, empty_beside(image, window, kind)) if g.n else None
            for launch in weight_launches(g, names["x"], names["dy"], dw, tile=tile):
                writer.launch(launch)
        return writer.finish(dw)

    options = (window, g.stride, g.padding, g.dilation, groups, out_dtype, launch_pdl)
    return as_given(_WEIGHT.run((image, grown), options, write)[0])


@dataclass(frozen=True, slots=True)
class _Reading:
    """How x is read for dw: `together` taps lie in a row of the view; boxes are cut from `axes`."""

    seen: Windows
    axes: Axes
    box: Box
    together: int = 1
    packed: Packing | None = None

    @property
    def whole(self) -> bool:
        """Whether a sum that is not dealt out is dw as it lies."""
        return self.packed is None


def _reading(g: Geometry, x: View, target: Target, volume: Windows | None) -> _Reading:
    """Return the first view of x that takes the geometry; raises `ArgumentError`."""
    together, packed = 1, None
    axes = Axes(g.n, g.ho, g.wo)
    if volume is not None:
        seen = volume
    elif not refusal("rows", g, x):
        seen, together = windows("rows", g, x), g.fw
    elif not refusal("window", g, x):
        seen = windows("window", g, x)
    elif not refusal("taps", g, x):
        shape = (g.n, g.h, g.w, g.groups, g.channels)
        strides = (*strides_of(x)[:3], g.channels, 1)
        seen = Windows("groups", shape, strides, g.fh * g.fw, g.channels)
    elif g.groups > 1 or g.dilation != (1, 1):
        raise ArgumentError(
            f"the filters' gradient at stride {g.stride}, dilation {g.dilation}, {g.groups} groups"
            f" of {g.channels} channels",
            why=f"in place: {refusal('window', g, x)}; a padded copy has neither dilation nor"
            " groups",
        )
    else:
        packed = packing("padded", g, x.itemsize)
        seen, together = packed_view("padded", g, packed), g.fw
    box = boxes(_PIXELS, axes, 1e-6, target)
    if seen.window is not None:
        axes, box = Axes(1, 1, g.pixels), (1, 1, _PIXELS)
    elif seen.view == "groups":
        rows = gcd(g.ho, 64)
        box = (64 // min(64, rows * gcd(g.wo, 64)), min(rows, 64 // gcd(g.wo, 64)), gcd(g.wo, 64))
    return _Reading(seen, axes, box, together, packed)


def tiles_of(
    g: Geometry,
    x: Any,
    target: Target = H200,
    *,
    volume: Windows | None = None,
    most: int = 8,
) -> list[Tile]:
    """Return the tiles of dw that are worth trying, the likely best first."""
    view = look(x)
    read = _reading(g, view, target, volume)
    k, taps, programs = read.seen.k, read.seen.taps, dict[Tile, int]()
    for first, second in TILES:
        for turned, (rows, columns) in enumerate(((first, second), (second, first))):
            if (rows > 64 and rows >= 2 * g.filters) or (columns > 32 and columns >= 2 * k):
                continue
            across = ceil(g.filters / rows) * ceil(k / columns)
            for abreast in (1, 2, 3):
                held = _HELD if first == 64 else 2 * _HELD
                if taps % abreast == 0 and (abreast == 1 or abreast * rows * columns <= held):
                    tile = Tile(rows, columns, 1, abreast, bool(turned))
                    programs[tile] = across * taps // abreast * g.groups
    steps = read.axes.tiles(read.box)
    return _likely(programs, steps, _PIXELS, view.itemsize, target, added=not read.whole, most=most)


def weight_launches(
    g: Geometry,
    x: Any,
    dy: Any,
    dw: Any,
    target: Target = H200,
    *,
    volume: Windows | None = None,
    tile: Tile | None = None,
) -> list[Launch]:
    """Return the launches that compute dw: x's copy where it is padded first, parts, their sum.

    Of a `volume`, `g` is the image that stands for it, and dy's slices lie in one axis. `tile` is
    by default the likeliest of `tiles_of`.
    """
    seen_x, seen_dy = look(x), look(dy)
    _check(seen_dy, (g.n, g.ho, g.wo, g.co), g.groups, "x", seen_x)
    if not g.n:
        return [_add(g, empty_beside(dw, (1,), "f32"), dw, 0, 0, (0, 0, 0), 1, g.channels)]
    read = _reading(g, seen_x, target, volume)
    seen, axes, box, together = read.seen, read.axes, read.box, read.together
    launches: list[Launch] = []
    column, base = g.channels, x
    if read.packed is not None:
        column = read.packed.images.column
        base = empty_beside(dw, (read.packed.images.elements,), seen_x.dtype)
        launches.append(pack(x, g, read.packed, base))
    if tile is None:
        tile = tiles_of(g, x, target, volume=volume)[0]
    rows, columns = tile.rows, tile.columns
    tiles, across = axes.tiles(box), ceil(seen.k / columns)
    share = ceil(tiles / tile.parts)
    parts = ceil(tiles / share)
    whole = read.whole and parts == 1 and not tile.turned and fits_tma(look(dw), (seen.k, 1))
    # Of a part: elements from a group, a filter, a tap and an element of it to the next.
    if tile.turned:
        pitch = ceil_to(g.co, 4)
        lies = (g.filters, 1, seen.k * pitch, pitch)
    else:
        pitch = seen.k if whole else ceil_to(seen.k, 4)
        lies = (g.filters * seen.taps * pitch, seen.taps * pitch, pitch, 1)
    size = seen.taps * (seen.k if tile.turned else g.co) * pitch
    part = dw if whole else empty_beside(dw, (parts * size,), "f32")
    order = (0, 1, 3, 4, 2) if tile.turned else (0, 1, 2, 3, 4)
    shape, block = (parts, g.groups, g.filters, seen.taps, seen.k), (1, 1, rows, 1, columns)
    steps = (size, *lies)
    described = ([each[axis] for axis in order] for each in (shape, steps, block))
    sums = tawa.TensorDescriptor(part, *described)
    full = (axes.images, axes.rows, axes.columns, g.groups, g.filters)
    grown = by_rows(dy, full, [*box, 1, rows])
    options: dict[str, Any] = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
    options |= {"BLOCK_M": rows, "BLOCK_N": columns, "GROUPS": g.groups, "VIEW": seen.view}
    options |= {"CHANNELS": g.channels, "FH": g.fh, **g.constants}
    options |= {"ABREAST": tile.abreast, "TURNED": tile.turned}
    if tile.abreast > 1:  # a stage of each tap's would take the place of two steps of the ring
        options["store"] = "registers"
    if volume is not None and volume.window is not None:
        options |= {"FH": volume.window.size[1], "FW": volume.window.size[2]}
    numbers = (tiles, ceil(axes.rows / box[1]), ceil(axes.columns / box[2]), across, share)
    grid = (ceil(g.filters / rows), seen.taps // tile.abreast * across, parts * g.groups)
    first = (seen.descriptor(base, box, columns), grown, sums, *numbers)
    launches.append(Launch(conv_backward.conv_weight_gradient, grid, first, options))
    if whole:
        return launches
    return [*launches, _add(g, part, dw, parts, size, lies[1:], together, column, tile.turned)]


def _add(
    g: Geometry,
    part: Any,
    dw: Any,
    parts: int,
    size: int,
    steps: tuple[int, int, int],
    together: int,
    column: int,
    turned: bool = False,
) -> Launch:
    """Return the launch that adds parts up: rows of `together` taps of `column` elements each."""
    count = g.co * g.window
    wide = min(16, 1 << max(parts - 1, 0).bit_length())
    options = {"PARTS": parts, "TAPS": g.fh * g.fw, "TOGETHER": together, "TURNED": turned}
    options |= {"CHANNELS": g.channels, "COLUMN": column, "WIDE": wide, "BLOCK": _ADDED // wide}
    grid = (ceil(count / options["BLOCK"]),)
    arguments = (part, dw, count, size, g.co, *steps)
    return Launch(conv_backward.add_weights, grid, arguments, options)


def conv_transpose2d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str = "",
) -> Any:
    """Return the transposed convolution: what `conv2d_input_gradient` is of dy = x.

    `w` is (C, Co/g, Fh, Fw) in torch's order, (C, Fh, Fw, Co/g) in NumPy's; `output_padding` adds
    rows and columns at the end. Raises `ArgumentError` as `conv2d_input_gradient`.
    """
    keep_gradients(x=x, w=w)
    image, filters = nhwc("x", x), nhwc("w", w)
    n, h, width, _ = look(image).shape
    _, fh, fw, channels = look(filters).shape
    steps, spread = pair("stride", stride, 1), pair("dilation", dilation, 1)
    sides, more = pair("padding", padding, 0), pair("output_padding", output_padding, 0)
    sizes = [
        (extent - 1) * step - 2 * side + (f - 1) * d + 1 + extra
        for extent, step, side, f, d, extra in zip(
            (h, width), steps, sides, (fh, fw), spread, more, strict=True
        )
    ]
    if any(extra >= step for extra, step in zip(more, steps)):
        raise ArgumentError(
            f"output_padding={output_padding} at stride {steps}", why="it is below the stride"
        )
    shape = (n, *sizes, channels * groups)
    if as_given(image) is not image:
        shape = (n, channels * groups, *sizes)
    how: dict[str, Any] = {"stride": steps, "padding": sides, "dilation": spread}
    return conv2d_input_gradient(shape, w, x, groups=groups, out_dtype=out_dtype, **how)
