"""Stages of a loop body for coarse pipelining, from the dataflow between its products.

A product whose operand is computed, in the same iteration, from the result of another (T -> C -> U)
runs one stage later than that other: an iteration of the pipelined loop issues T of one iteration
and U of the iteration before, and C computes while U runs. Longer chains take more stages. The same
analysis reads tile IR (the planner) and aref IR (the pipeliner): borrowed slots follow their
readers.

Where warpgroups may change turns: the work between the products of a block.

Warpgroups that take turns issue their products one after the other; while one does, the others do
the rest of their iteration. So a turn should span what stands close together, and leave out the
stretch of an iteration that holds the most other work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.statements import READS, has_effect, is_pure, name_of, readers
from tawa.ir import aref, hopper, tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import around, has, is_inside, walk, yielded


@dataclass(frozen=True, slots=True)
class Root:
    """Where a carried value comes from: `value` of `lag` iterations before.

    `inits` are its values in the first `lag` iterations.
    """

    value: SSAValue
    lag: int
    inits: tuple[SSAValue, ...]


@dataclass(frozen=True, slots=True)
class Stages:
    """The stage of each statement of a body, or the `reason` why it is not pipelined.

    `roots` are those of the carried arguments; `free` the pure statements that no product feeds.
    """

    of: Mapping[Operation, int] = field(default_factory=dict[Operation, int])
    roots: Mapping[SSAValue, Root] = field(default_factory=dict[SSAValue, Root])
    free: frozenset[Operation] = frozenset()
    reason: str = ""

    def distance(self, value: SSAValue, user: Operation) -> tuple[SSAValue, int] | None:
        """Return the value of the body that `user` reads, and how many iterations of the pipelined
        loop ago it was computed; None for a value from outside.
        """
        root = self.roots.get(value)
        source, lag = (root.value, root.lag) if root is not None else (value, 0)
        if source.owner not in self.of:
            return None
        return source, self.of[user] - self.of[source.owner] + lag  # pyright: ignore

    def met_by(self, user: Operation) -> Iterator[Operation]:
        """Give the statements whose results `user` reads in the iteration that computes them."""
        for value in used_by(user):
            found = self.distance(value, user)
            if found is not None and found[1] == 0:
                assert isinstance(found[0].owner, Operation)
                yield found[0].owner

    def broken(self, order: Sequence[Operation]) -> Operation | None:
        """Return a statement that would run before what it reads in `order`, if there is one."""
        place = {operation: index for index, operation in enumerate(order)}
        for operation in order:
            for value in used_by(operation):
                found = self.distance(value, operation)
                if found is None:
                    continue
                source, distance = found
                late = distance == 0 and place[source.owner] > place[operation]  # pyright: ignore
                if distance < 0 or late:
                    return operation
        return None

    @property
    def count(self) -> int:
        """The number of stages: one more than the iterations that overlap."""
        return 1 + max(self.of.values(), default=0)


def statements(block: Block) -> list[Operation]:
    """Return the statements of a loop body, its terminator apart."""
    return [operation for operation in block.ops if operation is not block.last_op]


def used_by(operation: Operation) -> Iterator[SSAValue]:
    """Give the values an operation reads, those read inside its regions included."""
    yield from operation.operands
    for region in operation.regions:
        for inner in walk(region):
            yield from (v for v in inner.operands if not is_inside(v, operation))


def root_of(loop: scf.ForOp, argument: SSAValue) -> Root | None:
    """Follow a carried argument to the statement, or the value from outside, that it repeats.

    None where carried values only exchange places for ever.
    """
    block = loop.body.block
    value, inits = argument, list[SSAValue]()
    while isinstance(value, BlockArgument) and value.owner is block and value.index > 0:
        if len(inits) > len(block.args):
            return None
        inits.append(loop.iter_args[value.index - 1])
        value = yielded(block, value.index - 1)
        if value is argument and len(inits) == 1:
            return Root(inits[0], 0, ())
    return Root(value, len(inits), tuple(inits))


def defined_in(value: SSAValue, block: Block) -> bool:
    """Tell whether a statement of `block` itself defines a value."""
    return isinstance(value, OpResult) and value.owner.parent is block


def loop_without(value: SSAValue, statement: Operation) -> Operation | None:
    """Return the outermost loop around a statement that does not compute a value, None if none."""
    outside = takewhile(lambda each: not each.is_ancestor(value.owner), around(statement))
    loops = [each for each in outside if isinstance(each, scf.ForOp | scf.WhileOp)]
    return loops[-1] if loops else None


def takes_turned_product(dot: tile.Dot) -> bool:
    """Tell whether operand A of a product that wgmma takes, of 16 bits, is what another product
    gave, computed with or not, and then turned round.
    """
    rows, columns = shape_of(dot.result.type)[-2:]
    if rows % 64 or columns % 8 or bit_width(element_type(dot.a.type)) != 16:
        return False
    source = dot.a.owner
    while isinstance(source, tile.Cast | tile.Bitcast):
        source = source.value.owner
    if not isinstance(source, tile.Transpose) or (block := source.parent) is None:
        return False
    return comes_from_product(source, block, shape_of(source.value.type))


def comes_from_product(operation: Operation, block: Block, shape: tuple[int, ...]) -> bool:
    """Tell whether a statement reads what a product of `block` gave, all of it tiles of `shape`."""
    pending: list[Operation] = [operation]
    seen: set[Operation] = set()
    while pending:
        for value in used_by(pending.pop()):
            if not defined_in(value, block) or shape_of(value.type) != shape:
                continue
            source = value.owner
            assert isinstance(source, Operation)
            if isinstance(source, tile.Dot):
                return True
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return False


def borrowed(block: Block) -> dict[aref.GetExit, aref.GetEnter]:
    """Pair each free of a slot in `block` with the get that borrowed it, first in first out."""
    open_: dict[SSAValue, list[aref.GetEnter]] = {}
    pairs: dict[aref.GetExit, aref.GetEnter] = {}
    for operation in block.ops:
        match operation:
            case aref.GetEnter():
                open_.setdefault(operation.aref, []).append(operation)
            case aref.GetExit() if open_.get(operation.aref):
                pairs[operation] = open_[operation.aref].pop(0)
            case _:
                pass
    return pairs


def carried_roots(loop: scf.ForOp) -> dict[SSAValue, Root] | None:
    """Return the root of each carried argument; None where one has none."""
    found: dict[SSAValue, Root] = {}
    for argument in loop.body.block.args[1:]:
        root = root_of(loop, argument)
        if root is None:
            return None
        found[argument] = root
    return found


def find_stages(loop: scf.ForOp) -> Stages:
    """Derive the stages of `loop`'s body; `reason` says why it does not gain from pipelining."""
    block = loop.body.block
    dots = [op for op in block.ops if isinstance(op, tile.Dot)]
    if any(
        isinstance(inner, tile.Dot)
        for op in block.ops
        for region in op.regions
        for inner in walk(region)
    ):
        return Stages(reason="a product stands under a branch or an inner loop")
    if len(dots) < 2:
        return Stages(reason="no product feeds another")
    roots = carried_roots(loop)
    if roots is None:
        return Stages(reason="carried values exchange places")
    solver = _Solver(block, roots)
    if not solver.solve(len(dots)):
        return Stages(reason="the products of one iteration wait for one another")
    stage = solver.stage
    if len({stage[dot] for dot in dots}) < 2:
        return Stages(reason="no product feeds another")
    free = frozenset(op for op in stage if is_pure(op) and solver.after[op] < 0)
    stages = Stages(stage, roots, free)
    if (late := _too_late(dots, stages)) is not None:
        return Stages(reason=f"what feeds {name_of(late)} needs its result of the iteration before")
    return stages


