# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`torch.ops.tawa`: the library's calls as operators of torch, with their gradients.

Each has a fake kernel (shapes alone, symbolic ones too), a gradient or a refusal by name, a rule of
autocast, and a rule of vmap or a refusal. They take any strides: what the kernels cannot read is
copied first.

Length: each operator beside what torch must know of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._library.autograd import make_autograd_impl
from torch.autograd import forward_ad

from tawa.errors import ArgumentError
from tawa.kernels import attention as _attention
from tawa.kernels import attention_backward as _backward
from tawa.kernels import matmul as _matmul
from tawa.runtime.arrays import is_tensor
from tawa.runtime.tensors import has_tangent, written

_TYPES = {
    "": None,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}
_NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def is_direct(first: Tensor, *others: Tensor | None) -> bool:
    """Tell whether torch neither traces nor transforms nor records what is done to tensors, and
    they have elements.
    """
    inside: Any = torch._C
    # Dynamo reads the first, and nothing behind it.
    if torch.compiler.is_compiling() or inside._is_tracing() or forward_ad._current_level >= 0:
        return False
    if inside._len_torch_dispatch_stack() or inside._functorch.peek_interpreter_stack():
        return False
    if first.is_meta:  # beside it others are, or are refused by name
        return False
    recording = torch.is_grad_enabled()
    for each in (first, *others):
        if each is not None and (
            type(each) not in _PLAIN or each.is_neg() or (recording and each.requires_grad)
        ):
            return False
    return True


def readable(matrix: Tensor) -> Tensor:
    """Return a matrix, or a batch, with one contiguous axis."""
    strides = matrix.stride()
    fits = len(strides) < 2 or 1 in strides[-2:] or 1 in matrix.shape[-2:]
    return matrix if fits and strides else matrix.contiguous()


def dense(array: Tensor | None) -> Tensor | None:
    """Return an array as the kernels read vectors."""
    return None if array is None else array.contiguous()


def _needed(ctx: Any, count: int) -> tuple[bool, ...]:
    """Return which of `count` inputs need a gradient; those left at their defaults do not."""
    given: tuple[bool, ...] = ctx.needs_input_grad[:-1]  # the last is the dispatcher's own
    return (*given, *(False,) * (count - len(given)))


# --- matmul -------------------------------------------------------------------------------------


def compute_matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str = "",
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    out_dtype: str = "",
    input_precision: str = "",
) -> Tensor:
    """Return activation(scale_a * scale_b * (a @ b) + bias): `tawa.kernels.matmul.matmul`."""
    return _matmul.matmul(
        readable(a),
        readable(b),
        bias=dense(bias),
        activation=activation,
        scale_a=dense(scale_a),
        scale_b=dense(scale_b),
        out_dtype=out_dtype,
        input_precision=input_precision,
    )


# Inductor need not copy a product's operands to the strides that they had when it was traced: any
# are read, and the result lies row-major whatever they are.
_ANY_STRIDES = (torch.Tag.flexible_layout,)
matmul = torch.library.custom_op("tawa::matmul", compute_matmul, mutates_args=(), tags=_ANY_STRIDES)


@matmul.register_fake
def _matmul_fake(a: Tensor, b: Tensor, *given: Any, **named: Any) -> Tensor:
    out_dtype = given[4] if len(given) > 4 else named.get("out_dtype", "")
    rows = () if a.dim() == 1 else (a.shape[-2],)
    columns = () if b.dim() == 1 else (b.shape[-1],)
    depth = b.shape[-1] if b.dim() == 1 else b.shape[-2]
    torch._check(a.shape[-1] == depth, lambda: f"no product of shapes {a.shape} and {b.shape}")
    torch._check(a.device == b.device, lambda: f"a is on {a.device}, b on {b.device}")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out_dtype not in _TYPES:
        raise ArgumentError(f"no element type {out_dtype!r}", why=f"one of {', '.join(_TYPES)}")
    kind = _TYPES[out_dtype] or (torch.bfloat16 if a.dtype in _NARROW else a.dtype)
    return a.new_empty((*batch, *rows, *columns), dtype=kind)


