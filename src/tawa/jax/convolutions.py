# JAX's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false
"""Convolutions of JAX arrays, with gradients of any order and `jax.vmap`.

Three functions, each of which has the others as its gradients: the convolution, and its gradients
by images and by filters. Arrays have channels last, filters output channels first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from tawa.errors import ArgumentError
from tawa.jax.calls import alike, form_of
from tawa.jax.library import read, run
from tawa.kernels import conv as forward
from tawa.kernels import conv_gradients as backward
from tawa.layouts.windows import each_axis, paddings

ACTIVATIONS = {
    "": lambda z: z,
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
"""Those that have a gradient here; "gelu" is the one by tanh."""


@dataclass(frozen=True, slots=True)
class _How:
    """A convolution of images of `pixels` by windows of `window`; what each argument is by axis."""

    pixels: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def options(self) -> dict[str, Any]:
        """What the kernels are told."""
        given = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return {**given, "groups": self.groups}


def _filled(array: Any, groups: int, *axes: int) -> Any:
    """Return an array whose channels, of one group, are filled up with zeros to 16 bytes."""
    step = 16 // array.dtype.itemsize if groups == 1 else 1
    ends = [(0, 0)] * array.ndim
    for axis in axes:
        ends[axis] = (0, -array.shape[axis] % step)
    return jnp.pad(array, ends) if any(end for _, end in ends) else array


def _forward(how: _How, x: Any, w: Any, bias: Any, activation: str) -> Any:
    count = w.shape[0]
    if len(how.pixels) == 3:  # what TMA counts steps by 16 bytes
        x, w = _filled(x, how.groups, -1), _filled(w, how.groups, 0, -1)
        if bias is not None:
            bias = jnp.pad(bias, (0, w.shape[0] - count))
    given = {"x": x, "w": w, "bias": bias}
    forms = {name: None if each is None else form_of(each) for name, each in given.items()}
    options = {**how.options, "activation": activation}
    recipe = read(forward.conv2d, forward.Tuner(keep=False), **forms, **options)
    return run("conv", recipe, forward.ARRAYS, given, forms)[0][..., :count]


def _by_input(how: _How, dy: Any, w: Any) -> Any:
    dy, w = _filled(dy, how.groups, -1), _filled(w, how.groups, 0)
    shape = (dy.shape[0], *how.pixels, w.shape[-1] * how.groups)
    given = {"dy": dy, "w": w}
    forms = {name: form_of(each) for name, each in given.items()}
    call = partial(backward.conv2d_input_gradient, shape)
    recipe = read(call, backward.Tuner("input", keep=False), **forms, **how.options)
    return run("conv", recipe, backward.ARRAYS["input"], given, forms)[0]


def _by_weight(how: _How, dy: Any, x: Any) -> Any:
    filters, channels = dy.shape[-1], x.shape[-1] // how.groups
    dy, x = _filled(dy, how.groups, -1), _filled(x, how.groups, -1)
    shape = (dy.shape[-1], *how.window, x.shape[-1] // how.groups)
    given = {"x": x, "dy": dy}
    forms = {name: form_of(each) for name, each in given.items()}
    call = partial(backward.conv2d_weight_gradient, w_shape=shape)
    recipe = read(call, backward.Tuner("weight", keep=False), **forms, **how.options)
    found = run("conv", recipe, backward.ARRAYS["weight"], given, forms)[0]
    return found[:filters, ..., :channels]


def _mapped(function: Any, batched: bool) -> Any:
    """Let a function be mapped: with `batched` its first array has images, to which those of a map
    over it alone are added; else it is called for one after the other.
    """
    made = jax.custom_batching.custom_vmap(function)

    @made.def_vmap
    def rule(size: int, flags: Sequence[bool], *given: Any) -> Any:
        if batched and flags[0] and not any(flags[1:]):
            _, images, *rest = given[0].shape
            found = made(given[0].reshape(size * images, *rest), *given[1:])
            return found.reshape(size, images, *found.shape[1:]), True
        lined = [
            each if each is None or flag else jnp.broadcast_to(each, (size, *each.shape))
            for each, flag in zip(given, flags)
        ]
        return jax.lax.map(lambda each: made(*each), tuple(lined)), True

    return made


@cache
def _functions(how: _How) -> tuple[Any, Any, Any]:
    """Return the convolution of (x, w), and its gradients: by x of (dy, w), by w of (dy, x)."""
    launched = [
        _mapped(lambda x, w: _forward(how, x, w, None, ""), True),
        _mapped(lambda dy, w: _by_input(how, dy, w), True),
        _mapped(lambda dy, x: _by_weight(how, dy, x), False),
    ]
    convolve, by_input, by_weight = map(jax.custom_vjp, launched)

    def keep(function: Any) -> Any:
        return lambda *given: (function(*given), given)

    convolve.defvjp(
        keep(convolve), lambda kept, dy: (by_input(dy, kept[1]), by_weight(dy, kept[0]))
    )
    by_input.defvjp(
        keep(by_input), lambda kept, dx: (convolve(dx, kept[1]), by_weight(kept[0], dx))
    )
    by_weight.defvjp(
        keep(by_weight), lambda kept, dw: (convolve(kept[1], dw), by_input(kept[0], dw))
    )
    return convolve, by_input, by_weight


@cache
def _finished(how: _How, activation: str) -> Any:
    """Return the convolution with bias and activation in its epilogue."""
    launched = _mapped(lambda x, w, bias: _forward(how, x, w, bias, activation), True)
    convolve, by_input, by_weight = _functions(how)

    @jax.custom_vjp
    def finish(x: Any, w: Any, bias: Any) -> Any:
        return launched(x, w, bias)

    def save(x: Any, w: Any, bias: Any) -> Any:
        return finish(x, w, bias), (x, w, bias)

    def gradients(kept: Any, dy: Any) -> Any:
        x, w, bias = kept
        dz = dy
        if activation:
            z = convolve(x, w).astype(jnp.float32) + (0 if bias is None else bias)
            dz = jax.vjp(ACTIVATIONS[activation], z)[1](dy.astype(jnp.float32))[0].astype(dy.dtype)
        over = tuple(range(dy.ndim - 1))
        of_bias = None if bias is None else dz.astype(jnp.float32).sum(over).astype(bias.dtype)
        return by_input(dz, w), by_weight(dz, x), of_bias

    finish.defvjp(save, gradients)
    return finish


def conv(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: str = "",
) -> Any:
    """Return activation(conv(x, w) + bias) of JAX arrays, by one launch or two.

    `x` is (N, *pixels, C) of one to three axes of pixels, `w` (Co, *window, C / groups), f16, bf16
    or f32 through tf32. `stride` and `dilation` are an int, or one for each axis, `padding` too, or
    pairs (before, after), "same" or "valid". Has gradients of any order by x, w and bias, and
    `jax.vmap`: over x by one launch, else by one after the other. Raises `ArgumentError` for what
    does not fit together or the kernels do not compute.
    """
    x, w = jnp.asarray(x), jnp.asarray(w)
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"no activation {activation!r}", why=f"there are {', '.join(filter(None, ACTIVATIONS))}"
        )
    axes = x.ndim - 2
    if axes not in (1, 2, 3) or w.ndim != x.ndim:
        raise ArgumentError(
            f"images have {x.ndim} axes, filters {w.ndim}",
            why="both have as many, number, one to three of pixels, channels",
        )
    steps, spread = each_axis("stride", stride, 1, axes), each_axis("dilation", dilation, 1, axes)
    sides = paddings(padding, w.shape[1:-1], steps, spread)
    return _convolution(x, w, bias, steps, sides, spread, groups, activation)


def _convolution(x: Any, w: Any, bias: Any, *given: Any) -> Any:
    """Convolve; what is along one axis are images one pixel high."""
    steps, sides, spread, groups, activation = given
    if x.ndim == 3:
        high = ((1, *steps), ((0, 0), *sides), (1, *spread), groups, activation)
        return _convolution(x[:, None], w[:, None], bias, *high)[:, 0]
    how = _How(x.shape[1:-1], w.shape[1:-1], steps, sides, spread, groups)
    x, w, bias = alike(x, w, None if bias is None else jnp.asarray(bias))
    if bias is None and not activation:
        return _functions(how)[0](x, w)
    return _finished(how, activation)(x, w, bias)


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return a convolution as `jax.lax.conv_general_dilated` does, of one to three axes of pixels.

    Any `dimension_numbers`; those that have channels last and output channels of filters first,
    ("NHWC", "OHWI", "NHWC"), cost no copies. With `lhs_dilation`, at stride 1, it is the transposed
    convolution. It can be given to what takes such a function, as layers of Flax do. Raises
    `ArgumentError` for `batch_group_count`, float32 of more precision than tf32, results of another
    type than `lhs` has, and both kinds of strides at once.
    """
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    spec = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    _check_kinds(lhs, batch_group_count, precision, preferred_element_type)
    axes = lhs.ndim - 2
    if axes not in (1, 2, 3):
        raise ArgumentError(f"images of {axes} axes of pixels", why="there are kernels for 1 to 3")
    x = lhs.transpose(spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1])
    w = rhs.transpose(spec.rhs_spec[0], *spec.rhs_spec[2:], spec.rhs_spec[1])
    steps, spread = tuple(window_strides), tuple(rhs_dilation or (1,) * axes)
    apart, groups = tuple(lhs_dilation or (1,) * axes), feature_group_count
    if isinstance(padding, str):
        if max(apart) > 1:
            raise ArgumentError(
                f"padding={padding!r} with lhs_dilation={apart}",
                why="as in jax.lax, words are not those of a transposed convolution",
                remedy="give the padding in numbers",
            )
        reach = [(size - 1) * step + 1 for size, step in zip(w.shape[1:-1], spread)]
        padding = jax.lax.padtype_to_pads(x.shape[1:-1], reach, steps, padding)
    sides = tuple((int(before), int(after)) for before, after in padding)
    if max(apart) == 1:
        sides = paddings(sides, w.shape[1:-1], steps, spread)
        found = _convolution(x, w, None, steps, sides, spread, groups, "")
    elif max(steps) == 1:
        found = _transposed(x, w, apart, sides, spread, groups)
    else:
        raise ArgumentError(
            f"lhs_dilation={apart} with window_strides={steps}",
            why="a transposed convolution has the former alone",
        )
    order = [0] * (axes + 2)
    order[spec.out_spec[0]], order[spec.out_spec[1]] = 0, axes + 1
    for place, axis in enumerate(spec.out_spec[2:], 1):
        order[axis] = place
    return found.transpose(order)


