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
from tawa.torch.conv_arrays import check_precision, cut, filled, pixels_last, rim
from tawa.torch.layers import KINDS


def _how(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> dict[str, Any]:
    sides = tuple(zip(padding[::2], padding[1::2]))
    given = {"stride": tuple(stride), "padding": sides, "dilation": tuple(dilation)}
    return {**given, "groups": groups}


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
    how = _how(stride, padding, dilation, groups)
    found = conv_volumes.conv3d(pixels_last(x), pixels_last(w), ops.dense(bias), **how)
    return cut(found, count, 1)


@torch.library.custom_op("tawa::conv3d_backward_input", mutates_args=())
def conv3d_backward_input(
    grad: Tensor,
    w: Tensor,
    size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int = 1,
) -> Tensor:
    """Return the gradient of `conv3d` by its volumes, of `size` pixels."""
    check_precision(w)
    channels = w.shape[1] * groups
    if groups == 1:
        grad, w = filled(grad, 1), filled(filled(w, 0), 1)
    shape = (grad.shape[0], w.shape[1] * groups, *size)
    how = _how(stride, padding, dilation, groups)
    found = conv_volumes.conv3d_input_gradient(shape, pixels_last(w), pixels_last(grad), **how)
    return cut(found, channels, 1)


@torch.library.custom_op("tawa::conv3d_backward_weight", mutates_args=())
def conv3d_backward_weight(
    grad: Tensor,
    x: Tensor,
    size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int = 1,
) -> Tensor:
    """Return the gradient of `conv3d` by its filters, of `size` pixels."""
    check_precision(x)
    filters, channels = grad.shape[1], x.shape[1] // groups
    if groups == 1:
        grad, x = filled(grad, 1), filled(x, 1)
    shape = (grad.shape[1], x.shape[1] // groups, *size)
    how = _how(stride, padding, dilation, groups)
    found = conv_volumes.conv3d_weight_gradient(pixels_last(x), shape, pixels_last(grad), **how)
    return cut(cut(found, filters, 0), channels, 1)


def _empty(like: Tensor, n: Any, channels: Any, size: Sequence[Any]) -> Tensor:
    return like.new_empty((n, *size, channels)).permute(0, 4, 1, 2, 3)


@conv3d_op.register_fake
def _fake(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> Tensor:
    torch._check(x.dim() == 5 and w.dim() == 5, lambda: "volumes and filters have five axes")
    torch._check(
        x.shape[1] == w.shape[1] * groups,
        lambda: f"volumes of {x.shape[1]} channels, filters of {w.shape[1]} in {groups} groups",
    )
    counts = [
        (x.shape[2 + axis] + padding[2 * axis] + padding[2 * axis + 1]
         - (w.shape[2 + axis] - 1) * dilation[axis] - 1) // stride[axis] + 1
        for axis in range(3)
    ]  # fmt: skip
    return _empty(x, x.shape[0], w.shape[0], counts)


@conv3d_backward_input.register_fake
def _input_fake(grad: Tensor, w: Tensor, size: Sequence[int], *rest: Any, **_: Any) -> Tensor:
    return _empty(grad, grad.shape[0], w.shape[1] * (rest[3] if len(rest) > 3 else 1), size)


@conv3d_backward_weight.register_fake
def _weight_fake(grad: Tensor, x: Tensor, size: Sequence[int], *rest: Any, **_: Any) -> Tensor:
    return _empty(x, grad.shape[1], x.shape[1] // (rest[3] if len(rest) > 3 else 1), size)


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
    if x.dtype not in KINDS:
        raise ArgumentError(
            f"no gradient of a convolution of {x.dtype}", remedy="convert it to bfloat16"
        )
    sizes = (*x.shape, *w.shape)
    if all(type(size) is int for size in sizes) and 0 not in sizes:
        step = 16 // x.element_size() if how[3] == 1 else 1
        c, co, inner = (-(-n // step) * step for n in (x.shape[1], w.shape[0], w.shape[1]))
        shapes = (x.shape[0], *x.shape[2:], c), (co, *w.shape[2:], inner)
        kind, needed = str(x.dtype).rpartition(".")[2], ctx.needs_input_grad
        _check(*shapes, kind, (bool(needed[0]), bool(needed[1])), tuple(_how(*how).values()))
    ctx.save_for_backward(x, w)
    ctx.how, ctx.kind = how, None if bias is None else bias.dtype


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w = ctx.saved_tensors
    needed = ctx.needs_input_grad
    dx = conv3d_backward_input(grad, w, list(x.shape[2:]), *ctx.how) if needed[0] else None
    dw = conv3d_backward_weight(grad, x, list(w.shape[2:]), *ctx.how) if needed[1] else None
    of_bias = grad.float().sum((0, 2, 3, 4)).to(ctx.kind) if needed[2] else None
    return dx, dw, of_bias, *(None,) * 4


def _keep_both(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, other, _, *how = inputs
    ctx.save_for_backward(grad, other)
    ctx.how = how


def _input_gradient(ctx: Any, second: Tensor) -> tuple[Any, ...]:
    grad, w = ctx.saved_tensors
    needed, size = ctx.needs_input_grad, list(w.shape[2:])
    by_grad = conv3d_op(second, w, None, *ctx.how) if needed[0] else None
    by_w = conv3d_backward_weight(grad, second, size, *ctx.how) if needed[1] else None
    return by_grad, by_w, *(None,) * 5


def _weight_gradient(ctx: Any, second: Tensor) -> tuple[Any, ...]:
    grad, x = ctx.saved_tensors
    needed, size = ctx.needs_input_grad, list(x.shape[2:])
    by_grad = conv3d_op(x, second, None, *ctx.how) if needed[0] else None
    by_x = conv3d_backward_input(grad, second, size, *ctx.how) if needed[1] else None
    return by_grad, by_x, *(None,) * 5


conv3d_op.register_autograd(_gradient, setup_context=_keep)
conv3d_backward_input.register_autograd(_input_gradient, setup_context=_keep_both)
conv3d_backward_weight.register_autograd(_weight_gradient, setup_context=_keep_both)
for _operator in (conv3d_op, conv3d_backward_input, conv3d_backward_weight):
    _operator.register_vmap(ops.refuse_vmap(_operator._qualname.partition("::")[2]))
for _key in ("AutocastCUDA", "AutocastCPU"):
    ops.under_autocast(conv3d_op, _key, (0, 1, 2))


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
    steps, spread = _each("stride", stride), _each("dilation", dilation)
    if isinstance(padding, str):
        if padding not in ("valid", "same") or (padding == "same" and max(steps) > 1):
            raise ArgumentError(
                f"padding={padding!r} with stride {steps}",
                why='the words are "valid", and "same" at stride 1, which keeps the size',
            )
        added = [(f - 1) * d * (padding == "same") for f, d in zip(weight.shape[2:], spread)]
        # Where it is odd, the end has more, as in torch.
        sides = [part for each in added for part in (each // 2, each - each // 2)]
    else:
        sides = [part for each in _each("padding", padding) for part in (each, each)]
    return conv3d_op(input, weight, bias, steps, sides, spread, groups)


def _each(name: str, given: int | Sequence[int]) -> list[int]:
    """Return an option for depth, rows and columns."""
    if isinstance(given, int):
        return [given] * 3
    if len(given) not in (1, 3):
        raise ArgumentError(f"{name}={tuple(given)}", why="it is a number, or one for each axis")
    return list(given) * (3 // len(given))


class Conv3d(nn.Conv3d):
    """`torch.nn.Conv3d` that tawa computes, with its gradients."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = rim(self, input)
        return conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)
