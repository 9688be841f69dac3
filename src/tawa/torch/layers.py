# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Layers that take the place of torch's, and `replace`, which swaps those of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tawa.torch.functional import linear

KINDS = (torch.float16, torch.bfloat16, torch.float32)


class Linear(nn.Linear):
    """`torch.nn.Linear` whose product is tawa's, with its gradients."""

    def forward(self, input: Tensor) -> Tensor:
        """Return input @ weight.T + bias."""
        return linear(input, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What `replace` swapped, by the layer's name, and what it left, with the reason."""

    swapped: tuple[str, ...]
    left: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """Return one line for each layer."""
        lines = [f"swapped  {name}" for name in self.swapped]
        lines += [f"left     {name}: {reason}" for name, reason in self.left]
        return "\n".join(lines) or "nothing to swap"


def replace(model: nn.Module, *, verbose: bool = True) -> Replaced:
    """Swap the layers of a model for tawa's, in place; print and return what was and was not.

    `nn.Linear` becomes `Linear`, with the same parameters. A model of Hugging Face's transformers
    gets the attention "tawa". Everything else stays.
    """
    swapped: list[str] = []
    left: list[tuple[str, str]] = []
    for name, layer in _leaves(model):
        reason = _reason(layer)
        if reason:
            left.append((f"{name} ({type(layer).__name__})", reason))
        elif type(layer) is nn.Linear:
            layer.__class__ = Linear
            swapped.append(f"{name} (Linear)")
    choose = getattr(model, "set_attn_implementation", None)
    if choose is not None:
        from tawa.torch.hugging_face import register

        register()
        choose("tawa")
        swapped.append("attention (attn_implementation)")
    found = Replaced(tuple(swapped), tuple(left))
    if verbose:
        print(found)
    return found


def _leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | nn.MultiheadAttention | nn.modules.conv._ConvNd):
            yield name or "the model", layer


def _reason(layer: nn.Module) -> str:
    """Return why a layer is left as it is; "" for one that is swapped."""
    if isinstance(layer, Linear):
        return "it is tawa's already"
    if isinstance(layer, nn.MultiheadAttention):
        return "its products and masks are in one call of torch's; use a layer that calls SDPA"
    if isinstance(layer, nn.modules.conv._ConvNd):
        return "tawa.torch.conv.replace swaps convolutions"
    if type(layer) is not nn.Linear:
        return f"{type(layer).__name__} may do more than nn.Linear"
    weight: Any = layer.weight
    if type(weight) not in (nn.Parameter, Tensor):
        return f"its weight is a {type(weight).__name__}"
    if weight.dtype not in KINDS:
        return f"its weight holds {weight.dtype}"
    return ""