def _transposed(
    x: Any,
    w: Any,
    apart: tuple[int, ...],
    sides: tuple[tuple[int, int], ...],
    spread: tuple[int, ...],
    groups: int,
) -> Any:
    """Convolve images whose pixels lie `apart`: the gradient, by its images, of the convolution of
    that stride by filters that are turned round.
    """
    if x.ndim == 3:
        high = ((1, *apart), ((0, 0), *sides), (1, *spread), groups)
        return _transposed(x[:, None], w[:, None], *high)[:, 0]
    co, *window, channels = w.shape
    turned = jnp.flip(w, tuple(range(1, w.ndim - 1)))
    turned = turned.reshape(groups, co // groups, *window, channels).swapaxes(1, -1)
    turned = turned.reshape(groups * channels, *window, co // groups)
    pixels: list[int] = []
    around: list[tuple[int, int]] = []
    for extent, size, step, (before, after), gap in zip(
        x.shape[1:-1], window, apart, sides, spread
    ):
        reach = (size - 1) * gap
        pixels.append((extent - 1) * step + 1 + before + after - reach)
        # Where more is padded than a window reaches, the last pixels of the result see nothing.
        around.append((reach - before, max(0, reach - after)))
        counted = (pixels[-1] + sum(around[-1]) - reach - 1) // step + 1
        if reach < before or counted != extent:
            raise ArgumentError(
                f"padding {sides} of images whose pixels lie {apart} apart",
                why=f"a window of {size} at dilation {gap} reaches no further than {reach} pixels",
            )
    how = _How(tuple(pixels), tuple(window), apart, tuple(around), spread, groups)
    return _functions(how)[1](*alike(x, turned))


def _check_kinds(lhs: Any, batch_groups: int, precision: Any, kind: Any) -> None:
    if batch_groups != 1:
        raise ArgumentError(
            f"batch_group_count={batch_groups}", why="there is no kernel that groups images"
        )
    if kind is not None and jnp.dtype(kind) != lhs.dtype:
        raise ArgumentError(
            f"preferred_element_type={jnp.dtype(kind).name} of {lhs.dtype.name}",
            why="sums are in float32, and rounded to the type of lhs",
        )
    if lhs.dtype != jnp.float32:
        return
    settings: Any = jax.config
    asked = settings.jax_default_matmul_precision if precision is None else precision
    each: Any = asked if isinstance(asked, tuple | list) else (asked,)
    coarse = {None, "default", "fastest", "tensorfloat32", jax.lax.Precision.DEFAULT}
    if not set(each) <= coarse:
        raise ArgumentError(
            f"a convolution of float32 with precision={asked}",
            why="the kernels multiply float32 through tf32",
            remedy='leave precision out, or use float16, bfloat16 or "tensorfloat32"',
        )
