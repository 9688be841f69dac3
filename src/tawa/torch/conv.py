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
from tawa.torch.conv_arrays import check_precision, cut, filled, pixels_last, rim
from tawa.torch.layers import KINDS, Replaced
from tawa.torch.volumes import Conv3d, conv3d

ACTIVATIONS = ("", "relu", "leaky_relu", "silu", "gelu")
"""What `conv2d` of this module applies: what has a gradient here."""


def _sides(padding: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    top, bottom, left, right = padding
    return (top, bottom), (left, right)


def _how(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> dict[str, Any]:
    return {
        "stride": tuple(stride),
        "padding": _sides(padding),
        "dilation": tuple(dilation),
        "groups": groups,
    }


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
    how = _how(stride, padding, dilation, groups)
    bias = ops.dense(bias)
    x, w = pixels_last(x), pixels_last(w)
    return _conv.conv2d(x, w, bias, activation=activation, layout="copy", **how)


@torch.library.custom_op("tawa::conv2d_backward_input", mutates_args=())
def conv2d_backward_input(
    grad: Tensor,
    w: Tensor,
    height: int,
    width: int,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int = 1,
) -> Tensor:
    """Return the gradient of `conv2d` by its images, of `height` x `width` pixels."""
    check_precision(w)
    how = _how(stride, padding, dilation, groups)
    channels = w.shape[1] * groups
    if groups == 1:
        grad, w = filled(grad, 1), filled(filled(w, 0), 1)
    shape = (grad.shape[0], w.shape[1] * groups, height, width)
    found = _gradients.conv2d_input_gradient(shape, pixels_last(w), pixels_last(grad), **how)
    return cut(found, channels, 1)


@torch.library.custom_op("tawa::conv2d_backward_weight", mutates_args=())
def conv2d_backward_weight(
    grad: Tensor,
    x: Tensor,
    height: int,
    width: int,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int = 1,
) -> Tensor:
    """Return the gradient of `conv2d` by its filters, of `height` x `width` pixels."""
    check_precision(x)
    how = _how(stride, padding, dilation, groups)
    filters, channels = grad.shape[1], x.shape[1] // groups
    if groups == 1:
        grad, x = filled(grad, 1), filled(x, 1)
    shape = (grad.shape[1], x.shape[1] // groups, height, width)
    found = _gradients.conv2d_weight_gradient(pixels_last(x), shape, pixels_last(grad), **how)
    return cut(cut(found, filters, 0), channels, 1)


def _empty(like: Tensor, n: Any, channels: Any, height: Any, width: Any) -> Tensor:
    return like.new_empty((n, height, width, channels)).permute(0, 3, 1, 2)


@conv2d_op.register_fake
def _conv2d_fake(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    activation: str = "",
) -> Tensor:
    torch._check(x.dim() == 4 and w.dim() == 4, lambda: "images and filters have four axes")
    torch._check(
        x.shape[1] == w.shape[1] * groups,
        lambda: f"images of {x.shape[1]} channels, filters of {w.shape[1]} in {groups} groups",
    )
    extents = [
        (x.shape[2 + axis] + padding[2 * axis] + padding[2 * axis + 1]
         - (w.shape[2 + axis] - 1) * dilation[axis] - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]  # fmt: skip
    return _empty(x, x.shape[0], w.shape[0], *extents)


@conv2d_backward_input.register_fake
def _input_fake(grad: Tensor, w: Tensor, height: int, width: int, *rest: Any, **_: Any) -> Tensor:
    groups = rest[3] if len(rest) > 3 else 1
    return _empty(grad, grad.shape[0], w.shape[1] * groups, height, width)


@conv2d_backward_weight.register_fake
def _weight_fake(grad: Tensor, x: Tensor, height: int, width: int, *rest: Any, **_: Any) -> Tensor:
    groups = rest[3] if len(rest) > 3 else 1
    return _empty(x, grad.shape[1], x.shape[1] // groups, height, width)


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
    x, w, bias, stride, padding, dilation, groups, activation = inputs
    needed = ctx.needs_input_grad
    if x.dtype not in KINDS:
        raise ArgumentError(
            f"no gradient of a convolution of {x.dtype}", remedy="convert it to bfloat16"
        )
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"no gradient of the activation {activation!r}",
            why=f"there are those of {', '.join(ACTIVATIONS[1:])}",
        )
    sizes = (*x.shape, *w.shape)
    if all(type(size) is int for size in sizes) and 0 not in sizes:
        step = 16 // x.element_size() if groups == 1 else 1
        channels, filters, inner = (
            -(-count // step) * step for count in (x.shape[1], w.shape[0], w.shape[1])
        )
        shape = (x.shape[0], *x.shape[2:], channels)
        window = (filters, *w.shape[2:], inner)
        how = (tuple(stride), _sides(padding), tuple(dilation), groups)
        kind = str(x.dtype).rpartition(".")[2]
        _check_gradients(shape, window, kind, (bool(needed[0]), bool(needed[1])), how)
    ctx.save_for_backward(x, w, bias, output if activation else None)
    ctx.how = (list(stride), list(padding), list(dilation), groups)
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
    dx = conv2d_backward_input(dz, w, *x.shape[2:], *ctx.how) if needed[0] else None
    dw = conv2d_backward_weight(dz, x, *w.shape[2:], *ctx.how) if needed[1] else None
    of_bias = dz.float().sum((0, 2, 3)).to(bias.dtype) if needed[2] else None
    return dx, dw, of_bias, None, None, None, None, None


def _keep_input(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, w, _, _, *how = inputs
    ctx.save_for_backward(grad, w)
    ctx.how = how


def _input_gradient(ctx: Any, second: Tensor) -> tuple[Any, ...]:
    grad, w = ctx.saved_tensors
    needed = ctx.needs_input_grad
    by_grad = conv2d_op(second, w, None, *ctx.how) if needed[0] else None
    by_w = conv2d_backward_weight(grad, second, *w.shape[2:], *ctx.how) if needed[1] else None
    return by_grad, by_w, *(None,) * 6


def _keep_weight(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, x, _, _, *how = inputs
    ctx.save_for_backward(grad, x)
    ctx.how = how


def _weight_gradient(ctx: Any, second: Tensor) -> tuple[Any, ...]:
    grad, x = ctx.saved_tensors
    needed = ctx.needs_input_grad
    by_grad = conv2d_op(x, second, None, *ctx.how) if needed[0] else None
    by_x = conv2d_backward_input(grad, second, *x.shape[2:], *ctx.how) if needed[1] else None
    return by_grad, by_x, *(None,) * 6


conv2d_op.register_autograd(_gradient, setup_context=_keep)
conv2d_backward_input.register_autograd(_input_gradient, setup_context=_keep_input)
conv2d_backward_weight.register_autograd(_weight_gradient, setup_context=_keep_weight)


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


conv2d_op.register_vmap(_vmap)
conv2d_backward_input.register_vmap(ops.refuse_vmap("conv2d_backward_input"))
conv2d_backward_weight.register_vmap(ops.refuse_vmap("conv2d_backward_weight"))
for _key in ("AutocastCUDA", "AutocastCPU"):
    ops.under_autocast(conv2d_op, _key, (0, 1, 2))


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
    steps, spread = _pair("stride", stride), _pair("dilation", dilation)
    sides = _paddings(padding, (weight.shape[2], weight.shape[3]), steps, spread)
    if ops.is_direct(input, weight, bias):
        check_precision(input)
        how = _how(steps, sides, spread, groups)
        if not torch.is_autocast_enabled(input.device.type):
            x, w = pixels_last(input), pixels_last(weight)
            return _conv.conv2d(x, w, ops.dense(bias), activation=activation, **how)
    given = list(steps), list(sides), list(spread)
    return conv2d_op(input, weight, bias, *given, groups, activation)


# torch.compile traces these: it does not enter `tawa.kernels`.
def _pair(name: str, given: int | Sequence[int]) -> tuple[int, int]:
    """Return an option for rows and columns."""
    if isinstance(given, int):
        return given, given
    if len(given) not in (1, 2):
        raise ArgumentError(f"{name}={tuple(given)}", why="it is a number, or one for each axis")
    return given[0], given[-1]


def _paddings(
    padding: str | int | Sequence[int],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Return (top, bottom, left, right) for torch's `padding`."""
    if not isinstance(padding, str):
        down, across = _pair("padding", padding)
        return down, down, across, across
    if padding == "valid":
        return 0, 0, 0, 0
    if padding != "same" or stride != (1, 1):
        raise ArgumentError(
            f"padding={padding!r} with stride {stride}",
            why='the words are "valid", and "same" at stride 1, which keeps the size',
        )
    added = [(size - 1) * step for size, step in zip(window, dilation)]
    (top, left) = (each // 2 for each in added)  # where it is odd, the end has more
    return top, added[0] - top, left, added[1] - left


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
    (_, step), (_, spread) = _pair("stride", stride), _pair("dilation", dilation)
    sides: Any = padding if isinstance(padding, str) else (0, _pair("padding", padding)[1])
    if sides == "same":  # of one row: nothing is added above or below it
        _, _, *ends = _paddings(padding, (1, weight.shape[2]), (1, step), (1, spread))
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
