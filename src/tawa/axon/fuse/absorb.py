"""What follows a product and is the library's with it: a scale, a bias, an activation, attention.

The forms are programs of the language, traced as every other; a value has a form if one graph
is the other with arrays for its variables. What is linear in a product, with a number for each of
its channels, is a scale and a bias, however it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from tawa.axon.fuse import calls
from tawa.axon.fuse.linear import Linear
from tawa.axon.fuse.needs import below, demanded, traced_in
from tawa.axon.fuse.trace import Axis, Cuts, Node, Operand, Step, Traced, evaluated

_ACTIVATIONS = {
    "relu": "relu x",
    "leaky_relu": "leaky_relu x",
    "silu": "silu x",
    "gelu": "gelu_tanh x",  # the library's
    "": "x",
}
_OF_CONVOLUTIONS = {"relu6": "relu6 x"}
_SCORES = ("softmax (x * s)", "softmax (x / s)", "softmax x")
_HEAD_DIM = 256  # the most that `tawa.kernels.attention` takes
Bound: TypeAlias = dict[str, Operand]
Readers: TypeAlias = dict[Node, set[Node | None]]


@cache
def _form(text: str) -> Operand:
    """Return the graph of an expression of x [m, n] and a number s."""
    from tawa.axon.module import load

    m, n = Axis(2), Axis(3)
    words: dict[str, tuple[Axis, ...]] = {"x": (m, n), "s": ()}
    given = [
        Traced(Node(f"any {name}", (), "float32"), axes, "float32", Cuts())
        for name, axes in words.items()
    ]
    found: Traced = load(f"fun form (x, s) = {text}").form.run(tuple(given))
    return found.node


def absorbed(cuts: Cuts, wanted: Sequence[Node]) -> dict[Node, Step]:
    """Return steps that make what kernels after products would: they replace both."""
    found: dict[Node, Step] = {}
    for replace in (_attention, _finished):
        roots = demanded(cuts, wanted, found)
        readers: Readers = {node: {None} for node in wanted}
        for root in roots:
            step = found.get(root) or cuts.of.get(root)
            inputs = [t.node for t in traced_in(step.inputs)] if step else below(root)
            for node in inputs:
                readers.setdefault(node, set()).add(root)
        for root in roots:
            if root not in found and (step := replace(cuts, root, readers)):
                found[root] = step
    return found


def _products(cuts: Cuts, root: Node, readers: Readers) -> Iterator[tuple[Node, Step]]:
    """Yield the library's products and convolutions that this value alone is computed from."""
    for node in below(root) if root.name != "load" else ():
        step = cuts.of.get(node)
        if step and step.plain and step.name in ("matmul", "conv") and readers[node] == {root}:
            yield node, step


def _attention(cuts: Cuts, root: Node, readers: Readers) -> Step | None:
    """Return a product of weights and values as attention, where weights are softmax(s q k')."""
    last = cuts.of.get(root)
    if last is None or last.name != "matmul" or not last.plain:
        return None
    weights, v = last.inputs
    if readers[weights.node] != {root} or weights.dtype not in ("float16", "bfloat16"):
        return None
    for node, step in _products(cuts, weights.node, readers):
        if step.name != "matmul":
            continue
        q, k = step.inputs
        if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] or q.ndim < 3:
            continue
        if not 0 < max(q.shape[-1], v.shape[-1]) <= _HEAD_DIM or 0 in (*k.shape, *q.shape):
            continue
        for text in _SCORES:
            bound: Bound = {"x": node}
            if _is(_form(text), weights.node, bound) and (s := _number(bound.get("s", 1.0))):
                scale = 1 / s if "/" in text else s
                run = partial(calls.attention, scale=scale)
                return Step("attention", run, (q, k, v), True, calls.attention_orders)
    return None


def _number(operand: Operand) -> float | None:
    """Return the value of what is computed of no array."""
    if not isinstance(operand, Node):
        return float(operand)
    return None if below(operand) else float(evaluated(operand))


def _finished(cuts: Cuts, root: Node, readers: Readers) -> Step | None:
    """Return a product with what follows it, where that is all of a value."""
    for node, step in _products(cuts, root, readers):
        convolves = step.name == "conv"
        vector = not convolves and step.inputs[1].ndim < 2
        if vector or cuts.known[root].dtype != cuts.known[node].dtype:
            continue
        every = {**_OF_CONVOLUTIONS, **_ACTIVATIONS} if convolves else _ACTIVATIONS
        for activation, outer in every.items():
            bound: Bound = {"x": root} if not activation else {}
            if activation and not _is(_form(outer), root, bound):
                continue
            linear = Linear(cuts, cuts.known[node], 1 if convolves else -1)
            made = linear.arrays(bound["x"])
            if made is None:
                continue
            bias, residual, scale = (each is not None for each in made)
            nothing = not (activation or bias or residual or scale)
            if nothing or (not convolves and (residual or scale)):
                continue
            name = "scale * " * scale + step.name + " + bias" * bias + " + residual" * residual
            run: Callable[..., Any] = partial(step.run, activation=activation)
            shown = f"{activation}({name})" if activation else name
            more = made if convolves else made[:1]
            return Step(shown, run, (*step.inputs, *more), True, step.orders)
    return None


def _is(form: Operand, node: Operand, bound: Bound) -> bool:
    """Tell whether a value has a form, and note what stands for the form's variables."""
    if not isinstance(form, Node) or not isinstance(node, Node):
        if isinstance(form, Node) and form.name.startswith("any "):
            return _same(bound.setdefault(form.name[4:], node), node)
        return not isinstance(form, Node) and repr(form) == repr(node)
    if form.name.startswith("any "):
        return _same(bound.setdefault(form.name[4:], node), node)
    if form is node:
        return True
    if (form.name, form.dtype, len(form.inputs)) != (node.name, node.dtype, len(node.inputs)):
        return False
    if form.name == "load" or (form.name == "size" and form.axis is not node.axis):
        return False
    orders: tuple[Literal[1, -1], ...] = (1, -1) if form.name in ("+", "*") else (1,)
    for order in orders:
        tried = dict(bound)
        if all(_is(a, b, tried) for a, b in zip(form.inputs, node.inputs[::order])):
            bound.update(tried)
            return True
    return False


def _same(one: Operand, other: Operand) -> bool:
    return one is other or _is(one, other, {})