@dataclass(slots=True)
class _Solver:
    """The least stages that satisfy every dependence."""

    block: Block
    roots: Mapping[SSAValue, Root]
    stage: dict[Operation, int] = field(default_factory=dict[Operation, int])
    # The stage of the last product an operation depends on in its own iteration, -1 for none.
    after: dict[Operation, int] = field(default_factory=dict[Operation, int])

    def solve(self, most: int) -> bool:
        ops = statements(self.block)
        pairs = borrowed(self.block)
        ordered = [op for op in ops if _is_ordered(op, any(map(_writes, ops)))]
        self.stage = dict.fromkeys(ops, 0)
        self.after = dict.fromkeys(ops, -1)
        while True:
            before = (dict(self.stage), dict(self.after))
            for operation in ops:
                self._raise(operation, pairs)
            latest = max((self.stage[op] for op in ordered), default=0)
            self.stage.update(dict.fromkeys(ordered, latest))
            if max(self.stage.values(), default=0) > most:
                return False
            if before == (self.stage, self.after):
                break
        self._sink(ops)
        self.stage.update({free: self._last_read(get) for free, get in pairs.items()})
        self._keep_order(ops)
        return True

    def _raise(self, operation: Operation, pairs: Mapping[aref.GetExit, aref.GetEnter]) -> None:
        stage, after = self.stage[operation], self.after[operation]
        accumulator = operation.acc if isinstance(operation, tile.Dot) else None
        for value in used_by(operation):
            if defined_in(value, self.block):
                source = value.owner
                assert isinstance(source, Operation)
                stage = max(stage, self.stage[source])
                after = max(after, self.after[source])
                if isinstance(operation, tile.Dot) and value is not accumulator:
                    stage = max(stage, self.after[source] + 1)
            elif (root := self.roots.get(value)) is not None and defined_in(root.value, self.block):
                source = root.value.owner
                assert isinstance(source, Operation)
                stage = max(stage, self.stage[source] - root.lag)
        if isinstance(operation, aref.GetExit) and operation in pairs:
            stage = max(stage, self._last_read(pairs[operation]))
        self.stage[operation] = stage
        self.after[operation] = max(after, stage) if isinstance(operation, tile.Dot) else after

    def _last_read(self, get: aref.GetEnter) -> int:
        """Return the stage of the last statement that reads what `get` borrows, or its own."""
        found = (user for value in get.values for user in readers(value))
        users = filter(None, map(self.block.find_ancestor_op_in_block, found))
        return max(self.stage[op] for op in (get, *users) if op in self.stage)

    def _sink(self, ops: list[Operation]) -> None:
        """Move what only later stages use, and no product feeds, to the first that does."""
        for operation in reversed(ops):
            movable = isinstance(operation, aref.GetEnter) or (
                is_pure(operation) and self.after[operation] < 0
            )
            users = [use.operation for value in operation.results for use in value.uses]
            if not movable or not users or any(user is self.block.last_op for user in users):
                continue
            at = map(self.block.find_ancestor_op_in_block, users)
            self.stage[operation] = min(self.stage[user] for user in at if user is not None)

    def _keep_order(self, ops: list[Operation]) -> None:
        """The gets of one ring stand in one stage, and so do its frees: first in, first out."""
        rings: dict[SSAValue, list[Operation]] = {}
        for operation in ops:
            if isinstance(operation, (aref.GetEnter, aref.GetExit)):
                rings.setdefault(operation.aref, []).append(operation)
        for members in rings.values():
            gets = [op for op in members if isinstance(op, aref.GetEnter)]
            frees = [op for op in members if isinstance(op, aref.GetExit)]
            if gets:
                self.stage.update(dict.fromkeys(gets, min(self.stage[op] for op in gets)))
            if frees:
                self.stage.update(dict.fromkeys(frees, max(self.stage[op] for op in frees)))


