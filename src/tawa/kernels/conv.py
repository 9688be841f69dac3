"""`conv2d`: convolutions over windows in place, or packed, by the best of the shipped kernels.

Windows are read in place by tensor maps where a view takes the geometry
(`tawa.kernels.conv_views`), else packed in window order (im2win) or through pointers. On a GPU the
likeliest variants are timed once for each kind of problem, and the fastest is remembered; in the
simulator the first that compiles is taken.

torch's and CuPy's arrays are (N, C, H, W), torch's in channels_last memory; NumPy's are NHWC, with
filters (Co, Fh, Fw, C/g). Inside all is NHWC.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, cast

from tawa.errors import ArgumentError
from tawa.kernels import tuner as tuning
from tawa.kernels.arrays import BYTES, empty_beside, look
from tawa.kernels.conv_geometry import PACKINGS, Geometry, geometry_of, packing
from tawa.kernels.conv_operands import Operands, bind
from tawa.kernels.conv_packing import pack_filters
from tawa.kernels.conv_prepare import prepare
from tawa.kernels.conv_variants import (
    METHODS,
    Problem,
    Variant,
    refused,
    unlike,
    variants,
)
from tawa.kernels.recipe import Recipe, Writer, symbols
from tawa.layouts.windows import each_axis, pair
from tawa.runtime.arrays import Placeholder, is_tensor
from tawa.runtime.descriptors import like
from tawa.runtime.store import DiskStore

ARRAYS = ("x", "w", "out", "bias", "residual", "scale")
"""The arguments that are arrays; all but `out` are read."""


class Tuner(tuning.Tuner[tuple[Problem, str], Variant]):
    """Remembers the fastest variant of each problem it has timed, in memory and on disk."""

    def __init__(self, *, store: DiskStore | None = None, keep: bool = True) -> None:
        super().__init__("conv", ARRAYS, store=store, keep=keep)

    def choose(self, operands: Operands, method: str) -> Variant:
        """Return the variant to use: the fastest, or in the simulator the first that builds.

        Raises `ArgumentError` where the method does not take the problem, `TuningError` where no
        variant can be built.
        """
        if method != "auto" and (reason := refused(method, operands.problem)):
            raise ArgumentError(f"method={method!r}: {reason}", remedy='use method="auto"')
        if method == "auto" and (reason := unlike(operands.problem)):
            raise ArgumentError(
                reason,
                why="a copy of all is nothing that a convolution makes unasked",
                remedy="torch: .contiguous(memory_format=torch.channels_last), or channels_last_3d;"
                ' or layout="copy"',
            )
        found = variants(operands.problem, method)

        def candidates() -> list[tuning.Candidate[Variant]]:
            return [
                tuning.Candidate(each, lambda each=each: tuning.ready(prepare(operands, each)))
                for each in found
            ]

        return self.settle((operands.problem, method), candidates, operands.x)


_TUNER = Tuner()


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters in window order for im2win or im2col: packed once, and kept by the caller.

    `shape` is (Co, Fh, Fw, C); they fit convolutions of this `stride`.
    """

    array: Any
    shape: tuple[int, int, int, int]
    method: str
    stride: tuple[int, int]


def filters(w: Any, *, method: str = "im2win", stride: Any = 1) -> Filters:
    """Pack filters once, for calls of `conv2d` with this method and stride.

    `w` is as `conv2d` takes it, in any strides. Changes of `w` after the call are not seen.
    """
    if method not in ("im2win", "im2col"):
        raise ArgumentError(f"method={method!r}", why='filters are packed for "im2win", "im2col"')
    array = nhwc("w", w)
    co, fh, fw, c = look(array).shape
    steps = pair("stride", stride, 1)
    g = Geometry(1, fh, fw, c, co, fh, fw, steps)
    how = packing(method, g, look(array).itemsize)
    made = empty_beside(array, (how.filters.elements,), look(array).dtype)
    pack_filters(array, g, how, made)()
    return Filters(made, (co, fh, fw, c), method, steps)


def workspace(
    method: str, geometry: Geometry, dtype: str = "f16", *, prepacked: bool = False
) -> int:
    """Return the bytes that a method makes beside its output: packed windows, packed filters.

    im2win: N * Ho * W * Fh * C elements, W the columns that windows reach, im2col:
    N * Ho * Wo * Fh * Fw * C, each with what TMA's strides need
    (`tawa.kernels.conv_geometry.packing`); direct: the filters by taps. Views in place and pointers
    make none. A variant of several `splits` adds 4 bytes for each of them and element of its tiles:
    all, or those beyond its first `whole`.
    """
    if method == "direct":
        return BYTES[dtype] * geometry.co * geometry.window
    if method not in PACKINGS:
        return 0
    how = packing(method, geometry, BYTES[dtype])
    return BYTES[dtype] * (how.images.elements if prepacked else how.elements)


