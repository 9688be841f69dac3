"""Launches: what of a traced program one kernel computes, for arrays as they lie in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import mul
from typing import Any, TypeAlias

from tawa.axon.fuse.calls import Order, inverse, permuted
from tawa.axon.fuse.forms import VECTOR, Array, Form, form_of, reciprocal
from tawa.axon.fuse.graph import Graph
from tawa.axon.fuse.kernel import build
from tawa.axon.fuse.trace import ALONG, Axis, Node, Traced
from tawa.runtime.arrays import NOWHERE, View, look, maker_beside, row_major
from tawa.runtime.tile_function import TileFunction, function_of_ir

Kernels = dict[tuple[str, Form], TileFunction]
Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Launch:
    """Nodes as one kernel: `leaves` are the arrays that it reads, `outputs` those that it makes."""

    leaves: Sequence[Traced]
    outputs: Sequence[Traced]
    elements: Sequence[str]
    kernels: Kernels

    def orders(
        self, views: Sequence[View], free: Callable[[int, Order], bool]
    ) -> list[Order | None]:
        """Return the order of axes in which each array has to be dense; None: as it lies.

        The fewest elements are turned, but for those that cost nothing: array `n` in an order is
        `free` where it is there already.
        """
        return self._fit(views, free)[2]

    def bind(self, arrays: Sequence[Any]) -> Run:
        """Return what launches on arrays that lie as these do, and returns new arrays.

        Makes the kernel where none fits yet. Arrays lie in the `orders` of the launch.
        """
        views = [look(array) for array in arrays]
        graph, rows, _ = self._fit(views)
        steps = [self._steps(leaf.axes, view) for leaf, view in zip(self.leaves, views)]
        places = [_places(output, (*rows, graph.columns)) for output in self.outputs]
        every = list(zip(self.outputs, self.elements, places))
        makers = [_maker(arrays[0], *each) for each in every]
        if not any(output.size for output in self.outputs):
            return lambda given: [make(given[0]) for make in makers]
        for output, element, place in every:
            # What libraries make begins at a multiple of 16 bytes; a launch checks that.
            shape = [output.axes[n].size for n in place]
            strides = [row_major(shape)[n] for n in inverse(place)]
            views.append(View(element, tuple(map(int, output.shape)), tuple(strides), 0, NOWHERE))
            steps.append(self._steps(output.axes, views[-1]))
        launch, numbers = self._kernel(graph, rows, views, steps)

        def run(given: Sequence[Any]) -> Sequence[Any]:
            results = [make(given[0]) for make in makers]
            launch(*given, *results, *numbers)
            return results

        return run

    def _fit(
        self, views: Sequence[View], free: Callable[[int, Order], bool] = lambda n, order: False
    ) -> tuple[Graph, list[Axis], list[Order | None]]:
        """Return the graph of the kernel, its rows in order, and the orders of `orders`."""
        steps = [self._steps(leaf.axes, view) for leaf, view in zip(self.leaves, views)]
        leaves = {
            leaf.node: Node("load", (), leaf.node.dtype, axes=leaf.axes, argument=place)
            for place, leaf in enumerate(self.leaves)
        }
        found: list[tuple[int, Graph, list[Axis], list[Order | None]]] = []
        for order in self._candidates(steps):
            nodes = [output.node for output in self.outputs]
            graph = Graph(nodes, order[-1] if order else Axis(1), leaves)
            rows = [axis for axis in order if axis is not graph.columns]
            orders: list[Order | None] = []
            turned = 0
            for place, (leaf, step) in enumerate(zip(self.leaves, steps)):
                if self._fits(step, rows, graph.columns):
                    orders.append(None)
                    continue
                # In the order of the rows, so that they and the columns follow one another.
                roots = [axis.root for axis in leaf.axes]
                first = [roots.index(axis) for axis in (*rows, graph.columns) if axis in roots]
                wanted = (*[n for n in range(len(roots)) if n not in first], *first)
                orders.append(wanted)
                turned += 0 if free(place, wanted) else leaf.size
            found.append((turned, graph, rows, orders))
        return min(found, key=lambda each: each[0])[1:]

    def _candidates(self, steps: Sequence[dict[Axis, int]]) -> list[list[Axis]]:
        """Return orders of the results' axes.

        Those last that lie closest, in an array that has them all, where none is reduced.
        """
        words = [output.axes for output in self.outputs]
        order = list(dict.fromkeys(a.root for word in words for a in word if not a.root.one))
        last = [word[-1].root for word in words if word]
        order.sort(key=lambda axis: axis in last)
        wide = [axis for axis in order if axis.size != 1]
        if any(output.reduced is not None for output in self.outputs):
            return [order]
        found: list[list[Axis]] = []
        for step in steps:
            if all(step.get(axis, 0) > 0 for axis in wide):
                near = sorted(wide, key=step.__getitem__, reverse=True)
                far = [axis for axis in order if axis.size == 1]
                found.append(order if near == wide else [*far, *near])
        return found or [order]

    def _fits(self, step: dict[Axis, int], rows: Sequence[Axis], columns: Axis) -> bool:
        """Tell whether a kernel reads an array as it lies."""
        place = [rows.index(axis) for axis in step if axis in rows]
        lost = any(a not in rows and a is not columns and a.size != 1 for a in step)
        near = columns.size == 1 or step.get(columns, 1) == 1
        return near and not lost and place == sorted(place)

    def _kernel(
        self,
        graph: Graph,
        rows: Sequence[Axis],
        views: Sequence[View],
        steps: Sequence[dict[Axis, int]],
    ) -> tuple[Callable[..., Any], tuple[int, ...]]:
        """Return the kernel on its grid, and its arguments that are numbers."""
        columns, width = graph.columns, graph.columns.size
        groups = _grouped(rows, steps)
        extents = [math.prod([axis.size for axis in group]) for group in groups]
        numbers = [[step.get(group[-1]) for group in groups] for step in steps]
        inner: list[int] = list(accumulate([width, *reversed(extents)], mul))
        reduces = any(node.name in ALONG for node in graph.nodes)
        wide = [columns in step for step in steps]
        alike = _alike(views, numbers, wide) if reduces else [False] * len(views)
        forms = [
            Array(
                view.dtype,
                view.itemsize,
                tuple([number is not None for number in strides]),
                has,
                not reduces and has and strides == inner[-2::-1],
                near,
            )
            for view, strides, has, near in zip(views, numbers, wide, alike)
        ]
        strides = [[number for number in each if number is not None] for each in numbers]
        even = width % 16 == 0 and all(
            view.address % 16 == 0 and all(number % 16 == 0 for number in each)
            for view, form, each in zip(views, forms, strides)
            if form.columns
        )
        first = [view.address % 16 for view, form in zip(views, forms) if form.dense]
        aligned = even or (any(alike) if reduces else not any(first))
        span = width if reduces else None
        form = form_of(forms, len(self.outputs), even, aligned, span, inner[-1])
        key = graph.text, form
        if key not in self.kernels:
            self.kernels[key] = function_of_ir(build(graph, form))
        kept, together, lanes = form.tile
        sizes = [axis.size for axis in graph.sizes if axis]
        factors: list[int] = []
        if reduces:
            programs = -(-math.prod(extents) // together)
        else:
            programs = -(-inner[-1] // (kept * lanes * form.vector))
            lengths = [*extents[1:], width // (form.vector if even else 1)]
            lengths = [] if form.far else lengths
            for length in reversed(lengths[: len(extents)]):
                factors += reciprocal(length)
        numbered = (*chain(*strides), *extents, width, *sizes, *factors)
        return self.kernels[key][(programs,)], numbered

    def _steps(self, word: Sequence[Axis], view: View) -> dict[Axis, int]:
        """Return the stride of each axis of an array along which it is not one item."""
        every = zip(word, view.strides)
        return {axis.root: stride for axis, stride in every if axis.size != 1 or not axis.one}


def _places(output: Traced, order: Sequence[Axis]) -> Order:
    """Return the numbers of an array's axes in an order of axes, others last."""
    roots = [axis.root for axis in output.axes]
    place = {axis: n for n, axis in enumerate(order)}
    return tuple(sorted(range(len(roots)), key=lambda n: place.get(roots[n], len(place))))


def _maker(near: Any, output: Traced, element: str, places: Order) -> Callable[[Any], Any]:
    """Return what makes a result whose items follow one another in an order of axes."""
    make = maker_beside(near, tuple([output.axes[n].size for n in places]), element)
    if places == tuple(sorted(places)):
        return make
    outward = inverse(places)
    return lambda near: permuted(make(near), outward)


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


def _alike(
    views: Sequence[View], numbers: Sequence[Sequence[int | None]], wide: Sequence[bool]
) -> list[bool]:
    """Tell which arrays have rows that begin as far beyond 16 bytes as those of most.

    What is one row for all is none, so that widths do not decide which kernel there is.
    """
    unit = VECTOR // min([view.itemsize for view, has in zip(views, wide) if has], default=4)
    keys = [
        tuple([(number or 0) % unit for number in each])
        if has
        and view.address % VECTOR == 0
        and min(view.strides, default=0) >= 0
        and (any(each) or not each)
        else None
        for view, each, has in zip(views, numbers, wide)
    ]
    known = Counter([key for key in keys if key is not None])
    most = max(known, key=known.__getitem__, default=None)
    return [key is not None and key == most for key in keys]
