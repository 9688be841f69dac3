"""The oracle: a program run task by task in NumPy, as if no machine were there.

Levels and memories do not matter, loops run in order, each launch takes copies of its parts and
gives back what it writes. Parts for wgmma are the tensor itself: together its processors hold it.
The tile IR of a leaf, on the shapes of one part, runs as in the simulator of plain kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tawa.cypress.leaf import LeafFacts, facts_of
from tawa.cypress.size import Int, evaluate, sizes_of
from tawa.cypress.tensor import Piece, Tensor
from tawa.cypress.trace import Iota, Launch, Loop, Make, Statement
from tawa.cypress.tree import Node
from tawa.integers.expressions import Symbol
from tawa.language.dtypes import dtype
from tawa.runtime.dtypes import dtype_name, numpy_dtype
from tawa.runtime.simulation import computed


def run(root: Node, arrays: Mapping[str, Any]) -> None:
    """Run a program on NumPy arrays, in place."""
    _Run({}).node(root, {id(t): arrays[t.name] for t in root.parameters}, sizes_of(arrays))


def call(facts: LeafFacts, arrays: Sequence[Any]) -> None:
    """Run a leaf on arrays, in place."""
    given = dict(zip(facts.arguments, arrays, strict=True))
    made = computed(facts.operations, given, facts.results)
    for n, array in zip(facts.written, made, strict=True):
        arrays[n][...] = array


def scalar(value: Any, element: dtype) -> Any:
    """Return a number of a type, as an array of rank 0."""
    import numpy as np

    kind: Any = numpy_dtype(dtype_name(element))
    return np.asarray(value, kind)


def unwritten(shape: Sequence[int], element: dtype) -> Any:
    """Return an array in which nothing is: what is read before it is written shows."""
    import numpy as np

    kind: Any = numpy_dtype(dtype_name(element))
    made: Any = np.empty(tuple(shape), kind)
    made.reshape(-1).view("u1").fill(0xFF)
    return made


def places(count: int, start: Int, extent: Int | None, sizes: Mapping[Symbol, int]) -> Any:
    """Return the places of elements from `start` on, or whether they are below an extent."""
    import numpy as np

    at = np.arange(count, dtype=np.int32) + np.int32(evaluate(start, sizes))
    return at if extent is None else at < evaluate(extent, sizes)


@dataclass(slots=True)
class _Run:
    """What leaves were found to do on the shapes of their parts."""

    facts: dict[tuple[Any, ...], LeafFacts]

    def node(self, node: Node, env: dict[int, Any], sizes: dict[Symbol, int]) -> None:
        if node.instance.variant.inner:
            self._statements(node, node.statements, env, sizes)
            return
        arrays = [env[id(tensor)] for tensor in node.parameters]
        shapes = [array.shape for array in arrays]
        if (at := (id(node), *shapes)) not in self.facts:
            elements = [tensor.element for tensor in node.parameters]
            self.facts[at] = facts_of(node.instance, shapes, elements)
        call(self.facts[at], arrays)

    def _statements(
        self,
        node: Node,
        statements: Sequence[Statement],
        env: dict[int, Any],
        sizes: dict[Symbol, int],
    ) -> None:
        for statement in statements:
            match statement:
                case Make(tensor):
                    shape = tuple(evaluate(n, sizes) for n in tensor.shape)
                    env[id(tensor)] = unwritten(shape, tensor.element)
                case Iota(tensor, part, axis, bounded):
                    dim = part.dims[axis]
                    extent = part.root.shape[dim] if bounded else None
                    count = evaluate(part.shape[axis], sizes)
                    env[id(tensor)] = places(count, part.offsets[dim], extent, sizes)
                case Loop():
                    ranges = [range(evaluate(n, sizes)) for n in statement.extents]
                    whole = _is_collective(statement.body)
                    for point in product(*ranges):
                        at = dict(zip((i.symbol for i in statement.indices), point, strict=True))
                        self._statements(node, statement.body, env, {**sizes, **at})
                        if whole:
                            break
                case Launch():
                    self._launch(node, statement, env, sizes)

    def _launch(
        self, node: Node, launch: Launch, env: dict[int, Any], sizes: dict[Symbol, int]
    ) -> None:
        child = node.child(launch)
        inside = {
            id(parameter): _take(given, env, sizes)
            for given, parameter in zip(launch.arguments, child.parameters, strict=True)
        }
        self.node(child, inside, sizes)
        for given, parameter in zip(launch.arguments, child.parameters, strict=True):
            if parameter.name in child.instance.variant.writes:
                _put(given, inside[id(parameter)], env, sizes)


def _is_collective(body: Sequence[Statement]) -> bool:
    """Tell whether a loop goes over the processors of one wgmma."""
    return any(
        isinstance(s, Launch) and any(t.piece is not None and t.piece.held for t in s.arguments)
        for s in body
    )


def _take(tensor: Tensor, env: dict[int, Any], sizes: dict[Symbol, int]) -> Any:
    """Return a copy of a tensor; what passes the end is zero."""
    import numpy as np

    if tensor.piece is None:
        return env[id(tensor)].copy()
    above = _take(tensor.piece.of, env, sizes)
    if tensor.piece.held:
        return above
    shape, (inner, outer) = _box(tensor.piece, above.shape, sizes)
    made = np.zeros(shape, above.dtype)
    made[inner] = above[outer]
    return made.squeeze(tensor.piece.dropped)


def _put(tensor: Tensor, value: Any, env: dict[int, Any], sizes: dict[Symbol, int]) -> None:
    import numpy as np

    if tensor.piece is None:
        env[id(tensor)][...] = value
        return
    if tensor.piece.held:
        _put(tensor.piece.of, value, env, sizes)
        return
    above = _take(tensor.piece.of, env, sizes)
    _, (inner, outer) = _box(tensor.piece, above.shape, sizes)
    above[outer] = np.expand_dims(value, tensor.piece.dropped)[inner]
    _put(tensor.piece.of, above, env, sizes)


def _box(
    piece: Piece, extents: Sequence[int], sizes: Mapping[Symbol, int]
) -> tuple[tuple[int, ...], tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Return a part's shape, and where it and the tensor above overlap: in each of them."""
    shape = tuple(evaluate(n, sizes) for n in piece.block)
    starts = [evaluate(i, sizes) * n for i, n in zip(piece.index, shape, strict=True)]
    return shape, overlap(starts, shape, extents)


def overlap(
    starts: Sequence[int], shape: Sequence[int], extents: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where a box and a tensor overlap: in the box, and in the tensor."""
    inner: list[slice] = []
    outer: list[slice] = []
    for start, size, extent in zip(starts, shape, extents, strict=True):
        low, high = max(start, 0), max(min(start + size, extent), 0)
        high = max(high, low)
        inner.append(slice(low - start, high - start))
        outer.append(slice(low, high))
    return tuple(inner), tuple(outer)
