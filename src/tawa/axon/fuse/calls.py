"""What the library computes of arrays of NumPy, CuPy or torch: products and convolutions.

Their axes are in the language's order: channels before pixels, for NumPy as well. Beside each call
stands how its arrays lie in memory (`..._orders`): the order of axes in which each has to be dense,
None where it is read as it lies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tawa.runtime.arrays import View, is_tensor

FLOATS = ("float32", "float16", "bfloat16")  # that products and convolutions take
Order: TypeAlias = tuple[int, ...]


def permuted(array: Any, order: Sequence[int]) -> Any:
    """Return a view of an array with its axes in another order."""
    return array.permute(*order) if is_tensor(array) else array.transpose(*order)


def inverse(order: Sequence[int]) -> Order:
    """Return the order that undoes another."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def dense(array: Any, order: Sequence[int]) -> Any:
    """Return an array whose items lie one after the other in an order of its axes."""
    turned = permuted(array, order)
    copied = turned.contiguous() if is_tensor(array) else turned.copy(order="C")
    return permuted(copied, inverse(order))


def is_dense(view: View, order: Sequence[int]) -> bool:
    """Tell whether items lie one after the other in an order of axes."""
    step = 1
    for axis in reversed(order):
        if view.shape[axis] != 1 and view.strides[axis] != step:
            return 0 in view.shape
        step *= view.shape[axis]
    return True


def matmul(a: Any, b: Any, bias: Any = None, *, activation: str = "") -> Any:
    """Return activation(a @ b + bias) by the library's kernels."""
    from tawa.kernels.matmul import matmul

    return matmul(a, b, bias=bias, activation=activation)


def matmul_orders(views: Sequence[View]) -> list[Order | None]:
    """Return the orders for `matmul`: a row or a column of each operand lies side by side."""
    pair = [None if 1 in v.strides[-2:] else tuple(range(len(v.shape))) for v in views[:2]]
    return [*pair, *[None] * len(views[2:])]


def conv(
    w: Any,
    x: Any,
    bias: Any = None,
    residual: Any = None,
    scale: Any = None,
    *,
    activation: str = "",
    **options: Any,
) -> Any:
    """Return activation(scale conv(x, w) + bias + residual) by the library's kernels."""
    from tawa.kernels.conv import conv2d

    how: dict[str, Any] = {**options, "activation": activation, "scale": scale}
    if not isinstance(x, sys.modules["numpy"].ndarray):
        return conv2d(x, w, bias, residual=residual, **how)
    inward = channels_last(x.ndim)
    turned = [a if a is None else permuted(a, inward) for a in (x, w, residual)]
    return permuted(conv2d(turned[0], turned[1], bias, residual=turned[2], **how), inverse(inward))


def conv_options(rank: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the language's options of a convolution of arrays of `rank` axes as the library's."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        each = value if isinstance(value, int) else tuple(value)
        each = each[0] if isinstance(each, tuple) and (rank == 3 or len({*each}) == 1) else each
        found["padding" if name == "pad" else name] = each
    return found


def channels_last(rank: int) -> Order:
    """Return the axes of images (or filters) with channels after pixels."""
    return (0, *range(2, rank), 1)


def conv_orders(views: Sequence[View]) -> list[Order | None]:
    """Return the orders for `conv`: channels of images, filters, residual lie side by side."""
    order = channels_last(len(views[0].shape))
    return [
        order if len(view.shape) == len(order) and not is_dense(view, order) else None
        for view in views
    ]


def attention(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    """Return softmax(scale q k') v; the last two axes of k are exchanged, as in the product."""
    from tawa.kernels.attention import attention

    axes = q.ndim
    k = permuted(k, (*range(axes - 2), axes - 1, axes - 2))
    if axes == 4:
        return attention(q, k, v, scale=scale)
    four = [x.reshape(-1, *x.shape[-3:]) if axes > 3 else x.reshape(1, -1, *x.shape[-2:])
            for x in (q, k, v)]  # fmt: skip
    return attention(*four, scale=scale).reshape(*q.shape[:-1], v.shape[-1])


def attention_orders(views: Sequence[View]) -> list[Order | None]:
    """Return the orders for `attention`: what is of one query, key or value lies side by side."""
    rank = len(views[0].shape)
    rows = tuple(range(rank))
    orders = rows, (*rows[:-2], rank - 1, rank - 2), rows
    return [None if v.strides[order[-1]] == 1 else order for v, order in zip(views, orders)]
