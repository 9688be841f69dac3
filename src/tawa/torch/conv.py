# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Convolutions: operators of torch, functions and layers in the place of torch's.

Three operators, each the gradient of the others: `conv2d`, `conv2d_backward_input`,
`conv2d_backward_weight`. Images and filters are read in channels_last memory, and copied to it
where they lie otherwise; results lie so. The gradients are the same at every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tawa.errors import ArgumentError
from tawa.kernels import conv as _conv
from tawa.kernels import conv_gradients as _gradients
from tawa.runtime.arrays import Placeholder, array
from tawa.torch import ops
from tawa.torch.conv_arrays import (
    check_gradients,
    check_precision,
    for_each,
    options,
    paddings,
    pixels_last,
    register,
    rim,
)
from tawa.torch.layers import KINDS, Replaced
from tawa.torch.volumes import Conv3d, conv3d

ACTIVATIONS = ("", "relu", "leaky_relu", "silu", "gelu")
"""What `conv2d` of this module applies: what has a gradient here."""


# --- operators ----------------------------------------------------------------------------------


@torch.library.custom_op("tawa::conv2d", mutates_args=())
def conv2d_op(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int = 1,
    activation: str = "",
) -> Tensor:
    """Return activation(conv(x, w) + bias) of `tawa.kernels.conv.conv2d`.

    `padding` is (top, bottom, left, right).
    """
    check_precision(x)
    how = options(stride, padding, dilation, groups)
    bias = ops.dense(bias)
    x, w = pixels_last(x), pixels_last(w)
    return _conv.conv2d(x, w, bias, activation=activation, layout="copy", **how)


conv2d_backward_input, conv2d_backward_weight = register(
    conv2d_op, _gradients.conv2d_input_gradient, _gradients.conv2d_weight_gradient
)


# --- gradients ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _check_gradients(
    x: tuple[int, ...], w: tuple[int, ...], dtype: str, needed: tuple[bool, bool], how: Any
) -> None:
    """Raise `ArgumentError` where a gradient cannot be computed; nothing is launched.

    Shapes are as NHWC, channels filled up where there are no groups.
    """
    stride, padding, dilation, groups = how
    g = _conv.geometry_of(x, w, stride, padding, dilation, groups)

    def held(*shape: int) -> Placeholder:
        return array(shape, dtype)

    dy = held(g.n, g.ho, g.wo, g.co)
    if needed[0]:
        _gradients.input_launches(g, dy, held(*w), held(*x))
    if needed[1]:
        _gradients.weight_launches(g, held(*x), dy, held(*w))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, bias, *how, activation = inputs
    check_gradients(_check_gradients, x, w, how, ctx.needs_input_grad)
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"no gradient of the activation {activation!r}",
            why=f"there are those of {', '.join(ACTIVATIONS[1:])}",
        )
    ctx.save_for_backward(x, w, bias, output if activation else None)
    ctx.how = how
    ctx.activation = activation


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w, bias, out = ctx.saved_tensors
    dz = grad
    if ctx.activation:
        signed = ctx.activation in ("relu", "leaky_relu")  # the output tells as much as z
        recorded = torch.is_grad_enabled()
        z = out if signed and not recorded else conv2d_op(x, w, bias, *ctx.how, "")
        dz = (grad.float() * ops.slope(ctx.activation, z.float())).to(grad.dtype)
    needed = ctx.needs_input_grad
    dx = conv2d_backward_input(dz, w, list(x.shape[2:]), *ctx.how) if needed[0] else None
    dw = conv2d_backward_weight(dz, x, list(w.shape[2:]), *ctx.how) if needed[1] else None
    of_bias = dz.float().sum((0, 2, 3)).to(bias.dtype) if needed[2] else None
    return dx, dw, of_bias, None, None, None, None, None


