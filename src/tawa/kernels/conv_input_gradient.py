"""From the result's gradient to the input's: a convolution of dy, whose parities share no tap."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, gcd
from typing import Any, TypeVar

from tawa.kernels.arrays import look
from tawa.kernels.conv_geometry import Geometry, geometry_over
from tawa.kernels.conv_merged import Back
from tawa.kernels.conv_operands import Operands, check_gradient, strides_of
from tawa.kernels.conv_prepare import prepare
from tawa.kernels.conv_variants import Problem, Variant, variants
from tawa.kernels.conv_windows import BARE
from tawa.kernels.prepare import Launch
from tawa.layouts.windows import Window
from tawa.target import H200, Target

T = TypeVar("T")


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
