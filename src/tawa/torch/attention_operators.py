# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Attention as operators of torch: `torch.ops.tawa.attention` and its gradient. They take any
strides: what the kernels cannot read is copied first.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tawa.errors import ArgumentError
from tawa.kernels import attention as _attention
from tawa.kernels import attention_backward as _backward
from tawa.torch.dispatch import NARROW, asked, dense, finish, way


def rows_of(array: Tensor, *, once: bool = False) -> Tensor:
    """Return (batch, heads, sequence, dim) as TMA reads it: contiguous rows, steps of 16 bytes.

    `once`: each element in its own place, not expanded.
    """
    steps = _are_steps(array.shape, array.stride(), array.element_size(), once)
    if steps and not array.data_ptr() & 15:
        return array
    return array.clone(memory_format=torch.contiguous_format)


@lru_cache(maxsize=4096)
def _are_steps(shape: Sequence[int], strides: Sequence[int], size: int, once: bool) -> bool:
    *outer, last = strides
    steps = [step for n, step in zip(shape, outer) if n > 1]
    return last == 1 and not any(step * size % 16 for step in steps) and not (once and 0 in steps)


def _lines(bias: Tensor | None) -> Tensor | None:
    """Return a bias with contiguous rows."""
    return bias if bias is None or bias.stride(-1) == 1 else bias.contiguous()


def _window(left: int | None, right: int | None) -> tuple[int | None, int | None] | None:
    return None if left is None and right is None else (left, right)


def compute_attention(*given: Any, out: Tensor | None, return_lse: bool) -> Any:
    """Return `tawa.kernels.attention.attention` of the arguments of `attention`, in its order."""
    q, k, v, causal, scale, left, right, softcap, bias, alibi, sink, *rest = given
    starts, starts_k, table, lengths, leftpad, dropout, rng = rest
    return _attention.attention(
        rows_of(q),
        rows_of(k),
        rows_of(v),
        causal=causal,
        scale=scale,
        window=_window(left, right),
        softcap=softcap,
        bias=_lines(bias),
        alibi=dense(alibi),
        sink=dense(sink),
        cu_seqlens=starts if starts_k is None else (starts, starts_k),
        block_table=table,
        lengths=dense(lengths),
        leftpad=dense(leftpad),
        dropout=dropout,
        rng=dense(rng),
        out=out,
        return_lse=return_lse,
    )


@torch.library.custom_op("tawa::attention", mutates_args=())
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    alibi: Tensor | None = None,
    sink: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    block_table: Tensor | None = None,
    lengths: Tensor | None = None,
    leftpad: Tensor | None = None,
    dropout: float = 0.0,
    rng: Tensor | None = None,
    deterministic: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return (out, lse); `left`, `right` are a window, `deterministic` is for the gradients."""
    given = (
        *(q, k, v, causal, scale, left, right, softcap, bias, alibi, sink),
        *(cu_seqlens, cu_seqlens_k, block_table, lengths, leftpad, dropout, rng),
    )
    made, lse = compute_attention(*given, out=result_of(q, v), return_lse=True)
    return made, lse


def lying_as(array: Tensor, kind: torch.dtype | None = None) -> Tensor:
    """Return a dense array of the same shape, empty, with contiguous rows, in the array's order."""
    kind = kind or array.dtype
    made = torch.empty_like(array, dtype=kind)  # of repeated rows it may turn the axes
    return made if made.stride(-1) == 1 else array.new_empty(array.shape, dtype=kind)


def result_of(q: Tensor, v: Tensor) -> Tensor:
    """Return an output that lies as `q` does, where that is dense; as torch's own attention."""
    kind = torch.bfloat16 if q.dtype in NARROW else q.dtype
    if v.shape[-1] == q.shape[-1]:
        return lying_as(q, kind)
    # (batch, length, heads, dim) in memory, where q lies so.
    turned = q.stride(-3) < q.stride(-2)
    shape = (*q.shape[:-1], v.shape[-1])
    if not turned:
        return q.new_empty(shape, dtype=kind)
    return q.new_empty((shape[0], shape[2], shape[1], shape[3]), dtype=kind).transpose(1, 2)


