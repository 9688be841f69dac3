"""What the operators of other systems mean in the language, where several systems have them.

Operands are trees, arrays of NumPy (weights) and numbers; sizes are trees and integers.
"""
# pyright: basic, reportArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tawa.axon.load.graph import Builder
from tawa.axon.syntax.tree import Tree

# Name in the language, in ONNX, in ATen: operators of as many operands, and no more, everywhere.
_SAME = """
relu Relu relu; sigmoid Sigmoid sigmoid; tanh Tanh tanh; exp Exp exp; log Log log; sqrt Sqrt sqrt
neg Neg neg; abs Abs abs; erf Erf erf; floor Floor floor; ceil Ceil ceil; round Round round
identity Identity clone; mish Mish mish; hardswish HardSwish hardswish; sign Sign sign
reciprocal Reciprocal reciprocal; sin Sin sin; cos Cos cos; tan Tan tan; sinh Sinh sinh
cosh Cosh cosh; softsign Softsign softsign; logical_not Not logical_not; isnan IsNaN isnan
silu - silu; exp2 - exp2; expm1 - expm1; log2 - log2; log1p - log1p; rsqrt - rsqrt
square - square; cast - float; relu6 - relu6; hardsigmoid - hardsigmoid; trunc - trunc
dot - dot; outer - outer; ravel - ravel; selu Selu selu; atan Atan atan; asin Asin asin
acos Acos acos; softplus Softplus -; log_sigmoid - log_sigmoid; erfc - erfc
isinf IsInf isinf; fmod - fmod; logaddexp - logaddexp; nonzero - nonzero; mse - -
logical_and - and; logical_and - bitwise_and; logical_or - or; logical_or - bitwise_or
logical_xor - xor; logical_xor - bitwise_xor; logical_not - invert; logical_not - bitwise_not
cast_like - -; lerp - -; transpose - mT; transpose - adjoint; div - true_divide
identity - contiguous; identity - detach; identity - alias; neg - negative; identity - positive
identity - lift_fresh_copy
pow Pow pow; maximum Max maximum; minimum Min minimum; equal Equal eq; less Less lt
greater Greater gt; less_equal LessOrEqual le; greater_equal GreaterOrEqual ge; not_equal - ne
logical_and And logical_and; logical_or Or logical_or; logical_xor Xor logical_xor
atan2 - atan2; where Where where; matmul - matmul; matmul - mm; matmul - bmm; transpose - t
add Add -; sub Sub -; mul Mul -
"""
_ROWS = [row.split() for row in _SAME.replace("\n", ";").split(";") if row]
ONNX = {onnx: name for name, onnx, _ in _ROWS if onnx != "-"}
ATEN = {aten: name for name, _, aten in _ROWS if aten != "-"}


def each(numbers: Any) -> Any:
    """Return numbers for axes: one for all as it is, others as a list."""
    if isinstance(numbers, Sequence):
        return numbers[0] if len(numbers) == 1 else list(numbers)
    return numbers


def spread(build: Builder, vector: Any, axes: int) -> Any:
    """Return a vector along the axis before the last `axes`."""
    if isinstance(vector, np.ndarray):
        return vector.reshape(-1, *[1] * axes)
    return build.call("insert", vector, axes=[*range(-axes, 0)]) if axes else vector


def convolution(
    build: Builder, x: Any, weight: Any, bias: Any, *, stride: Any, pad: Any, dilation: Any,
    groups: int, extra: Any = None,
) -> Tree:  # fmt: skip
    """Return a convolution; a transposed one where `extra` (output padding) is given."""
    lengths = [len(each(n)) for n in (stride, pad, dilation) if isinstance(each(n), list)]
    axes = weight.ndim - 2 if isinstance(weight, np.ndarray) else max(lengths, default=1)
    options = {"stride": each(stride), "pad": each(pad), "dilation": each(dilation)}
    if extra is None:
        made = build.call("conv", weight, x, **options, groups=groups)
    else:
        made = build.call("conv_transpose", weight, x, **options, extra=each(extra), groups=groups)
    return made if bias is None else build.binary("+", made, spread(build, bias, axes))


def pool(
    build: Builder,
    name: str,
    x: Any,
    size: Any,
    stride: Any,
    pad: Any,
    ceil: bool = False,
    counted: bool = True,
) -> Tree:
    """Return `max_pool` or `avg_pool`; the stride is the size where it is not given.

    `ceil`: with a last window that goes beyond the end, if it begins before it. `counted`: a mean
    is of the padding as well.
    """
    stride = stride or size
    if ceil:
        given = size, stride, pad
        rank = max([len(n) for n in given if isinstance(n, Sequence)], default=0)
        numbers = [[each(n)] * rank if not isinstance(each(n), list) else n for n in given]
        if name != "max_pool" or not rank or any(s > k - p for k, s, p in zip(*numbers)):
            raise build.refuse(f"this pool with ceil_mode is not supported: {size} by {stride}")
        for axis, (k, s, p) in enumerate(zip(*numbers), -rank):
            over = build.binary("-", k - 2 * p, build.call("dim", axis, x))
            pads = [(axis, 0, build.binary("%", over, s))]
            x = padded(build, x, pads, -math.inf)
    options = {"size": each(size), "stride": each(stride), "pad": each(pad)}
    made = build.call(name, x, **options)
    if counted:
        return made
    share = build.call(name, build.call("ones_like", x), **options)
    return build.binary("/", made, share)


