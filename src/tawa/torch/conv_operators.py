# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false
"""Convolutions as operators of torch, of images and of volumes.

Three operators for each number of axes, each the gradient of the others: `conv2d`,
`conv2d_backward_input`, `conv2d_backward_weight`, and those of `conv3d`. Images, volumes and
filters are read in channels_last memory, and copied to it where they lie otherwise; results lie so.
Channels that are no multiple of 16 bytes are filled up with zeros where TMA must step over them and
there are no groups. The gradients are the same at every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tawa.errors import ArgumentError
from tawa.kernels import conv, conv_gradients
from tawa.torch.dispatch import dense, finish
from tawa.torch.layers import KINDS
from tawa.torch.matmul_operators import slope

ACTIVATIONS = ("", "relu", "leaky_relu", "silu", "gelu")
"""What the operators apply: what has a gradient here."""

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def pixels_last(images: Tensor) -> Tensor:
    """Return images, volumes or filters with channels last in memory, aligned."""
    last = _LAST[images.dim()]
    found = images.contiguous(memory_format=last)
    aligned = isinstance(found, torch._subclasses.FakeTensor) or found.data_ptr() % 16 == 0
    return found if aligned else found.clone(memory_format=last)


def check_precision(x: Tensor) -> None:
    """Raise `ArgumentError` for float32 where torch is told to convolve it in float32."""
    if x.dtype is not torch.float32:
        return
    try:
        allowed = torch.backends.cudnn.allow_tf32
    except RuntimeError:  # it was set by the new name, which the old one does not read
        backend: Any = torch.backends.cudnn
        allowed = backend.conv.fp32_precision == "tf32"
    if not allowed:
        raise ArgumentError(
            "a convolution of float32 with torch.backends.cudnn.allow_tf32 = False",
            why="the kernels multiply float32 through tf32",
            remedy="set it to True, use float16 or bfloat16, or torch's own convolution",
        )


def filled(given: Tensor, axis: int) -> Tensor:
    """Return an array whose channels are filled up with zeros to what TMA steps by: 16 bytes."""
    missing = -given.shape[axis] % (16 // given.element_size())
    if not missing:
        return given
    ends = [0, 0] * (given.dim() - 1 - axis) + [0, missing]
    return functional.pad(given, ends)


def cut(found: Tensor, extent: int, axis: int) -> Tensor:
    """Return what is there without zeros that were added, in memory of its own."""
    if found.shape[axis] == extent:
        return found
    return found.narrow(axis, 0, extent).clone(memory_format=_LAST[found.dim()])


def rim(layer: Any, input: Tensor) -> tuple[Tensor, Any]:
    """Return the images with a rim that is no zeros, as torch's layer adds it, and the padding
    that is left to the kernel.
    """
    if layer.padding_mode == "zeros":
        return input, layer.padding
    rim = layer._reversed_padding_repeated_twice
    return functional.pad(input, rim, mode=layer.padding_mode), 0


def options(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> dict[str, Any]:
    """Return what the kernels are told; `padding` is (before, after) of each axis in turn."""
    sides = tuple(zip(padding[::2], padding[1::2]))
    given = {"stride": tuple(stride), "padding": sides, "dilation": tuple(dilation)}
    return {**given, "groups": groups}


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operators:
    """A convolution as torch calls it, its gradients, and `direct`, which records nothing."""

    forward: Any
    by_input: Any
    by_weight: Any
    direct: Callable[..., Tensor]


def _operators(axes: int) -> Operators:
    """Define the operators of images or volumes with `axes` axes of pixels."""
    name = f"conv{axes}d"
    pixels = tuple(range(2, axes + 2))

    def direct(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int = 1,
        activation: str = "",
    ) -> Tensor:
        """Return activation(conv(x, w) + bias); `padding` is (before, after) of each axis."""
        check_precision(x)
        if axes == 3 and groups == 1:
            x, w = filled(x, 1), filled(w, 1)
        how = options(stride, padding, dilation, groups)
        x, w = pixels_last(x), pixels_last(w)
        return conv.conv2d(x, w, dense(bias), activation=activation, **how)

    def by_input(
        grad: Tensor,
        w: Tensor,
        size: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int = 1,
    ) -> Tensor:
        """Return the gradient by images of `size` pixels."""
        check_precision(w)
        if groups == 1:
            grad, w = filled(grad, 1), filled(w, 0)
        shape = (grad.shape[0], w.shape[1] * groups, *size)
        how = options(stride, padding, dilation, groups)
        kernel = conv_gradients.conv2d_input_gradient
        return kernel(shape, pixels_last(w), pixels_last(grad), **how)

    def by_weight(
        grad: Tensor,
        x: Tensor,
        size: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int = 1,
    ) -> Tensor:
        """Return the gradient by filters of `size` pixels."""
        check_precision(x)
        filters, channels = grad.shape[1], x.shape[1] // groups
        if groups == 1:
            grad, x = filled(grad, 1), filled(x, 1)
        shape = (grad.shape[1], x.shape[1] // groups, *size)
        how = options(stride, padding, dilation, groups)
        kernel = conv_gradients.conv2d_weight_gradient
        found = kernel(pixels_last(x), shape, pixels_last(grad), **how)
        return cut(cut(found, filters, 0), channels, 1)

    define = torch.library.custom_op
    made = Operators(
        define(f"tawa::{name}", direct, mutates_args=()),
        define(f"tawa::{name}_backward_input", by_input, mutates_args=()),
        define(f"tawa::{name}_backward_weight", by_weight, mutates_args=()),
        direct,
    )

    @made.forward.register_fake
    def _fake(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int = 1,
        activation: str = "",
    ) -> Tensor:
        torch._check(
            x.dim() == w.dim() == axes + 2, lambda: f"images and filters have {axes + 2} axes"
        )
        return result_of(x, w, stride, padding, dilation, groups)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, w, bias, *how, activation = inputs
        _check_gradients(x, w, how, ctx.needs_input_grad)
        if activation not in ACTIVATIONS:
            raise ArgumentError(
                f"no gradient of the activation {activation!r}",
                why=f"there are those of {', '.join(ACTIVATIONS[1:])}",
            )
        ctx.save_for_backward(x, w, bias, output if activation else None)
        ctx.how = how
        ctx.activation = activation

    def gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, w, bias, out = ctx.saved_tensors
        dz = grad
        if ctx.activation:
            signed = ctx.activation in ("relu", "leaky_relu")  # the output tells as much as z
            recorded = torch.is_grad_enabled()
            z = out if signed and not recorded else made.forward(x, w, bias, *ctx.how, "")
            dz = (grad.float() * slope(ctx.activation, z.float())).to(grad.dtype)
        needed = ctx.needs_input_grad
        dx = made.by_input(dz, w, list(x.shape[2:]), *ctx.how) if needed[0] else None
        dw = made.by_weight(dz, x, list(w.shape[2:]), *ctx.how) if needed[1] else None
        of_bias = dz.sum((0, *pixels), dtype=torch.float32).to(bias.dtype) if needed[2] else None
        return dx, dw, of_bias, *(None,) * 5

    def vmap(info: Any, dims: Sequence[int | None], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
        if dims[0] is None or dims[1] is not None or dims[2] is not None:
            raise ArgumentError(
                f"vmap over filters or bias of torch.ops.tawa.{name}",
                why="a launch has one set of filters",
                remedy="use groups: filters of each image as one of its groups",
            )
        images = x.movedim(dims[0], 0)
        found = made.forward(images.flatten(0, 1), *rest)
        return found.unflatten(0, images.shape[:2]), 0

    made.forward.register_autograd(gradient, setup_context=keep)
    _register_seconds(made)
    finish(made.forward, vmap=vmap, cast=(0, 1, 2))
    finish(made.by_input, cast=(0, 1))  # which a transposed convolution is
    finish(made.by_weight)
    return made


def _blank(like: Tensor, n: Any, channels: Any, size: Sequence[Any]) -> Tensor:
    """Return images without values, channels last in memory."""
    return like.new_empty((n, *size, channels)).movedim(-1, 1)


def result_of(
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the result of a convolution without values."""
    torch._check(
        x.shape[1] == w.shape[1] * groups,
        lambda: f"images of {x.shape[1]} channels, filters of {w.shape[1]} in {groups} groups",
    )
    counts = [
        (x.shape[2 + axis] + padding[2 * axis] + padding[2 * axis + 1]
         - (w.shape[2 + axis] - 1) * dilation[axis] - 1) // stride[axis] + 1
        for axis in range(x.dim() - 2)
    ]  # fmt: skip
    return _blank(x, x.shape[0], w.shape[0], counts)


