# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Gradients of `conv2d`, and the transposed convolution, which is the input's gradient.

Arrays are as those of `tawa.kernels.conv.conv2d`. Which tile is used comes from the model of
`tawa.kernels.conv_variants`; nothing is timed. Sums are added in a fixed order: the results of two
calls are the same bits.
"""

from __future__ import annotations

from math import ceil, gcd
from typing import Any

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_backward
from tawa.kernels.arrays import BYTES, empty_beside, look
from tawa.kernels.conv import as_given, geometry_of, keep_gradients, nhwc
from tawa.kernels.conv_geometry import Geometry, ceil_to, packing, pair
from tawa.kernels.conv_operands import dense, strides_of
from tawa.kernels.conv_prepare import by_rows, pack
from tawa.kernels.conv_variants import Axes, boxes
from tawa.kernels.conv_views import Windows, packed_view, refusal, windows
from tawa.kernels.prepare import FLOATS, Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.kernels.straight import Recipes
from tawa.runtime.arrays import View, row_major
from tawa.target import H200

_INPUT = Recipes(("dy", "w"))
_WEIGHT = Recipes(("x", "dy"))
_ADDED = 512
# Products a second of a multiprocessor for boxes, as in `tawa.kernels.conv_variants`; here it only
# weighs overhang against bytes.
_RATE = {2: 4.0e12, 4: 2.0e12}


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
        ArgumentError: shapes, types or strides do not fit; dilation with a stride; channels of a
            group that TMA cannot step over (16 bytes).
    """
    keep_gradients(w=w, dy=dy)
    filters, grown = nhwc("w", w), nhwc("dy", dy)
    shape, window = _channels_last("x_shape", x_shape, grown), tuple(look(filters).shape)
    steps = pair("stride", stride, 1)
    g = geometry_of(shape, window, steps, padding, dilation, groups)

    def write() -> Recipe:
        names = symbols({"dy": grown, "w": filters})
        kind = out_dtype or look(grown).dtype
        dx = empty_beside(names["dy"], shape, kind)
        writer = Writer(names, grown, launch_pdl)
        if 0 not in shape:
            for launch in input_launches(g, names["dy"], names["w"], dx):
                writer.launch(launch)
        return writer.finish(dx)

    options = (shape, g.stride, g.padding, g.dilation, groups, out_dtype, launch_pdl)
    return as_given(_INPUT.run((grown, filters), options, write)[0])


def _channels_last(name: str, shape: tuple[int, ...], like: Any) -> tuple[int, ...]:
    """Return a shape in the order of the library of `like`, an NHWC view, as NHWC."""
    if len(shape) != 4:
        raise ArgumentError(f"{name}={tuple(shape)}", why="a convolution in 2D has four axes")
    if as_given(like) is like:
        return tuple(shape)
    return (shape[0], *shape[2:], shape[1])


def _check(g: Geometry, dy: View, name: str, other: View) -> None:
    """Raise `ArgumentError` where dy is not the result's gradient, or of another type."""
    shape = (g.n, g.ho, g.wo, g.co)
    if dy.shape != shape:
        raise ArgumentError(f"dy has, as NHWC, shape {dy.shape}", why=f"the result has {shape}")
    if dy.dtype != other.dtype or dy.dtype not in FLOATS:
        raise ArgumentError(
            f"dy holds {dy.dtype}, {name} {other.dtype}", why=f"one type of {', '.join(FLOATS)}"
        )
    _check_described("dy", dy, g.filters)


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


