# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From the arrays of a convolution and a variant to launches: descriptors, grids, workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, gcd, prod
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_backward, conv_depthwise, conv_windows
from tawa.kernels.arrays import BYTES, empty_beside, fits_tma, look
from tawa.kernels.conv_geometry import PACKINGS, Geometry, Packing, ceil_to, packing
from tawa.kernels.conv_merged import Merged
from tawa.kernels.conv_operands import Operands
from tawa.kernels.conv_packing import fill, pack, pack_filters, rearrange
from tawa.kernels.conv_variants import Axes, Variant, beside, least_beside, refused
from tawa.kernels.conv_views import packed_view, windows
from tawa.kernels.prepare import Launch
from tawa.layouts.windows import Window
from tawa.runtime.arrays import row_major

_FINISH = 1024


def prepare(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that compute a convolution by `variant`, in order.

    Raises `ArgumentError` with the reason where its form cannot.
    """
    form = variant.form
    if reason := refused(form, operands.problem):
        raise ArgumentError(f"no convolution by {form}: {reason}", remedy='use method="auto"')
    if form in PACKINGS:
        return _by_packing(operands, variant)
    if form in ("merged", "neighbours") and variant.splits > 1:
        raise ArgumentError(
            f"{form} and {variant.splits} parts of a sum",
            why="a sum that an infinity of another spoilt is found where it is whole",
        )
    if form == "merged":
        return _side_by_side(operands, variant)
    if form == "neighbours":
        return _neighbours(operands, variant)
    g, sizes = operands.problem.geometry, variant.config.kwargs
    if form == "pointers":
        strides = (*operands.problem.strides[:3], g.window)
        return [_by_pointers(operands, variant, g, operands.x, operands.w, strides)]
    if form == "direct":
        return _strips(operands, variant)
    seen, launches = windows(form, g, operands.problem.view), list[Launch]()
    x = seen.descriptor(operands.x, variant.box, sizes["BLOCK_K"])
    options = {"VIEW": seen.view, "CHANNELS": g.channels, "WINDOW": g.over}
    if (back := operands.problem.back) is None:
        sums, w = (seen.taps, seen.k), operands.w
        w = filters(w, (g.groups, g.filters, *sums), (g.window, seen.k), sizes)
    else:  # filters as they lie; channels that TMA does not step over with zeros behind them
        taps, wide, w = prod(back.size), g.filters, operands.w
        if not fits_tma(look(w), (wide, 1)):
            wide = ceil_to(wide, 16 // look(w).itemsize)
            w = empty_beside(operands.y, (g.c * taps * wide,), look(w).dtype)
            shape, strides = (g.c * taps, 1, 1, g.filters), (g.filters, 0, 0, 1)
            launches.append(rearrange(operands.w, shape, strides, w, wide))
        w = by_rows(
            w, (g.groups, g.channels, taps, wide), [1, sizes["BLOCK_K"], 1, sizes["BLOCK_N"]]
        )
        sums = ceil(taps / operands.problem.parities), g.channels
    return [*launches, *product(operands, variant, x, w, sums, seen.cut(g), options)]


def _strips(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that pack filters by taps and convolve in strips.

    An input's gradient is a convolution of dy, its pixels a stride apart, with filters whose taps
    are in the other order.
    """
    problem, sizes, w = operands.problem, variant.config.all_kwargs(), operands.w
    g, back, y = problem.geometry, problem.back, look(operands.y).shape
    options = {**sizes, "WINDOW": g.over, "AFTER": problem.epilogue, "SUM": problem.sum}
    options |= {"CHANNELS": g.channels, "FILTERS": g.filters}
    shape, steps = (1, 1, g.window, g.co), (0, 0, 1, g.window)
    if back is not None:
        (fh, fw), (down, across) = back.size[1:], back.stride[1:]
        each = zip(back.size[1:], back.dilation[1:], back.padding[1:])
        pads = tuple(((size - 1) * spread - before, 0) for size, spread, before in each)
        options["WINDOW"] = Window((fh, fw), (1, 1), pads, back.dilation[1:])
        options |= {"APART_H": down, "APART_W": across, "BACK": True}
        window = fh * fw * g.filters
        shape = (fh * fw, g.channels, g.groups, g.filters)
        steps = (g.filters, window, g.channels * window, 1)
    taps = empty_beside(operands.y, (prod(shape),), look(w).dtype)
    count = y[0] * y[1] * ceil(y[2] / sizes["STRIP"])
    arrays = (operands.x, taps, operands.y, operands.residual, operands.scale, operands.bias)
    numbers = (count, g.h, g.w, *y[1:], *problem.strides[:3])
    grid = (ceil(count / sizes["BLOCK_R"]), ceil(y[3] / sizes["BLOCK_C"]))
    launch = Launch(conv_depthwise.conv_depthwise, grid, (*arrays, *numbers), options)
    return [rearrange(w, shape, steps, taps), launch]


def _side_by_side(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that fill filters with zeros and convolve groups that stand as one."""
    problem, back = operands.problem.merged, operands.problem.back
    g, alone = problem.geometry, operands.problem.geometry
    channels, own, taps, lines = alone.channels, alone.filters, g.fh * g.fw, g.co
    if back is not None:  # x's channels are the filters', and y's those of each
        channels, own, taps, lines = own, channels, prod(back.size), g.c
    count = alone.groups // g.groups
    merged = Merged(channels, own, count, channels, channels * count)
    first = fill(operands.w, lines * taps, taps, merged, operands.y)
    wide = replace(operands, problem=problem, w=first.arguments[1])
    *copied, launch = prepare(wide, replace(variant, form="window"))
    merged = replace(merged, channels=alone.channels, filters=alone.filters, apart=alone.channels)
    numbers = (g.pixels, *g.images[-3:-1], *g.results[-3:-1], *problem.strides[:3])
    return [first, *copied, _summed_apart(launch, merged, operands.x, wide.w, numbers)]


def _neighbours(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that convolve pixels side by side as one, over the images' lines: in
    place where TMA takes them, else packed.
    """
    problem, sizes = operands.problem, variant.config.kwargs
    g, size = problem.geometry, BYTES[problem.dtype]
    count, column = sizes["BESIDE"], sizes["CHANNELS"]
    least, tile = least_beside(g, size, column), max(sizes["BLOCK_N"], problem.step)
    if variant.box[2] > 1 or count % least or count * g.co % tile or column < g.c:
        raise ArgumentError(
            f"no convolution by {variant}",
            why=f"boxes have one column, of a multiple of {least} pixels, whose channels, {g.co}"
            " each, tiles divide",
        )
    step, k = g.stride[1] * column, beside(g, count, column)
    # Filters' rows lie as far apart as boxes are long: TMA takes longer where they begin elsewhere.
    long = g.fw * column, g.co, count, step, ceil_to(k, sizes["BLOCK_K"])
    merged = Merged(*long, pixels=True, column=column, used=g.c)
    launches = [fill(operands.w, g.co * g.fh, g.fh, merged, operands.y)]
    x, high, width, (image, row) = operands.x, g.h, g.w * g.c, problem.strides[:2]
    if column > g.c or not problem.in_lines:
        buffer = (how := packing("padded", g, size, column)).images
        x = empty_beside(operands.y, (buffer.elements,), problem.dtype)
        launches.append(pack(operands.x, g, how, x))
        high, width, row = buffer.lines // g.n, buffer.columns * column, buffer.pitch
        image = high * row
    box, shape = variant.box, (g.n, g.ho, ceil(g.wo / count))
    lies = (g.n, g.ho, g.fh, width), (image, g.stride[0] * row, g.dilation[0] * row, 1)
    seen = tawa.TensorDescriptor(x, *lies, [*box[:2], 1, sizes["BLOCK_K"]])
    w = launches[0].arguments[1]
    order = filters(w, (1, count * g.co, g.fh, k), (g.fh * merged.wide, merged.wide), sizes)
    wide = replace(operands, problem=replace(problem, geometry=replace(g, co=count * g.co)))
    options: dict[str, Any] = {"VIEW": "lines", "CHANNELS": merged.wide}
    none = ((0, 0), (0, 0))
    options["WINDOW"] = Window((g.fh, 1), (g.stride[0], count * step), none, (g.dilation[0], 1))
    rows = (g.n, g.ho, 1, 1, g.wo * g.co)
    (launch,) = product(wide, variant, seen, order, (g.fh, k), shape, options, rows)
    numbers = (prod(shape), high, width, *shape[1:], image, row, 1)
    return [*launches, _summed_apart(launch, merged, x, w, numbers)]


def _summed_apart(launch: Launch, merged: Merged, x: Any, w: Any, numbers: Any) -> Launch:
    given = (*launch.arguments[:-17], x, w, *numbers, *launch.arguments[-7:])
    return replace(launch, arguments=given, options={**launch.options, "MERGED": merged})


def _by_packing(operands: Operands, variant: Variant) -> list[Launch]:
    problem, form = operands.problem, variant.form
    g, sizes = problem.geometry, variant.config.kwargs
    how = packing(form, g, BYTES[problem.dtype])
    buffer, packed = how.images, how.filters
    windowed = empty_beside(operands.y, (buffer.elements,), problem.dtype)
    launches = [pack(operands.x, g, how, windowed)]
    w = operands.w
    if not operands.prepacked:
        w = empty_beside(operands.y, (packed.elements,), look(w).dtype)
        launches.append(pack_filters(operands.w, g, how, w))
    if "BLOCK_M" in sizes:
        return [*launches, _packed_by_pointers(operands, variant, how, windowed, w)]
    seen = packed_view(form, g, how)
    x = seen.descriptor(windowed, variant.box, sizes["BLOCK_K"])
    steps = (seen.taps * packed.pitch, packed.pitch)
    order = filters(w, (1, g.co, seen.taps, seen.k), steps, sizes)
    sums, options = (seen.taps, seen.k), {"VIEW": seen.view}
    return [*launches, *product(operands, variant, x, order, sums, seen.cut(g), options)]


def _packed_by_pointers(
    operands: Operands, variant: Variant, how: Packing, windowed: Any, w: Any
) -> Launch:
    """Return the product over packed windows without descriptors: what these are worth."""
    g, buffer = operands.problem.geometry, how.images
    step = 1 if variant.form == "im2col" else g.stride[1]
    taps = how.filters.columns
    seen = Geometry(buffer.lines, 1, buffer.columns, buffer.column, g.co, 1, taps, (1, step))
    strides = (buffer.pitch, buffer.pitch, buffer.column, how.filters.pitch)
    return _by_pointers(operands, variant, seen, windowed, w, strides)


def _by_pointers(
    operands: Operands, variant: Variant, g: Geometry, x: Any, w: Any, strides: tuple[int, ...]
) -> Launch:
    """Return the launch through pointers; `strides` are those of images, rows, pixels, filters."""
    problem, sizes = operands.problem, variant.config.all_kwargs()
    options = sizes | {"WINDOW": g.over, "CHANNELS": g.channels, "GROUPS": g.groups}
    options |= {"SUM": problem.sum, "AFTER": problem.epilogue}
    extra = (operands.residual, operands.scale, operands.bias)
    numbers = (g.pixels, g.h, g.w, g.ho, g.wo, g.filters, *strides[:3])
    options["STEP"] = strides[3]
    grid = (ceil(g.pixels / sizes["BLOCK_M"]), ceil(g.filters / sizes["BLOCK_N"]), g.groups)
    arguments = (x, w, operands.y, *extra, *numbers)
    return Launch(conv_windows.conv_pointers, grid, arguments, options)


def filters(
    base: Any, shape: tuple[int, int, int, int], steps: tuple[int, int], sizes: Mapping[str, Any]
) -> Any:
    """Describe filters as [groups, Co/g, taps, K]; `steps` from a filter and a tap to the next."""
    strides = (shape[1] * steps[0], *steps, 1)
    block = [1, sizes["BLOCK_N"], 1, sizes["BLOCK_K"]]
    return tawa.TensorDescriptor(base, shape, strides, block)


def by_rows(base: Any, shape: tuple[int, ...], block: list[int]) -> Any:
    """Describe a dense array."""
    return tawa.TensorDescriptor(base, shape, row_major(shape), block)


def product(
    operands: Operands,
    variant: Variant,
    x: Any,
    w: Any,
    sums: tuple[int, int],
    shape: tuple[int, int, int],
    options: Mapping[str, Any],
    stored: tuple[int, ...] = (),
) -> list[Launch]:
    """Return the product over windows; where its sum is dealt out, also the launch that adds up.

    `sums` are taps and K, `shape` the output's images, rows and columns as boxes cut them, which
    TMA stores to an array of shape `stored`, by default that of these.
    """
    problem, sizes = operands.problem, variant.config.all_kwargs()
    g, box, whole, back = problem.geometry, variant.box, variant.whole, problem.back
    taps, k = sums
    steps = taps * ceil(k / sizes["BLOCK_K"])
    parts = ceil(steps / ceil(steps / variant.splits))
    cut = (ceil(shape[1] / box[1]), ceil(shape[2] / box[2]), g.filters)
    tiles = Axes(*shape).tiles(box)
    blocks = ceil(g.filters / sizes["BLOCK_N"]) * g.groups * problem.parities
    extra = (operands.residual, operands.scale, operands.bias)
    y, r = operands.y, operands.residual
    (deep, *of), own = ((1, 1, *each[1:-1])[-3:] for each in (g.results, look(y).shape))
    places = (*shape, deep, *own)
    if problem.stored:
        lies = stored or (*shape, g.groups, g.filters), [*box, 1, sizes["BLOCK_N"]]
        y, r = (None if each is None else by_rows(each, *lies) for each in (y, r))
    given = {**sizes, **options, "AFTER": problem.epilogue, "GROUPS": g.groups}
    given |= {"STORED": problem.stored, "BACK": back}
    grid, sums_of, dealt = (tiles, blocks), None, max(0, tiles * blocks - whole)
    if parts > 1:
        if problem.dtype == "i8":
            raise ArgumentError(f"{parts} parts of an int8 sum: float32, which rounds them")
        grid = (whole + dealt * parts,)
        given |= {"PARTS": parts, "WHOLE": whole}
        sums_of = empty_beside(operands.y, (dealt * parts * prod(box) * sizes["BLOCK_N"],), "f32")
    beyond = (*(None,) * 5, *((None,) * 2 if problem.stored else of), *(None,) * 3)
    numbers = (taps, k, *cut, sums_of, tiles, blocks, *beyond)
    given_to = (x, w, y, r, *extra[1:], *numbers, *((None,) * 7 if problem.stored else places))
    launch = Launch(conv_windows.conv_windows, grid, given_to, {**given, "SUM": problem.sum})
    if parts == 1:
        return [launch]
    rows = gcd(prod(box), 1 << (_FINISH // sizes["BLOCK_N"]).bit_length() - 1)
    kept = ("BLOCK_I", "BLOCK_H", "BLOCK_W", "BLOCK_N", "AFTER", "GROUPS", "PARTS", "BACK")
    how = {name: given[name] for name in kept} | {"ROWS": rows}
    numbers = (*cut, tiles, blocks, whole, *of, *places)
    finish = Launch(
        conv_windows.conv_finish,
        (dealt, prod(box) // rows),
        (sums_of, operands.y, *extra, *numbers),
        how,
    )
    return [launch, finish]


def add_up(
    part: Any,
    out: Any,
    shape: tuple[int, int, int],
    parts: int,
    size: int,
    steps: tuple[int, int, int],
    **options: Any,
) -> Launch:
    """Return the launch that adds up parts of `size` elements: of gradients of so many filters,
    taps and channels, which lie `steps` apart.
    """
    filters, taps, channels = shape
    count, wide = prod(shape), min(16, 1 << max(parts - 1, 0).bit_length())
    how = {"PARTS": parts, "TAPS": taps, "CHANNELS": channels, "TOGETHER": 1, "COLUMN": channels}
    how |= {"TURNED": False, "WIDE": wide, "BLOCK": _FINISH // wide, **options}
    grid = (ceil(count / how["BLOCK"]),)
    arguments = (part, out, count, size, filters, *steps)
    return Launch(conv_backward.add_parts, grid, arguments, how)