def _vmap(info: Any, dims: Sequence[int | None], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
    if dims[0] is None or dims[1] is not None or dims[2] is not None:
        raise ArgumentError(
            "vmap over filters or bias of torch.ops.tawa.conv2d",
            why="a launch has one set of filters",
            remedy="use groups: filters of each image as one of its groups",
        )
    images = x.movedim(dims[0], 0)
    found = conv2d_op(images.flatten(0, 1), *rest)
    return found.unflatten(0, images.shape[:2]), 0


conv2d_op.register_autograd(_gradient, setup_context=_keep)
conv2d_op.register_vmap(_vmap)


# --- functions ----------------------------------------------------------------------------------


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    activation: str = "",
) -> Tensor:
    """Return a convolution as `torch.nn.functional.conv2d`, then an activation ("relu", "silu"..).

    `input` is (N, C, H, W) or (C, H, W); f16, bf16, or f32 through tf32, which
    `torch.backends.cudnn.allow_tf32` must allow. The result lies in channels_last memory. Gradients
    by input, weight and bias, and second ones. Raises `ArgumentError` for what the kernels do not
    compute; a gradient that they do not, at the call.
    """
    if input.dim() == 3 and weight.dim() == 4:
        again = conv2d(
            input[None], weight, bias, stride, padding, dilation, groups, activation=activation
        )
        return again[0]
    if input.dim() != 4 or weight.dim() != 4:
        raise ArgumentError(
            f"images have {input.dim()} axes, filters {weight.dim()}",
            why="they are (N, C, H, W) or (C, H, W), and (Co, C/groups, Fh, Fw)",
        )
    steps, spread = for_each("stride", stride, 2), for_each("dilation", dilation, 2)
    sides = paddings(padding, weight.shape[2:], steps, spread)
    if ops.is_direct(input, weight, bias):
        check_precision(input)
        how = options(steps, sides, spread, groups)
        if not torch.is_autocast_enabled(input.device.type):
            x, w = pixels_last(input), pixels_last(weight)
            return _conv.conv2d(x, w, ops.dense(bias), activation=activation, **how)
    given = list(steps), list(sides), list(spread)
    return conv2d_op(input, weight, bias, *given, groups, activation)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    activation: str = "",
) -> Tensor:
    """Return a convolution as `torch.nn.functional.conv1d`: `conv2d` of images one pixel high."""
    if input.dim() not in (2, 3) or weight.dim() != 3:
        raise ArgumentError(
            f"signals have {input.dim()} axes, filters {weight.dim()}",
            why="they are (N, C, W) or (C, W), and (Co, C/groups, Fw)",
        )
    (step,), (spread,) = for_each("stride", stride, 1), for_each("dilation", dilation, 1)
    sides: Any = padding if isinstance(padding, str) else (0, *for_each("padding", padding, 1))
    if sides == "same":  # of one row: nothing is added above or below it
        ends = list(paddings(padding, weight.shape[2:], (step,), (spread,)))
        input, sides = functional.pad(input, ends), 0
    found = conv2d(
        input.unsqueeze(-2),
        weight.unsqueeze(-2),
        bias,
        (1, step),
        sides,
        (1, spread),
        groups,
        activation=activation,
    )
    return found.squeeze(-2)


# --- layers -------------------------------------------------------------------------------------


class Conv2d(nn.Conv2d):
    """`torch.nn.Conv2d` that tawa computes, with its gradients."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = rim(self, input)
        return conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(nn.Conv1d):
    """`torch.nn.Conv1d` that tawa computes, with its gradients."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = rim(self, input)
        return conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


_OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
}


def replace(module: nn.Module, *, verbose: bool = True) -> Replaced:
    """Swap the convolutions of a module for tawa's, in place; print and return what was and was
    not.

    `nn.Conv1d`, `nn.Conv2d` and `nn.Conv3d` become `Conv1d`, `Conv2d` and `Conv3d`, with the same
    parameters; filters of the latter two are laid out in channels_last memory. Give the module
    images in such memory too, as x.to(memory_format=torch.channels_last): they are copied
    otherwise.
    """
    swapped: list[str] = []
    left: list[tuple[str, str]] = []
    for name, layer in module.named_modules():
        if not isinstance(layer, nn.modules.conv._ConvNd):
            continue
        label = f"{name or 'the module'} ({type(layer).__name__})"
        ours = _OURS.get(type(layer))
        weight: Any = layer.weight
        if ours is None:
            reason = (
                "it is tawa's already" if type(layer) in _OURS.values() else "no layer of tawa's"
            )
            left.append((label, reason))
        elif type(weight) not in (nn.Parameter, Tensor) or weight.dtype not in KINDS:
            left.append((label, f"its weight is a {type(weight).__name__} of {weight.dtype}"))
        else:
            named: Any = layer
            named.__class__ = ours
            if ours is not Conv1d:
                weight.data = pixels_last(weight.data)
            swapped.append(label)
    found = Replaced(tuple(swapped), tuple(left))
    if verbose:
        print(found)
    return found


__all__ = ["Conv1d", "Conv2d", "Conv3d", "conv1d", "conv2d", "conv3d", "replace"]