def _writes(operation: Operation) -> bool:
    return has_effect(operation) and not isinstance(operation, (aref.GetEnter, aref.GetExit))


def _is_ordered(operation: Operation, writing: bool) -> bool:
    """Tell whether an operation must keep its place among the others that go to memory."""
    if isinstance(operation, (aref.GetEnter, aref.GetExit)):
        return False
    reads = has(operation, *READS)
    return has_effect(operation) or (reads and writing)


def _too_late(dots: list[tile.Dot], stages: Stages) -> tile.Dot | None:
    """Return a product that cannot run under what feeds its next iteration, if there is one."""
    for dot in dots:
        feeders = [
            value.owner
            for value in (dot.a, dot.b)
            if isinstance(value.owner, Operation) and value.owner in stages.of
        ]
        pending = [op for op in feeders if stages.of[op] < stages.of[dot]]
        seen = set(pending)
        while pending:
            for source in stages.met_by(pending.pop()):
                if isinstance(source, tile.Dot) and stages.of[source] >= stages.of[dot]:
                    return dot
                if source not in seen:
                    seen.add(source)
                    pending.append(source)
    return None


# --- work between products ------------------------------------------------------------------------


_PRODUCTS = (tile.Dot, hopper.Wgmma)
"""Products before they are lowered, and those that wgmma makes."""

_WORK = (tile.Elementwise, tile.Reduce, tile.Cast)
"""Statements that cost instructions for each element; others name, move or repeat elements."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """The products directly in a block, and the elements computed after each of them.

    `work[i]` is what stands between product i and the next, `before` what stands before the first.
    In the body of a loop the stretch after the last product goes on with `before`.
    """

    products: tuple[Operation, ...]
    work: tuple[int, ...]
    before: int

    @property
    def rounds(self) -> tuple[int, ...]:
        """The work after each product where the block is the body of a loop."""
        return (*self.work[:-1], self.work[-1] + self.before)

    @property
    def widest(self) -> int:
        """The product of a loop's body that is followed by the most work."""
        return max(range(len(self.products)), key=lambda index: self.rounds[index])


def iteration(block: Block) -> Iteration | None:
    """Return the products directly in `block`; None where there are none."""
    products: list[Operation] = []
    work = [0]
    for operation in block.ops:
        if isinstance(operation, _PRODUCTS):
            products.append(operation)
            work.append(0)
        else:
            work[-1] += _elements(operation)
    return Iteration(tuple(products), tuple(work[1:]), work[0]) if products else None


def takes_turns(loop: scf.ForOp) -> Iteration | None:
    """Return the iteration of a loop whose warpgroups gain by turns; None for any other loop.

    Its products stand in it directly, and at least one is followed by other work.
    """
    for operation in loop.body.block.ops:
        if operation.regions and has(operation, *_PRODUCTS):
            return None
    found = iteration(loop.body.block)
    return found if found is not None and max(found.rounds) > 0 else None


def _elements(operation: Operation) -> int:
    """Return how many elements an operation computes, with its regions."""
    if isinstance(operation, tile.Reduce):
        return prod(shape_of(operation.operands[0].type))
    inner = sum(
        _elements(op) for region in operation.regions for block in region.blocks for op in block.ops
    )
    if isinstance(operation, _WORK):
        shape = shape_of(operation.results[0].type)
        return prod(shape) if shape else 0
    return inner
