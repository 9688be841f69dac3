# JAX's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false
"""The library's calls on JAX arrays, with gradients and `jax.vmap`.

What a call launches is prepared for placeholders (`tawa.kernels.recipe`); each launch is one of
`tawa.jax.launches`. Nothing is timed while tracing: the first variant that builds is taken, or the
one that the caller names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from tawa.errors import ArgumentError
from tawa.jax.calls import bind, form_of
from tawa.jax.launches import Spot
from tawa.kernels import attention as forward
from tawa.kernels import attention_backward as backward
from tawa.kernels import matmul as products
from tawa.kernels.arrays import Zeros
from tawa.kernels.prepare import ACTIVATIONS
from tawa.kernels.recipe import Apart, Recipe, Step
from tawa.kernels.straight import Arrays, Recipes, Write
from tawa.runtime.arrays import Placeholder, array
from tawa.runtime.decorators import wrap
from tawa.runtime.descriptors import TensorDescriptor

LEAK = 0.01


class _Reader(Recipes):
    """Keeps the recipe of a call instead of running it."""

    recipe: Recipe | None = None

    def run(self, arrays: Arrays, options: tuple[Any, ...], write: Write) -> Sequence[Any]:
        """Write the recipe, and return nothing in the places of results."""
        self.recipe = write()
        return [None] * len(self.recipe.results)


def _read(call: Callable[..., Any], tuner: Any, *given: Any, **options: Any) -> Recipe:
    """Return what a call of the library does on placeholders."""
    reader = tuner.recipes = _Reader(())
    call(*given, **options, tuner=tuner)
    assert reader.recipe is not None, "a call writes its recipe"
    return reader.recipe


def run(
    name: str, recipe: Recipe, arrays: Sequence[Any], forms: Sequence[Placeholder | None]
) -> list[Any]:
    """Take the steps of a recipe on JAX arrays; `forms` say how each lies, None for None."""
    held: list[Any] = recipe.hold(forms)
    values: list[Any] = [*arrays, *[None] * (len(held) - len(arrays))]
    for number, form in enumerate(held):
        if isinstance(form, Zeros):
            values[number] = jnp.zeros(form.shape, jnp.int32)
    numbers = {id(form): number for number, form in enumerate(held) if form is not None}
    for step in recipe.steps:
        match step:
            case Step():
                _take(step, held, numbers, values)
            case Apart():
                pass
            case _:
                raise ArgumentError(
                    f"{name} of arrays without elements",
                    why="there is nothing to launch",
                    remedy="leave the call out where an extent is 0",
                )
    return [None if number is None else values[number] for number in recipe.results]


def _take(step: Step, held: Sequence[Any], numbers: dict[int, int], values: list[Any]) -> None:
    kernel = wrap(step.kernel)
    arguments: dict[str, Any] = {}
    used: list[int] = []
    for name, value in zip(kernel.arg_names, step.arguments_on(held)):
        described = value if isinstance(value, TensorDescriptor) else None
        form = value if described is None else described.base
        if isinstance(form, Placeholder):
            number = numbers[id(form)]
            if number not in used:
                used.append(number)
            arguments[name] = (number, described)
        else:
            arguments[name] = value
    used.sort(key=lambda number: values[number] is None)  # those to be made come last
    places = {number: place for place, number in enumerate(used)}
    spots = {
        name: Spot(places[value[0]], value[1]) if isinstance(value, tuple) else value
        for name, value in arguments.items()
    }
    given = [values[number] for number in used if values[number] is not None]
    forms = [held[number] for number in used]
    options = dict(step.options)
    known = {name: value for name, value in options.items() if name in kernel.arg_names}
    meta = {name: value for name, value in options.items() if name not in known}
    results, changed = bind(kernel, step.grid, {**spots, **known}, meta, given, forms)
    for number, value in zip(used[len(given) :], results):
        values[number] = value
    for place, value in changed:
        values[used[place]] = value


# --- products -----------------------------------------------------------------------------------


def _activated(activation: str, x: Any) -> Any:
    match activation:
        case "relu":
            return jax.nn.relu(x)
        case "leaky_relu":
            return jax.nn.leaky_relu(x, LEAK)
        case "silu":
            return jax.nn.silu(x)
        case "gelu":
            return jax.nn.gelu(x, approximate=True)
        case _:
            return x


@cache
def _launched(turned: tuple[bool, bool], options: tuple[tuple[str, Any], ...]) -> Any:
    """Return the product of matrices or batches of them, as they lie in memory, with its rule for
    `jax.vmap`; `turned` tells which lies the other way round.
    """

    @jax.custom_batching.custom_vmap
    def product(a: Any, b: Any, bias: Any) -> Any:
        forms = [_lying(each, other) for each, other in zip((a, b), turned)]
        named = dict(options)
        held = None if bias is None else form_of(bias)
        recipe = _read(products.matmul, products.Tuner(keep=False), *forms, bias=held, **named)
        rest = [None] * (len(products.ARRAYS) - 4)
        given = [a, b, None, bias, *rest]
        return run("matmul", recipe, given, [*forms, None, held, *rest])[0]

    @product.def_vmap
    def batched(size: int, mapped: Sequence[bool], a: Any, b: Any, bias: Any) -> Any:
        if bias is not None and mapped[2]:
            raise ArgumentError(
                "jax.vmap of matmul over the bias",
                why="the kernels add one bias to all rows",
                remedy="add it after the product",
            )
        if mapped[0] and not mapped[1] and a.ndim == 3 and b.ndim == 2 and not turned[0]:
            found = product(a.reshape(-1, a.shape[-1]), b, bias)
            return found.reshape(size, -1, found.shape[-1]), True
        both = [
            each if flag else jnp.broadcast_to(each, (size, *each.shape))
            for each, flag in zip((a, b), mapped)
        ]
        lead = both[0].shape[:-2]
        found = product(*(each.reshape(-1, *each.shape[-2:]) for each in both), bias)
        return found.reshape(*lead, *found.shape[-2:]), True

    return product


def _lying(value: Any, turned: bool) -> Placeholder:
    """Return the form of a matrix that lies as it is, or the other way round."""
    if not turned:
        return form_of(value)
    *batch, rows, columns = value.shape
    steps = [prod(value.shape[axis + 1 :]) for axis in range(len(batch))]
    return array((*batch, columns, rows), value.dtype, strides=(*steps, 1, columns))


@cache
def _product(options: tuple[tuple[str, Any], ...]) -> Any:
    named = dict(options)
    activation = named["activation"]
    plain = tuple({**named, "activation": "", "out_dtype": ""}.items())
    inner = {name: named[name] for name in ("input_precision",)}
    gradient = tuple({"activation": "", "out_dtype": "", **inner}.items())

    @jax.custom_vjp
    def product(a: Any, b: Any, bias: Any) -> Any:
        return _launched((False, False), options)(a, b, bias)

    def save(a: Any, b: Any, bias: Any) -> Any:
        return product(a, b, bias), (a, b, bias)

    def gradients(kept: Any, grad: Any) -> Any:
        a, b, bias = kept
        if a.dtype not in (jnp.float16, jnp.bfloat16, jnp.float32):
            raise ArgumentError(f"no gradient of matmul for {a.dtype}", why="floats of 16 bits on")
        if activation:
            before = _launched((False, False), plain)(a, b, bias)
            wide = before.astype(jnp.float32)
            (slope,) = jax.vjp(lambda x: _activated(activation, x), wide)[1](
                grad.astype(jnp.float32)
            )
            grad = slope
        grad = grad.astype(a.dtype)
        by_a = _launched((False, True), gradient)(grad, b, None)
        by_b = _launched((True, False), gradient)(a, grad, None)
        axes = tuple(range(grad.ndim - 1))
        by_bias = None
        if bias is not None:
            by_bias = grad.astype(jnp.float32).sum(axes).astype(bias.dtype)
        return by_a, by_b, by_bias

    product.defvjp(save, gradients)
    return product


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str = "",
    out_dtype: str = "",
    input_precision: str = "ieee",
) -> Any:
    """Return activation(a @ b + bias) of JAX arrays, as `tawa.kernels.matmul.matmul` does.

    `a` is [..., M, K], `b` [K, N] or [..., K, N], whose leading axes are broadcast; f16, bf16, f32,
    fp8. Has gradients by a, b and bias (of the first three types), and `jax.vmap` over a and b.
    Raises `ArgumentError` for what does not fit together, and gradients of gradients are refused.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    if a.ndim < 2 or b.ndim < 2:
        raise ArgumentError(
            f"no product of shapes {a.shape} and {b.shape}", why="both have rows and columns"
        )
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS[1:])}")
    options = {"activation": activation, "out_dtype": out_dtype}
    product = _product(tuple({**options, "input_precision": input_precision}.items()))
    if b.ndim == 2:
        found = product(a.reshape(-1, a.shape[-1]), b, bias)
        return found.reshape(*a.shape[:-1], found.shape[-1])
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    flat = [
        jnp.broadcast_to(each, (*batch, *each.shape[-2:])).reshape(-1, *each.shape[-2:])
        for each in (a, b)
    ]
    found = product(*flat, bias)
    return found.reshape(*batch, *found.shape[-2:])


