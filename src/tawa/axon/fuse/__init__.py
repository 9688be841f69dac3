"""Fusion: a function that computes element by element and along rows becomes one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import mul
from typing import Any

import numpy as np

from tawa import compile_ir
from tawa.axon.fuse.forms import Array, Form, form_of, reciprocal
from tawa.axon.fuse.kernel import Graph, build
from tawa.axon.fuse.trace import Axis, Node, Traced, refused
from tawa.axon.module import Function
from tawa.axon.run.values import NAMES, key_of
from tawa.axon.types.kinds import DEFAULT, Product, Tensor, Type
from tawa.errors import AxonError, AxonGuard
from tawa.runtime.arrays import View, empty_beside, look

__all__ = ["Fused", "fuse"]
# What arithmetic is done in; sums of the narrow floats are as exact as those of f32.
_COMPUTED = {"bf16": "float32", "f16": "float32"}
_LONG = {"i1": "bool", **{short: long for long, short in NAMES.items()}}


@dataclass(frozen=True, slots=True)
class _Trace:
    """What a function does with arguments of some shapes: `axes` are those of each array."""

    graph: Graph
    axes: list[tuple[Axis, ...]]
    outputs: list[tuple[tuple[Axis, ...], str]]
    single: bool


class Fused:
    """A function as one kernel, compiled where a graph or an alignment is new, not for each shape.

    Takes what the function takes, with arrays of NumPy (the kernel runs in the simulator) or of a
    GPU. Raises AxonGuard for arguments that do not fit, AxonError for what is not fused: it
    computes element by element, with broadcasting, and reduces along the last axis, any number of
    times. Rows may be of any length. Arithmetic is in float32 where arrays are narrower.

    Example::

        softmax = fuse(axon.load("fun f x = softmax x").f)
        softmax(x)
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.kernels: dict[tuple[str, Form], Any] = {}
        self._traces: dict[Any, _Trace] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Compile where no kernel fits yet, and launch; return new arrays, as the function does."""
        arguments = tuple([_plain(each) for each in arguments])
        arrays = [each for each in _flat(arguments) if hasattr(each, "shape")]
        if not arrays:
            raise AxonGuard(f"{self.function.name} is given no array to compute with")
        key = key_of(arguments)
        if key not in self._traces:
            self._traces[key] = self._trace(arguments)
        trace = self._traces[key]
        results = [
            empty_beside(arrays[0], tuple([axis.size for axis in axes]), element)
            for axes, element in trace.outputs
        ]
        if any(math.prod(result.shape) for result in results):
            self._launch(trace, arrays, results)
        return results[0] if trace.single else tuple(results)

    def _trace(self, arguments: tuple[Any, ...]) -> _Trace:
        kind = self.function.check(*arguments)
        axes: list[tuple[Axis, ...]] = []

        def traced(value: Any) -> Any:
            if isinstance(value, tuple | list):
                return tuple([traced(item) for item in value])  # pyright: ignore
            if not hasattr(value, "shape"):
                return value
            own = tuple([Axis(int(size)) for size in value.shape])
            element = look(value).dtype
            dtype = _COMPUTED.get(element) or _LONG[element]
            axes.append(own)
            node = Node("load", (), dtype, axes=own, argument=len(axes) - 1)
            return Traced(node, own)

        found: Any = self.function.run(*map(traced, arguments))
        single = not isinstance(found, tuple)
        results: list[Any] = [found] if single else [*found]
        nodes: list[Node] = []
        outputs: list[tuple[tuple[Axis, ...], str]] = []
        for result, one in zip(results, _kinds(kind), strict=True):
            if not isinstance(result, Traced):
                raise refused(self.function.name, "a result of it is no array that it computes")
            element = one.element if isinstance(one.element, str) else DEFAULT[one.element.kind]
            outputs.append((result.axes, "i1" if element == "bool" else element))
            nodes.append(result.node)
        last = max((axes for axes, _ in outputs), key=len)
        columns = last[-1] if last else Axis(1)
        graph = Graph(nodes, columns)
        return _Trace(graph, axes, outputs, single)

    def _launch(self, trace: _Trace, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        columns = trace.graph.columns
        width = columns.size
        words = [*trace.axes, *(axes for axes, _ in trace.outputs)]
        views = [look(array) for array in (*arrays, *results)]
        steps = [self._steps(word, view) for word, view in zip(words, views)]
        rows = list(dict.fromkeys(a.root for axes, _ in trace.outputs for a in axes))
        rows = [axis for axis in rows if axis is not columns and not axis.one]
        for word, step in zip(words, steps):
            place = [rows.index(axis) for axis in step if axis in rows]
            if width > 1 and step.get(columns, 1) != 1:
                why = f"items of the last axis of {_spelled(word)} do not lie side by side"
                remedy = "pass a copy: np.ascontiguousarray(x), or x.contiguous()"
                raise refused(self.function.name, why, remedy)
            lost = [a for a in step if a not in rows and a is not columns and a.size != 1]
            if lost or place != sorted(place):
                raise refused(self.function.name, f"rows of {_spelled(word)} lie otherwise")
        for axes, _ in trace.outputs:
            if any(axis.size != 1 and axis not in {a.root for a in axes} for axis in rows):
                raise refused(self.function.name, "its results have different rows")
        groups = _grouped(rows, steps)
        extents = [math.prod([axis.size for axis in group]) for group in groups]
        numbers = [[step.get(group[-1]) for group in groups] for step in steps]
        inner: list[int] = list(accumulate([width, *reversed(extents)], mul))
        reduces = max(trace.graph.depth.values()) > 0
        forms = [
            Array(
                view.dtype,
                view.itemsize,
                tuple([number is not None for number in strides]),
                columns in step,
                not reduces and columns in step and strides == inner[-2::-1],
            )
            for view, step, strides in zip(views, steps, numbers)
        ]
        strides = [[number for number in each if number is not None] for each in numbers]
        even = width % 16 == 0 and all(
            view.address % 16 == 0 and all(number % 16 == 0 for number in each)
            for view, form, each in zip(views, forms, strides)
            if form.columns
        )
        dense = [view.address for view, form in zip(views, forms) if form.dense]
        whole = all(number % 16 == 0 for number in (inner[-1], *dense))
        aligned = even or (whole and not reduces)
        form = form_of(forms, len(results), even, aligned, width if reduces else None, inner[-1])
        key = trace.graph.text, form
        if key not in self.kernels:
            self.kernels[key] = compile_ir(build(trace.graph, form))
        kept, together, lanes = form.tile
        sizes = [axis.size for axis in trace.graph.sizes if axis]
        factors: list[int] = []
        if reduces:
            programs = -(-math.prod(extents) // together)
        else:
            programs = -(-inner[-1] // (kept * lanes * form.vector))
            lengths = [*extents[1:], width // (form.vector if even else 1)]
            lengths = [] if form.far else lengths
            for length in reversed(lengths[: len(extents)]):
                factors += reciprocal(length)
        given = *chain(*strides), *extents, width, *sizes, *factors
        self.kernels[key][(programs,)](*arrays, *results, *given)

    def _steps(self, word: Sequence[Axis], view: View) -> dict[Axis, int]:
        """Return the stride of each axis of an array along which it is not one item."""
        kept = [
            (axis.root, stride)
            for axis, stride in zip(word, view.strides)
            if axis.size != 1 or not axis.one
        ]
        found = dict(kept)
        if len(found) < len(kept):
            raise refused(self.function.name, f"an array lies on the diagonal of {_spelled(word)}")
        return found


def _grouped(rows: Sequence[Axis], steps: Sequence[dict[Axis, int]]) -> list[list[Axis]]:
    """Return rows with those in one group that are one in every array, as in dense ones."""
    groups: list[list[Axis]] = []
    for axis in rows:
        before = groups[-1][-1] if groups else None
        if before is not None and all(
            (before in step) == (axis in step)
            and (axis not in step or step[before] == step[axis] * axis.size)
            for step in steps
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _plain(value: Any) -> Any:
    """Return arguments with numbers of NumPy, which have shapes and no memory, as Python's."""
    if isinstance(value, tuple | list):
        return tuple([_plain(each) for each in value])  # pyright: ignore
    return value.item() if isinstance(value, np.generic) else value  # pyright: ignore


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [each for item in value for each in _flat(item)]  # pyright: ignore
    return [value]


def _kinds(kind: Type) -> list[Tensor]:
    kinds = kind.items if isinstance(kind, Product) else (kind,)
    if not all(isinstance(each, Tensor) for each in kinds):
        raise AxonError("a fused kernel gives arrays, or a tuple of them")
    return [each for each in kinds if isinstance(each, Tensor)]


def _spelled(word: Sequence[Axis]) -> str:
    return str([axis.size for axis in word])


def fuse(function: Function) -> Fused:
    """Return a function as one kernel of the compiler; see `Fused`."""
    return Fused(function)
