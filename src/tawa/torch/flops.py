# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
"""What `torch.utils.flop_counter.FlopCounterMode` counts of `torch.ops.tawa`.

By torch's conventions: an addition and a multiplication of a product are two, pairs of queries and
keys that a mask hides are counted too, the gradients of attention are five products.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

from torch import Tensor
from torch._subclasses import FakeTensor
from torch.utils.flop_counter import conv_flop_count, flop_registry, register_flop_formula

from tawa.torch import attention_operators as attention
from tawa.torch import conv_operators
from tawa.torch import matmul_operators as products


def _product(a: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return 2 * prod(out_val.shape) * a.shape[-1]


def _product_again(grad: Tensor, a: Tensor, *_: Any, **__: Any) -> int:
    return 2 * prod(grad.shape) * a.shape[-1]


def _pairs(
    q: Tensor,
    k: Tensor,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    block_table: Tensor | None = None,
    lengths: Tensor | None = None,
    leftpad: Tensor | None = None,
    **_: Any,
) -> int:
    """Return how many pairs of a query and a key there are in all heads.

    Lengths that are arrays are read; of fake ones, without values, each sequence is counted as if
    it had all keys.
    """
    keys: Any = k.shape[-2] if block_table is None else k.shape[-2] * block_table.shape[1]
    known = [each for each in (cu_seqlens, cu_seqlens_k, lengths, leftpad) if each is not None]
    if any(isinstance(each, FakeTensor) for each in known) or not known:
        return q.shape[0] * q.shape[1] * q.shape[2] * keys
    queries: Any = q.shape[2] if cu_seqlens is None else cu_seqlens.diff()
    if lengths is not None:
        keys = lengths if leftpad is None else lengths - leftpad
    elif leftpad is not None:
        keys = keys - leftpad
    elif cu_seqlens is not None:
        keys = (cu_seqlens if cu_seqlens_k is None else cu_seqlens_k).diff()
    return q.shape[1] * int((queries * keys).sum())


def _attention(*given: Any, **named: Any) -> int:
    held = dict(zip(attention.FORWARD, given)) | named
    return 2 * _pairs(**held) * (held["q"].shape[-1] + held["v"].shape[-1])


def _attention_backward(*given: Any, **named: Any) -> int:
    held = dict(zip(attention.BACKWARD, given)) | named
    products = 3 * held["q"].shape[-1] + 2 * held["v"].shape[-1]
    if held.get("bias_gradient"):  # scores and the weights' gradients once more
        products += held["q"].shape[-1] + held["v"].shape[-1]
    return 2 * _pairs(**held) * products


def _conv(x: Tensor, w: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return conv_flop_count(list(x.shape), list(w.shape), list(out_val.shape))


def _conv_by_input(grad: Tensor, w: Tensor, *_: Any, **__: Any) -> int:
    return conv_flop_count(list(grad.shape), list(w.shape), list(grad.shape))


def _conv_by_weight(grad: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return conv_flop_count(list(grad.shape), list(out_val.shape), list(grad.shape))


def register() -> None:
    """Tell torch the formulas."""
    convolutions = conv_operators.OPERATORS.values()
    formulas: tuple[tuple[Any, ...], ...] = (
        (_product, products.matmul),
        (_product_again, products.matmul_activation_backward),
        (_attention, attention.attention),
        (_attention_backward, attention.attention_backward),
        (_conv, *(each.forward for each in convolutions)),
        (_conv_by_input, *(each.by_input for each in convolutions)),
        (_conv_by_weight, *(each.by_weight for each in convolutions)),
    )
    for formula, *operators in formulas:
        packets = [each._opoverload.overloadpacket for each in operators]
        packets = [each for each in packets if each not in flop_registry]  # of a module read again
        register_flop_formula(packets, get_raw=True)(cast("Any", formula))
