# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Functions that take the place of torch's and of FlashAttention's, with their names and layouts.

In eager mode they call the library at once, and record gradients; what torch traces or transforms
goes through the operators of `torch.ops.tawa`. What they do not compute they refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from tawa.errors import ArgumentError
from tawa.runtime.tensors import casts
from tawa.torch import attention_operators as attending
from tawa.torch import matmul_operators as products
from tawa.torch.dispatch import is_direct, way


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str = "",
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    out_dtype: str = "",
    input_precision: str = "",
) -> Tensor:
    """Return activation(scale_a * scale_b * (a @ b) + bias), as `tawa.kernels.matmul.matmul` does,
    with gradients by a, b and bias, and second ones.

    Raises `ArgumentError` for gradients by scales or by operands of 8 bits.
    """
    compute = way(products.matmul, products.record_matmul, a, b, bias, scale_a, scale_b)
    return compute(a, b, bias, activation, scale_a, scale_b, out_dtype, input_precision)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias, as `torch.nn.functional.linear`: any leading dimensions."""
    if weight.dim() != 2:
        raise ArgumentError(f"weight has shape {tuple(weight.shape)}", why="it is [out, in]")
    return matmul(input, weight.t(), bias=bias)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    alibi: Tensor | None = None,
    sink: Tensor | None = None,
    cu_seqlens: Any = None,
    block_table: Tensor | None = None,
    lengths: Tensor | None = None,
    leftpad: Tensor | None = None,
    dropout: float = 0.0,
    rng: Tensor | None = None,
    deterministic: bool = True,
    return_lse: bool = False,
) -> Any:
    """Return softmax(scale * q k^T) v, as `tawa.kernels.attention.attention` does, with gradients
    by q, k, v, bias and sink, the same at every run; without `deterministic` that by q is added up
    in whatever order programs come, but of heads that are too wide for it (`attention_backward`)
    and under `torch.use_deterministic_algorithms`.

    `rng`, the seed and offset of `dropout`, int64 [2] on q's device, is drawn from torch's own
    generator where it is not given, so that `torch.manual_seed` decides what is dropped. Raises
    `ArgumentError` for gradients with pages or lengths or by alibi.
    """
    if dropout and rng is None:
        rng = torch.randint(-(2**63), 2**63 - 1, (2,), device=q.device)
    both = isinstance(cu_seqlens, Sequence)
    start, start_k = cast("Sequence[Any]", cu_seqlens) if both else (cu_seqlens, None)
    left, right = _sides(window)
    given = (
        *(q, k, v, causal, scale, left, right, softcap, bias, alibi, sink),
        *(start, start_k, block_table, lengths, leftpad, dropout, rng),
    )
    tensors = q, k, v, bias, alibi, sink, start, start_k, block_table, lengths, leftpad
    if is_direct(*tensors):
        narrows = casts() and torch.is_autocast_enabled(q.device.type)
        out = None if narrows else attending.result_of(q, v)
        return attending.compute_attention(*given, out=out, return_lse=return_lse)
    compute = way(attending.attention, attending.record_attention, *tensors)
    out, lse = compute(*given, deterministic)
    return (out, lse) if return_lse else out


def _sides(window: Any) -> tuple[int | None, int | None]:
    """Return how many keys before and after its position a query sees; None: all of them."""
    match window:
        case None:
            return None, None
        case (left, right):
            return left, right
        case _:
            return window - 1, window - 1


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return attention as `torch.nn.functional.scaled_dot_product_attention` does.

    Query, key and value are [..., heads, length, dim]; `is_causal` aligns the mask to the first
    query and key, as torch has it. A mask of bools (True: take part) or numbers has two dimensions
    or more, the latter a gradient. float16 and bfloat16; dims up to 256, that of values may differ.
    Dropout is from torch's generator, by other numbers than torch's own. Rows that see no key are
    zero. Raises `ArgumentError` for what it does not compute.
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError(
            "scaled_dot_product_attention with is_causal=True and an attn_mask",
            why="as in torch's, one excludes the other",
            remedy="put the causal mask into yours: attn_mask & torch.ones(queries, keys,"
            " dtype=torch.bool).tril(), or -inf above the diagonal of numbers",
        )
    if query.dim() < 3 or key.dim() != query.dim() or value.dim() != query.dim():
        raise ArgumentError(
            f"query, key, value have {query.dim()}, {key.dim()} and {value.dim()} dimensions",
            why="they are (..., heads, length, dim)",
        )
    if query.dim() != 4 or not query.shape[0] == key.shape[0] == value.shape[0]:
        outer = torch.broadcast_shapes(*(each.shape[:-3] for each in (query, key, value)))

        def as_batch(array: Tensor) -> Tensor:
            inner = array.shape[-3:]
            return array.expand(*outer, *inner).reshape(prod(outer), *inner)

        if attn_mask is not None and attn_mask.dim() > 3:
            attn_mask = as_batch(attn_mask)
        found = scaled_dot_product_attention(
            *(as_batch(query), as_batch(key), as_batch(value), attn_mask, dropout_p, is_causal),
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return found.reshape(*outer, *found.shape[-3:])
    if key.shape[1] != query.shape[1] and not enable_gqa:
        raise ArgumentError(
            f"query has {query.shape[1]} heads, key {key.shape[1]}",
            remedy="pass enable_gqa=True, as for torch's",
        )
    dim, width = query.shape[-1], value.shape[-1]
    scale = max(dim, 1) ** -0.5 if scale is None else scale  # no columns are refused by name
    shape = (*query.shape[:3], key.shape[-2])
    bias = None if attn_mask is None else bias_of(attn_mask, shape, query.dtype)
    options: dict[str, Any] = {"scale": scale, "dropout": dropout_p}
    if is_causal:
        key, value, causal = from_the_first(query, key, value)
        options |= causal
    if dim % 8 or width % 8:  # TMA steps by 16 bytes
        query, key, value = (
            functional.pad(each, (0, -each.shape[-1] % 8)) for each in (query, key, value)
        )
    found = attention(query, key, value, bias=bias, **options)
    return found[..., :width] if width % 8 else found


def from_the_first(
    query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Return the keys and values that are seen under a causal mask from the first query and key on,
    and the options of `attention`, whose last query stands at the last key, for it.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    if keys > queries:
        key, value = key[..., :queries, :], value[..., :queries, :]
    return key, value, {"window": (None, queries - keys)} if queries > keys else {"causal": True}


def bias_of(mask: Tensor, shape: Sequence[int], kind: torch.dtype) -> Tensor:
    """Return what a mask adds to scores of `shape`: [batch, heads, queries, keys] or 1's."""
    if not 2 <= mask.dim() <= 4:
        raise ArgumentError(f"attn_mask has {mask.dim()} dimensions", why="it has 2 to 4")
    if mask.dtype == torch.bool:
        hidden = torch.full((), float("-inf"), dtype=kind, device=mask.device)
        mask = torch.where(mask, torch.zeros((), dtype=kind, device=mask.device), hidden)
    elif mask.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ArgumentError(f"attn_mask holds {mask.dtype}", why="bool, float16, bfloat16, float32")
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    if mask.shape[-1] != shape[-1]:
        mask = mask.expand(*mask.shape[:-1], shape[-1])
    return mask if mask.stride(-1) == 1 else mask.contiguous()


