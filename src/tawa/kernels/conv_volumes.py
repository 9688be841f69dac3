"""`conv3d` and its gradients: convolutions of volumes, over windows that TMA counts in place.

To the planner, and to all that follows the sum, a volume is an image whose rows are those of all
its slices: only the windows have three axes. The forward product's tile comes from the model of
`tawa.kernels.conv_variants`; those of gradients are timed, as an image's.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tawa.errors import ArgumentError
from tawa.kernels.arrays import empty_beside, look
from tawa.kernels.conv import ARRAYS, as_given, keep_gradients, nhwc
from tawa.kernels.conv_geometry import Geometry, each_axis, paddings
from tawa.kernels.conv_gradients import (
    Tile,
    channels_last,
    input_products,
    settled,
    settled_input,
    weight_launches,
)
from tawa.kernels.conv_operands import bind, dense, strides_of
from tawa.kernels.conv_prepare import in_place
from tawa.kernels.conv_variants import Variant, ranked, uneven
from tawa.kernels.conv_views import Windows
from tawa.kernels.prepare import Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.kernels.straight import Recipes
from tawa.layouts.windows import Window
from tawa.runtime.arrays import View, is_tensor

_RECIPES = Recipes(ARRAYS)
_INPUT = Recipes(("dy", "w"))
_WEIGHT = Recipes(("x", "dy"))


def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: Any = "",
    residual: Any = None,
    scale: Any = None,
    out_dtype: str = "",
    out: Any = None,
    layout: str = "",
    launch_pdl: bool = False,
    variant: Variant | None = None,
) -> Any:
    """Return activation(scale * conv(x, w) + bias + residual) of volumes.

    torch and CuPy: x (N, C, D, H, W), torch's in channels_last_3d memory, w (Co, C/groups, Fd, Fh,
    Fw); NumPy: x (N, D, H, W, C), w (Co, Fd, Fh, Fw, C/groups). `stride` and `dilation` are an int
    or three, `padding` an int, three, three pairs (before, after), "same" or "valid"; the other
    options are those of `tawa.kernels.conv.conv2d`.

    Raises:
        ArgumentError: shapes, types or strides do not fit together; or TMA does not count the
            windows: channels that are no multiple of 16 bytes, strides above 8, padding above 16.
    """
    keep_gradients(x=x, w=w, bias=bias, residual=residual, scale=scale)
    image, filters = nhwc("x", x, layout, 3), nhwc("w", w, layout, 3)
    view, shape = look(image), tuple(look(filters).shape)
    window = window_3d(shape[1:-1], stride, padding, dilation)
    g = flat_geometry(view.shape, shape, window, groups)
    folded: dict[str, Any] = {"w": _folded("w", filters)}
    for name, array in (("out", out), ("residual", residual)):
        folded[name] = None if array is None else _folded(name, nhwc(name, array, axes=3))
    given = image, folded["w"], folded["out"], bias, folded["residual"], scale
    finish: dict[str, Any] = {"activation": activation, "out_dtype": out_dtype}

    def write() -> Recipe:
        names = symbols(dict(zip(ARRAYS, given)))
        operands = bind(geometry=g, **names, **finish)
        far, *_, row, pixel, channel = operands.problem.strides
        flat = replace(operands.problem, strides=(far, row, pixel, channel))
        operands = replace(operands, problem=flat)
        writer = Writer(names, image, launch_pdl)
        if g.pixels and g.co:
            reason = _refusal(g, view, window)
            if not reason and g.groups > 1:
                reason = uneven(g.channels, view.itemsize)
            if not reason and not operands.problem.aligned:
                reason = "the address of w is not a multiple of 16 bytes, which TMA needs"
            if not reason and not operands.problem.stored:
                reason = (
                    f"the output's {g.filters} channels a group are not stored by TMA (16 bytes)"
                )
            if reason:
                raise _no("convolution", view.shape, window, reason)
            if out is not None:
                read = {name: names[name] for name in ARRAYS if name != "out"}
                writer.apart(operands.y, read)
            seen = seen_in(g, view, window)
            chosen = variant or ranked("window", operands.problem)[0][1]
            for launch in in_place(operands, chosen, seen):
                writer.launch(launch)
        return writer.finish(operands.y)

    options = (window, groups, activation, out_dtype, launch_pdl, variant)
    found = _RECIPES.run(given, options, write)[0]
    if out is not None:
        return out
    return as_given(found.reshape(g.n, *window.counts(view.shape[1:-1]), g.co))


def conv3d_input_gradient(
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
    """Return dx, of `x_shape`, for dy, the gradient of conv3d(x, w)'s result.

    As `tawa.kernels.conv_gradients.conv2d_input_gradient`, of arrays as `conv3d` takes them.
    """
    keep_gradients(w=w, dy=dy)
    filters, grown = nhwc("w", w, axes=3), nhwc("dy", dy, axes=3)
    shape, (co, *size, channels) = channels_last("x_shape", x_shape, grown), look(filters).shape
    window = window_3d(tuple(size), stride, padding, dilation)
    flat_geometry(shape, (co, *size, channels), window, groups)

    def write() -> Recipe:
        names = symbols({"dy": grown, "w": filters})
        dx = empty_beside(names["dy"], shape, out_dtype or look(grown).dtype)
        writer = Writer(names, grown, launch_pdl)
        if 0 not in shape:
            kind = out_dtype or look(grown).dtype
            made = empty_beside(grown, shape, kind)
            tile = settled_input(window, shape, groups, grown, filters, made)
            given = names["dy"], names["w"], dx, tile
            for launch in input_products(window, shape, groups, *given):
                writer.launch(launch)
        return writer.finish(dx)

    options = (shape, window, groups, out_dtype, launch_pdl)
    return as_given(_INPUT.run((grown, filters), options, write)[0])


def conv3d_weight_gradient(
    x: Any,
    w_shape: tuple[int, ...],
    dy: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str = "",
    launch_pdl: bool = False,
) -> Any:
    """Return dw, of `w_shape`, for dy, the gradient of conv3d(x, w)'s result.

    As `tawa.kernels.conv_gradients.conv2d_weight_gradient`, of arrays as `conv3d` takes them.
    """
    keep_gradients(x=x, dy=dy)
    image, grown = nhwc("x", x, axes=3), nhwc("dy", dy, axes=3)
    shape = channels_last("w_shape", w_shape, grown)
    view, window = look(image), window_3d(shape[1:-1], stride, padding, dilation)
    g = flat_geometry(view.shape, shape, window, groups)
    if (found := look(grown).shape) != (n := (g.n, *window.counts(view.shape[1:-1]), g.co)):
        raise ArgumentError(f"dy has, with channels last, shape {found}", why=f"the result has {n}")
    folded = _folded("dy", grown)

    def write() -> Recipe:
        names = symbols({"x": image, "dy": folded})
        dw = empty_beside(names["x"], shape, out_dtype or view.dtype)
        writer = Writer(names, image, launch_pdl)
        if 0 not in shape:
            tile = None
            if g.n and not _refusal(g, view, window):
                made = empty_beside(image, shape, out_dtype or view.dtype)
                tile = settled(g, image, folded, made, seen_in(g, view, window), window)
            for launch in weight_products(g, window, names["x"], names["dy"], dw, tile):
                writer.launch(launch)
        return writer.finish(dw)

    options = (shape, window, groups, out_dtype, launch_pdl)
    return as_given(_WEIGHT.run((image, folded), options, write)[0])


def weight_products(
    g: Geometry, window: Window, x: Any, dy: Any, dw: Any, tile: Tile | None = None
) -> list[Launch]:
    """Return the launches that compute dw; `g` is the image that stands for volumes x, and the
    slices of dy lie in one axis. Raises `ArgumentError`.
    """
    view = look(x)
    if reason := _refusal(g, view, window):
        raise _no("filters' gradient", view.shape, window, reason)
    return weight_launches(g, x, dy, dw, volume=seen_in(g, view, window), tile=tile)


def window_3d(size: tuple[int, ...], stride: Any, padding: Any, dilation: Any) -> Window:
    """Return windows of three axes as options give them; raises `ArgumentError`."""
    given = (("stride", stride), ("dilation", dilation))
    steps, spread = (each_axis(*each, 1, 3) for each in given)
    return Window(size, steps, paddings(padding, size, steps, spread), spread)


def seen_in(g: Geometry, x: View, window: Window) -> Windows:
    """Return the view of volumes in which windows lie."""
    lies = (x.shape, strides_of(x))
    return Windows("volume", *lies, prod(window.size), g.channels, g.groups > 1, window)


def _no(what: str, volumes: tuple[int, ...], window: Window, reason: str) -> ArgumentError:
    return ArgumentError(
        f"no {what} of volumes {volumes} over {window}",
        why=reason,
        remedy="fill channels up with zeros, or copy the arrays to dense memory",
    )


def flat_geometry(
    images: tuple[int, ...], filters: tuple[int, ...], window: Window, groups: int
) -> Geometry:
    """Return the image that stands for a volume; raises `ArgumentError` where sizes do not fit."""
    n, *pixels, c = images
    co, *size, channels = filters
    if groups < 1 or c % groups or co % groups or channels * groups != c:
        raise ArgumentError(
            f"volumes of {c} channels, {co} filters of {channels} in {groups} groups",
            why="groups divide both, and a filter sees the channels of its group",
            remedy="check the order of axes: NumPy's are NDHWC, torch's NCDHW",
        )
    if 0 in (c, *size):
        raise ArgumentError(f"filters of {size} pixels and {channels} channels: there is no sum")
    deep, high, wide = counts = window.counts(pixels)
    if 0 in counts:
        raise ArgumentError(f"filters of {size} (dilation {window.dilation}) do not fit {pixels}")
    taps, last = size[0] * size[1], size[2]
    around = (taps - 1, 0, last - 1, 0)
    return Geometry(n, deep * high, wide, c, co, taps, last, padding=around, groups=groups)


def _folded(name: str, array: Any) -> Any:
    """Return a dense array with its slices' rows as one axis, in the same memory."""
    view = look(array)
    if not dense(view):
        raise ArgumentError(
            f"{name} has, with channels last, strides {view.strides}",
            why="channels lie side by side, without gaps",
            remedy="torch: .contiguous(memory_format=torch.channels_last_3d)",
        )
    n, deep, high, *rest = view.shape
    shape = (n, deep * high, *rest)
    return array.view(shape) if is_tensor(array) else array.reshape(shape)


def _refusal(g: Geometry, x: View, window: Window) -> str:
    """Return why windows of volumes are not read by TMA; "" where they are."""
    size = x.itemsize
    if window.objection:
        return window.objection
    if g.pixels >= 1 << 31:
        return f"{g.pixels} pixels need more than 31 bits"
    *steps, channel = strides_of(x)
    if channel != 1:
        return f"channels of x lie {channel} elements apart, and TMA needs them side by side"
    for extent, step in zip(x.shape, steps):
        if extent > 1 and (step * size % 16 or not 0 <= step * size < 1 << 40):
            return f"x has a stride of {step * size} bytes, and TMA steps by multiples of 16"
    if g.channels * size % 16:
        return f"{g.channels} channels a group are {g.channels * size} bytes, of which TMA takes 16"
    return (
        "the address of x is not a multiple of 16 bytes, which TMA needs" if x.address % 16 else ""
    )
