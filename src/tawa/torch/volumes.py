# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false
"""Convolutions of volumes: operators of torch, a function and a layer in the place of torch's.

Three operators, each the gradient of the others: `conv3d`, `conv3d_backward_input`,
`conv3d_backward_weight`. Volumes and filters are read in channels_last_3d memory, and copied to it
where they lie otherwise; channels that are no multiple of 16 bytes are filled up with zeros where
there are no groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tawa.errors import ArgumentError
from tawa.kernels import conv_volumes
from tawa.kernels.conv_gradients import input_products
from tawa.runtime.arrays import array
from tawa.torch import ops
from tawa.torch.conv_arrays import (
    check_gradients,
    check_precision,
    cut,
    filled,
    for_each,
    options,
    paddings,
    pixels_last,
    register,
    rim,
)


@torch.library.custom_op("tawa::conv3d", mutates_args=())
def conv3d_op(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int = 1,
) -> Tensor:
    """Return conv(x, w) + bias; `padding` is (before, after) of depth, rows and columns in turn."""
    check_precision(x)
    count = w.shape[0]
    if groups == 1:
        x, w = filled(x, 1), filled(filled(w, 0), 1)
        if bias is not None:
            bias = functional.pad(bias, [0, w.shape[0] - count])
    how = options(stride, padding, dilation, groups)
    found = conv_volumes.conv3d(pixels_last(x), pixels_last(w), ops.dense(bias), **how)
    return cut(found, count, 1)


conv3d_backward_input, conv3d_backward_weight = register(
    conv3d_op, conv_volumes.conv3d_input_gradient, conv_volumes.conv3d_weight_gradient
)


# --- gradients ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _check(
    x: tuple[int, ...], w: tuple[int, ...], dtype: str, needed: tuple[bool, bool], how: Any
) -> None:
    """Raise `ArgumentError` where a gradient cannot be computed; nothing is launched.

    Shapes have channels last, filled up where there are no groups.
    """
    *options, groups = how
    window = conv_volumes.window_3d(w[1:-1], *options)
    g = conv_volumes.flat_geometry(x, w, window, groups)
    images, filters = array(x, dtype), array(w, dtype)
    if needed[0]:
        dy = array((g.n, *window.counts(x[1:-1]), g.co), dtype)
        input_products(window, x, groups, dy, filters, images)
    if needed[1]:
        dy = array((g.n, g.ho, g.wo, g.co), dtype)
        conv_volumes.weight_products(g, window, images, dy, filters)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, bias, *how = inputs
    check_gradients(_check, x, w, how, ctx.needs_input_grad)
    ctx.save_for_backward(x, w)
    ctx.how, ctx.kind = how, None if bias is None else bias.dtype


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w = ctx.saved_tensors
    needed = ctx.needs_input_grad
    dx = conv3d_backward_input(grad, w, list(x.shape[2:]), *ctx.how) if needed[0] else None
    dw = conv3d_backward_weight(grad, x, list(w.shape[2:]), *ctx.how) if needed[1] else None
    of_bias = grad.float().sum((0, 2, 3, 4)).to(ctx.kind) if needed[2] else None
    return dx, dw, of_bias, *(None,) * 4


conv3d_op.register_autograd(_gradient, setup_context=_keep)
conv3d_op.register_vmap(ops.refuse_vmap("conv3d"))


# --- the function and the layer -----------------------------------------------------------------


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return a convolution as `torch.nn.functional.conv3d`.

    `input` is (N, C, D, H, W) or (C, D, H, W); f16, bf16, or f32 through tf32, which
    `torch.backends.cudnn.allow_tf32` must allow. The result lies in channels_last_3d memory.
    Gradients by input, weight and bias, and second ones. Raises `ArgumentError` for what the
    kernels do not compute (`tawa.kernels.conv_volumes`); a gradient that they do not, at the call.
    """
    if input.dim() == 4 and weight.dim() == 5:
        return conv3d(input[None], weight, bias, stride, padding, dilation, groups)[0]
    if input.dim() != 5 or weight.dim() != 5:
        raise ArgumentError(
            f"volumes have {input.dim()} axes, filters {weight.dim()}",
            why="they are (N, C, D, H, W) or (C, D, H, W), and (Co, C/groups, Fd, Fh, Fw)",
        )
    steps, spread = for_each("stride", stride, 3), for_each("dilation", dilation, 3)
    sides = paddings(padding, weight.shape[2:], steps, spread)
    return conv3d_op(input, weight, bias, list(steps), list(sides), list(spread), groups)


class Conv3d(nn.Conv3d):
    """`torch.nn.Conv3d` that tawa computes, with its gradients."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = rim(self, input)
        return conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)
