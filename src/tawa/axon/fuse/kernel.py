"""The kernel of a traced program: each program of the grid has one row, and walks its columns.

A reduction whose inputs are known is a loop over the columns, all of one depth in one loop; what
is needed again in the next loop is computed again. A row that fits into one block is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tawa.language as tl
from tawa.axon.fuse.trace import REDUCTIONS, Axis, Node, Operand, refused
from tawa.ir.build import KernelBuilder

BLOCK, WARPS = 2048, 8
_SHORT = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "int16": "i16",
          "int8": "i8", "bool": "i1", "uint8": "u8", "uint16": "u16", "uint32": "u32",
          "uint64": "u64"}  # fmt: skip
_OPERATORS = {"<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "&", "|", "^"}
_ONE_FOR_ALL = ("==", "!=", "<", "<=", ">", ">=", "where")  # whose operands are of one type


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a kernel: element type, which groups of rows it has, whether columns."""

    element: str
    groups: tuple[bool, ...]
    columns: bool


@dataclass(frozen=True, slots=True)
class Form:
    """All that a kernel is made of, but for the graph. `sizes`: of which axes it takes the size."""

    arrays: tuple[Array, ...]
    outputs: tuple[Array, ...]
    aligned: bool
    whole: bool


class Graph:
    """The nodes that outputs need, inputs first, and the axis that is the columns."""

    def __init__(self, outputs: Sequence[Node], last: Axis) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        self._same: dict[Node, Node] = {}
        self.outputs = [self._add(node) for node in outputs]
        self.nodes = list(self._known.values())
        reduced = [node.axis for node in self.nodes if node.name in REDUCTIONS]
        self.columns = (reduced[0] if reduced else None) or last.root
        if any(axis is not self.columns for axis in reduced):
            raise refused(self.nodes[-1].name, "it reduces along two axes")
        self.depth: dict[Node, int] = {}
        self.wide: dict[Node, bool] = {}
        for node in self.nodes:
            inputs = [each for each in node.inputs if isinstance(each, Node)]
            reduces = node.name in REDUCTIONS
            self.depth[node] = max([self.depth[each] for each in inputs], default=0) + reduces
            own = self.columns in [axis.root for axis in node.axes] or node.name == "position"
            self.wide[node] = not reduces and (own or any(self.wide[each] for each in inputs))
        self.sizes = list(dict.fromkeys(node.axis for node in self.nodes if node.name == "size"))

    def _add(self, node: Node) -> Node:
        """Return the one node that computes what this one does, after those it needs."""
        if node in self._same:
            return self._same[node]
        inputs = tuple([self._add(e) if isinstance(e, Node) else e for e in node.inputs])
        told = [each if isinstance(each, Node) else repr(each) for each in inputs]
        axis = node.axis and node.axis.root
        key = (node.name, *told, node.dtype, axis, node.argument)
        made = self._known.setdefault(key, replace(node, inputs=inputs, axis=axis))
        self._same[node] = made
        return made

    @property
    def text(self) -> str:
        """What tells the kernels of two graphs apart."""
        number = {node: index for index, node in enumerate(self.nodes)}

        def shown(node: Node) -> str:
            inputs = [f"%{number[e]}" if isinstance(e, Node) else repr(e) for e in node.inputs]
            size = self.sizes.index(node.axis) if node.name == "size" else ""
            return f"{node.name} {inputs} {node.dtype} {node.argument} {size}"

        return "\n".join([*map(shown, self.nodes), str([number[node] for node in self.outputs])])


def build(graph: Graph, form: Form) -> Any:
    """Return the tile IR of a graph. Arguments: arrays, outputs, strides of each, sizes."""
    return _Emission(graph, form).kernel()


