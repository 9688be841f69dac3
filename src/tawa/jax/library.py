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

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from tawa.errors import ArgumentError
from tawa.jax.calls import alike, bind, form_of
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
from tawa.runtime.dtypes import numpy_dtype


class _Reader(Recipes):
    """Keeps the recipe of a call instead of running it."""

    recipe: Recipe | None = None

    def run(self, arrays: Arrays, options: tuple[Any, ...], write: Write) -> Sequence[Any]:
        """Write the recipe, and return nothing in the places of results."""
        self.recipe = write()
        return [None] * len(self.recipe.results)


def read(call: Callable[..., Any], tuner: Any, *given: Any, **options: Any) -> Recipe:
    """Return what a call of the library does on placeholders."""
    reader = tuner.recipes = _Reader(())
    call(*given, **options, tuner=tuner)
    assert reader.recipe is not None, "a call writes its recipe"
    return reader.recipe


def run(
    name: str,
    recipe: Recipe,
    names: Sequence[str],
    arrays: Mapping[str, Any],
    forms: Mapping[str, Placeholder | None],
) -> list[Any]:
    """Take the steps of a recipe on JAX arrays, which a call calls `names`, in that order; `forms`
    say how each lies. Those that are left out are None.
    """
    held: list[Any] = recipe.hold([forms.get(each) for each in names])
    values: list[Any] = [arrays.get(each) for each in names]
    values += [None] * (len(held) - len(values))
    for number, form in enumerate(held):
        if isinstance(form, Zeros):
            values[number] = jnp.zeros(form.shape, jnp.int32)
        elif form is not None and values[number] is None and 0 in form.shape:
            # No launch stores what has no elements.
            values[number] = jnp.zeros(form.shape, numpy_dtype(form.dtype))
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


@cache
def _launched(turned: tuple[bool, bool], options: tuple[tuple[str, Any], ...]) -> Any:
    """Return the product of matrices or batches of them, as they lie in memory, with its rule for
    `jax.vmap`; `turned` tells which lies the other way round.
    """

    @jax.custom_batching.custom_vmap
    def product(a: Any, b: Any, bias: Any, gradient: Any) -> Any:
        given = {"a": a, "b": b, "bias": bias, "gradient": gradient}
        forms = {name: None if each is None else form_of(each) for name, each in given.items()}
        forms |= {name: _lying(given[name], other) for name, other in zip("ab", turned)}
        recipe = read(products.matmul, products.Tuner(keep=False), **forms, **dict(options))
        return run("matmul", recipe, products.ARRAYS, given, forms)[0]

    @product.def_vmap
    def batched(size: int, mapped: Sequence[bool], a: Any, b: Any, bias: Any, gradient: Any) -> Any:
        if bias is not None and mapped[2]:
            raise ArgumentError(
                "jax.vmap of matmul over the bias",
                why="the kernels add one bias to all rows",
                remedy="add it after the product",
            )
        if gradient is not None and not mapped[3]:
            gradient = jnp.broadcast_to(gradient, (size, *gradient.shape))
        if mapped[0] and not mapped[1] and a.ndim == 3 and b.ndim == 2 and not turned[0]:
            found = product(_joined(a, 1), b, bias, _joined(gradient, 1))
            return found.reshape(size, a.shape[1], found.shape[-1]), True
        both = [
            each if flag else jnp.broadcast_to(each, (size, *each.shape))
            for each, flag in zip((a, b), mapped)
        ]
        lead = both[0].shape[:-2]
        found = product(*(_joined(each, 2) for each in both), bias, _joined(gradient, 2))
        return found.reshape(*lead, *found.shape[-2:]), True

    return product


def _joined(value: Any, kept: int) -> Any:
    """Return an array whose axes before the last `kept` are one; None stays."""
    if value is None:
        return None
    return value.reshape(prod(value.shape[:-kept]), *value.shape[-kept:])


def _lying(value: Any, turned: bool) -> Placeholder:
    """Return the form of a matrix that lies as it is, or the other way round."""
    if not turned:
        return form_of(value)
    *batch, rows, columns = value.shape
    steps = [prod(value.shape[axis + 1 :]) for axis in range(len(batch))]
    return array((*batch, columns, rows), value.dtype, strides=(*steps, 1, columns))


