"""From the arrays of a convolution and a variant to launches: checks, descriptors, workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, cast

import tawa
from tawa.errors import ArgumentError
from tawa.kernels import conv_pack, conv_windows
from tawa.kernels.arrays import BYTES, PRODUCTS, View, empty_beside, look
from tawa.kernels.conv_geometry import (
    PACKINGS,
    Geometry,
    Packed,
    Packing,
    packing,
)
from tawa.kernels.conv_variants import Axes, Problem, Variant, refused
from tawa.kernels.conv_views import Windows, windows
from tawa.kernels.prepare import ACTIVATIONS, FLOATS, OUTPUTS, Launch
from tawa.runtime.arrays import row_major

_FINISH = 1024


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one convolution, in NHWC, checked against one another.

    `prepacked` tells that `w` holds filters in window order already.
    """

    problem: Problem
    x: Any
    w: Any
    y: Any
    bias: Any = None
    residual: Any = None
    scale: Any = None
    prepacked: bool = False


def bind(
    x: Any,
    w: Any,
    geometry: Geometry,
    out: Any = None,
    *,
    bias: Any = None,
    residual: Any = None,
    scale: Any = None,
    activation: Any = "",
    out_dtype: str = "",
    prepacked: bool = False,
) -> Operands:
    """Check NHWC arrays against one another and describe the convolution.

    Raises `ArgumentError` where types, shapes or strides do not fit together.
    """
    g, image, filters = geometry, look(x), look(w)
    _check_types(image.dtype, filters.dtype)
    name, limits = _activation(activation)
    if out is None:
        kind = out_dtype or ("bf16" if image.dtype.startswith("f8") else image.dtype)
        if kind not in OUTPUTS:
            raise ArgumentError(f"out_dtype={kind!r}", why=f"one of {', '.join(OUTPUTS)}")
        out = empty_beside(x, (g.n, g.ho, g.wo, g.co), kind)
    elif out_dtype and look(out).dtype != out_dtype:
        raise ArgumentError(f"out holds {look(out).dtype}, and out_dtype is {out_dtype}")
    result = look(out)
    _check_pixels("out", result, g)
    if result.dtype not in OUTPUTS:
        raise ArgumentError(f"out holds {result.dtype}", why=f"one of {', '.join(OUTPUTS)}")
    stored = _by_tma(result, g)
    if residual is not None:
        added = look(residual)
        _check_pixels("residual", added, g)
        if added.dtype not in FLOATS:
            raise ArgumentError(f"residual holds {added.dtype}", why=f"one of {', '.join(FLOATS)}")
        stored = stored and _by_tma(added, g)
    if bias is not None:
        _check_vector("bias", look(bias), (g.co,), FLOATS)
    how = ""
    if scale is not None:
        view = look(scale)
        count = view.shape[0] if view.shape else 1
        _check_vector("scale", view, (1, g.co), ("f32",))
        how = "tensor" if count == 1 else "channel"
    problem = Problem(
        g,
        image.dtype,
        result.dtype,
        strides_of(image),
        image.address & 15,
        dense(filters),
        filters.address % 16 == 0,
        stored,
        how,
        bias is not None,
        residual is not None,
        name,
        limits,
    )
    return Operands(problem, x, w, out, bias, residual, scale, prepacked)


def _check_types(x: str, w: str) -> None:
    if x not in PRODUCTS or (x != w and not (x.startswith("f8") and w.startswith("f8"))):
        raise ArgumentError(
            f"no convolution of {x} with {w}",
            why=f"tensor cores take {', '.join(PRODUCTS)}, both of one type (e4m3 and e5m2 mix)",
            remedy="convert the images or the filters",
        )


def _activation(activation: Any) -> tuple[str, tuple[float, float]]:
    """Return an activation's name, and the limits of a clamp."""
    if isinstance(activation, tuple):
        values = cast("tuple[Any, ...]", activation)
        if len(values) == 3 and values[0] == "clamp":
            return "clamp", (float(values[1]), float(values[2]))
    if activation in (*ACTIVATIONS, "relu6"):
        return activation, (0.0, 0.0)
    raise ArgumentError(
        f"no activation {activation!r}",
        why=f'there are {", ".join((*ACTIVATIONS[1:], "relu6"))} and ("clamp", low, high)',
    )


