# Kernels without annotations have parameters of unknown type.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From the result's gradient to the input's: a convolution of dy, whose parities share no tap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, gcd, prod
from typing import Any, TypeVar

from tawa.errors import ArgumentError
from tawa.kernels.arrays import BYTES, empty_beside, fits_tma, look
from tawa.kernels.conv_geometry import Geometry, ceil_to, geometry_over
from tawa.kernels.conv_merged import Back
from tawa.kernels.conv_operands import Operands, check_gradient, strides_of
from tawa.kernels.conv_packing import fill_groups, rearrange
from tawa.kernels.conv_prepare import apart, by_rows, product
from tawa.kernels.conv_strips import fit, in_strips, input_strips, input_variants_in_strips
from tawa.kernels.conv_variants import MERGED, Problem, Variant, ranked, uneven
from tawa.kernels.conv_views import windows
from tawa.kernels.conv_windows import BARE
from tawa.kernels.prepare import Launch
from tawa.layouts.windows import Window
from tawa.runtime.arrays import View
from tawa.target import H200, Target

T = TypeVar("T")


def _problem(g: Geometry, dy: View, w: View, dx: View) -> tuple[str, Problem]:
    """Return the convolution that dx is of dy, and the view that takes it; raises `ArgumentError`
    where arrays do not fit, or TMA reads none.
    """
    check_gradient(dy, g, "w", w)
    window, pixels = g.over, g.images[1:-1]
    met = _back(window, pixels)
    why = met.objection or (uneven(g.filters, dy.itemsize) if g.groups > 1 else "")
    if why and g.volume is not None:
        raise ArgumentError(f"the input's gradient over {window} of volumes of {pixels}", why=why)
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
    step = 16 // dx.itemsize if dx.address % 16 == 0 else 0
    lies = strides_of(dy), dy.address & 15, True, True, step, BARE, back
    seen = geometry_over(met, g.results, g.c, g.groups)
    return "taps" if why else "window", Problem(seen, dy.dtype, dx.dtype, *lies)


def input_variants(
    g: Geometry, dy: Any, w: Any, target: Target = H200, most: int = 8
) -> list[Variant]:
    """Return the variants of dx that are worth trying, the likely best first."""
    grown, filters = look(dy), look(w)
    arrays = grown, filters, grown  # dx is of dy's type, or of one as good
    slow = input_variants_in_strips() if in_strips(g) else []
    wide, merged = g.merged(g.abreast(MERGED)), list[Variant]()
    if wide != g and g.volume is None and fit(wide, filters, grown):
        form, problem = _problem(wide, *arrays)
        found = ranked(form, problem, target) if form == "window" else []
        merged = [replace(each, form="merged") for _, each in found if each.splits == 1][:3]
    if in_strips(g) and not fit(g, filters, grown):
        check_gradient(grown, g, "w", filters, by_tma=False)
        return merged + slow
    found = ranked(*_problem(g, *arrays), target)[: most - len(merged) - len(slow)]
    return [*merged, *(each for _, each in found), *slow]


def input_launches(
    g: Geometry, dy: Any, w: Any, dx: Any, variant: Variant | None = None
) -> list[Launch]:
    """Return the launches that compute dx, where w's channels are filled up after those of that.

    `variant` is by default the likeliest of `input_variants`. Raises `ArgumentError`.
    """
    if variant is None:
        variant = input_variants(g, dy, w)[0]
    if variant.form == "direct":
        return input_strips(g, dy, w, dx, variant)
    launches, merged = list[Launch](), None
    if variant.form == "merged":
        count = g.abreast(MERGED)
        launches.append(fill_groups(w, g, count, dx))
        g = g.merged(count)
        w, merged = launches[0].arguments[1], launches[0].options["MERGED"]
    form, problem = _problem(g, look(dy), look(w), look(dx))
    size, taps, wide = BYTES[problem.dtype], prod(g.over.size), g.channels
    if not fits_tma(look(w), (g.channels, 1)):
        wide = ceil_to(g.channels, 16 // size)
        filled = empty_beside(dx, (g.co * taps * wide,), problem.dtype)
        shape, strides = (g.co * taps, 1, 1, g.channels), (g.channels, 0, 0, 1)
        launches.append(rearrange(w, shape, strides, filled, wide))
        w = filled
    over, sizes = problem.geometry, variant.config.kwargs
    seen = windows(form, over, problem.view)
    x = seen.descriptor(dy, variant.box, sizes["BLOCK_K"])
    block = [1, sizes["BLOCK_K"], 1, sizes["BLOCK_N"]]
    filters = by_rows(w, (g.groups, g.filters, taps, wide), block)
    options = {"VIEW": seen.view, "CHANNELS": g.filters, "WINDOW": over.taps}
    operands, sums = Operands(problem, dy, w, dx), (ceil(taps / problem.parities), g.filters)
    made = product(operands, variant, x, filters, sums, seen.cut(over), options)
    if merged is not None:
        one, other = merged.filters, merged.channels
        turned = replace(merged, channels=one, apart=one, filters=other)
        made = [apart(made[0], operands, turned)]
    return launches + made


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
