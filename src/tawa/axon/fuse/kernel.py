"""The kernel of a traced program: each program of the grid has some rows, or one that is long.

Values are tiles [kept, rows, lanes, vector]: columns are all axes but the second, and a row is in
lanes of one warp where there are several. The first columns of a row stay in registers while its
reductions become known, one depth after the other. What is beyond them is read in a loop, in which
sums of higher depth follow those they depend on (`follow`); those that cannot have a loop of their
own, and what is needed again in the next loop is computed again. Where nothing is reduced, elements
are counted through all rows: a program has as many of them, whatever the rows are.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tawa.language as tl
from tawa.axon.fuse.follow import ONE, Factor, Move, Rules
from tawa.axon.fuse.forms import NARROW, Array, Form
from tawa.axon.fuse.graph import Graph
from tawa.axon.fuse.ranges import has_reciprocal
from tawa.axon.fuse.trace import ALONG, REDUCTIONS, Node, Operand
from tawa.ir.build import KernelBuilder

_SHORT = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "int16": "i16",
          "int8": "i8", "bool": "i1", "uint8": "u8", "uint16": "u16", "uint32": "u32",
          "uint64": "u64", "float16": "f16", "bfloat16": "bf16"}  # fmt: skip
_OPERATORS = {"<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "&", "|", "^"}
_ONE_FOR_ALL = ("==", "!=", "<", "<=", ">", ">=", "where")  # whose operands are of one type


def build(graph: Graph, form: Form) -> Any:
    """Return the tile IR of a graph. Arguments: arrays, outputs, strides of each, sizes."""
    return _Emission(graph, form).kernel()


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Columns of a tile: `start + where` from where the `bases` of arrays point, if `inside`."""

    bases: Sequence[Any]
    start: Any
    where: Any
    inside: Any
    shape: tuple[int, int, int, int]


