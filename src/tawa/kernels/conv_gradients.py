"""Gradients of `conv2d`, and the transposed convolution, which is the input's gradient.

Arrays are as those of `tawa.kernels.conv.conv2d`. The likeliest tiles of a gradient are timed once
for each kind of problem on a GPU, and the fastest is remembered. Sums are added in an order that
the tile fixes: with the same tile the results of two calls are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tawa.errors import ArgumentError
from tawa.kernels import tuner
from tawa.kernels.arrays import empty_beside, look
from tawa.kernels.conv import as_given, keep_gradients, nhwc
from tawa.kernels.conv_geometry import Geometry, geometry_of, pair
from tawa.kernels.conv_input_gradient import input_launches, input_tiles
from tawa.kernels.conv_variants import Tile
from tawa.kernels.conv_weight_gradient import weight_launches, weight_tiles
from tawa.kernels.prepare import Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.kernels.straight import Recipes
from tawa.runtime.arrays import array

_INPUT = Recipes(("dy", "w"))
_WEIGHT = Recipes(("x", "dy"))
_TUNERS: dict[str, tuner.Tuner[Any, Tile]] = {
    "input": tuner.Tuner("conv_input_gradient", ("dy", "w")),
    "weight": tuner.Tuner("conv_weight_gradient", ("x", "dy")),
}


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
    parities that share no tap; one launch computes all. f16, bf16, f32 (through tf32). Filters of
    channels that TMA does not step over (16 bytes) are copied with zeros behind them.

    Raises:
        ArgumentError: shapes, types or strides do not fit; output channels of a group that TMA
            cannot step over.
    """
    how = stride, padding, dilation, groups
    keep_gradients(w=w, dy=dy)
    grown = nhwc("dy", dy)
    filters = nhwc("w", w, axes=len(dy.shape))
    shape = channels_last("x_shape", x_shape, grown)

    def write() -> Recipe:
        names, g = (
            symbols({"dy": grown, "w": filters}),
            geometry_of(shape, look(filters).shape, *how),
        )
        kind = out_dtype or look(grown).dtype
        dx = empty_beside(names["dy"], shape, kind)
        writer = Writer(names, grown, launch_pdl)
        if 0 not in shape:
            arrays = grown, filters, empty_beside(grown, shape, kind)
            tile = _settled("input", g, arrays, input_tiles, input_launches)
            for launch in input_launches(g, names["dy"], names["w"], dx, tile):
                writer.launch(launch)
        return writer.finish(dx)

    return as_given(_INPUT.run((grown, filters), (shape, *how, out_dtype, launch_pdl), write)[0])


def channels_last(name: str, shape: tuple[int, ...], like: Any) -> tuple[int, ...]:
    """Return a shape in the order of the library of `like`, an NHWC view, as NHWC."""
    if (axes := len(like.shape)) != len(shape):
        raise ArgumentError(f"{name}={tuple(shape)}", why=f"beside the arrays it has {axes} axes")
    if as_given(like) is like:
        return tuple(shape)
    return (shape[0], *shape[2:], shape[1])


def check(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    dtype: str,
    needed: tuple[bool, bool],
    how: tuple[Any, Any, Any, int],
) -> None:
    """Raise `ArgumentError` where a gradient of `needed` (by x, by w) is not computed.

    Shapes have channels last; `how` is (stride, padding, dilation, groups). Nothing is launched.
    """
    g = geometry_of(x_shape, w_shape, *how)
    x, w, dy = (array(shape, dtype) for shape in (x_shape, w_shape, g.results))
    if needed[0]:
        input_launches(g, dy, w, x)
    if needed[1]:
        weight_launches(g, x, dy, w)


def _settled(
    of: str,
    g: Geometry,
    arrays: tuple[Any, Any, Any],
    tiles: Callable[..., list[Tile]],
    launches: Callable[..., list[Launch]],
) -> Tile:
    """Return the fastest of `tiles` of a gradient, timed on the GPU of `arrays` if it is new.

    `arrays` are what is read, and one to write to. Raises as `launches`, and `TuningError`.
    """
    views = tuple(map(look, arrays))
    key = (g, *((view.dtype, view.strides, view.address % 16) for view in views))

    def candidates() -> list[tuner.Candidate[Tile]]:
        def one(tile: Tile) -> tuner.Candidate[Tile]:
            return tuner.Candidate(tile, lambda: tuner.ready(launches(g, *arrays, tile=tile)))

        return [one(tile) for tile in tiles(g, *arrays[:2])]

    return _TUNERS[of].settle(key, candidates, arrays[0])


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
    how = stride, padding, dilation, groups
    keep_gradients(x=x, dy=dy)
    image = nhwc("x", x)
    grown = nhwc("dy", dy, axes=len(x.shape))
    shape = channels_last("w_shape", w_shape, grown)

    def write() -> Recipe:
        names, g = symbols({"x": image, "dy": grown}), geometry_of(look(image).shape, shape, *how)
        kind = out_dtype or look(image).dtype
        dw = empty_beside(names["x"], shape, kind)
        writer = Writer(names, image, launch_pdl)
        if 0 not in shape:
            arrays = image, grown, empty_beside(image, shape, kind)
            tile = _settled("weight", g, arrays, weight_tiles, weight_launches) if g.n else None
            for launch in weight_launches(g, names["x"], names["dy"], dw, tile=tile):
                writer.launch(launch)
        return writer.finish(dw)

    return as_given(_WEIGHT.run((image, grown), (shape, *how, out_dtype, launch_pdl), write)[0])


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
