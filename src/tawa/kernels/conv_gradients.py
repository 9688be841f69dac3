"""Gradients of `conv2d`, and the transposed convolution, which is the input's gradient.

Arrays are as those of `tawa.kernels.conv.conv2d`. The likeliest tiles of a gradient are timed once
for each kind of problem on a GPU, and the fastest is remembered. Sums are added in an order that
the tile fixes: with the same tile the results of two calls are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, gcd
from typing import Any, TypeVar

from tawa.errors import ArgumentError
from tawa.kernels import tuner as tuning
from tawa.kernels.arrays import empty_beside, look
from tawa.kernels.conv import as_given, by_axis, is_chw, nhwc, of_axes
from tawa.kernels.conv_geometry import Geometry, geometry_of, geometry_over
from tawa.kernels.conv_merged import Back
from tawa.kernels.conv_operands import Operands, check_gradient, strides_of
from tawa.kernels.conv_prepare import prepare
from tawa.kernels.conv_variants import Problem, Variant, variants
from tawa.kernels.conv_weight_gradient import weight_launches, weight_variants
from tawa.kernels.conv_windows import BARE
from tawa.kernels.prepare import Launch
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.layouts.windows import Window, each_axis, transposed
from tawa.runtime.arrays import array
from tawa.target import H200, Target

T = TypeVar("T")


# --- the input's, as a convolution of dy ----------------------------------------------------------


def _operands(g: Geometry, dy: Any, w: Any, dx: Any) -> Operands:
    """Return the convolution that dx is of dy; raises `ArgumentError` where arrays do not fit."""
    grown, result, window = look(dy), look(dx), g.over
    check_gradient(grown, g, "w", look(w))
    met = _back(window, g.images[1:-1])
    stride, dilation = _three(window.stride, 1), _three(window.dilation, 1)
    back = Back(
        _three(window.size, 1),
        stride,
        _three([before for before, _ in window.padding], 0),
        dilation,
        tuple(s // gcd(s, d) for s, d in zip(stride, dilation)),
        _three(met.size, 1),
        _three(met.lower, 0),
    )
    step = 0 if result.address % 16 else 16 // result.itemsize
    lies = strides_of(grown), grown.address & 15, True, True, step, BARE, back
    seen = geometry_over(met, g.results, g.c, g.groups)
    return Operands(Problem(seen, grown.dtype, result.dtype, *lies), dy, w, dx)


def input_variants(g: Geometry, dy: Any, w: Any, target: Target = H200) -> list[Variant]:
    """Return the variants of dx that are worth trying, the likely best first."""
    # dx is of dy's type, or of one as good.
    return variants(_operands(g, dy, w, dy).problem, target=target)


def input_launches(
    g: Geometry, dy: Any, w: Any, dx: Any, variant: Variant | None = None
) -> list[Launch]:
    """Return the launches that compute dx, by default by the likeliest of `input_variants`.

    Raises `ArgumentError`.
    """
    operands = _operands(g, dy, w, dx)
    return prepare(operands, variant or variants(operands.problem)[0])


def _three(values: Sequence[T], neutral: T) -> tuple[T, ...]:
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


# --- both -----------------------------------------------------------------------------------------

_CHOICES: dict[str, Callable[..., list[Variant]]] = {
    "input": input_variants,
    "weight": weight_variants,
}
_LAUNCHES: dict[str, Callable[..., list[Launch]]] = {
    "input": input_launches,
    "weight": weight_launches,
}
ARRAYS = {"input": ("dy", "w"), "weight": ("x", "dy")}
"""The arguments of either gradient that are arrays, all of which are read."""


class Tuner(tuning.Tuner[Any, Variant]):
    """Remembers the fastest variant of each gradient of "input" or "weight" that it has timed."""

    def __init__(self, of: str, *, keep: bool = True) -> None:
        super().__init__(f"conv_{of}_gradient", ARRAYS[of], keep=keep)
        self.of = of

    def choose(self, g: Geometry, arrays: tuple[Any, Any, Any]) -> Variant:
        """Return the fastest variant, timed on the GPU of `arrays` if the problem is new.

        `arrays` are what is read, and one to write to. Raises `ArgumentError`, `TuningError`.
        """
        views = tuple(map(look, arrays))
        key = (g, *((view.dtype, view.strides, view.address % 16) for view in views))

        def ready(variant: Variant) -> Callable[[], Any]:
            return tuning.ready(_LAUNCHES[self.of](g, *arrays, variant))

        def candidates() -> list[tuning.Candidate[Variant]]:
            found = _CHOICES[self.of](g, *arrays[:2])
            return [tuning.Candidate(each, partial(ready, each)) for each in found]

        return self.settle(key, candidates, arrays[0])


_TUNERS = {of: Tuner(of) for of in ARRAYS}


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
    tuner: Tuner | None = None,
) -> Any:
    """Return dx, of `x_shape`, for dy, the gradient of conv2d(x, w)'s result.

    `x_shape` is in the order of the arrays' library. At stride s pixels of dx fall into s * s
    parities that share no tap; one launch computes all. f16, bf16, f32 (through tf32). Filters of
    channels that TMA does not step over (16 bytes) are copied with zeros behind them.

    Raises:
        ArgumentError: shapes, types or strides do not fit; output channels of a group that TMA
            cannot step over.
    """
    axes = len(dy.shape)
    how = *by_axis(axes, stride, padding, dilation), groups
    grown, filters = nhwc("dy", dy), nhwc("w", w, axes=axes)
    shapes = channels_last("x_shape", x_shape, dy), look(filters).shape
    best = tuner or _TUNERS["input"]
    return _gradient(best, (grown, filters), shapes, how, (axes, out_dtype, launch_pdl))


def channels_last(name: str, shape: tuple[int, ...], like: Any) -> tuple[int, ...]:
    """Return a shape in the order of the library of `like`, an array of as many axes, as NHWC."""
    if (axes := len(like.shape)) != len(shape):
        raise ArgumentError(f"{name}={tuple(shape)}", why=f"beside the arrays it has {axes} axes")
    n, *pixels, c = (shape[0], *shape[2:], shape[1]) if is_chw(like) else shape
    return (n, *[1] * (axes == 3), *pixels, c)


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
    tuner: Tuner | None = None,
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
    axes = len(x.shape)
    how = *by_axis(axes, stride, padding, dilation), groups
    image, grown = nhwc("x", x), nhwc("dy", dy, axes=axes)
    shapes = look(image).shape, channels_last("w_shape", w_shape, dy)
    best = tuner or _TUNERS["weight"]
    return _gradient(best, (image, grown), shapes, how, (axes, out_dtype, launch_pdl))


def _gradient(
    best: Tuner,
    read: tuple[Any, Any],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    how: tuple[Any, Any, Any, int],
    options: tuple[int, str, bool],
) -> Any:
    """Return a gradient, of so many axes as the first option says, for two arrays; `shapes` are
    those of images and filters, channels last.
    """
    axes, out_dtype, launch_pdl = options
    arrays, launches = ARRAYS[best.of], _LAUNCHES[best.of]
    shape = shapes[best.of == "weight"]

    def write() -> Recipe:
        names = symbols(dict(zip(arrays, read)))
        g, kind = geometry_of(*shapes, *how), out_dtype or look(read[0]).dtype
        given = [names[name] for name in arrays]
        out = empty_beside(given[0], shape, kind)
        result = as_given(out, axes, is_chw(read[0]))
        writer = Writer(names, read[0], launch_pdl)
        writer.view(out, result)
        if 0 not in shape:
            chosen = best.choose(g, (*read, empty_beside(read[0], shape, kind))) if g.n else None
            for launch in launches(g, *given, out, chosen):
                writer.launch(launch)
        return writer.finish(result)

    return best.recipes.run(read, (*shapes, *how, *options), write)[0]


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
    rows and columns at the end. Signals have an axis less, volumes one more. Raises
    `ArgumentError` as `conv2d_input_gradient`.
    """
    count, first = len(x.shape) - 2, is_chw(x)
    pixels, size = ((*each.shape[2:],) if first else each.shape[1:-1] for each in (x, w))
    channels = w.shape[1 if first else -1] * groups
    steps, spread, sides, more = (
        each_axis(name, value, least, count)
        for name, value, least in (
            ("stride", stride, 1),
            ("dilation", dilation, 1),
            ("padding", padding, 0),
            ("output_padding", output_padding, 0),
        )
    )
    pixels = transposed(pixels, size, steps, sides, spread, more)
    shape = (x.shape[0], channels, *pixels) if first else (x.shape[0], *pixels, channels)
    how: dict[str, Any] = {"stride": steps, "padding": [(side, side) for side in sides]}
    how |= {"dilation": spread, "groups": groups, "out_dtype": out_dtype}
    if count == 1:
        how["padding"] = sides[0]
    return conv2d_input_gradient(shape, w, x, **how)


def conv3d_input_gradient(x_shape: tuple[int, ...], w: Any, dy: Any, **options: Any) -> Any:
    """Return `conv2d_input_gradient` of volumes, arrays as `tawa.kernels.conv.conv3d` takes."""
    return conv2d_input_gradient(x_shape, w, of_axes(3, "dy", dy), **options)


def conv3d_weight_gradient(x: Any, w_shape: tuple[int, ...], dy: Any, **options: Any) -> Any:
    """Return `conv2d_weight_gradient` of volumes, arrays as `tawa.kernels.conv.conv3d` takes."""
    return conv2d_weight_gradient(of_axes(3, "x", x), w_shape, dy, **options)


def conv_transpose1d(x: Any, w: Any, **options: Any) -> Any:
    """Return `conv_transpose2d` of signals: torch's x (N, C, W), w (C, Co/g, Fw); NumPy's (N, W,
    C), (C, Fw, Co/g).
    """
    return conv_transpose2d(of_axes(1, "x", x), w, **options)


def conv_transpose3d(x: Any, w: Any, **options: Any) -> Any:
    """Return `conv_transpose2d` of volumes."""
    return conv_transpose2d(of_axes(3, "x", x), w, **options)