def product(build: Builder, x: Any, y: Any, rank: int | None = None) -> Tree:
    """Return a product of matrices, of a batch and one matrix, or with a vector.

    `rank` is that of y where it is known.
    """
    rank = y.ndim if isinstance(y, np.ndarray) else rank
    if rank == 1:
        made = build.call("linear", x, build.call("unsqueeze", y, axis=1))
        return build.call("squeeze", made, axis=-1)
    return build.call("linear" if rank == 2 else "matmul", x, y)


def reduction(build: Builder, name: str, x: Any, axes: Any, keep: bool) -> Tree:
    """Return sum, mean, max ...: of all where axes are None. Extrema take one axis at a time."""
    if axes is None:
        if keep:
            raise build.refuse(f"{name} of all axes that keeps them is not supported", "name them")
        if name in ("sum", "mean"):
            return build.call(f"{name}_all", x)
        x, axes = build.call("ravel", x), [0]
    axes = list(axes) if isinstance(axes, Sequence) else [axes]
    if name in ("sum", "mean", "var") and keep:
        return build.call(f"{name}_keep", x, axes=axes)
    if name not in ("max", "min"):
        made = build.call(name, x, axes=axes)
        return build.call("insert", made, axes=axes) if keep else made
    if len(axes) == 1:
        made = build.call(name, x, axis=axes[0])
        return build.call("insert", made, axes=axes) if keep else made
    for axis in axes:
        x = build.call("insert", build.call(name, x, axis=axis), axes=[axis])
    return x if keep else build.call("cast_like", x, build.call("sum", x, axes=axes))


PADDINGS = {"reflect": "reflect", "replicate": "edge", "edge": "edge", "circular": "wrap",
            "wrap": "wrap"}  # fmt: skip


def padded(
    build: Builder, x: Any, pads: Sequence[tuple[int, Any, Any]], value: float = 0, mode: str = ""
) -> Any:
    """Return x with a value before and after along axes: (axis, before, after).

    `mode`: with items of its own, "reflect", "edge" or "wrap" as in NumPy.
    """
    options = {"value": value} if value else {}
    for axis, before, after in pads:
        if before == 0 and after == 0:
            continue
        if not mode:
            x = build.call("pad", x, axis=axis, before=before, after=after, **options)
            continue
        own = build.call("dim", axis, x)

        def cut(side: str, x: Any, count: Any, axis: int = axis) -> Tree:
            return build.call(f"drop_{side}", x, axis=axis, count=count)

        def around(
            own: Any, side: str, other: str, count: Any, x: Any = x, axis: int = axis
        ) -> Any:
            left = build.binary("-", own, count)
            match mode:
                case "reflect":
                    inner = cut(other, cut(side, x, 1), build.binary("-", left, 1))
                    return build.call("flip", inner, axis=axis)
                case "edge":
                    one = cut(other, x, build.binary("-", own, 1))
                    return build.call("tile", one, axis=axis, count=count)
                case _:
                    return cut(side, x, left)

        parts = [around(own, "first", "last", before), x, around(own, "last", "first", after)]
        parts = [part for part, count in zip(parts, (before, 1, after)) if count != 0]
        x = build.call("concat", parts, axis)
    return x


def sliced(build: Builder, x: Any, axis: int, start: Any, end: Any, step: int) -> Any:
    """Return x[start:end:step] along an axis; below 0 is from the end, as far as there are items.

    An end of None, or beyond what an array has, is the end.
    """
    start = 0 if start is None else start
    if isinstance(start, int) and start < 0:
        size = build.call("dim", axis, x)
        count = build.binary("-", size, -start)
        x = build.call("drop_first", x, axis=axis, count=count)
        if end is not None and not (isinstance(end, int) and (end < 0 or end >= 2**31)):
            end = build.binary("-", end, count)
        start = 0
    if isinstance(end, int) and end < 0:
        x, end = build.call("drop_last", x, axis=axis, count=-end), None
    if end is None or (isinstance(end, int) and end >= 2**31):
        if start == 0 and step == 1:
            return x
        end = build.call("dim", axis, x)
    return build.call("slice", end, x, axis=axis, start=start, step=step)