@cache
def _product(options: tuple[tuple[str, Any], ...], turned: tuple[bool, bool]) -> Any:
    """Return the same with gradients by a, b and bias, which are such products themselves."""
    named = dict(options)
    plain = tuple({**named, "activation": "", "out_dtype": ""}.items())

    @jax.custom_vjp
    def product(a: Any, b: Any, bias: Any) -> Any:
        return _launched(turned, options)(a, b, bias, None)

    def save(a: Any, b: Any, bias: Any) -> Any:
        return product(a, b, bias), (a, b, bias)

    def gradients(kept: Any, grad: Any) -> Any:
        a, b, bias = kept
        if a.dtype not in (jnp.float16, jnp.bfloat16, jnp.float32):
            raise ArgumentError(f"no gradient of matmul for {a.dtype}", why="floats of 16 bits on")
        grad = grad.astype(a.dtype)
        if named["activation"]:  # times its derivative, within the product that it is taken of
            inner = tuple({**named, "out_dtype": ""}.items())
            grad = _launched(turned, inner)(a, b, bias, grad)
        by_a = _product(plain, (turned[1], True) if turned[0] else (False, not turned[1]))
        by_a = by_a(b, grad, None) if turned[0] else by_a(grad, b, None)
        by_b = _product(plain, (True, turned[0]) if turned[1] else (not turned[0], False))
        by_b = by_b(grad, a, None) if turned[1] else by_b(a, grad, None)
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
    Gradients of gradients are of products without an activation. Raises `ArgumentError` for what
    does not fit together.
    """
    a, b, bias = alike(*(None if each is None else jnp.asarray(each) for each in (a, b, bias)))
    if a.ndim < 2 or b.ndim < 2:
        raise ArgumentError(
            f"no product of shapes {a.shape} and {b.shape}", why="both have rows and columns"
        )
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS[1:])}")
    options = {"activation": activation, "out_dtype": out_dtype}
    how = tuple({**options, "input_precision": input_precision}.items())
    product = _product(how, (False, False))
    if b.ndim == 2:
        found = product(_joined(a, 1), b, bias)
        return found.reshape(*a.shape[:-1], found.shape[-1])
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    both = (jnp.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (a, b))
    found = product(*(_joined(each, 2) for each in both), bias)
    return found.reshape(*batch, *found.shape[-2:])


# --- attention ----------------------------------------------------------------------------------


def _by_batch(function: Callable[..., Any], batched: int) -> Any:
    """Let a function be mapped whose first `batched` arrays have a batch first, of 1 or all: it
    becomes one batch of all. A result whose batch was 1 is the sum of what becomes of it.
    """
    mapped = jax.custom_batching.custom_vmap(function)

    @mapped.def_vmap
    def rule(size: int, flags: Sequence[bool], *given: Any) -> Any:
        if any(flags[batched:]):
            raise ArgumentError(
                "jax.vmap of attention over sink, key, alibi or cu_seqlens",
                why="a launch has one of each",
                remedy="map by jax.lax.map, or put the axis into the batch of q, k and v",
            )
        first = given[0].shape[bool(flags[0])]

        def line_up(each: Any, flag: bool) -> Any:
            every = each if flag else each[None]
            every = jnp.broadcast_to(every, (size, first, *every.shape[2:]))
            return every.reshape(size * first, *every.shape[2:])

        lined = [
            None if each is None else line_up(each, flag)
            for each, flag in zip(given[:batched], flags)
        ]
        one = [
            None if each is None else jax.ShapeDtypeStruct(each.shape[bool(flag) :], each.dtype)
            for each, flag in zip(given, flags)
        ]
        results = jax.tree.map(
            lambda found, alone: (
                found.reshape(size, first, *found.shape[1:])
                if alone.shape[0] == first
                else found.reshape(size, first, *found.shape[1:]).sum(1, keepdims=True)
            ),
            mapped(*lined, *given[batched:]),
            jax.eval_shape(function, *one),
        )
        return results, jax.tree.map(lambda _: True, results)

    return mapped


@cache
def _attention(options: tuple[tuple[str, Any], ...]) -> Any:
    named = dict(options)

    def forms_of(given: Mapping[str, Any]) -> dict[str, Placeholder | None]:
        forms = {name: None if each is None else form_of(each) for name, each in given.items()}
        if given["rng"] is not None:  # the seed and offset are what lies in four words of JAX
            forms["rng"] = array((2,), "i64")
        return forms

    def launched(*arrays: Any) -> Any:
        given: dict[str, Any] = dict(zip(_FORWARD, arrays))
        forms = forms_of(given)
        tuner = forward.Tuner(keep=False)
        how = _packed(forms) | named
        recipe = read(forward.attention, tuner, **how, return_lse=True)
        return tuple(run("attention", recipe, forward.ARRAYS, given, forms))

    def sums(*arrays: Any) -> Any:
        given: dict[str, Any] = dict(zip(_GRADIENTS, arrays))
        forms = forms_of(given)
        tuner, bias_gradient = backward.Tuner(keep=False), given["bias"] is not None
        how = _packed(forms) | named
        recipe = read(backward.attention_backward, tuner, **how, bias_gradient=bias_gradient)
        return tuple(run("attention_backward", recipe, backward.ARRAYS, given, forms))

    inner, gradients_of = _by_batch(launched, 4), _by_batch(sums, 8)

    @jax.custom_vjp
    def attend(*given: Any) -> Any:
        return inner(*given)

    def save(*given: Any) -> Any:
        out, lse = inner(*given)
        return (out, lse), (*given, out, lse)

    def gradients(kept: Any, grads: Any) -> Any:
        q, k, v, bias, sink, *rest, out, lse = kept
        grad, grad_lse = grads
        found = gradients_of(q, k, v, grad, out, lse, grad_lse, bias, *rest)
        of_sink = None
        if sink is not None:
            delta = (grad.astype(jnp.float32) * out).sum(-1) - grad_lse
            of_sink = -(jnp.exp(sink[:, None] - lse) * delta).sum((0, 2))
        return *found[:3], None if bias is None else found[3], of_sink, None, None, None, None

    attend.defvjp(save, gradients)
    return attend


_REST = ("rng", "alibi", "cu_seqlens", "cu_seqlens_k")
_FORWARD = ("q", "k", "v", "bias", "sink", *_REST)
_GRADIENTS = ("q", "k", "v", "grad", "out", "lse", "grad_lse", "bias", *_REST)
"""The arrays of attention and of its gradients; those up to `bias` have a batch."""


def _packed(forms: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the library, which takes the starts of keys beside those of queries."""
    given = dict(forms)
    of_keys = given.pop("cu_seqlens_k")
    return given if of_keys is None else given | {"cu_seqlens": (given["cu_seqlens"], of_keys)}


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    bias: Any = None,
    alibi: Any = None,
    sink: Any = None,
    cu_seqlens: Any = None,
    dropout: float = 0.0,
    key: Any = None,
    return_lse: bool = False,
) -> Any:
    """Return softmax(scale * q k^T) v of JAX arrays [batch, heads, length, head_dim], as
    `tawa.kernels.attention.attention` does, and with `return_lse` (out, lse).

    `cu_seqlens` of packed sequences is an array of int32, or a pair of them, for q and for k and v.
    `key`, of `jax.random`, decides what `dropout` drops: the same in the gradients, and wherever it
    is the same. Has gradients by q, k, v (f16 and bf16), bias and sink, the same at every run, and
    `jax.vmap` over q, k, v and bias, which makes one batch of all. Raises `ArgumentError` for what
    does not fit together; gradients of gradients are refused, and alibi is taken as a constant.
    """
    both = isinstance(cu_seqlens, tuple | list)
    starts, starts_k = cu_seqlens if both else (cu_seqlens, None)
    given = q, k, v, bias, sink, alibi, starts, starts_k
    arrays = [None if each is None else jnp.asarray(each) for each in given]
    if alibi is not None:
        arrays[5] = jax.lax.stop_gradient(arrays[5])
    if dropout and key is None:
        raise ArgumentError(
            f"dropout {dropout} without a key",
            why="what is dropped depends on it alone",
            remedy="pass key=jax.random.key(seed), another at each call",
        )
    rng = jax.random.bits(key, (4,), jnp.uint32) if dropout else None
    options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap}
    options |= {"dropout": dropout}
    out, lse = _attention(tuple(options.items()))(*alike(*arrays[:5], rng, *arrays[5:]))
    return (out, lse) if return_lse else out
