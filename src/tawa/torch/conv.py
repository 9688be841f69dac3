# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Convolutions: functions and layers in the place of torch's, over `tawa.torch.conv_operators`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from tawa.errors import ArgumentError
from tawa.layouts.windows import each_axis, paddings, transposed
from tawa.torch.conv_operators import OPERATORS, pixels_last, rim
from tawa.torch.dispatch import is_direct
from tawa.torch.layers import Replaced, swap

Sizes: TypeAlias = int | Sequence[int]
"""A number for all axes of pixels, or one for each."""


def _convolution(axes: int):
    """Return the function in the place of torch's for images with so many axes of pixels."""

    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        *,
        activation: str = "",
    ) -> Tensor:
        """Return a convolution as `torch.nn.functional` has it, then an activation ("relu",
        "leaky_relu", "silu", "gelu").

        `input` is (N, C, *pixels) or (C, *pixels); f16, bf16, or f32 through tf32, which
        `torch.backends.cudnn.allow_tf32` must allow. The result lies in channels_last memory, of
        volumes channels_last_3d. Gradients by input, weight and bias, and second ones. Raises
        `ArgumentError` for what the kernels do not compute; a gradient that they do not, at the
        call.
        """
        x, w, flat = _in_rows(axes, input, weight)
        steps, spread = (
            each_axis(name, given, 1, axes)
            for name, given in (("stride", stride), ("dilation", dilation))
        )
        sides = paddings(padding, weight.shape[2:], steps, spread)
        known = OPERATORS[max(axes, 2)]
        plain = is_direct(input, weight, bias)
        plain = plain and not torch.is_autocast_enabled(input.device.type)
        call = known.direct if plain else known.forward
        return flat(call(x, w, bias, *_by_axis(steps, sides, spread), groups, activation))

    convolve.__name__ = convolve.__qualname__ = f"conv{axes}d"  # as pickle looks for it
    return convolve


def _transposed(axes: int):
    """Return the function in the place of torch's whose result has so many axes of pixels."""

    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        """Return a transposed convolution as `torch.nn.functional` has it.

        It is the gradient of the convolution by its input, of the same kernels, types and layouts;
        gradients by input, weight and bias, and second ones. Raises `ArgumentError` for what the
        kernels do not compute.
        """
        x, w, flat = _in_rows(axes, input, weight)
        steps, sides, more, spread = (
            each_axis(name, given, least, axes)
            for name, given, least in (
                ("stride", stride, 1),
                ("padding", padding, 0),
                ("output_padding", output_padding, 0),
                ("dilation", dilation, 1),
            )
        )
        size = transposed(x.shape[-axes:], w.shape[-axes:], steps, sides, spread, more)
        how = _by_axis(steps, [(side, side) for side in sides], spread)
        found = OPERATORS[max(axes, 2)].by_input(x, w, [1] * (2 - axes) + size, *how, groups)
        if bias is not None:
            found = found + bias.to(found.dtype).view(-1, *(1,) * (found.dim() - 2))
        return flat(found)

    convolve.__name__ = convolve.__qualname__ = f"conv_transpose{axes}d"
    return convolve


def _in_rows(
    axes: int, input: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Return input and filters as the operators take them, and what turns a result back: signals
    are images one pixel high, an image without a number is one of one.

    Raises `ArgumentError` for other ranks than those of images of so many axes.
    """
    if input.dim() not in (axes + 1, axes + 2) or weight.dim() != axes + 2:
        raise ArgumentError(
            f"images have {input.dim()} axes, filters {weight.dim()}",
            why=f"both have {axes + 2}: number, channels and {axes} of pixels; one image lacks the"
            " number",
        )
    one, signal = input.dim() == axes + 1, axes == 1
    x = input[None] if one else input
    if signal:
        x, weight = x.unsqueeze(-2), weight.unsqueeze(-2)

    def flat(found: Tensor) -> Tensor:
        found = found.squeeze(-2) if signal else found
        return found[0] if one else found

    return x, weight, flat


def _by_axis(
    steps: Sequence[int], sides: Sequence[tuple[int, int]], spread: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Return stride, padding and dilation as the operators take them."""
    around = [side for both in sides for side in both]
    more = [1] * (2 - len(steps))  # the axis that a signal lacks
    return [*more, *steps], [0, 0] * len(more) + around, [*more, *spread]


conv1d, conv2d, conv3d = (_convolution(axes) for axes in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_transposed(axes) for axes in (1, 2, 3))


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
    found = swap(module, _OURS, {})
    for layer in module.modules():
        if isinstance(layer, _Layer | _Transposed) and layer.weight.dim() > 3:
            layer.weight.data = pixels_last(layer.weight.data)
    if verbose:
        print(found)
    return found


for _name in ("conv", "conv_transpose"):
    for _axes in (1, 2, 3):
        torch.fx.wrap(f"{_name}{_axes}d")  # a graph of torch.fx calls it