_BY_OUTPUT = ("relu", "leaky_relu")
"""Activations whose derivative their output tells as well as their input."""


def _keep_matmul(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, activation, scale_a, scale_b, _, precision = inputs
    needed = ctx.needed = _needed(ctx, len(inputs))
    if needed[4] or needed[5]:
        raise ArgumentError(
            "no gradient by scale_a or scale_b",
            why="they are taken as constants",
            remedy="pass scale.detach(), or multiply outside of the product",
        )
    if a.dtype in _NARROW:
        raise ArgumentError(
            f"no gradient by operands of {a.dtype}", remedy="convert them to bfloat16"
        )
    told = output if activation in _BY_OUTPUT else None
    ctx.save_for_backward(a, b, bias, scale_a, scale_b, told)
    ctx.activation, ctx.precision = activation, precision


@torch.library.custom_op("tawa::matmul_activation_backward", mutates_args=(), tags=_ANY_STRIDES)
def matmul_activation_backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    activation: str,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    input_precision: str = "",
) -> Tensor:
    """Return grad * activation'(scale_a * scale_b * (a @ b) + bias), in one kernel."""
    kind = next(name for name, kind in _TYPES.items() if kind is grad.dtype)
    how: dict[str, Any] = {"out_dtype": kind, "input_precision": input_precision}
    how |= {"bias": dense(bias), "activation": activation, "gradient": grad.contiguous()}
    how |= {"scale_a": dense(scale_a), "scale_b": dense(scale_b)}
    return _matmul.matmul(readable(a), readable(b), **how)


@matmul_activation_backward.register_fake
def _matmul_activation_backward_fake(grad: Tensor, *_: Any, **__: Any) -> Tensor:
    return grad.new_empty(grad.shape)


def slope(activation: str, z: Tensor) -> Tensor:
    """Return the derivative of an activation at `z`."""
    if activation == "relu":
        return (z > 0).to(z.dtype)
    if activation == "leaky_relu":
        return torch.where(z >= 0, 1.0, 0.01).to(z.dtype)
    if activation == "silu":
        gate = torch.sigmoid(z)
        return gate * (1 + z * (1 - gate))
    # gelu: x * sigmoid(c * (x + 0.044715 x^3))
    factor = 1.5957691216057308
    gate = torch.sigmoid(factor * (z + 0.044715 * z * z * z))
    return gate * (1 + z * (1 - gate) * factor * (1 + 3 * 0.044715 * z * z))


def _matmul_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """dz = grad * activation'(z); da = dz b^T, db = a^T dz, each from the layout that it has and in
    that of what it is the gradient of: torch copies what lies otherwise than a weight.
    """
    a, b, bias, scale_a, scale_b, out = ctx.saved_tensors
    dz = grad
    if ctx.activation and torch.is_grad_enabled():  # what follows has gradients itself
        z = matmul(a, b, bias, "", scale_a, scale_b, "f32", ctx.precision)
        dz = (grad.float() * slope(ctx.activation, z)).to(grad.dtype)
    elif ctx.activation in _BY_OUTPUT:
        dz = grad * slope(ctx.activation, out)
    elif ctx.activation:
        dz = matmul_activation_backward(
            grad, a, b, bias, ctx.activation, scale_a, scale_b, ctx.precision
        )
    of_bias = None
    if ctx.needed[2]:
        of_bias = dz.float().reshape(-1, dz.shape[-1]).sum(0).to(bias.dtype)
    if scale_a is not None:
        rows = scale_a.reshape(*dz.shape[:-1], 1) if scale_a.numel() > 1 else scale_a
        dz = dz * rows * (scale_b.reshape(-1) if scale_b.numel() > 1 else scale_b)
    if dz.dtype is not a.dtype:
        dz = dz.to(a.dtype)
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    if a.dim() == 1:
        dz = dz.unsqueeze(-1 if b.dim() == 1 else -2)
    if b.dim() == 1:
        dz = dz.unsqueeze(-1)
    product = torch.ops.tawa.matmul.default
    how = None, "", None, None, "", ctx.precision
    of_a = of_b = None
    if ctx.needed[0]:
        made = product(right, dz.mT, *how).mT if _turned(left) else product(dz, right.mT, *how)
        of_a = _summed(made, left, a)
    if ctx.needed[1]:
        if right.dim() == 2 and left.dim() > 2:  # one weight: the batch is part of the sum
            left, dz = left.flatten(0, -2), dz.flatten(0, -2)
        made = product(dz.mT, left, *how).mT if _turned(right) else product(left.mT, dz, *how)
        of_b = _summed(made, right, b)
    return of_a, of_b, of_bias, None, None, None, None, None


