# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Convolutions: functions and layers in the place of torch's, over `tawa.torch.conv_operators`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tawa.errors import ArgumentError
from tawa.layouts.windows import each_axis, paddings, transposed
from tawa.torch.conv_operators import OPERATORS, pixels_last, rim
from tawa.torch.dispatch import is_direct
from tawa.torch.layers import KINDS, Replaced


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
    how = stride, padding, dilation, groups, activation
    return _convolution(2, input, weight, bias, *how)


def conv3d(
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
    """Return a convolution as `torch.nn.functional.conv3d`, then an activation: `conv2d` of volumes
    (N, C, D, H, W) or (C, D, H, W), whose result lies in channels_last_3d memory.
    """
    how = stride, padding, dilation, groups, activation
    return _convolution(3, input, weight, bias, *how)


def _convolution(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: str | int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    activation: str,
) -> Tensor:
    if one := _is_one(axes, input, weight):
        input = input[None]
    steps, spread = each_axis("stride", stride, 1, axes), each_axis("dilation", dilation, 1, axes)
    sides = [side for both in paddings(padding, weight.shape[2:], steps, spread) for side in both]
    known = OPERATORS[axes]
    given: Any = input, weight, bias, list(steps), sides, list(spread), groups, activation
    plain = is_direct(input, weight, bias)
    plain = plain and not torch.is_autocast_enabled(input.device.type)
    found: Tensor = known.direct(*given) if plain else known.forward(*given)
    return found[0] if one else found


def _is_one(axes: int, input: Tensor, weight: Tensor) -> bool:
    """Tell whether an input is one image without a number; raises `ArgumentError` for other ranks
    than those of images of so many axes.
    """
    if input.dim() not in (axes + 1, axes + 2) or weight.dim() != axes + 2:
        raise ArgumentError(
            f"images have {input.dim()} axes, filters {weight.dim()}",
            why=f"both have {axes + 2}: number, channels and {axes} of pixels; one image lacks the"
            " number",
        )
    return input.dim() == axes + 1


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
    steps, spread = each_axis("stride", stride, 1, 1), each_axis("dilation", dilation, 1, 1)
    sides: Any = (0, *paddings(padding, weight.shape[2:], steps, spread))
    high = input.unsqueeze(-2), weight.unsqueeze(-2), bias
    how = (1, *steps), sides, (1, *spread), groups, activation
    return _convolution(2, *high, *how).squeeze(-2)


# --- transposed -----------------------------------------------------------------------------------


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Return a transposed convolution as `torch.nn.functional.conv_transpose2d`.

    It is the gradient of `conv2d` by its input, of the same kernels, types and layouts; gradients
    by input, weight and bias, and second ones. Raises `ArgumentError` for what the kernels do not
    compute.
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Return a transposed convolution as `torch.nn.functional.conv_transpose3d`."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Return a transposed convolution as `torch.nn.functional.conv_transpose1d`."""
    steps, sides, more, spread = (
        (least, *each_axis(name, given, least, 1))
        for name, given, least in (
            ("stride", stride, 1),
            ("padding", padding, 0),
            ("output_padding", output_padding, 0),
            ("dilation", dilation, 1),
        )
    )
    high = input.unsqueeze(-2), weight.unsqueeze(-2), bias
    return _transposed(2, *high, steps, sides, more, groups, spread).squeeze(-2)


def _transposed(
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    output_padding: int | Sequence[int],
    groups: int,
    dilation: int | Sequence[int],
) -> Tensor:
    if one := _is_one(axes, input, weight):
        input = input[None]
    steps, spread = each_axis("stride", stride, 1, axes), each_axis("dilation", dilation, 1, axes)
    sides = each_axis("padding", padding, 0, axes)
    more = each_axis("output_padding", output_padding, 0, axes)
    size = transposed(input.shape[2:], weight.shape[2:], steps, sides, spread, more)
    around = [side for each in sides for side in (each, each)]
    given = input, weight, size, list(steps), around, list(spread), groups
    found = OPERATORS[axes].by_input(*given)
    found = found if bias is None else found + bias.to(found.dtype).view(-1, *(1,) * axes)
    return found[0] if one else found


# --- layers -------------------------------------------------------------------------------------


class _Layer(nn.modules.conv._ConvNd):
    """What the three layers share."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = rim(self, input)
        call = {1: conv1d, 2: conv2d, 3: conv3d}[len(self.kernel_size)]
        return call(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Layer, nn.Conv1d):
    """`torch.nn.Conv1d` that tawa computes, with its gradients."""


class Conv2d(_Layer, nn.Conv2d):
    """`torch.nn.Conv2d` that tawa computes, with its gradients."""


class Conv3d(_Layer, nn.Conv3d):
    """`torch.nn.Conv3d` that tawa computes, with its gradients."""


class _Transposed(nn.modules.conv._ConvTransposeNd):
    """What the three layers share: torch's `output_size`, which decides `output_padding`."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ArgumentError(
                f"{type(self).__name__} with padding_mode={self.padding_mode!r}",
                why="as in torch, only zeros are padded",
            )
        axes = len(self.kernel_size)
        rest: Any = (self.stride, self.padding, self.kernel_size, axes, self.dilation)
        more: Any = self._output_padding(input, output_size, *rest)
        call = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}[axes]
        sides: Any = self.padding
        how = (self.stride, sides, more, self.groups, self.dilation)
        return call(input, self.weight, self.bias, *how)


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` that tawa computes, with its gradients."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` that tawa computes, with its gradients."""


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d` that tawa computes, with its gradients."""


_OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}


def replace(module: nn.Module, *, verbose: bool = True) -> Replaced:
    """Swap the convolutions of a module for tawa's, in place; print and return what was and was
    not.

    `nn.Conv1d`, `nn.ConvTranspose1d` and so on become `Conv1d`, `ConvTranspose1d` and so on, with
    the same parameters; filters of images and volumes are laid out in channels_last memory. Give
    the module images in such memory too, as x.to(memory_format=torch.channels_last): they are
    copied otherwise.
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
            if weight.dim() > 3:
                weight.data = pixels_last(weight.data)
            swapped.append(label)
    found = Replaced(tuple(swapped), tuple(left))
    if verbose:
        print(found)
    return found


__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "replace",
]