def parted(build: Builder, x: Any, axis: int, sizes: Sequence[Any], number: int) -> Tree:
    """Return part `number` of x, whose parts along an axis have sizes that make up the whole."""
    first = 0
    for size in sizes[:number]:
        first = size if first == 0 else build.binary("+", first, size)
    if number < len(sizes) - 1:
        return build.call("slice", build.binary("+", first, sizes[number]), x, axis=axis,
                          start=first)  # fmt: skip
    left = x if number == 0 else build.call("drop_first", x, axis=axis, count=first)
    if not isinstance(sizes[number], int):
        return left
    others, size = ["_"] * (axis if axis >= 0 else -axis - 1), str(sizes[number])
    return build.sized(left, [*others, size, ".."] if axis >= 0 else ["..", size, *others])


def expanded(build: Builder, x: Any, sizes: Sequence[Any]) -> Tree:
    """Return x broadcast to sizes, of which -1 is what x has, counted from the last axis."""
    kept = [
        build.call("dim", index - len(sizes), x) if isinstance(n, int) and n == -1 else n
        for index, n in enumerate(sizes)
    ]
    return build.call("expand", x, kept)


LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}  # and along how many axes


def upsampled(
    build: Builder, x: Any, scales: Any, mode: str, axes: int, corners: bool = False
) -> Tree:
    """Return x with each item repeated, or lines between items, along the last axes."""
    numbers = [float(n) for n in scales] if isinstance(scales, Sequence) else [float(scales)] * axes
    if mode not in ("nearest", *LINEAR) or any(n != int(n) for n in numbers):
        text = f"{mode} by {numbers}"
        raise build.refuse(f"resizing {text} is not supported", "use nearest, by whole numbers")
    whole = [int(n) for n in numbers]
    if mode == "nearest":
        return build.call("upsample", x, scale=each(whole))
    sizes = [build.binary("*", build.call("dim", axis, x), n) for axis, n in
             enumerate(whole, -len(whole))]  # fmt: skip
    return interpolated(build, x, sizes, corners)


def interpolated(build: Builder, x: Any, sizes: Sequence[Any], corners: bool) -> Any:
    """Return x with what lies on lines between its items along the last axes.

    `corners`: the first and last items stay where they are, else the ends of the axis do.
    """
    for axis, size in enumerate(sizes, -len(sizes)):
        own = build.call("dim", axis, x)
        last = build.binary("-", own, 1)
        steps = build.binary("-", size, 1) if corners else size
        steps = build.call("maximum", build.cast(steps, "f32"), 1.0)
        scale = build.binary("/", build.cast(last if corners else own, "f32"), steps)
        place = build.cast(build.call("iota", size), "f32")
        place = place if corners else build.binary("+", place, 0.5)
        place = build.binary("*", place, scale)
        place = place if corners else build.call("relu", build.binary("-", place, 0.5))
        low = build.call("floor", place)
        share = build.call("cast_like", x, build.binary("-", place, low))
        if axis != -1:
            share = build.call("insert", share, axes=[*range(axis + 1, 0)])
        first = build.cast(low, "i64")
        second = build.call("minimum", build.binary("+", first, 1), build.cast(last, "i64"))
        a, b = (build.call("gather", x, index, axis=axis) for index in (first, second))
        x = build.call("lerp", share, a, b)
    return x


def resized(build: Builder, x: Any, sizes: Sequence[Any]) -> Any:
    """Return x with the nearest items along the axes from the third on, as torch rounds them."""
    for axis, size in enumerate(sizes, -len(sizes)):
        own = build.call("dim", axis, x)
        scale = build.binary("/", build.cast(own, "f32"), build.cast(size, "f32"))
        place = build.binary("*", build.cast(build.call("iota", size), "f32"), scale)
        index = build.cast(build.call("floor", place), "i64")
        last = build.cast(build.binary("-", own, 1), "i64")
        x = build.call("gather", x, build.call("minimum", index, last), axis=axis)
    return x


def suppressed(
    build: Builder, boxes: Any, scores: Any, most: Any = None, iou: Any = None, above: Any = None,
    *, centers: bool = False,
) -> Tree:  # fmt: skip
    """Return rows [batch, class, box] of ONNX's non-maximum suppression.

    Boxes have two corners, or `centers` and sides; numbers are arrays of one item, or left out.
    """
    given = (most, iou, above)
    most, iou, above = (each and build.call("reshape", each, []) for each in given)
    boxes = build.sized(boxes, ["_", "_", "4"])
    one, other = (sliced(build, boxes, -1, start, start + 2, 1) for start in (0, 2))
    if centers:
        half = build.binary("/", other, 2.0)
        corners = [build.binary(sign, one, half) for sign in "-+"]
    else:
        corners = [build.call(name, one, other) for name in ("minimum", "maximum")]
    boxes = build.call("unsqueeze", build.call("concat", corners, -1), axis=1)
    boxes = build.call("expand", boxes, [build.call("dim", 1, scores), 1, 1])
    score, least = (build.call("ones_like", scores), 0.0) if above is None else (scores, above)
    alive, iou = build.call("greater", score, least), 0.0 if iou is None else iou
    return build.call("batched_nms", alive, boxes, scores, iou=iou, most=most or 0)