def strides_of(view: View) -> tuple[int, ...]:
    """Return strides; of axes of one element, where libraries give any, those of dense rows."""
    found: list[int] = []
    step = 1
    for extent, stride in zip(reversed(view.shape), reversed(view.strides)):
        found.append(step if extent <= 1 else stride)
        step = max(1, extent) * found[-1]
    return tuple(reversed(found))


def dense(view: View) -> bool:
    """Tell whether an array lies by rows, without gaps."""
    return 0 in view.shape or strides_of(view) == row_major(view.shape)


def _by_tma(view: View, g: Geometry) -> bool:
    return view.address % 16 == 0 and g.filters * view.itemsize % 16 == 0


def _check_pixels(name: str, view: View, g: Geometry) -> None:
    shape = (g.n, g.ho, g.wo, g.co)
    if view.shape != shape or not dense(view):
        raise ArgumentError(
            f"{name} has, as NHWC, shape {view.shape} and strides {view.strides}",
            why=f"the convolution has shape {shape}, channels side by side, without gaps",
            remedy="torch: .contiguous(memory_format=torch.channels_last)",
        )


def _check_vector(name: str, view: View, counts: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    size = view.shape[0] if len(view.shape) == 1 else 1 if not view.shape else -1
    if size not in counts or (size > 1 and view.strides != (1,)):
        raise ArgumentError(
            f"{name} has shape {view.shape} and strides {view.strides}",
            why=f"it holds {' or '.join(map(str, counts))} numbers side by side",
        )
    if view.dtype not in kinds:
        raise ArgumentError(f"{name} holds {view.dtype}", why=f"one of {', '.join(kinds)}")


def prepare(operands: Operands, variant: Variant) -> list[Launch]:
    """Return the launches that compute a convolution by `variant`, in order.

    Raises `ArgumentError` with the reason where its form cannot.
    """
    form = variant.form
    if reason := refused(form, operands.problem):
        raise ArgumentError(f"no convolution by {form}: {reason}", remedy='use method="auto"')
    if form in PACKINGS:
        return _by_packing(operands, variant)
    if form in ("pointers", "direct"):
        return [_by_pointers(operands, variant)]
    g = operands.problem.geometry
    seen = windows(form, g, operands.problem.view)
    sizes = variant.config.kwargs
    x = seen.descriptor(operands.x, variant.box, sizes["BLOCK_K"])
    options = {
        "VIEW": seen.view,
        "FW": g.fw,
        "STRIDE_H": g.stride[0],
        "STRIDE_W": g.stride[1],
        "PAD_H": g.padding[0],
        "PAD_W": g.padding[2],
        "DILATION_H": g.dilation[0],
        "DILATION_W": g.dilation[1],
        "CHANNELS": g.c,
    }
    w = _filters(operands.w, g.groups, g.filters, seen.taps, seen.k, (g.window, seen.k), sizes)
    shape = (g.n, g.ho, g.wo)
    return _launches(operands, variant, x, w, (seen.taps, seen.k), shape, options)


def _by_packing(operands: Operands, variant: Variant) -> list[Launch]:
    problem, form = operands.problem, variant.form
    g, sizes = problem.geometry, variant.config.kwargs
    how = packing(form, g, BYTES[problem.dtype])
    buffer, order = how.images, how.filters
    windowed = empty_beside(operands.y, (buffer.elements,), problem.dtype)
    launches = [pack(operands.x, g, how, windowed)]
    w = operands.w
    if not operands.prepacked:
        w = empty_beside(operands.y, (order.elements,), look(w).dtype)
        launches.append(pack_filters(operands.w, g, how, w))
    if "BLOCK_M" in sizes:
        return [*launches, _packed_by_pointers(operands, variant, how, windowed, w)]
    k = (g.fw - 1) * order.column + buffer.used
    taps, shape, view = 1, (1, g.n * g.ho, g.wo), "packed"
    match form:
        case "im2col":
            k, shape = buffer.used, (1, 1, g.pixels)
            extents, strides = (1, g.pixels, k), (buffer.elements, buffer.column, 1)
        case "im2win":
            extents = (buffer.lines, g.wo, k)
            strides = (buffer.pitch, g.stride[1] * buffer.column, 1)
        case _:
            taps, shape, view = g.fh, (g.n, g.ho, g.wo), "rows"
            extents, line = (g.n, g.ho, g.fh, g.wo, k), buffer.pitch
            image = buffer.lines // g.n * line
            strides = (image, g.stride[0] * line, line, g.stride[1] * buffer.column, 1)
    x = Windows(view, extents, strides, taps, k).descriptor(windowed, variant.box, sizes["BLOCK_K"])
    steps = (taps * order.pitch, order.pitch)
    filters = _filters(w, 1, g.co, taps, k, steps, sizes)
    return [*launches, *_launches(operands, variant, x, filters, (taps, k), shape, {"VIEW": view})]


def pack(x: Any, g: Geometry, how: Packing, out: Any) -> Launch:
    """Return the launch that packs images."""
    seen = replace(g, fh=how.window[0], fw=how.window[1], stride=how.stride)
    return _pack(x, strides_of(look(x)), seen, how.images, out)


def _pack(x: Any, strides: tuple[int, ...], g: Geometry, buffer: Packed, out: Any) -> Launch:
    """Return the launch that packs x by the windows of `g`."""
    columns, part = _fit(buffer.column)
    options = {
        "BLOCK_W": columns,
        "BLOCK_P": part,
        "CHANNELS": g.c,
        "COLUMN": buffer.column,
        "FH": g.fh,
        "FW": g.fw,
        "STRIDE_H": g.stride[0],
        "STRIDE_W": g.stride[1],
        "PAD_H": g.padding[0],
        "PAD_W": g.padding[2],
        "DILATION_H": g.dilation[0],
        "DILATION_W": g.dilation[1],
    }
    sizes = (g.h, g.w, buffer.lines // g.n, buffer.columns, buffer.pitch)
    grid = (buffer.lines, ceil(buffer.columns / columns), ceil(buffer.column / part))
    return Launch(conv_pack.pack, grid, (x, out, *sizes, *strides), options)


def pack_filters(w: Any, g: Geometry, how: Packing, out: Any) -> Launch:
    """Return the launch that packs filters: to it they are images, of one output row or of all."""
    height, width = how.window
    seen = Geometry(g.co, g.fh, g.fw, g.c, g.co, height, width)
    return _pack(w, strides_of(look(w)), seen, how.filters, out)


def _fit(column: int) -> tuple[int, int]:
    """Return a tile of columns by elements of a column that overhangs the latter least."""
    part = min((128, 64, 56, 48, 40, 32, 24, 16, 8), key=lambda size: ceil(column / size) * size)
    return 1 << (4096 // part).bit_length() - 1, part


def _packed_by_pointers(
    operands: Operands, variant: Variant, how: Packing, windowed: Any, w: Any
) -> Launch:
    """Return the product over packed windows without descriptors: what these are worth."""
    g, buffer = operands.problem.geometry, how.images
    if variant.form == "padded" or how.filters.pitch != how.filters.columns * buffer.column:
        raise ArgumentError(
            f"{variant.form} through pointers: packed rows have gaps between them",
            why="a window is read by pointers as one run of elements",
            remedy='use descriptors (a tile with BLOCK_I), or the form "pointers"',
        )
    step = 1 if variant.form == "im2col" else g.stride[1]
    taps = how.filters.columns
    seen = Geometry(buffer.lines, 1, buffer.columns, buffer.column, g.co, 1, taps, (1, step))
    strides = (buffer.pitch, buffer.pitch, buffer.column, 1)
    return _by_pointers(operands, variant, seen, strides, windowed, w)


def _by_pointers(
    operands: Operands,
    variant: Variant,
    seen: Geometry | None = None,
    strides: tuple[int, ...] = (),
    x: Any = None,
    w: Any = None,
) -> Launch:
    """Return the launch through pointers, over x and w or over what stands for them."""
    problem, sizes = operands.problem, variant.config.all_kwargs()
    g, steps = (seen, strides) if seen is not None else (problem.geometry, problem.strides)
    options = sizes | {
        "FH": g.fh,
        "FW": g.fw,
        "STRIDE_H": g.stride[0],
        "STRIDE_W": g.stride[1],
        "PAD_H": g.padding[0],
        "PAD_W": g.padding[2],
        "DILATION_H": g.dilation[0],
        "DILATION_W": g.dilation[1],
        "CHANNELS": g.channels,
        "GROUPS": g.groups,
        "DIRECT": variant.form == "direct",
    }
    arrays = (operands.x, operands.w) if seen is None else (x, w)
    extra = (operands.residual, operands.scale, operands.bias)
    numbers = (g.pixels, g.h, g.w, g.ho, g.wo, g.filters, *steps[:3])
    grid = (ceil(g.pixels / sizes["BLOCK_M"]), ceil(g.filters / sizes["BLOCK_N"]), g.groups)
    arguments = (*arrays, operands.y, *extra, *numbers)
    return Launch(conv_windows.conv_pointers, grid, arguments, options | _finish(problem))


def _finish(problem: Problem) -> dict[str, Any]:
    """Return what happens to a sum, as meta-parameters."""
    return {
        "SCALE": problem.scale,
        "BIAS": problem.bias,
        "RESIDUAL": problem.residual,
        "ACTIVATION": problem.activation,
        "LOW": problem.limits[0],
        "HIGH": problem.limits[1],
    }


def _filters(
    base: Any,
    groups: int,
    filters: int,
    taps: int,
    k: int,
    steps: tuple[int, int],
    sizes: Mapping[str, Any],
) -> Any:
    """Describe filters as [groups, Co/g, taps, K]; `steps` from a filter and a tap to the next."""
    shape, strides = (groups, filters, taps, k), (filters * steps[0], *steps, 1)
    block = [1, sizes["BLOCK_N"], 1, sizes["BLOCK_K"]]
    return tawa.TensorDescriptor(base, shape, strides, block)


def _launches(
    operands: Operands,
    variant: Variant,
    x: Any,
    w: Any,
    sums: tuple[int, int],
    shape: tuple[int, int, int],
    options: Mapping[str, Any],
) -> list[Launch]:
    """Return the product over windows; where its sum is dealt out, also the launch that adds up.

    `sums` are taps and K, `shape` the output's images, rows and columns as boxes cut them.
    """
    problem, sizes = operands.problem, variant.config.all_kwargs()
    g, box = problem.geometry, variant.box
    taps, k = sums
    finish = _finish(problem)
    steps = taps * ceil(k / sizes["BLOCK_K"])
    chunk = ceil(steps / variant.splits)
    parts = ceil(steps / chunk)
    rows, columns = ceil(shape[1] / box[1]), ceil(shape[2] / box[2])
    numbers = (taps, k, rows, columns, g.filters)
    count, across = Axes(*shape).tiles(box), ceil(g.filters / sizes["BLOCK_N"])
    if parts == 1:
        block = [*box, 1, sizes["BLOCK_N"]]
        full = (*shape, g.groups, g.filters)
        y = tawa.TensorDescriptor(operands.y, full, row_major(full), block)
        r = operands.residual
        r = None if r is None else tawa.TensorDescriptor(r, full, row_major(full), block)
        arguments = (x, w, y, r, operands.scale, operands.bias, *numbers)
        given = {**sizes, **options, **finish}
        return [Launch(conv_windows.conv_windows, (count, across, g.groups), arguments, given)]
    if g.groups > 1:
        raise ArgumentError(f"{g.groups} groups and {parts} parts of a sum: the grid has one axis")
    full = (parts, *shape, g.co)
    sums_of = empty_beside(operands.y, full, "f32")
    block = [1, *box, sizes["BLOCK_N"]]
    y = tawa.TensorDescriptor(sums_of, full, row_major(full), block)
    elements = g.pixels * g.co
    last = (sums_of, operands.y, operands.residual, operands.scale, operands.bias, g.co, elements)
    given = {**sizes, **options, "CHUNK": chunk}
    return [
        Launch(
            conv_windows.conv_windows,
            (count, across, parts),
            (x, w, y, None, None, None, *numbers),
            given,
        ),
        Launch(
            conv_windows.conv_finish,
            (ceil(elements / _FINISH),),
            last,
            {"PARTS": parts, "BLOCK": _FINISH, **finish},
        ),
    ]
