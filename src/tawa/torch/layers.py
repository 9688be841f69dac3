# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Layers that take the place of torch's, and `replace`, which swaps those of a model."""

from __future__ import annotations

from collections.abc import Mapping
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
    found = swap(model, {nn.Linear: Linear}, _LEFT)
    swapped = list(found.swapped)
    choose = getattr(model, "set_attn_implementation", None)
    if choose is not None:
        from tawa.torch.hugging_face import register

        register()
        choose("tawa")
        swapped.append("attention (attn_implementation)")
    found = Replaced(tuple(swapped), found.left)
    if verbose:
        print(found)
    return found


def swap(
    model: nn.Module,
    ours: Mapping[type[nn.Module], type[nn.Module]],
    left: Mapping[type[nn.Module], str],
) -> Replaced:
    """Give each layer of a model whose type is in `ours` the type that stands there; what is like
    it, and what `left` names with a reason, stays.
    """
    swapped: list[str] = []
    stays: list[tuple[str, str]] = []
    for name, layer in model.named_modules():
        if not isinstance(layer, (*ours, *left)):
            continue
        label = f"{name or 'the model'} ({type(layer).__name__})"
        weight: Any = getattr(layer, "weight", None)
        reasons = (why for kind, why in left.items() if isinstance(layer, kind))
        if type(layer) in ours.values():
            reason = "it is tawa's already"
        elif not (reason := next(reasons, "")) and type(layer) not in ours:
            kind = next(each for each in ours if isinstance(layer, each))
            reason = f"{type(layer).__name__} may do more than nn.{kind.__name__}"
        elif not reason and type(weight) not in (nn.Parameter, Tensor):
            reason = f"its weight is a {type(weight).__name__}"
        elif not reason and weight.dtype not in KINDS:
            reason = f"its weight holds {weight.dtype}"
        if reason:
            stays.append((label, reason))
        else:
            layer.__class__ = ours[type(layer)]
            swapped.append(label)
    return Replaced(tuple(swapped), tuple(stays))


_LEFT: dict[type[nn.Module], str] = {
    nn.MultiheadAttention: "its products and masks are in one call of torch's; use a layer that"
    " calls SDPA",
    nn.modules.conv._ConvNd: "tawa.torch.conv.replace swaps convolutions",
}
torch.fx.wrap("linear")  # a graph of torch.fx calls it
