# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""What the operators of `torch.ops.tawa` are to torch's dispatcher: when its layers are passed by,
what is refused by name, what autocast casts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._library.autograd import make_autograd_impl
from torch.autograd import forward_ad

from tawa.errors import ArgumentError
from tawa.runtime.arrays import is_tensor
from tawa.runtime.tensors import has_tangent, written

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
_WIDE = (torch.float16, torch.bfloat16, torch.float32)
"""What autocast casts."""
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def _is_plain(first: Tensor, *others: Tensor | None) -> bool:
    """Tell whether torch neither traces nor transforms what is done to tensors, and they have
    elements.
    """
    inside: Any = torch._C
    # Dynamo reads the first, and nothing behind it.
    if torch.compiler.is_compiling() or inside._is_tracing() or forward_ad._current_level >= 0:
        return False
    if inside._len_torch_dispatch_stack() or inside._functorch.peek_interpreter_stack():
        return False
    if first.is_meta:  # beside it others are, or are refused by name
        return False
    # What `is_grads_batched` of autograd gives looks like a tensor; the dispatcher takes it apart.
    is_batch = inside._functorch.is_legacy_batchedtensor
    for each in (first, *others):
        if each is not None and (type(each) not in _PLAIN or each.is_neg() or is_batch(each)):
            return False
    return True


def is_direct(*tensors: Tensor | None) -> bool:
    """Tell whether tensors are plain, and torch does not record what is done to them either."""
    return _is_plain(*tensors) and not _is_recorded(tensors)  # pyright: ignore[reportArgumentType]


def way(operator: Any, record: Any, *tensors: Tensor | None) -> Any:
    """Return what computes an operator on tensors: its function where nothing is recorded, `record`
    (that `finish` gave, or None) where their gradients are, else the operator: torch traces them.
    """
    if not _is_plain(*tensors):  # pyright: ignore[reportArgumentType]
        return operator
    if not _is_recorded(tensors):
        return operator._init_fn
    return operator if record is None or torch._C._is_any_autocast_enabled() else record


def _is_recorded(tensors: Iterable[Tensor | None]) -> bool:
    """Tell whether torch records what is done to tensors, for their gradients."""
    if torch.is_grad_enabled():
        for each in tensors:
            if each is not None and each.requires_grad:
                return True
    return False


def dense(array: Tensor | None) -> Tensor | None:
    """Return an array as the kernels read vectors."""
    return None if array is None else array.contiguous()


def asked(ctx: Any, count: int) -> tuple[bool, ...]:
    """Return which of `count` inputs need a gradient; those left at their defaults do not."""
    given: tuple[bool, ...] = ctx.needs_input_grad[:-1]  # the last is the dispatcher's own
    return (*given, *(False,) * (count - len(given)))


def _refuse_vmap(name: str) -> Callable[..., Any]:
    """Return a rule of vmap for an operator that has none."""

    def refuse(*_: Any) -> Any:
        raise ArgumentError(
            f"vmap over torch.ops.tawa.{name}",
            why="its arrays have a batch axis of their own",
            remedy="put the axis into the batch: x.flatten(0, 1)",
        )

    return refuse


def _recorder(operator: Any) -> Callable[..., Any] | None:
    """Return the call of an operator that records its gradient, for plain tensors; None for one
    that keeps nothing for a gradient.

    What torch makes of `register_autograd` enters the dispatcher again, and asks the schema for
    each default: 60 us for `matmul`, 300 for `attention`.
    """
    function, keep = operator._init_fn, operator._setup_context_fn
    if keep is None:
        return None
    given = inspect.signature(function).parameters.values()
    defaults = tuple(each.default for each in given)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            inputs = args[:-1]
            found = function(*inputs)
            keep(ctx, (*inputs, *defaults[len(inputs) :]), found)
            return found

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return (*operator._backward_fn(ctx, *grads), None)

    def record(*args: Any) -> Any:
        return Recorded.apply(*args, None)  # torch too has something of its own behind them

    return record


def refuse_tangents(operator: Any, *, at_once: bool = False) -> Callable[..., Any] | None:
    """Let an operator raise `ArgumentError` for tangents: torch takes one that has no rule for them
    to give zeros.

    `at_once`: calls on plain tensors, as a compiled graph's are, go to its function, past torch's
    layers for gradients and checks, which are more than a launch costs. Returns the call that
    records a gradient.
    """
    function: Callable[..., Any] = operator._init_fn
    traced = make_autograd_impl(operator._opoverload, operator)
    record = _recorder(operator)
    arguments = enumerate(operator._opoverload._schema.arguments)
    changed = [place for place, each in arguments if each.is_write]

    def call(keys: Any, *args: Any, **keywords: Any) -> Any:
        given = [each for each in (*args, *keywords.values()) if isinstance(each, Tensor)]
        if at_once and _is_plain(*given):
            if not _is_recorded(given):
                found = function(*args, **keywords)
                for place in changed:
                    written(args[place])
                return found
            if record is not None:
                return record(*args, **keywords)
        if forward_ad._current_level >= 0 and any(map(has_tangent, given)):
            raise ArgumentError(
                f"{operator._qualname} has no gradient in forward mode",
                why="an argument carries a tangent, and its product with one is not computed",
                remedy="take the gradient in reverse mode: backward, torch.autograd.grad",
            )
        return traced(keys, *args, **keywords)

    for key in ("AutogradCUDA", "AutogradCPU"):
        operator._lib.impl(operator._name, call, key, with_keyset=True)
    return record


def finish(operator: Any, *, vmap: Any = None, cast: Sequence[int] = ()) -> Any:
    """Give an operator what ours have in common: calls past torch's layers, a rule of vmap, without
    one a refusal by name, and autocast as torch's own have it, of the arguments at places `cast`.
    Returns the call that records a gradient of plain tensors, by positions alone.
    """
    operator.register_vmap(vmap or _refuse_vmap(operator._name))
    for key in ("AutocastCUDA", "AutocastCPU") if cast else ():
        _cast_under(operator, key, cast)
    return refuse_tangents(operator, at_once=True)


def _cast_under(operator: Any, key: str, cast: Sequence[int]) -> None:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def call(*args: Any) -> Any:
        kind = torch.get_autocast_dtype(key.removeprefix("Autocast").lower())
        given = list(args)
        for place in cast:
            if place < len(given) and is_tensor(given[place]) and given[place].dtype in _WIDE:
                given[place] = given[place].to(kind)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(*given)

    operator._lib.impl(operator._name, call, key)