def conv2d(
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
    method: str = "auto",
    launch_pdl: bool = False,
    variant: Variant | None = None,
    tuner: Tuner | None = None,
) -> Any:
    """Return activation(scale * conv(x, w) + bias + residual).

    Args:
        x: images; torch, CuPy: (N, C, H, W), torch in channels_last memory; NumPy: (N, H, W, C).
            Signals have an axis less (`conv1d`), volumes one more (`conv3d`), and all that has two
            entries for images has one or three. f16, bf16, f32 (through tf32), fp8, or int8 (summed
            in int32).
        w: filters; torch, CuPy: (Co, C/groups, Fh, Fw); NumPy: (Co, Fh, Fw, C/groups); or what
            `filters` returned.
        bias: [Co], added after the scale.
        stride: an int, or a pair for rows and columns; so is `dilation`.
        padding: an int, a pair, a pair of pairs (before, after), "same" or "valid".
        groups: channels of input and output are cut into so many parts, convolved apart.
        activation: "", "relu", "relu6", "leaky_relu", "silu", "gelu", or ("clamp", low, high).
        residual: of the output's shape, added before the activation.
        scale: float32, one element or [Co].
        out_dtype: the output's type, by default the images', bf16 for fp8; for int8 "i32", or "f32"
            if anything follows the sum.
        out: the output, made here if not given: channels side by side, without gaps.
        layout: "copy" copies images and filters that are not in channels_last memory; they are
            refused otherwise, but for `method` "im2win" and "im2col", which pack any strides.
        method: "auto", "im2win", "im2col" (windows packed first) or "direct" (without tensor
            cores). im2win takes no dilation, both no groups; im2win needs Fw > stride, below which
            im2col is no larger.
        launch_pdl: let the kernels begin while the one before them in the stream ends.
        variant: the form and configuration to use instead of tuning.
        tuner: remembers what was fastest; by default one for the whole process, and the disk.

    Raises:
        ArgumentError: shapes, types, strides or the method do not fit together; or a gradient
            would be lost.
        TuningError: no configuration could be built; the message lists why.

    Arrays on a GPU are convolved there, on the current stream; others in the simulator.
    """
    if method not in METHODS:
        raise ArgumentError(f"method={method!r}", why=f"one of {', '.join(METHODS)}")
    if layout not in ("", "copy"):
        raise ArgumentError(f"layout={layout!r}", why='"" or "copy"')
    packed, axes = w if isinstance(w, Filters) else None, len(x.shape)
    if layout == "copy":
        x = as_given(nhwc("x", x, layout), axes)
        w = w if packed else as_given(nhwc("w", w, layout, axes), axes)
    given = x, packed.array if packed else w, out, bias, residual, scale
    best = _TUNER if tuner is None else tuner
    finish: dict[str, Any] = {
        "activation": activation,
        "out_dtype": out_dtype,
        "prepacked": packed is not None,
    }

    def write() -> Recipe:
        if packed and (method, pair("stride", stride, 1)) != (packed.method, packed.stride):
            raise ArgumentError(
                f"filters packed for {packed.method} of stride {packed.stride}, used in {method}"
                f" of {stride}",
                why="the padding of their columns depends on both",
            )
        arrays: dict[str, Any] = dict(zip(ARRAYS, given))
        names = symbols(arrays)
        writer, held = Writer(names, x, launch_pdl), dict(names)
        for name in ("x", "out", "residual", *(() if packed else ("w",))):
            if (own := names[name]) is not None:
                arrays[name] = nhwc(name, arrays[name], "", axes if name != "x" else 0)
                held[name] = seen = like(arrays[name])
                writer.view(seen, own)
        shapes = look(arrays["x"]).shape, packed.shape if packed else look(arrays["w"]).shape
        how = by_axis(axes, stride, padding, dilation)
        geometry = geometry_of(*shapes, *how, groups)
        operands = bind(geometry=geometry, **held, **finish)
        result = names["out"] or as_given(operands.y, axes, is_chw(x))
        if out is None:
            writer.view(operands.y, result)
        if geometry.pixels and geometry.co:
            chosen = variant or best.best.get((operands.problem, method))
            if chosen is None:
                chosen = best.choose(bind(geometry=geometry, **arrays, **finish), method)
            if out is not None:
                read = {name: held[name] for name in ARRAYS if name != "out"}
                writer.apart(operands.y, read)
            for launch in prepare(operands, chosen):
                writer.launch(launch)
        return writer.finish(result)

    sizes = (
        stride,
        padding,
        dilation,
        groups,
        packed and (packed.shape, packed.method, packed.stride),
    )
    options = (*sizes, activation, out_dtype, launch_pdl, method, variant)
    return best.recipes.run(given, options, write)[0]