class _Emission:
    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph, self.form = graph, form
        self.depth = max(graph.depth.values())
        self.kept, self.count, self.lanes = form.tile
        self.vector = form.vector
        self.block = self.kept * self.lanes * self.vector
        self.k = KernelBuilder("fused", {"num_warps": form.warps})
        self.rows: dict[Node, Any] = {}  # what is one number for the row
        self.reductions = [node for node in graph.nodes if node.name in REDUCTIONS]
        self._depends: dict[Node, set[Node]] = {}
        self.followed: dict[Node, Any] = {}  # sums beyond the head, for numbers of the row

    def kernel(self) -> Any:
        k, form, graph = self.k, self.form, self.graph
        arrays = (*form.arrays, *form.outputs)
        self.bases = [
            k.pointer(
                f"a{i}",
                array.element,
                aligned=form.aligned if array.dense or array.alike else form.even and array.columns,
            )
            for i, array in enumerate(arrays)
        ]
        steps = [
            [
                k.scalar(f"a{i}_{g}", "i64", divisible=16 if form.even and array.columns else 1)
                if has
                else None
                for g, has in enumerate(array.groups)
            ]
            for i, array in enumerate(arrays)
        ]
        extents = [k.scalar(f"rows{g}", "i64") for g in range(len(arrays[0].groups))]
        self.columns = k.scalar("columns", "i64", divisible=16 if form.even else 1)
        self.sizes = [k.scalar(f"size{i}", "i64") for i in range(len(graph.sizes))]
        if form.span is not None:
            self._place(steps, extents)
            self._rows()
            return k.finish()
        self.factors = [
            [k.scalar(f"{name}{g}", "i64") for name in ("factor", "shift")]
            for g in reversed(range(1, len(extents) + 1))
            if not form.far
        ]
        begin = [*self.bases]
        self._elements(steps, extents, whole=True)
        self._rows()
        if form.edges:
            with k.if_(k.program_id(0) == 0):
                self.kept, self.vector, self.bases, self.rows = 1, 1, begin, {}
                self._elements(steps, extents, whole=False)
                self._rows()
        return k.finish()

    def _rows(self) -> None:
        """Emit what the rows, or the elements, of this program give."""
        pieces = self._pieces()
        for chunk, memo in pieces:
            for node in filter(self._is_early, self.graph.nodes):
                self.value(node, memo, chunk)
        self._known(0)
        for level in range(1, self.depth + 1):
            self._reduce(level, pieces)
            self._known(level)
        for node, array, place in self._outputs(wide=False):
            shape = (1, self.count, 1, 1) if self.form.span else (self.kept, 1, self.lanes, 1)
            where = self.bases[place] + self.k.zeros(shape, "i32")
            self.k.store(where, self._stored(self.rows[node], array), self.inside)
        if self._outputs(wide=True):
            self._store(pieces)
            if self.form.walks:
                with self.k.range(self.block, self.length, self.block) as loop:
                    self._store([(self._chunk(loop.index), {})])

    def _is_early(self, node: Node) -> bool:
        """Tell whether elements are read before anything is reduced, so that none waits for it.

        Narrow ones of long rows are not: they would be held as float32, in twice the registers; nor
        are those of rows that are walked, whose loops need them.
        """
        form = self.form
        if node.name != "load" or not self.graph.wide[node] or form.span is None or form.walks:
            return False
        return form.held <= NARROW or form.arrays[node.argument].bytes >= 4

    def _place(self, steps: Sequence[Sequence[Any]], extents: Sequence[Any]) -> None:
        """Add to each base where the rows of this program begin."""
        k, far = self.k, [list[Any]() for _ in steps]
        left: Any = k.program_id(0).to("i64")
        self.inside: Any = None
        if self.count > 1:
            total: Any = 1
            for extent in extents:
                total = total * extent
            left = left * self.count + self._axis(1, self.count).to("i64")
            self.inside = left < total
        for g in reversed(range(len(extents))):
            index = left % extents[g] if g else left
            left = left // extents[g] if g else left
            for i, step in enumerate(steps):
                if step[g] is not None:
                    far[i].append(index * step[g])
        begin = self.bases
        if not extents:  # one row, of which a program has several places
            begin = [base + k.zeros((1, self.count, 1, 1), "i32") for base in begin]
        self.bases = [functools.reduce(operator.add, each, base) for base, each in zip(begin, far)]
        # Of rows that are in registers all places are numbers of 32 bits.
        self.kind = "i64" if self.form.walks else "i32"
        self.row = self.columns.to(self.kind)
        self.vectors, self.ahead, self.length = self.bases, 0, self.row
        if self.form.edges:
            self._align(begin, [functools.reduce(operator.add, each, 0) for each in far])

    def _align(self, begin: Sequence[Any], far: Sequence[Any]) -> None:
        """Note where whole vectors of each row begin, in all arrays that are alike, and end."""
        arrays, unit = (*self.form.arrays, *self.form.outputs), self.vector
        place = next(i for i, array in enumerate(arrays) if array.alike)
        ahead = (0 - far[place]) & (unit - 1)
        self.ahead = ahead.to(self.kind) if hasattr(ahead, "to") else ahead
        left = self.k.call("maximum", self.row - self.ahead, 0)
        self.length = self._multiple(left & -unit)
        self.vectors = [
            begin[i] + self._multiple(far[i] + self.ahead)
            if array.alike
            else self.bases[i] + self.ahead
            for i, array in enumerate(arrays)
        ]

    def _multiple(self, number: Any) -> Any:
        """Return a number that is one of whole vectors, as one that is known to be so."""
        if not hasattr(number, "shape"):  # 0: all rows begin as the arrays do
            return number
        axes = max(1, len(number.shape))
        return self.k.call("multiple_of", number, (self.vector,) * axes)

    def _elements(
        self, steps: Sequence[Sequence[Any]], extents: Sequence[Any], whole: bool
    ) -> None:
        """Make each base point at the elements of this program, and note which there are.

        They are those of `whole` vectors, or what is behind them all.
        """
        k, arrays = self.k, (*self.form.arrays, *self.form.outputs)
        unit = self.vector if self.form.even else 1  # elements that have one place in a row
        lengths, total = [*extents, self.columns // unit], self.columns
        for extent in extents:
            total = total * extent
        first = k.program_id(0).to("i64") * self.block
        if self.form.edges:
            vectors = total // self.form.vector * self.form.vector
            first, total = (first, vectors) if whole else (vectors, total)
        here = self._axis(0, self.kept) * self.lanes + self._axis(2, self.lanes)
        along = self._axis(3, self.vector)
        self.inside = here * self.vector < k.call("minimum", total - first, self.block).to("i32")
        kind = "i64" if self.form.far else "i32"
        every = here * self.vector + along
        left: Any = (here if unit > 1 else every).to(kind) + (first // unit).to(kind)
        for g in reversed(range(len(lengths))):
            over = self._quotient(left, lengths[g], g) if g else 0
            index, left = left - over * lengths[g].to(kind), over
            if g == len(extents):
                self.column = index * unit + along if unit > 1 else index
            for i, (step, array) in enumerate(zip(steps, arrays)):
                if array.dense:
                    continue
                if g == len(extents) and array.columns:
                    self.bases[i] = self.bases[i] + self.column
                elif g < len(extents) and step[g] is not None:
                    self.bases[i] = self.bases[i] + index.to("i64") * step[g]
        for i, array in enumerate(arrays):
            if array.dense:
                self.bases[i] = self.bases[i] + first + every

    def _quotient(self, left: Any, length: Any, g: int) -> Any:
        if self.form.far:
            return left // length
        factor, shift = self.factors[-g]
        return ((left.to("i64") * factor) >> shift).to("i32")

    def _outputs(self, wide: bool) -> list[tuple[Node, Array, int]]:
        """Return the results, with the numbers of their arrays."""
        every = zip(self.graph.outputs, self.form.outputs, itertools.count(len(self.form.arrays)))
        return [each for each in every if each[1].columns == wide]

    def _stored(self, value: Any, array: Array) -> Any:
        return value.to(array.element) if hasattr(value, "to") else value

    def _known(self, level: int) -> None:
        """Compute what is one number for the row, now that reductions of a level are known."""
        for node in self.graph.nodes:
            if not self.graph.wide[node] and self.graph.depth[node] == level:
                self.value(node, self.rows, None)

    def _axis(self, axis: int, extent: int) -> Any:
        """Return the places along an axis of a tile."""
        made = self.k.arange(0, extent)
        for other in range(4):
            made = made if other == axis else made.expand_dims(other)
        return made

    def _chunk(self, start: Any) -> _Chunk:
        """Return a tile of the whole vectors of rows, or of what is counted."""
        k, shape = self.k, (self.kept, self.count, self.lanes, self.vector)
        if self.form.span is None:  # the bases point at them
            return _Chunk(self.bases, 0, self.column, self.inside, shape)
        across = self._axis(2, self.lanes) * self.vector + self._axis(3, self.vector)
        where = self._axis(0, self.kept) * (self.lanes * self.vector) + across
        # Counted from the first column, so that comparisons are of 32 bits.
        left = k.call("minimum", self.length - start, self.block).to("i32")
        return _Chunk(self.vectors, start, where, where < left, shape)

    def _edges(self) -> _Chunk:
        """Return what is before and behind the whole vectors of rows, less than one each."""
        k, unit = self.k, self.vector
        kept = -(-2 * unit // self.lanes)
        place = self._axis(0, kept) * self.lanes + self._axis(2, self.lanes)
        behind = place.to(self.kind) + (self.ahead + self.length - unit)
        before = place < k.call("minimum", self.ahead, self.row)
        where = k.where(place < unit, place.to(self.kind), behind)
        inside = k.where(place < unit, before, behind < self.row)
        return _Chunk(self.bases, 0, where, inside, (kept, self.count, self.lanes, 1))

    def _item(self, index: Any) -> _Chunk:
        """Return one column of each row, by its number."""
        where = index.to("i64")
        inside = (where >= 0) & (where < self.columns)
        return _Chunk(self.bases, 0, where, inside, (1, self.count, 1, 1))

    def _pieces(self) -> list[tuple[_Chunk, dict[Node, Any]]]:
        """Return the tiles of a row that stay in registers, and what is known of them."""
        ends = [self._edges()] if self.form.edges and self.form.span else []
        return [(chunk, {}) for chunk in (self._chunk(0), *ends)]

    def _at(self, place: int, chunk: _Chunk) -> Any:
        base = chunk.bases[place]
        return base if self.form.span is None else base + chunk.start + chunk.where

    def _store(self, pieces: Sequence[tuple[_Chunk, dict[Node, Any]]]) -> None:
        """Store what results have in tiles: all is read before, for arrays may be the same."""
        found: list[tuple[Any, Any, Any]] = []
        for chunk, memo in pieces:
            inside = chunk.inside if self.inside is None else chunk.inside & self.inside
            for node, array, place in self._outputs(wide=True):
                value = self._stored(self.value(node, memo, chunk), array)
                found.append((self._at(place, chunk), value, inside))
        for each in found:
            self.k.store(*each)

    def _reduce(self, level: int, pieces: Sequence[tuple[_Chunk, dict[Node, Any]]]) -> None:
        """Make known the reductions of a level, and walk what of the row no piece has."""
        now = [n for n in self.reductions if self.graph.depth[n] == level]
        every = zip(*[self._parts(now, memo, chunk) for chunk, memo in pieces])
        parts = {
            node: functools.reduce(partial(self._combine, node), each)
            for node, each in zip(now, every)
        }
        if self.form.walks and (fresh := [node for node in now if node not in self.followed]):
            parts.update(self._walk(fresh, parts))
        for node, part in parts.items():
            if moved := self.followed.get(node):
                part = part + moved(self.rows.__getitem__)
            self.rows[node] = self._across(node, part)

    def _walk(self, now: Sequence[Node], parts: dict[Node, Any]) -> dict[Node, Any]:
        """Return parts of reductions for the whole row, and note sums that followed them."""
        followers, moves = self._followers(now)
        kept = [*now, *moves]
        start = [*[parts[node] for node in now], *[self._full(node, 0) for node in moves]]
        with self.k.range(self.block, self.length, self.block, carry=start) as loop:
            chunk, memo = self._chunk(loop.index), dict[Node, Any]()
            old = dict(zip(kept, loop.carried))
            new = {
                node: self._combine(node, old[node], part)
                for node, part in zip(now, self._parts(now, memo, chunk))
            }
            count = (loop.index // self.block * self.kept * self.vector).to("f32")
            before = self._references(old, followers, count)
            after = self._references(new, followers, count + self._counted(chunk))
            for node, move in moves.items():
                moved = self._moved(node, move, old, count, before, after)
                memo.update((each, after(each)) for each in self._outer(node))
                (part,) = self._parts([Node("sum", (node,), node.dtype)], memo, chunk)
                new[node] = moved + part
            loop.yield_(*[new[node] for node in kept])
        last = dict(zip(kept, loop.results))
        end = self.length // self.block
        count = self._counted(self._chunk(end * self.block)) + (end * self.kept * self.vector).to(
            "f32"
        )
        reference = self._references(last, followers, count)
        for node in followers:
            operand = _operand(node)
            given = operand, moves[operand], last, count, reference
            self.followed[node] = partial(self._moved, *given)
        return {node: last[node] for node in now}

    def _followers(self, now: Sequence[Node]) -> tuple[list[Node], dict[Node, Move]]:
        """Return the sums that follow reductions, and how each goes whose sum they need."""
        found, moves = list[Node](), dict[Node, Move]()
        running, rules = set(now), Rules(self._pending, self._wide, self._function)

        def closed(node: Node, into: dict[Node, Move]) -> bool:
            if node is ONE or node in moves or node in into:
                return True
            if not self._pending(node) <= running:
                return False
            move = rules.move_of(node)
            if move is None or not all(closed(each, into) for each in move.terms):
                return False
            into[node] = move
            return True

        for node in self.reductions:
            into = dict[Node, Move]()
            if node in running or node in self.rows or node in self.followed:
                continue
            if node.name == "sum" and closed(_operand(node), into):
                found.append(node)
                running.add(node)
                moves.update(into)
        return found, moves

    def _function(self, name: str, factor: Factor) -> Factor:
        return lambda old, new: self.k.call(name, factor(old, new))

    def _wide(self, node: Node) -> bool:
        return self.graph.wide.get(node, True)  # what `follow` makes is wide

    def _inner(self, node: Node) -> list[Node]:
        return [each for each in node.inputs if isinstance(each, Node)]

    def _reductions_of(self, node: Node) -> set[Node]:
        """Return the reductions that a node depends on, itself where it is one."""
        if node not in self._depends:
            own = {node} if node.name in ALONG else set[Node]()
            self._depends[node] = own.union(*map(self._reductions_of, self._inner(node)))
        return self._depends[node]

    def _pending(self, node: Node) -> set[Node]:
        """Return those of them that are unknown yet."""
        return {each for each in self._reductions_of(node) if each not in self.rows}

    def _outer(self, node: Node) -> set[Node]:
        """Return the numbers of the row, unknown yet, that a value is computed from."""
        seen, left = set[Node](), [node]
        while left:
            each = left.pop()
            if each not in seen:
                seen.add(each)
                left += self._inner(each) if self._wide(each) else []
        return {each for each in seen if not self._wide(each) and self._pending(each)}

    def _references(
        self, parts: dict[Node, Any], running: Sequence[Node], count: Any
    ) -> Callable[[Node], Any]:
        """Return what gives numbers of the row, by what is known of reductions so far.

        Where one is not finite, as before the first element, the reference is 0.
        """
        known: dict[Node, Any] = {}

        def number(node: Operand) -> Any:
            if not isinstance(node, Node):
                return node
            if node.name == "size" and node.axis is self.graph.columns:
                return count
            part = parts.get(node, parts.get(_operand(node)) if node in running else None)
            if part is not None:
                return part
            if not node.inputs or node.name in ALONG:
                return self.rows[node]
            if node not in known:
                known[node] = self._operation(node, [number(e) for e in node.inputs], None)
            return known[node]

        def finite(node: Node) -> Any:
            value = number(node)
            return self.k.where(value - value == 0, value, 0)

        return finite

    def _moved(
        self,
        node: Node,
        move: Move,
        sums: dict[Node, Any],
        count: Any,
        old: Callable[[Node], Any],
        new: Callable[[Node], Any],
    ) -> Any:
        """Return the sum of a node beyond the head for another reference; no sum stays none."""

        def times(total: Any, factor: Any) -> Any:
            return self.k.where(total == 0, 0, total * factor)

        moved = times(sums[node], move.scale(old, new)) if move.scale else sums[node]
        for each, factor in move.terms.items():
            beyond = self.k.call("maximum", count - self.kept * self.vector, 0.0)
            total = beyond if each is ONE else sums[each]
            moved = moved + times(total, factor(old, new))
        return moved

    def _counted(self, chunk: _Chunk) -> Any:
        return self._along(ONE, self.k.where(chunk.inside, 1.0, 0.0))

    def _along(self, node: Node, value: Any) -> Any:
        """Combine the columns that a lane has."""
        for axis in (3, 0):
            value = self.k.reduce(value, axis, partial(self._combine, node), keep_dims=True)
        return value

    def _across(self, node: Node, part: Any) -> Any:
        """Combine the lanes of each row."""
        return self.k.reduce(part, 2, partial(self._combine, node), keep_dims=True)

    def _full(self, node: Node, value: Any) -> Any:
        return self.k.full((1, self.count, self.lanes, 1), value, _SHORT[node.dtype])

    def _combine(self, node: Node, a: Any, b: Any) -> Any:
        return self._extremum(f"{node.name}imum", a, b) if node.name in ("max", "min") else a + b

    def _extremum(self, name: str, a: Any, b: Any) -> Any:
        floating = any(each.dtype.is_floating() for each in (a, b) if hasattr(each, "dtype"))
        nan: dict[str, Any] = {"propagate_nan": tl.PropagateNan.ALL} if floating else {}
        return self.k.call(name, a, b, **nan)

    def _parts(self, nodes: Sequence[Node], memo: dict[Node, Any], chunk: _Chunk) -> list[Any]:
        """Return what the lanes of a tile give to reductions."""
        found: list[Any] = []
        blank = self.k.full(chunk.shape, 0, "i1")
        for node in nodes:
            kind = _SHORT[node.dtype]
            value = self.value(node.inputs[0], memo, chunk)
            value = self.k.where(blank, 0, value).to(kind)
            found.append(self._along(node, self.k.where(chunk.inside, value, _identity(node))))
        return found

    def value(self, operand: Operand, memo: dict[Node, Any], chunk: Any) -> Any:
        """Return the value of a node for rows, or for the columns of a chunk."""
        if not isinstance(operand, Node):
            return operand
        if operand in memo:
            return memo[operand]
        if operand.name == "at" and operand not in self.rows:
            x, index = operand.inputs
            memo[operand] = self.value(x, {}, self._item(self.value(index, memo, chunk)))
            return memo[operand]
        if operand not in self.rows:
            inputs = [self.value(each, memo, chunk) for each in operand.inputs]
            memo[operand] = self._operation(operand, inputs, chunk)
            return memo[operand]
        return self.rows[operand]

    def _operation(self, node: Node, inputs: list[Any], chunk: Any) -> Any:
        k, kind = self.k, _SHORT[node.dtype]
        match node.name:
            case "load":
                inside = None
                if any(self.form.arrays[node.argument].groups):
                    inside = self.inside
                if not self.graph.wide[node]:
                    return k.load(self.bases[node.argument], inside).to(kind)
                inside = chunk.inside if inside is None else chunk.inside & inside
                return k.load(self._at(node.argument, chunk), inside, 0).to(kind)
            case "size":
                return self.sizes[self.graph.sizes.index(node.axis)]
            case _:
                pass
        if node.name not in (*_ONE_FOR_ALL, "isnan"):
            inputs = [each.to(kind) if hasattr(each, "to") else each for each in inputs]
        first = inputs[0]
        match node.name:
            case "cast":
                return first
            case "float16" | "bfloat16" as narrow:
                return first.to(_SHORT[narrow]).to(kind)
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
                below = first if kind.startswith("u") else k.where(first < 0, -1, first)
                return k.where(first > 0, 1, below).to(kind)
            case "where":
                values = [each.to(kind) if hasattr(each, "to") else each for each in inputs[1:]]
                value = k.where(k.call("to_tensor", first), *values)
                return value.to(kind)
            case "floormod":
                if kind.startswith("f"):
                    return first - k.call("floor", first / inputs[1]) * inputs[1]
                rest = first % inputs[1]
                return k.where((rest != 0) & ((rest < 0) ^ (inputs[1] < 0)), rest + inputs[1], rest)
            case "/" if kind == "f32" and has_reciprocal(node.inputs[1]):
                return first * (1 / inputs[1])  # off by 1.5 units at most, a division by 2
            case "maximum" | "minimum":
                return self._extremum(node.name, *self._typed(inputs))
            case name if name in _OPERATORS:
                return k.operator(name, *self._typed(inputs))
            case name:
                name = "sqrt" if name == "sqrt_rn" and kind == "f64" else name
                return k.call(name, *self._typed(inputs))

    def _typed(self, inputs: Sequence[Any]) -> list[Any]:
        """Give a number beside floats their type, as NumPy does: in comparisons and functions of
        the language it would have its own.
        """
        kinds = [each.dtype for each in inputs if hasattr(each, "dtype")]
        floats = [kind for kind in kinds if kind.is_floating() and kind != tl.float32]
        return [
            self.k.full((), each, floats[0]) if floats and type(each) in (int, float) else each
            for each in inputs
        ]


def _operand(reduction: Node) -> Node:
    """Return what a reduction reduces."""
    (operand,) = reduction.inputs
    assert isinstance(operand, Node), "arrays alone are reduced"
    return operand


def _identity(node: Node) -> Any:
    if node.name == "sum":
        return 0
    import numpy as np

    kind = np.dtype(node.dtype)
    if kind.kind == "f":
        return float("-inf") if node.name == "max" else float("inf")
    limits = np.iinfo(kind)
    return limits.min if node.name == "max" else limits.max