def _check_gradients(x: Tensor, w: Tensor, how: Sequence[Any], needed: Sequence[bool]) -> None:
    """Raise `ArgumentError` where a gradient cannot be computed: channels are filled up where there
    are no groups; where a size is not known yet, nobody is asked.
    """
    if x.dtype not in KINDS:
        raise ArgumentError(
            f"no gradient of a convolution of {x.dtype}", remedy="convert it to bfloat16"
        )
    sizes = (*x.shape, *w.shape)
    if not all(type(size) is int for size in sizes) or 0 in sizes:
        return
    step = 16 // x.element_size() if how[3] == 1 else 1
    c, co, inner = (-(-n // step) * step for n in (x.shape[1], w.shape[0], w.shape[1]))
    shapes = (x.shape[0], *x.shape[2:], c), (co, *w.shape[2:], inner)
    kind = str(x.dtype).rpartition(".")[2]
    _check_shapes(*shapes, kind, (bool(needed[0]), bool(needed[1])), tuple(options(*how).values()))


def _register_seconds(made: Operators) -> None:
    """Register gradients of gradients: of three operators each is that of the others.

    `forward` takes (x, w, bias, *how), the others (grad, w or x, size, *how); how is (stride,
    padding, dilation, groups).
    """
    forward, by_input, by_weight = made.forward, made.by_input, made.by_weight

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        grad, other, _, *how = inputs
        ctx.save_for_backward(grad, other)
        ctx.how = how

    def of_input(ctx: Any, second: Tensor) -> tuple[Any, ...]:
        grad, w = ctx.saved_tensors
        needed, size = ctx.needs_input_grad, list(w.shape[2:])
        by_grad = forward(second, w, None, *ctx.how) if needed[0] else None
        by_w = by_weight(grad, second, size, *ctx.how) if needed[1] else None
        return by_grad, by_w, *(None,) * 5

    def of_weight(ctx: Any, second: Tensor) -> tuple[Any, ...]:
        grad, x = ctx.saved_tensors
        needed, size = ctx.needs_input_grad, list(x.shape[2:])
        by_grad = forward(x, second, None, *ctx.how) if needed[0] else None
        by_x = by_input(grad, second, size, *ctx.how) if needed[1] else None
        return by_grad, by_x, *(None,) * 5

    def input_fake(grad: Tensor, w: Tensor, size: Sequence[int], *rest: Any, **_: Any) -> Tensor:
        return _blank(grad, grad.shape[0], w.shape[1] * (rest[3] if len(rest) > 3 else 1), size)

    def weight_fake(grad: Tensor, x: Tensor, size: Sequence[int], *rest: Any, **_: Any) -> Tensor:
        return _blank(x, grad.shape[1], x.shape[1] // (rest[3] if len(rest) > 3 else 1), size)

    by_input.register_autograd(of_input, setup_context=keep)
    by_weight.register_autograd(of_weight, setup_context=keep)
    by_input.register_fake(input_fake)
    by_weight.register_fake(weight_fake)


_check_shapes = lru_cache(maxsize=4096)(conv_gradients.check)
OPERATORS = {axes: _operators(axes) for axes in (2, 3)}
"""By the number of axes of pixels."""