def conv1d(x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    """Convolve along one axis: `conv2d` of signals, images one pixel high, with its options.

    torch and CuPy: x (N, C, W), channels side by side in memory, w (Co, C/groups, Fw); NumPy: x
    (N, W, C), w (Co, Fw, C/groups). `padding` is an int, (before, after), "same" or "valid".
    """
    return conv2d(of_axes(1, "x", x), w, bias, **options)


def conv3d(x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    """Convolve volumes: `conv2d` of arrays of five axes, with its options but `method`.

    torch and CuPy: x (N, C, D, H, W), torch's in channels_last_3d memory, w (Co, C/groups, Fd, Fh,
    Fw); NumPy: x (N, D, H, W, C), w (Co, Fd, Fh, Fw, C/groups). Raises `ArgumentError` also where
    TMA does not count the windows: channels of x that are no multiple of 16 bytes, strides above 8,
    padding above 16.
    """
    return conv2d(of_axes(3, "x", x), w, bias, **options)


def of_axes(axes: int, name: str, array: Any) -> Any:
    """Return an array with so many axes of pixels; raises `ArgumentError` for others."""
    if len(array.shape) != axes + 2:
        raise ArgumentError(
            f"{name} has shape {tuple(array.shape)}",
            why=f"a convolution in {axes}D has {axes + 2} axes",
        )
    return array


def by_axis(axes: int, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any, Any]:
    """Return options of arrays of so many axes as those of images or volumes."""
    if axes > 3:
        return stride, padding, dilation
    if not isinstance(padding, str):
        padding = (0, pair("padding", padding, 0))
    steps = (each_axis(*each, 1, 1) for each in (("stride", stride), ("dilation", dilation)))
    across, spread = ((1, *each) for each in steps)
    return across, padding, spread


def is_chw(array: Any) -> bool:
    """Tell whether an array's library puts channels before pixels: torch's and CuPy's do."""
    return is_tensor(array) or hasattr(cast("object", type(array)), "__cuda_array_interface__")


def nhwc(name: str, array: Any, layout: str = "", axes: int = 0) -> Any:
    """Return a view of images or volumes with channels last, of signals as images one pixel high;
    with layout="copy" a copy where it is not dense.

    With `axes` given, it has so many.
    """
    count = len(array.shape)
    if count not in ((axes,) if axes else (3, 4, 5)):
        raise ArgumentError(
            f"{name} has shape {tuple(array.shape)}",
            why=f"beside the other arrays it has {axes} axes"
            if axes
            else "signals have three axes, images four, volumes five",
        )
    if is_chw(array):
        order = (0, *range(2, count), 1)
        array = array.permute(*order) if is_tensor(array) else array.transpose(*order)
    if layout == "copy" and not isinstance(array, Placeholder):
        library = "cupy" if hasattr(cast("object", type(array)), "__cuda_array_interface__") else ""
        copied: Any = sys.modules[library or "numpy"].ascontiguousarray
        array = array.contiguous() if is_tensor(array) else copied(array)
    found: Any = array
    return found[:, None] if count == 3 else found


def as_given(array: Any, axes: int, chw: bool | None = None) -> Any:
    """Return an NHWC array in its library's order of axes, of which it was given so many: with
    channels before pixels for `chw`.
    """
    chw = is_chw(array) if chw is None else chw
    last = len(array.shape) - 1
    pixels = range(last + 2 - axes, last)
    if isinstance(array, Placeholder):
        order = (0, last, *pixels) if chw else (0, *pixels, last)
        shape, strides = (tuple([n[axis] for axis in order]) for n in (array.shape, array.strides))
        return replace(array, shape=shape, strides=strides)
    array = array[:, 0] if axes == 3 else array
    if not chw:
        return array
    order = (0, axes - 1, *range(1, axes - 1))
    return array.permute(*order) if is_tensor(array) else array.transpose(*order)