# --- attention ----------------------------------------------------------------------------------


def _by_batch(function: Callable[..., Any]) -> Any:
    """Let a function of arrays whose first axis is a batch be mapped: one batch of all."""
    mapped = jax.custom_batching.custom_vmap(function)

    @mapped.def_vmap
    def batched(size: int, flags: Sequence[bool], *given: Any) -> Any:
        whole = [
            each if flag else jnp.broadcast_to(each, (size, *each.shape))
            for each, flag in zip(given, flags)
        ]
        found = mapped(*(each.reshape(-1, *each.shape[2:]) for each in whole))
        restored = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), found)
        return restored, jax.tree.map(lambda _: True, found)

    return mapped


@cache
def _attention(options: tuple[tuple[str, Any], ...]) -> Any:
    named = dict(options)

    def launched(q: Any, k: Any, v: Any) -> Any:
        forms = [form_of(each) for each in (q, k, v)]
        recipe = _read(
            forward.attention, forward.Tuner(keep=False), *forms, **named, return_lse=True
        )
        rest = [None] * (len(forward.ARRAYS) - 3)
        return tuple(run("attention", recipe, [q, k, v, *rest], [*forms, *rest]))

    def sums(grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, grad_lse: Any) -> Any:
        given = [grad, q, k, v, out, lse]
        forms = [form_of(each) for each in given]
        more = form_of(grad_lse)
        recipe = _read(
            backward.attention_backward,
            backward.Tuner(keep=False),
            *forms,
            **named,
            grad_lse=more,
        )
        rest = [None] * (len(backward.ARRAYS) - 7)
        arrays = [*given, grad_lse, *rest]
        return tuple(run("attention_backward", recipe, arrays, [*forms, more, *rest]))

    inner, gradients_of = _by_batch(launched), _by_batch(sums)

    @jax.custom_vjp
    def attend(q: Any, k: Any, v: Any) -> Any:
        return inner(q, k, v)

    def save(q: Any, k: Any, v: Any) -> Any:
        out, lse = inner(q, k, v)
        return (out, lse), (q, k, v, out, lse)

    def gradients(kept: Any, grads: Any) -> Any:
        grad, grad_lse = grads
        return gradients_of(grad, *kept, grad_lse)

    attend.defvjp(save, gradients)
    return attend


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    return_lse: bool = False,
) -> Any:
    """Return softmax(scale * q k^T) v of JAX arrays [batch, heads, length, head_dim], as
    `tawa.kernels.attention.attention` does, and with `return_lse` (out, lse).

    Has gradients by q, k and v (f16 and bf16), the same at every run, and `jax.vmap`, which makes
    one batch of all. Raises `ArgumentError` for what does not fit together; gradients of gradients
    are refused.
    """
    arrays = [jnp.asarray(each) for each in (q, k, v)]
    options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap}
    out, lse = _attention(tuple(options.items()))(*arrays)
    return (out, lse) if return_lse else out


__all__ = ["attention", "matmul"]
