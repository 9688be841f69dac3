# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Products as operators of torch: `torch.ops.tawa.matmul`, and the gradient of its activation.

They take any strides: what the kernels cannot read is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tawa.errors import ArgumentError
from tawa.kernels import matmul as _matmul
from tawa.torch.dispatch import NARROW, asked, dense, finish, way

_TYPES = {
    "": None,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}


def readable(matrix: Tensor) -> Tensor:
    """Return a matrix, or a batch, with one contiguous axis."""
    strides = matrix.stride()
    fits = len(strides) < 2 or 1 in strides[-2:] or 1 in matrix.shape[-2:]
    return matrix if fits and strides else matrix.contiguous()


def compute_matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str = "",
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    out_dtype: str = "",
    input_precision: str = "",
) -> Tensor:
    """Return activation(scale_a * scale_b * (a @ b) + bias): `tawa.kernels.matmul.matmul`."""
    return _matmul.matmul(
        readable(a),
        readable(b),
        bias=dense(bias),
        activation=activation,
        scale_a=dense(scale_a),
        scale_b=dense(scale_b),
        out_dtype=out_dtype,
        input_precision=input_precision,
    )


# Inductor need not copy a product's operands to the strides that they had when it was traced: any
# are read, and the result lies row-major whatever they are.
_ANY_STRIDES = (torch.Tag.flexible_layout,)
matmul = torch.library.custom_op("tawa::matmul", compute_matmul, mutates_args=(), tags=_ANY_STRIDES)


@matmul.register_fake
def _matmul_fake(a: Tensor, b: Tensor, *given: Any, **named: Any) -> Tensor:
    out_dtype = given[4] if len(given) > 4 else named.get("out_dtype", "")
    rows = () if a.dim() == 1 else (a.shape[-2],)
    columns = () if b.dim() == 1 else (b.shape[-1],)
    depth = b.shape[-1] if b.dim() == 1 else b.shape[-2]
    torch._check(a.shape[-1] == depth, lambda: f"no product of shapes {a.shape} and {b.shape}")
    torch._check(a.device == b.device, lambda: f"a is on {a.device}, b on {b.device}")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, *rows, *columns), dtype=_type_of(a, out_dtype))


def _type_of(a: Tensor, out_dtype: str) -> torch.dtype:
    """Return the type of a product's result."""
    if out_dtype not in _TYPES:
        raise ArgumentError(f"no element type {out_dtype!r}", why=f"one of {', '.join(_TYPES)}")
    return _TYPES[out_dtype] or (torch.bfloat16 if a.dtype in NARROW else a.dtype)


_BY_OUTPUT = ("relu", "leaky_relu")
"""Activations whose derivative their output tells as well as their input."""


def _keep_matmul(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, activation, scale_a, scale_b, _, precision = inputs
    needed = ctx.needed = asked(ctx, len(inputs))
    if needed[4] or needed[5]:
        raise ArgumentError(
            "no gradient by scale_a or scale_b",
            why="they are taken as constants",
            remedy="pass scale.detach(), or multiply outside of the product",
        )
    if a.dtype in NARROW:
        raise ArgumentError(
            f"no gradient by operands of {a.dtype}", remedy="convert them to bfloat16"
        )
    told = output if activation in _BY_OUTPUT else None
    ctx.save_for_backward(a, b, bias, scale_a, scale_b, told)
    ctx.activation, ctx.precision = activation, precision


@torch.library.custom_op("tawa::matmul_activation_backward", mutates_args=(), tags=_ANY_STRIDES)
def matmul_activation_backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    activation: str,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    input_precision: str = "",
) -> Tensor:
    """Return grad * activation'(scale_a * scale_b * (a @ b) + bias), in one kernel."""
    kind = next(name for name, kind in _TYPES.items() if kind is grad.dtype)
    how: dict[str, Any] = {"out_dtype": kind, "input_precision": input_precision}
    how |= {"bias": dense(bias), "activation": activation, "gradient": grad.contiguous()}
    how |= {"scale_a": dense(scale_a), "scale_b": dense(scale_b)}
    return _matmul.matmul(readable(a), readable(b), **how)


@matmul_activation_backward.register_fake
def _matmul_activation_backward_fake(grad: Tensor, *_: Any, **__: Any) -> Tensor:
    return grad.new_empty(grad.shape)


def slope(activation: str, z: Tensor) -> Tensor:
    """Return the derivative of an activation at `z`."""
    if activation == "relu":
        return (z > 0).to(z.dtype)
    if activation == "leaky_relu":
        return torch.where(z >= 0, 1.0, 0.01).to(z.dtype)
    if activation == "silu":
        gate = torch.sigmoid(z)
        return gate * (1 + z * (1 - gate))
    # gelu: x * sigmoid(c * (x + 0.044715 x^3))
    factor = 1.5957691216057308
    gate = torch.sigmoid(factor * (z + 0.044715 * z * z * z))
    return gate * (1 + z * (1 - gate) * factor * (1 + 3 * 0.044715 * z * z))


