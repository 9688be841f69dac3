# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`attn_implementation="tawa"` for Hugging Face's transformers: `register()`, once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from tawa.errors import ArgumentError, MissingPackage
from tawa.torch.functional import attention, bias_of

# What a model may hand over that changes the result and is not computed here.
_UNKNOWN = ("cu_seq_lens_q", "cu_seq_lens_k", "head_mask", "position_bias")


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
    **others: Any,
) -> tuple[Tensor, None]:
    """Return (out [batch, length, heads, dim], None) of query [batch, heads, length, dim].

    A mask says all that is hidden, window included; without one the module's `is_causal` decides,
    except for one query, which sees every key.
    """
    if given := [name for name in _UNKNOWN if others.get(name) is not None]:
        raise ArgumentError(
            f'attn_implementation="tawa" with {", ".join(given)}',
            why="it would be left out: what hides keys comes as a mask",
            remedy="train without it, or with another attn_implementation",
        )
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap, "dropout": dropout}
    if s_aux is not None:
        options["sink"] = s_aux.float()
    if attention_mask is not None:
        mask = attention_mask[..., : key.shape[-2]]
        shape = (*query.shape[:3], key.shape[-2])
        options["bias"] = bias_of(mask, shape, query.dtype)
    else:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        options["causal"] = bool(causal) and query.shape[-2] > 1
        if sliding_window is not None:
            options["window"] = (sliding_window - 1, 0 if options["causal"] else None)
    out = attention(query, key, value, **options)
    return out.transpose(1, 2).contiguous(), None