# --- as FlashAttention has it -------------------------------------------------------------------


def flash_options(
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
) -> dict[str, Any]:
    """Return the options of `attention` by FlashAttention's."""
    left, right = (None if side < 0 else side for side in window_size)
    return {
        "scale": softmax_scale,
        "causal": causal,
        "window": None if left is None and right is None else (left, right),
        "softcap": softcap or None,
        "alibi": alibi_slopes,
        "dropout": dropout_p,
    }


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Return attention of q, k, v [batch, length, heads, dim], as flash_attn's function does.

    The causal mask is aligned to the last query and key. Gradients are the same at every run,
    whatever `deterministic` says. `alibi_slopes` are [heads] or [batch, heads], float32. With
    `return_attn_probs`: (out, lse, None).
    """
    options = flash_options(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    turned = (each.transpose(1, 2) for each in (q, k, v))
    out, lse = attention(*turned, **options, return_lse=True)
    out = out.transpose(1, 2)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """Return attention of packed sequences, q, k, v [tokens, heads, dim], as flash_attn does.

    With `block_table` [sequences, pages of a sequence] k and v are pages, [pages, rows of a page,
    heads, dim], and `cu_seqlens_k` says how many keys a sequence has; there are no gradients then.
    `max_seqlen_q` and `max_seqlen_k` are not needed and not looked at.
    """
    options = flash_options(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    q = q.transpose(0, 1).unsqueeze(0)
    if block_table is None:
        k, v = (each.transpose(0, 1).unsqueeze(0) for each in (k, v))
        options["cu_seqlens"] = (cu_seqlens_q, cu_seqlens_k)
    else:
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        options |= {"cu_seqlens": cu_seqlens_q, "lengths": cu_seqlens_k.diff()}
        options["block_table"] = block_table
    out, lse = attention(q, k, v, **options, return_lse=True)
    out = out.squeeze(0).transpose(0, 1)
    return (out, lse.squeeze(0), None) if return_attn_probs else out


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *options: Any, **named: Any) -> Any:
    """Return `flash_attn_func` of q and kv [batch, length, 2, heads, dim], with its options."""
    k, v = kv.unbind(-3)
    return flash_attn_func(q, k, v, *options, **named)


def flash_attn_qkvpacked_func(qkv: Tensor, *options: Any, **named: Any) -> Any:
    """Return `flash_attn_func` of qkv [batch, length, 3, heads, dim], with its options."""
    q, k, v = qkv.unbind(-3)
    return flash_attn_func(q, k, v, *options, **named)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *options: Any, **named: Any) -> Any:
    """Return `flash_attn_varlen_func` of q and kv [tokens, 2, heads, dim], with its options."""
    k, v = kv.unbind(-3)
    return flash_attn_varlen_func(q, k, v, *options, **named)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *options: Any, **named: Any
) -> Any:
    """Return `flash_attn_varlen_func` of qkv [tokens, 3, heads, dim], with its options."""
    q, k, v = qkv.unbind(-3)
    lengths = cu_seqlens, cu_seqlens, max_seqlen, max_seqlen
    return flash_attn_varlen_func(q, k, v, *lengths, *options, **named)