class _Emission:
    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph, self.form = graph, form
        self.k = KernelBuilder("fused", {"num_warps": WARPS})
        self.rows: dict[Node, Any] = {}  # what is one number for the row

    def kernel(self) -> Any:
        k, form = self.k, self.form
        arrays = (*form.arrays, *form.outputs)
        self.bases = [
            k.pointer(f"a{i}", array.element, aligned=form.aligned and array.columns)
            for i, array in enumerate(arrays)
        ]
        steps = [
            [
                k.scalar(f"a{i}_{g}", "i64", divisible=16 if form.aligned and array.columns else 1)
                if has
                else None
                for g, has in enumerate(array.groups)
            ]
            for i, array in enumerate(arrays)
        ]
        extents = [k.scalar(f"rows{g}", "i64") for g in range(len(arrays[0].groups))]
        self.columns = k.scalar("columns", "i64", divisible=16 if form.aligned else 1)
        self.sizes = [k.scalar(f"size{i}", "i64") for i in range(len(self.graph.sizes))]
        depth = max(self.graph.depth.values())
        left: Any = k.program_id(0).to("i64")
        start: Any = 0
        if not depth:  # columns are programs of their own
            chunks = k.cdiv(self.columns, BLOCK)
            start, left = left % chunks * BLOCK, left // chunks
        for g in reversed(range(len(extents))):
            index = left % extents[g]
            left = left // extents[g]
            for i, step in enumerate(steps):
                if step[g] is not None:
                    self.bases[i] = self.bases[i] + index * step[g]
        memo: dict[Node, Any] = {}
        self._known(0)
        for level in range(1, depth + 1):
            nodes = [n for n in self.graph.nodes if n.name in REDUCTIONS]
            self._reduce([n for n in nodes if self.graph.depth[n] == level], memo)
            self._known(level)
        outputs = list(zip(self.graph.outputs, form.outputs, self.bases[len(form.arrays) :]))
        for node, array, base in outputs:
            if not array.columns:
                k.store(base, self._stored(self.rows[node], array))
        wide = [each for each in outputs if each[1].columns]
        if wide and (form.whole or not depth):
            self._store(wide, start, memo)
        elif wide:
            with k.range(0, self.columns, BLOCK) as loop:
                self._store(wide, loop.index, {})
        return k.finish()

    def _stored(self, value: Any, array: Array) -> Any:
        return value.to(array.element) if hasattr(value, "to") else value

    def _known(self, level: int) -> None:
        """Compute what is one number for the row, now that reductions of a level are known."""
        for node in self.graph.nodes:
            if not self.graph.wide[node] and self.graph.depth[node] == level:
                self.value(node, {}, None, None)

    def _chunk(self, start: Any) -> tuple[Any, Any]:
        where = self.k.arange(0, BLOCK).to("i64") + start
        return where, where < self.columns

    def _store(self, outputs: Sequence[tuple[Node, Array, Any]], start: Any, memo: Any) -> None:
        where, inside = self._chunk(start)
        for node, array, base in outputs:
            value = self._stored(self.value(node, memo, where, inside), array)
            self.k.store(base + where, value, inside)

    def _reduce(self, nodes: Sequence[Node], memo: dict[Node, Any]) -> None:
        k = self.k
        if self.form.whole:
            parts = self._parts(nodes, memo, 0)
        else:
            blank = [k.full((BLOCK,), _identity(n), _SHORT[n.dtype]) for n in nodes]
            with k.range(0, self.columns, BLOCK, carry=blank) as loop:
                new = self._parts(nodes, {}, loop.index)
                pairs = zip(nodes, loop.carried, new)
                loop.yield_(*[self._combine(n, old, part) for n, old, part in pairs])
            parts = loop.results
        for node, part in zip(nodes, parts):
            self.rows[node] = k.reduce(part, 0, partial(self._combine, node))

    def _combine(self, node: Node, a: Any, b: Any) -> Any:
        return a + b if node.name == "sum" else self._extremum(f"{node.name}imum", a, b)

    def _extremum(self, name: str, a: Any, b: Any) -> Any:
        floating = any(each.dtype.is_floating() for each in (a, b) if hasattr(each, "dtype"))
        nan: dict[str, Any] = {"propagate_nan": tl.PropagateNan.ALL} if floating else {}
        return self.k.call(name, a, b, **nan)

    def _parts(self, nodes: Sequence[Node], memo: dict[Node, Any], start: Any) -> list[Any]:
        where, inside = self._chunk(start)
        found: list[Any] = []
        for node in nodes:
            (operand,) = node.inputs
            value = self.value(operand, memo, where, inside)
            value = self.k.full((BLOCK,), 0, _SHORT[node.dtype]) + value.to(_SHORT[node.dtype])
            found.append(self.k.where(inside, value, _identity(node)))
        return found

    def value(self, operand: Operand, memo: dict[Node, Any], where: Any, inside: Any) -> Any:
        """Return the value of a node for a row, or for the block of it at `where`."""
        if not isinstance(operand, Node):
            return operand
        if operand in self.rows:
            return self.rows[operand]
        wide = self.graph.wide[operand]
        known = memo if wide else self.rows
        if operand not in known:
            inputs = [self.value(each, memo, where, inside) for each in operand.inputs]
            known[operand] = self._operation(operand, inputs, where, inside)
        return known[operand]

    def _operation(self, node: Node, inputs: list[Any], where: Any, inside: Any) -> Any:
        k, kind = self.k, _SHORT[node.dtype]
        match node.name:
            case "load":
                base = self.bases[node.argument]
                if self.graph.wide[node]:
                    return k.load(base + where, inside, 0).to(kind)
                return k.load(base).to(kind)
            case "size":
                return self.sizes[self.graph.sizes.index(node.axis)]
            case "position":
                return where
            case _:
                pass
        if node.name not in (*_ONE_FOR_ALL, "isnan"):
            inputs = [each.to(kind) if hasattr(each, "to") else each for each in inputs]
        first = inputs[0]
        match node.name:
            case "cast":
                return first
            case "neg":
                return -first
            case "square":
                return first * first
            case "reciprocal":
                return 1 / first
            case "not":
                return first ^ True
            case "isnan":
                return first != first
            case "sign":
                return k.where(first > 0, 1, k.where(first < 0, -1, first)).to(kind)
            case "where":
                values = [each.to(kind) if hasattr(each, "to") else each for each in inputs[1:]]
                value = k.where(k.call("to_tensor", first), *values)
                return value.to(kind)
            case "floormod":
                if kind.startswith("f"):
                    return first - k.call("floor", first / inputs[1]) * inputs[1]
                rest = first % inputs[1]
                return k.where((rest != 0) & ((rest < 0) ^ (inputs[1] < 0)), rest + inputs[1], rest)
            case "maximum" | "minimum":
                return self._extremum(node.name, *inputs)
            case name if name in _OPERATORS:
                return k.operator(name, *inputs)
            case name:
                name = "sqrt" if name == "sqrt_rn" and kind == "f64" else name
                return k.call(name, *inputs)


def _identity(node: Node) -> Any:
    if node.name == "sum":
        return 0
    import numpy as np

    kind = np.dtype(node.dtype)
    if kind.kind == "f":
        return float("-inf") if node.name == "max" else float("inf")
    limits = np.iinfo(kind)
    return limits.min if node.name == "max" else limits.max
