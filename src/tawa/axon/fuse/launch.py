"""Launches: what of a traced program one kernel computes, for arrays as they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import mul
from typing import Any

from tawa.axon.fuse.calls import dense, permuted
from tawa.axon.fuse.forms import Array, Form, form_of, reciprocal
from tawa.axon.fuse.kernel import Graph, build
from tawa.axon.fuse.trace import REDUCTIONS, Axis, Node, Traced, refused
from tawa.runtime.arrays import View, empty_beside, look
from tawa.runtime.tile_function import TileFunction, function_of_ir

Kernels = dict[tuple[str, Form], TileFunction]


@dataclass(frozen=True, slots=True)
class Launch:
    """Nodes as one kernel: `leaves` are the arrays that it reads, `outputs` those that it makes.

    `copies`: arrays that lie otherwise than the kernel reads them are copied, else refused.
    """

    name: str
    leaves: Sequence[Traced]
    outputs: Sequence[Traced]
    elements: Sequence[str]
    kernels: Kernels
    copies: bool = False
    graphs: dict[Axis, Graph] = field(default_factory=dict[Axis, Graph])

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Compile where no kernel fits yet, and launch; return new arrays."""
        words = [leaf.axes for leaf in self.leaves]
        views = [look(array) for array in arrays]
        steps = [self._steps(word, view) for word, view in zip(words, views)]
        order = self._order(steps)
        results = [self._result(arrays[0], output, element, order)
                   for output, element in zip(self.outputs, self.elements)]  # fmt: skip
        if not any(math.prod(result.shape) for result in results):
            return results
        graph = self._graph(order[-1] if order else Axis(1))
        rows = [axis for axis in order if axis is not graph.columns]
        given = list(arrays)
        for place, (word, step) in enumerate(zip(words, steps)):
            if why := self._unfit(word, step, rows, graph.columns):
                if not self.copies:
                    raise refused(self.name, *why)
                # In the order of the rows, so that they and the columns follow one another.
                roots = [axis.root for axis in word]
                first = [roots.index(axis) for axis in (*rows, graph.columns) if axis in roots]
                others = [n for n in range(len(roots)) if n not in first]
                given[place] = dense(given[place], (*others, *first))
                views[place] = look(given[place])
                steps[place] = self._steps(word, views[place])
        for output, result in zip(self.outputs, results):
            roots = {axis.root for axis in output.axes}
            if any(axis.size != 1 and axis not in roots for axis in rows):
                raise refused(self.name, "its results have different rows")
            views.append(look(result))
            steps.append(self._steps(output.axes, views[-1]))
        self._run(graph, rows, given, results, views, steps)
        return results

    def _order(self, steps: Sequence[dict[Axis, int]]) -> list[Axis]:
        """Return the axes of the results, those last that lie closest where none is reduced."""
        words = [output.axes for output in self.outputs]
        order = list(dict.fromkeys(a.root for word in words for a in word if not a.root.one))
        last = [word[-1].root for word in words if word]
        order.sort(key=lambda axis: axis in last)
        wide = [axis for axis in order if axis.size != 1]
        whole = next((s for s in steps if all(s.get(axis, 0) > 0 for axis in wide)), None)
        if whole is not None and all(output.reduced is None for output in self.outputs):
            near = sorted(wide, key=whole.__getitem__, reverse=True)
            if near != wide:
                return [*[axis for axis in order if axis.size == 1], *near]
        return order

    def _graph(self, last: Axis) -> Graph:
        if last not in self.graphs:
            leaves = {
                leaf.node: Node("load", (), leaf.node.dtype, axes=leaf.axes, argument=place)
                for place, leaf in enumerate(self.leaves)
            }
            nodes = [output.node for output in self.outputs]
            self.graphs[last] = Graph(nodes, last, leaves)
        return self.graphs[last]

    def _result(self, near: Any, output: Traced, element: str, order: Sequence[Axis]) -> Any:
        """Return a new array whose items follow one another in an order of axes."""
        roots = [axis.root for axis in output.axes]
        place = {axis: n for n, axis in enumerate(order)}
        places = sorted(range(len(roots)), key=lambda n: place.get(roots[n], len(place)))
        made = empty_beside(near, tuple([output.axes[n].size for n in places]), element)
        return permuted(made, sorted(range(len(roots)), key=places.__getitem__)) if roots else made

    def _unfit(
        self, word: Sequence[Axis], step: dict[Axis, int], rows: Sequence[Axis], columns: Axis
    ) -> tuple[str, str] | None:
        """Return why a kernel does not read an array as it lies, and what to do."""
        place = [rows.index(axis) for axis in step if axis in rows]
        if columns.size > 1 and step.get(columns, 1) != 1:
            why = f"items of the last axis of {_spelled(word)} do not lie side by side"
            return why, "pass a copy: np.ascontiguousarray(x), or x.contiguous()"
        lost = [a for a in step if a not in rows and a is not columns and a.size != 1]
        if lost or (place != sorted(place)):
            return f"rows of {_spelled(word)} lie otherwise", ""
        return None

    def _run(
        self,
        graph: Graph,
        rows: Sequence[Axis],
        given: Sequence[Any],
        results: Sequence[Any],
        views: Sequence[View],
        steps: Sequence[dict[Axis, int]],
    ) -> None:
        columns, width = graph.columns, graph.columns.size
        groups = _grouped(rows, steps)
        extents = [math.prod([axis.size for axis in group]) for group in groups]
        numbers = [[step.get(group[-1]) for group in groups] for step in steps]
        inner: list[int] = list(accumulate([width, *reversed(extents)], mul))
        reduces = any(node.name in REDUCTIONS for node in graph.nodes)
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
        first = [view.address for view, form in zip(views, forms) if form.dense]
        whole = all(number % 16 == 0 for number in (inner[-1], *first))
        aligned = even or (whole and not reduces)
        form = form_of(forms, len(results), even, aligned, width if reduces else None, inner[-1])
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
        numbered = *chain(*strides), *extents, width, *sizes, *factors
        self.kernels[key][(programs,)](*given, *results, *numbered)

    def _steps(self, word: Sequence[Axis], view: View) -> dict[Axis, int]:
        """Return the stride of each axis of an array along which it is not one item."""
        kept = [
            (axis.root, stride)
            for axis, stride in zip(word, view.strides)
            if axis.size != 1 or not axis.one
        ]
        found = dict(kept)
        if len(found) < len(kept):
            raise refused(self.name, f"an array lies on the diagonal of {_spelled(word)}")
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


def _spelled(word: Sequence[Axis]) -> str:
    return str([axis.size for axis in word])