def _turned(matrix: Tensor) -> bool:
    """Tell whether the columns of a matrix, or a batch, are contiguous, and its rows are not."""
    return matrix.stride(-2) == 1 and matrix.stride(-1) != 1


def _summed(made: Tensor, lined: Tensor, like: Tensor) -> Tensor:
    """Return a gradient summed over what was repeated, in the shape of what it is the gradient of;
    steps that do nothing are left out, each costs the host a microsecond or more.
    """
    if made.shape == like.shape:
        return made
    return made.sum_to_size(lined.shape).reshape(like.shape)


matmul.register_autograd(_matmul_gradient, setup_context=_keep_matmul)


def _matmul_vmap(
    info: Any, dims: Sequence[int | None], a: Tensor, b: Tensor, bias: Any = None, *rest: Any
) -> tuple[Tensor, int]:
    if any(dim is not None for dim in dims[2:]) or (len(rest) > 1 and rest[1] is not None):
        raise ArgumentError(
            "vmap over bias or scales of torch.ops.tawa.matmul, or with scales",
            why="a batch of products has one bias and no scales",
            remedy="add or multiply outside of the product",
        )
    ranks = [each.dim() - (dim is not None) for each, dim in zip((a, b), dims)]
    if 1 in ranks:
        raise ArgumentError(
            "vmap over vectors of torch.ops.tawa.matmul", remedy="pass x[None, :] or x[:, None]"
        )
    lined = [
        each
        if dim is None
        else each.movedim(dim, 0).reshape(
            info.batch_size,
            *(1,) * (max(ranks) - rank),
            *(extent for axis, extent in enumerate(each.shape) if axis != dim),
        )
        for each, dim, rank in zip((a, b), dims, ranks)
    ]
    return matmul(*lined, bias, *rest), 0


matmul.register_vmap(_matmul_vmap)


# --- attention ----------------------------------------------------------------------------------


def rows_of(array: Tensor, *, once: bool = False) -> Tensor:
    """Return (batch, heads, sequence, dim) as TMA reads it: contiguous rows, steps of 16 bytes.

    `once`: each element in its own place, not expanded.
    """
    steps = _are_steps(tuple(array.shape), array.stride(), array.element_size(), once)
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
    kind = torch.bfloat16 if q.dtype in _NARROW else q.dtype
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
    ctx.needed = _needed(ctx, len(inputs))
    by_slopes = ctx.needed[FORWARD.index("alibi")]
    if without or by_slopes or q.dtype in _NARROW:
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
    made = attention_backward(grad, q, k, v, out, lse, grad_lse, *extras, **how)
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
    if not deterministic and torch.are_deterministic_algorithms_enabled():
        raise ArgumentError(
            "deterministic=False under torch.use_deterministic_algorithms",
            why="dq would be added up in another order at each run",
            remedy="leave deterministic out",
        )
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
        deterministic=deterministic,
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