def input_launches(g: Geometry, dy: Any, w: Any, dx: Any) -> list[Launch]:
    """Return the launch that computes dx."""
    _check(g, look(dy), "w", look(w))
    _check_described("w", look(w), g.channels)
    for step, spread in zip(g.stride, g.dilation):
        if step > 1 and spread > 1:
            raise ArgumentError(
                f"the input's gradient at stride {g.stride} and dilation {g.dilation}",
                why="taps of one parity are counted for one of the two",
            )
    size = BYTES[look(dy).dtype]
    down, across = ceil(g.h / g.stride[0]), ceil(g.w / g.stride[1])
    reach = tuple((f - 1) * d // s + 1 for f, d, s in zip((g.fh, g.fw), g.dilation, g.stride))
    axes = Axes(g.n, down, across, (1, 1), (reach[0], reach[1]), g.filters * size)
    columns = next(n for n in (32, 64, 128, 256) if n >= min(g.channels, 128))
    pixels = 256 if axes.tiles((256, 1, 1)) > 264 and columns < 128 else 128
    seconds = 2 * pixels * columns * g.filters * reach[0] * reach[1] / _RATE[size]
    box = boxes(pixels, axes, seconds, H200)
    depth = 128 // size
    sizes = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
    sizes |= {"BLOCK_N": columns, "BLOCK_K": depth}
    options = sizes | g.constants | {"FH": g.fh, "GROUPS": g.groups, "IMAGES": g.n}
    seen = by_rows(dy, (g.n, g.ho, g.wo, g.groups, g.filters), [*box, 1, depth])
    shape = (g.groups, g.filters, g.fh * g.fw, g.channels)
    taps = by_rows(w, shape, [1, depth, 1, columns])
    numbers = (ceil(down / box[1]), ceil(across / box[2]), g.h, g.w, g.channels, g.filters)
    parities = g.stride[0] * g.stride[1] * g.groups
    grid = (axes.tiles(box), ceil(g.channels / columns), parities)
    return [Launch(conv_backward.conv_input_gradient, grid, (seen, taps, dx, *numbers), options)]


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
    window = _channels_last("w_shape", w_shape, grown)
    steps = pair("stride", stride, 1)
    g = geometry_of(look(image).shape, window, steps, padding, dilation, groups)

    def write() -> Recipe:
        names = symbols({"x": image, "dy": grown})
        kind = out_dtype or look(image).dtype
        dw = empty_beside(names["x"], window, kind)
        writer = Writer(names, image, launch_pdl)
        if 0 not in window:
            for launch in weight_launches(g, names["x"], names["dy"], dw):
                writer.launch(launch)
        return writer.finish(dw)

    options = (window, g.stride, g.padding, g.dilation, groups, out_dtype, launch_pdl)
    return as_given(_WEIGHT.run((image, grown), options, write)[0])


def weight_launches(g: Geometry, x: Any, dy: Any, dw: Any, target: Any = H200) -> list[Launch]:
    """Return the launches that compute dw: x's copy where it is padded first, parts, their sum."""
    seen_x, seen_dy = look(x), look(dy)
    size = seen_x.itemsize
    _check(g, seen_dy, "x", seen_x)
    if not g.n:
        return [_add(g, empty_beside(dw, (1,), "f32"), dw, 0, g.window, 1, g.channels)]
    launches: list[Launch] = []
    column, together = g.channels, 1
    axes = Axes(g.n, g.ho, g.wo)
    whole = (gcd(g.ho, 64), gcd(g.wo, 64))
    exact = (64 // min(64, whole[0] * whole[1]), min(whole[0], 64 // whole[1]), whole[1])
    wasted = axes.tiles(exact) * 64 / g.pixels
    if not refusal("rows", g, seen_x):
        seen = windows("rows", g, seen_x)
        together, base = g.fw, x
    elif not refusal("taps", g, seen_x) and (wasted < 2 or g.groups > 1 or g.dilation != (1, 1)):
        shape = (g.n, g.h, g.w, g.groups, g.channels)
        strides = (*strides_of(seen_x)[:3], g.channels, 1)
        seen, base = Windows("groups", shape, strides, g.fh * g.fw, g.channels), x
    elif g.groups > 1 or g.dilation != (1, 1):
        raise ArgumentError(
            f"the filters' gradient at stride {g.stride}, dilation {g.dilation}, {g.groups} groups"
            f" of {g.channels} channels",
            why=f"in place: {refusal('taps', g, seen_x)}; a padded copy has neither dilation nor"
            " groups",
        )
    else:
        how = packing("padded", g, size)
        seen, together, column = packed_view("padded", g, how), g.fw, how.images.column
        base = empty_beside(dw, (how.images.elements,), seen_x.dtype)
        launches.append(pack(x, g, how, base))
    box = exact if seen.view == "groups" else boxes(64, axes, 1e-6, target)
    rows = 128 if g.filters > 64 else 64
    columns = next(n for n in (64, 128, 256) if n >= min(seen.k, 128))
    tiles, across = axes.tiles(box), ceil(seen.k / columns)
    programs = ceil(g.filters / rows) * seen.taps * across * g.groups
    share = max(1, ceil(tiles / max(1, ceil(2 * target.multiprocessors / programs))))
    parts = ceil(tiles / share)
    pitch = ceil_to(seen.k, 4)
    shape = (parts, g.groups, g.filters, seen.taps, pitch)
    steps = row_major(shape)
    part = empty_beside(dw, shape, "f32")
    shape = (parts, g.groups, g.filters, seen.taps, seen.k)
    sums = tawa.TensorDescriptor(part, shape, steps, [1, 1, rows, 1, columns])
    grown = by_rows(dy, (g.n, g.ho, g.wo, g.groups, g.filters), [*box, 1, rows])
    options = {"BLOCK_I": box[0], "BLOCK_H": box[1], "BLOCK_W": box[2]}
    options |= {"BLOCK_M": rows, "BLOCK_N": columns, "FW": g.fw, "GROUPS": g.groups}
    options |= {"PAD_H": g.padding[0], "PAD_W": g.padding[2]}
    options |= {"DILATION_H": g.dilation[0], "DILATION_W": g.dilation[1], "VIEW": seen.view}
    numbers = (tiles, ceil(g.ho / box[1]), ceil(g.wo / box[2]), across, share)
    grid = (ceil(g.filters / rows), seen.taps * across, parts * g.groups)
    described = seen.descriptor(base, box, columns)
    first = (described, grown, sums, *numbers)
    launches.append(Launch(conv_backward.conv_weight_gradient, grid, first, options))
    return [*launches, _add(g, part, dw, parts, pitch, together, column)]


def _add(
    g: Geometry, part: Any, dw: Any, parts: int, pitch: int, together: int, column: int
) -> Launch:
    """Return the launch that adds parts up: rows of `together` taps of `column` elements each."""
    count = g.co * g.window
    options = {"PARTS": parts, "TAPS": g.fh * g.fw, "TOGETHER": together, "BLOCK": _ADDED}
    options |= {"CHANNELS": g.channels, "COLUMN": column}
    size = g.co * g.fh * g.fw // together * pitch
    grid = (ceil(count / _ADDED),)
    return Launch(conv_backward.add_weights, grid, (part, dw, count, size, pitch), options)


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