def _sloped(grad: Tensor, a: Tensor, b: Tensor, bias: Any, activation: str, *rest: Any) -> Tensor:
    """Return what `matmul_activation_backward` does, with gradients and rules of vmap."""
    scale_a, scale_b, precision = (*rest, *(None, None, "")[len(rest) :])
    z = matmul(a, b, bias, "", scale_a, scale_b, "f32", precision)
    return (grad.float() * slope(activation, z)).to(grad.dtype)


def _matmul_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """dz = grad * activation'(z); da = dz b^T, db = a^T dz, each from the layout that it has and in
    that of what it is the gradient of: torch copies what lies otherwise than a weight.
    """
    a, b, bias, scale_a, scale_b, out = ctx.saved_tensors
    dz = grad
    if ctx.activation and torch.is_grad_enabled():  # what follows has gradients itself
        dz = _sloped(grad, a, b, bias, ctx.activation, scale_a, scale_b, ctx.precision)
    elif ctx.activation in _BY_OUTPUT:
        dz = grad * slope(ctx.activation, out)
    elif ctx.activation:
        dz = matmul_activation_backward(
            grad, a, b, bias, ctx.activation, scale_a, scale_b, ctx.precision
        )
    of_bias = None
    if ctx.needed[2]:
        summed = dz.reshape(-1, dz.shape[-1]).sum(0, dtype=torch.float32)
        of_bias = summed.to(bias.dtype)
    if scale_a is not None:
        rows = scale_a.reshape(*dz.shape[:-1], 1) if scale_a.numel() > 1 else scale_a
        dz = dz * rows * (scale_b.reshape(-1) if scale_b.numel() > 1 else scale_b)
    if dz.dtype is not a.dtype:
        dz = dz.to(a.dtype)
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    if a.dim() == 1:
        dz = dz.unsqueeze(-1 if b.dim() == 1 else -2)
    if b.dim() == 1:
        dz = dz.unsqueeze(-1)
    product = way(matmul, record_matmul, dz, left, right)
    how = None, "", None, None, "", ctx.precision
    of_a = of_b = None
    if ctx.needed[0]:
        made = product(right, dz.mT, *how).mT if _turned(left) else product(dz, right.mT, *how)
        of_a = _summed(made, left, a)
    if ctx.needed[1]:
        if right.dim() == 2 and left.dim() > 2:  # one weight: the batch is part of the sum
            left, dz = left.flatten(0, -2), dz.flatten(0, -2)
        made = product(dz.mT, left, *how).mT if _turned(right) else product(left.mT, dz, *how)
        of_b = _summed(made, right, b)
    return of_a, of_b, of_bias, None, None, None, None, None


def _turned(matrix: Tensor) -> bool:
    """Tell whether the columns of a matrix, or a batch, are contiguous, and its rows are not."""
    return matrix.stride(-2) == 1 and matrix.stride(-1) != 1


def _summed(made: Tensor, lined: Tensor, like: Tensor) -> Tensor:
    """Return a gradient summed over what was repeated, in the shape of what it is the gradient of;
    steps that do nothing are left out, each costs the host a microsecond or more.
    """
    if made.shape == like.shape:
        return made
    return made.sum_to_size(lined.shape).reshape(like.shape)


matmul.register_autograd(_matmul_gradient, setup_context=_keep_matmul)


def _matmul_vmap(
    info: Any, dims: Sequence[Any], a: Tensor, b: Tensor, bias: Any = None, *rest: Any
) -> tuple[Tensor, int]:
    """Put the mapped axis before the batch; a mapped bias is added to a product in float32."""
    left: Any = (*rest, *("", None, None, "", "")[len(rest) :])
    activation, scale, _, out_dtype, precision = left
    added = None if bias is None or dims[2] is None else bias.movedim(dims[2], 0)
    if scale is not None or (added is not None and activation):
        raise ArgumentError(
            "vmap over a bias with an activation, or with scales, of torch.ops.tawa.matmul",
            why="a batch of products has one bias and no scales",
            remedy="add or multiply outside of the product",
        )
    ranks = [each.dim() - (dim is not None) for each, dim in zip((a, b), dims)]
    outer = max(2, *ranks)

    def line_up(matrix: Tensor, dim: int | None, axis: int, rank: int) -> Tensor:
        found = matrix if dim is None else matrix.movedim(dim, 0)
        if rank == 1:
            found, rank = found.unsqueeze(axis), 2
        return found if dim is None else found[(slice(None), *(None,) * (outer - rank))]

    lined = [line_up(*each) for each in zip((a, b), dims, (-2, -1), ranks)]
    if added is None:
        found = matmul(*lined, bias, *rest)
    else:
        added = added[(slice(None), *(None,) * (outer - 1))]
        found = matmul(*lined, None, "", None, None, "f32", precision) + added
        found = found.to(_type_of(a, out_dtype))
    for axis, rank in zip((-2, -1), ranks):
        found = found.squeeze(axis) if rank == 1 else found
    return found, 0


record_matmul = finish(matmul, vmap=_matmul_vmap, cast=(0, 1, 2))


def _sloped_vmap(info: Any, dims: Sequence[Any], *given: Any) -> tuple[Tensor, int]:
    return torch.vmap(_sloped, tuple(dims))(*given), 0


finish(matmul_activation_backward, vmap=_sloped_vmap)
