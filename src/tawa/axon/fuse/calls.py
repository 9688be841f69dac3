"""What the library computes of arrays of NumPy, CuPy or torch: products and convolutions.

Their axes are in the language's order: channels before pixels, for NumPy as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tawa.runtime.arrays import is_tensor, look

FLOATS = ("float32", "float16", "bfloat16")  # that products and convolutions take


def permuted(array: Any, order: Sequence[int]) -> Any:
    """Return a view of an array with its axes in another order."""
    return array.permute(*order) if is_tensor(array) else array.transpose(*order)


def dense(array: Any, order: Sequence[int] | None = None) -> Any:
    """Return a copy whose items lie one after the other in an order of its axes."""
    order = range(array.ndim) if order is None else order
    turned = permuted(array, order)
    copied = turned.contiguous() if is_tensor(array) else turned.copy(order="C")
    return permuted(copied, sorted(range(array.ndim), key=list(order).__getitem__))


def matmul(a: Any, b: Any, bias: Any = None, *, activation: str = "") -> Any:
    """Return activation(a @ b + bias) by the library's kernels."""
    from tawa.kernels.matmul import matmul

    a, b = (x if 1 in look(x).strides[-2:] else dense(x) for x in (a, b))
    return matmul(a, b, bias=bias, activation=activation)


def conv(
    w: Any, x: Any, bias: Any = None, residual: Any = None, *, activation: str = "", **options: Any
) -> Any:
    """Return activation(conv(x, w) + bias + residual) by the library's kernels.

    Channels lie side by side in its memory, and x and w are copied where theirs do not.
    """
    from tawa.kernels.conv import conv1d, conv2d
    from tawa.kernels.conv_volumes import conv3d

    run: Callable[..., Any] = {3: conv1d, 4: conv2d, 5: conv3d}[x.ndim]
    how: dict[str, Any] = {"activation": activation}
    for name, value in options.items():
        each = value if isinstance(value, int) else tuple(value)
        each = each[0] if x.ndim == 3 and isinstance(each, tuple) else each
        how["padding" if name == "pad" else name] = each
    if not isinstance(x, sys.modules["numpy"].ndarray):
        return run(x, w, bias, residual=residual, layout="copy", **how)
    inward, outward = (0, *range(2, x.ndim), 1), (0, x.ndim - 1, *range(1, x.ndim - 1))
    turned = [a if a is None else permuted(a, inward).copy(order="C") for a in (x, w, residual)]
    return permuted(run(*turned[:2], bias, residual=turned[2], **how), outward)


def attention(q: Any, k: Any, v: Any, *, scale: float) -> Any:
    """Return softmax(scale q k') v; the last two axes of k are exchanged, as in the product."""
    from tawa.kernels.attention import attention

    axes = q.ndim
    k = permuted(k, (*range(axes - 2), axes - 1, axes - 2))
    four = [x.reshape(-1, *x.shape[-3:]) if axes > 3 else x.reshape(1, -1, *x.shape[-2:])
            for x in (q, k, v)]  # fmt: skip
    four = [x if look(x).strides[-1] == 1 else dense(x) for x in four]
    return attention(*four, scale=scale).reshape(*q.shape[:-1], v.shape[-1])
