# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""What the operators of `torch.ops.tawa` are to torch's dispatcher: when its layers are passed by,
what is refused by name, what autocast casts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from typing import cast as cast_to

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import (
    FunctionalizeInterpreter,
    retrieve_current_functorch_interpreter,
)
from torch._library.autograd import make_autograd_impl
from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI
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


def _refuse_vmap(name: str, *_: Any) -> None:
    raise ArgumentError(
        f"vmap over torch.ops.tawa.{name}",
        why="its arrays have a batch axis of their own",
        remedy="put the axis into the batch: x.flatten(0, 1)",
    )


def _refuse_tangent(name: str) -> None:
    raise ArgumentError(
        f"{name} has no gradient in forward mode",
        why="an argument carries a tangent, and its product with one is not computed",
        remedy="take the gradient in reverse mode: backward, torch.autograd.grad",
    )


def _recorded(operator: Any, rule: Callable[..., Any]) -> tuple[Any, Any]:
    """Return an operator as an `autograd.Function` of plain tensors, and the same of what
    `torch.func` transforms, with a rule of vmap. They take one more argument, None.

    What torch makes of `register_autograd` enters the dispatcher again, and asks the schema for
    each default: 60 us for `matmul`, 300 for `attention`; and it refuses `torch.func`.
    """
    function, keep = operator._init_fn, operator._setup_context_fn
    given = inspect.signature(function).parameters.values()
    defaults = tuple(each.default for each in given)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return function(*args[:-1])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            if keep is not None:
                keep(ctx, (*inputs[:-1], *defaults[len(inputs) - 1 :]), output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if operator._backward_fn is None:
                raise ArgumentError(f"no gradient of {operator._qualname}")
            return (*operator._backward_fn(ctx, *grads), None)

    class Transformed(Recorded):
        @staticmethod
        def forward(*args: Any) -> Any:
            found = operator._opoverload(*args[:-1])
            return tuple(found) if isinstance(found, list) else found

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> None:
            _refuse_tangent(operator._qualname)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            return rule(info, in_dims[:-1], *args[:-1])

    return Recorded, Transformed


def _take_transforms(operator: Any, function: Any, cast: Sequence[int]) -> None:
    """Let what `torch.func` transforms go through an `autograd.Function`, of which it knows more
    than of an operator; what autocast casts, at places `cast`, is cast before.
    """

    def call(*args: Any) -> Any:
        inner = retrieve_current_functorch_interpreter()
        if not isinstance(inner, FunctionalizeInterpreter):
            return function.apply(*_narrowed(args, cast), None)
        outer: Any = FunctorchFunctionalizeAPI(inner)
        with outer.redispatch_to_next():
            return outer.wrap_tensors(operator._opoverload(*outer.unwrap_tensors(args)))

    operator._lib.impl(operator._name, call, "FuncTorchDynamicLayerFrontMode")


def refuse_tangents(
    operator: Any, *, at_once: bool = False, record: Callable[..., Any] | None = None
) -> None:
    """Let an operator raise `ArgumentError` for tangents: torch takes one that has no rule for them
    to give zeros.

    `at_once`: calls on plain tensors, as a compiled graph's are, go to its function, or to `record`
    where their gradients are recorded, past torch's layers for gradients and checks, which are more
    than a launch costs.
    """
    function: Callable[..., Any] = operator._init_fn
    traced = make_autograd_impl(operator._opoverload, operator)
    changed = _changed(operator)

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
            _refuse_tangent(operator._qualname)
        return traced(keys, *args, **keywords)

    for key in ("AutogradCUDA", "AutogradCPU"):
        operator._lib.impl(operator._name, call, key, with_keyset=True)


def _changed(operator: Any) -> list[int]:
    """Return the places of the arguments that an operator writes to."""
    arguments = enumerate(operator._opoverload._schema.arguments)
    return [place for place, each in arguments if each.is_write]


def finish(operator: Any, *, vmap: Any = None, cast: Sequence[int] = ()) -> Any:
    """Give an operator what ours have in common: calls past torch's layers, `torch.func`'s
    transforms with a rule of vmap, without one a refusal by name, and autocast as torch's own have
    it, of the arguments at places `cast`. Returns the call that records a gradient of plain
    tensors, by positions alone; None for one that keeps nothing for a gradient.
    """
    rule = vmap or partial(_refuse_vmap, operator._name)
    recorded, transformed = _recorded(operator, rule)
    keys = [getattr(torch._C.DispatchKey, f"Autocast{each}") for each in ("CUDA", "CPU")]
    guarded = torch._C.DispatchKeySet(keys[0]) | torch._C.DispatchKeySet(keys[1])

    def narrow(*args: Any) -> Any:
        given = _narrowed(args, cast)
        with torch._C._ExcludeDispatchKeyGuard(guarded):
            return operator(*given)

    for key in keys if cast else ():
        operator._lib.impl(operator._name, narrow, key.name)
    if _changed(operator):
        operator.register_vmap(rule)
    else:
        _take_transforms(operator, transformed, cast)
    # Past what torch does for `torch.func`.
    apply = cast_to("Any", super(torch.autograd.Function, recorded)).apply

    def record(*args: Any) -> Any:
        return apply(*args, None)  # torch too has something of its own behind them

    known = None if operator._setup_context_fn is None else record
    refuse_tangents(operator, at_once=True, record=known)
    return known


def _narrowed(args: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """Return arguments, those at `places` as autocast has them."""
    device = args[0].device.type
    if not torch.is_autocast_enabled(device):
        return args
    kind = torch.get_autocast_dtype(device)
    return [
        each.to(kind) if place in places and is_tensor(each) and each.dtype in _WIDE else each
        for place, each in enumerate(args)
    ]