def _attention_vmap(
    info: Any, dims: Sequence[int | None], *given: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """Put the mapped axis into the batch of q, k, v and bias; what else is mapped is refused."""
    batched = {"q", "k", "v", "bias"}
    named = dict(zip(FORWARD, given))
    mapped = [name for name, dim in zip(FORWARD, dims) if dim is not None]
    whole = ("cu_seqlens", "block_table", "lengths", "leftpad", "rng")
    refused = [name for name in mapped if name not in batched]
    refused += [name for name in whole if named.get(name) is not None and name not in refused]
    if refused:
        raise ArgumentError(
            f"vmap of torch.ops.tawa.attention over or with {', '.join(refused)}",
            why="the mapped axis joins the batch, which these do not have or number otherwise",
            remedy="put the axis into the batch yourself: x.flatten(0, 1)",
        )
    rows = 1
    for name, dim in zip(FORWARD, dims):
        array = named[name]
        if name not in batched or array is None:
            continue
        array = (
            array.expand(info.batch_size, *array.shape) if dim is None else array.movedim(dim, 0)
        )
        if name == "q":
            rows = array.shape[1]
        named[name] = array.expand(-1, rows, *array.shape[2:]).flatten(0, 1)
    out, lse = attention(*named.values())
    split = info.batch_size, rows
    return (out.unflatten(0, split), lse.unflatten(0, split)), (0, 0)


attention.register_autograd(_attention_gradient, setup_context=_keep_attention)
attention_backward.register_autograd(_refuse_second)


def refuse_vmap(name: str) -> Callable[..., Any]:
    """Return a rule of vmap for an operator that has none."""

    def refuse(*_: Any) -> Any:
        raise ArgumentError(
            f"vmap over torch.ops.tawa.{name}",
            why="its arrays have a batch axis of their own",
            remedy="put the axis into the batch: x.flatten(0, 1)",
        )

    return refuse


matmul_activation_backward.register_vmap(refuse_vmap("matmul_activation_backward"))
attention.register_vmap(_attention_vmap)
attention_backward.register_vmap(refuse_vmap("attention_backward"))


# --- what the dispatcher does --------------------------------------------------------------------


def refuse_tangents(operator: Any, *, at_once: bool = False) -> None:
    """Let an operator raise `ArgumentError` for tangents: torch takes one that has no rule for them
    to give zeros.

    `at_once`: calls that nothing records or traces, as a compiled graph's are, go to its function,
    past torch's layers for gradients and checks, which are more than a launch costs.
    """
    function: Callable[..., Any] = operator._init_fn
    recorded = make_autograd_impl(operator._opoverload, operator)
    arguments = enumerate(operator._opoverload._schema.arguments)
    changed = [place for place, each in arguments if each.is_write]

    def call(keys: Any, *args: Any, **keywords: Any) -> Any:
        given = [each for each in (*args, *keywords.values()) if isinstance(each, Tensor)]
        if at_once and is_direct(*given):
            found = function(*args, **keywords)
            for place in changed:
                written(args[place])
            return found
        if any(map(has_tangent, given)):
            raise ArgumentError(
                f"{operator._qualname} has no gradient in forward mode",
                why="an argument carries a tangent, and its product with one is not computed",
                remedy="take the gradient in reverse mode: backward, torch.autograd.grad",
            )
        return recorded(keys, *args, **keywords)

    for key in ("AutogradCUDA", "AutogradCPU"):
        operator._lib.impl(operator._name, call, key, with_keyset=True)


def under_autocast(operator: Any, key: str, cast: Sequence[int]) -> None:
    """Let `operator` cast its arguments at the places `cast` as autocast does of torch's own."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def call(*args: Any, **keywords: Any) -> Any:
        kind = torch.get_autocast_dtype(key.removeprefix("Autocast").lower())
        given = list(args)
        for place in cast:
            if place < len(given) and is_tensor(given[place]) and given[place].dtype in _WIDE:
                given[place] = given[place].to(kind)
        if isinstance(bias := keywords.get("bias"), Tensor) and bias.dtype in _WIDE:
            keywords["bias"] = bias.to(kind)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(*given, **keywords)

    operator._lib.impl(operator._name, call, key)


_WIDE = (torch.float16, torch.bfloat16, torch.float32)
for _operator in (matmul, matmul_activation_backward, attention, attention_backward):
    refuse_tangents(_operator, at_once=True)
for _key in ("AutocastCUDA", "AutocastCPU"):
    under_autocast(matmul, _key, (0, 1, 2))
    under_autocast(attention, _key, (0, 1, 2))

__all__ = ["attention", "attention_backward", "matmul"]