@attention.register_fake
def _attention_fake(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    torch._check(q.dim() == 4 and k.dim() == 4, lambda: "q, k, v are (batch, heads, length, dim)")
    torch._check(q.shape[-1] == k.shape[-1], lambda: "q and k have different head dims")
    torch._check(k.shape[-2] == v.shape[-2], lambda: "k and v have different lengths")
    torch._check(q.dtype == k.dtype == v.dtype, lambda: "q, k, v have different types")
    torch._check(q.device == k.device == v.device, lambda: "q, k, v are on different devices")
    return result_of(q, v), q.new_empty(q.shape[:3], dtype=torch.float32)


FORWARD = tuple(inspect.signature(attention._init_fn).parameters)
"""The parameters of `attention`; `BACKWARD`: those of its gradient."""


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    given = dict(zip(FORWARD, inputs))
    q = given["q"]
    without = [n for n in ("block_table", "lengths", "leftpad") if given[n] is not None]
    ctx.needed = asked(ctx, len(inputs))
    by_slopes = ctx.needed[FORWARD.index("alibi")]
    if without or by_slopes or q.dtype in NARROW:
        reason = f"with {', '.join(without)}" if without else f"of {q.dtype}"
        raise ArgumentError(
            f"no gradient of attention {'by alibi' if by_slopes else reason}",
            why="backward kernels take f16 and bf16; pages and lengths are for inference; alibi is"
            " taken as a constant",
            remedy="call it under torch.no_grad(), or use torch's attention there",
        )
    ctx.set_materialize_grads(False)
    out, lse = output
    extras = [given[n] for n in ("alibi", "bias", "cu_seqlens", "cu_seqlens_k", "rng", "sink")]
    ctx.save_for_backward(q, given["k"], given["v"], out, lse, *extras)
    names = ("causal", "scale", "left", "right", "softcap", "dropout", "deterministic")
    ctx.options = {name: given[name] for name in names}


def _attention_gradient(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, *extras, sink = ctx.saved_tensors
    if grad is None and grad_lse is None:
        return (None,) * len(FORWARD)
    if grad is None:
        grad = torch.zeros_like(out)
    needed = dict(zip(FORWARD, ctx.needed))
    how = {**ctx.options, "bias_gradient": needed["bias"]}
    tensors = grad, q, k, v, out, lse, grad_lse, *extras
    made = way(attention_backward, None, *tensors)(*tensors, **how)
    found: dict[str, Tensor] = dict(zip(("q", "k", "v", "bias"), made))
    if sink is not None and needed["sink"]:
        delta = (grad.float() * out.float()).sum(-1)
        if grad_lse is not None:
            delta = delta - grad_lse
        found["sink"] = -(torch.exp(sink[:, None] - lse) * delta).sum((0, 2))
    return tuple(found.get(name) for name in FORWARD)


@torch.library.custom_op("tawa::attention_backward", mutates_args=())
def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_lse: Tensor | None = None,
    alibi: Tensor | None = None,
    bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    rng: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    deterministic: bool = True,
    bias_gradient: bool = False,
) -> list[Tensor]:
    """Return dq, dk, dv and with `bias_gradient` that of the bias, as
    `tawa.kernels.attention_backward.attention_backward`.
    """
    dq, dk, dv = (gradient_of(each, cu_seqlens) for each in (q, k, v))
    found = _backward.attention_backward(
        rows_of(grad.to(out.dtype), once=True),
        rows_of(q),
        rows_of(k),
        rows_of(v),
        rows_of(out),
        lse.contiguous(),
        causal=causal,
        scale=scale,
        window=_window(left, right),
        softcap=softcap,
        alibi=dense(alibi),
        bias=_lines(bias),
        cu_seqlens=cu_seqlens if cu_seqlens_k is None else (cu_seqlens, cu_seqlens_k),
        dropout=dropout,
        rng=dense(rng),
        grad_lse=dense(grad_lse),
        deterministic=deterministic or torch.are_deterministic_algorithms_enabled(),
        bias_gradient=bias_gradient,
        into=(dq, dk, dv),
    )
    return list(found)


def gradient_of(array: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """Return an empty gradient by q, k or v, which lies as they do, so that what takes it, the
    gradient of a projection, need not copy it; of packed sequences row-major.
    """
    return lying_as(array) if cu_seqlens is None else array.new_empty(array.shape)


@attention_backward.register_fake
def _attention_backward_fake(*given: Any, **named: Any) -> list[Tensor]:
    held = dict(zip(BACKWARD, given)) | named
    made = [gradient_of(held[name], held.get("cu_seqlens")) for name in ("q", "k", "v")]
    bias = held["bias"] if held.get("bias_gradient") else None
    return made if bias is None else [*made, bias.new_empty(bias.shape)]


BACKWARD = tuple(inspect.signature(attention_backward._init_fn).parameters)


def _refuse_second(ctx: Any, *_: Any) -> Any:
    raise ArgumentError(
        "no second gradient of attention",
        why="the backward kernels have no backward kernels of their own",
        remedy="use torch's math attention where gradients of gradients are needed",
    )


def _by_batch(operator: Any, names: Sequence[str]) -> Any:
    """Return the rule of vmap of an operator: the mapped axis joins the batch of what has one; what
    else is mapped is refused. The gradient of a bias that a batch shares is summed over it.
    """
    batched = {"q", "k", "v", "bias", "alibi", "grad", "out", "lse", "grad_lse"}
    whole = ("cu_seqlens", "block_table", "lengths", "leftpad", "rng")

    def rule(info: Any, dims: Sequence[int | None], *given: Any) -> tuple[Any, Any]:
        named, axes = dict(zip(names, given)), dict(zip(names, dims))
        refused = [name for name, dim in axes.items() if dim is not None and name not in batched]
        refused += [name for name in whole if named.get(name) is not None and name not in refused]
        if refused:
            raise ArgumentError(
                f"vmap of torch.ops.tawa.{operator._name} over or with {', '.join(refused)}",
                why="the mapped axis joins the batch, which these do not have or number otherwise",
                remedy="put the axis into the batch yourself: x.flatten(0, 1)",
            )
        lined: dict[str, Tensor] = {}
        for name, dim in axes.items():
            if name in batched and (array := named[name]) is not None:
                every = array.expand(info.batch_size, *array.shape) if dim is None else array
                lined[name] = every if dim is None else every.movedim(dim, 0)
        rows, alibi, bias = lined["q"].shape[1], lined.get("alibi"), lined.get("bias")
        if alibi is not None and alibi.dim() == 2:  # one slope a head for all of a batch
            lined["alibi"] = alibi.unsqueeze(1)
        for name, array in lined.items():
            named[name] = array.expand(-1, rows, *array.shape[2:]).flatten(0, 1)
        split = info.batch_size, rows
        found = [each.unflatten(0, split) for each in operator(*named.values())]
        if len(found) == 4 and bias is not None and bias.shape[1] < rows:
            found[3] = found[3].sum(1, keepdim=True)
        return tuple(found), (0,) * len(found)

    return rule


attention.register_autograd(_attention_gradient, setup_context=_keep_attention)
attention_backward.register_autograd(_refuse_second)
record_attention = finish(attention, vmap=_by_batch(attention, FORWARD), cast=(0, 1, 2))
finish(attention_backward, vmap=_by_batch(attention_backward, BACKWARD))
