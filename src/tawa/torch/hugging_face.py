# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`attn_implementation="tawa"` for Hugging Face's transformers: `register()`, once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from tawa.errors import ArgumentError, MissingPackage
from tawa.torch.functional import attention, bias_of, from_the_first

# What a model may hand over that changes the result and is not computed here.
_UNKNOWN = ("cu_seq_lens_q", "cu_seq_lens_k", "head_mask")


def register() -> None:
    """Make "tawa" a name of an attention in transformers; masks are built as for "sdpa".

    Raises MissingPackage without transformers.
    """
    try:
        transformers: Any = import_module("transformers")
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "transformers is not installed", remedy="pip install transformers"
        ) from error
    transformers.AttentionInterface.register("tawa", tawa_attention)
    masks = getattr(transformers, "AttentionMaskInterface", None)
    if masks is not None:
        masks.register("tawa", import_module("transformers.masking_utils").sdpa_mask)


def tawa_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return (out [batch, length, heads, dim], None) of query [batch, heads, length, dim].

    As for "sdpa", a mask says all that is hidden, window included; without one the module's
    `is_causal` decides, from the first query and key on (keys behind are those that a static cache
    does not have yet), except for one query, which sees every key.
    """
    given = [name for name in _UNKNOWN if others.get(name) is not None]
    if attention_mask is None and (sliding_window or key.shape[-2]) < key.shape[-2]:
        given.append("sliding_window and no mask")
    if given:
        raise ArgumentError(
            f'attn_implementation="tawa" with {", ".join(given)}',
            why="it would be left out: what hides keys comes as a mask",
            remedy="train without it, or with another attn_implementation",
        )
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap, "dropout": dropout}
    if s_aux is not None:
        options["sink"] = s_aux.float()
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    bias: Tensor | None = None
    if attention_mask is not None:
        mask = attention_mask[..., : key.shape[-2]]
        bias = bias_of(mask, (*query.shape[:3], key.shape[-2]), query.dtype)
    elif causal and query.shape[-2] > 1:
        key, value, shown = from_the_first(query, key, value)
        options |= shown
    if position_bias is not None:
        added = position_bias[..., : key.shape[-2]]
        bias = added if bias is None else bias + added
    options["bias"] = bias
    out = attention(query, key, value, **options)
    return out.transpose(1, 2).contiguous(), None
