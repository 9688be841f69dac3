"""Which tensors of a role share one array of registers.

In-place accumulators are the point: the result of a product, its accumulator operand and the value
a loop carries must be the same registers, or ptxas copies them while products are in flight. So
values joined by a move (loop-carried, yielded, in-place operand) share an array wherever their
lives do not cross (coalescing, Chaitin 1982), on liveness computed over the structured regions.

Views that only rename registers (broadcast, transpose ...) own nothing: a use of one is a use of
the tensor it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import is_tensor
from tawa.ir.walk import around, is_inside, operations_of, terminator, walk

Looks = Callable[[SSAValue], SSAValue | None]
"""Gives the tensor a view looks at; None for a tensor of its own."""


@dataclass(slots=True)
class Storage:
    """The arrays of one role: `array_of` a value is the representative of those it shares with."""

    array_of: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    members: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    declared_before: dict[Operation, list[SSAValue]] = field(
        default_factory=dict[Operation, list[SSAValue]]
    )

    def accumulates(self, value: SSAValue) -> bool:
        """Tell whether a value's array is the accumulator of a wgmma."""
        shared = self.members.get(self.array_of.get(value, value), [])
        return any(isinstance(member.owner, hopper.Wgmma) for member in shared)

    def same(self, one: SSAValue, other: SSAValue) -> bool:
        """Tell whether two values live in one array."""
        return one in self.array_of and self.array_of[one] is self.array_of.get(other)


# Operations that give no tensor of their own: constants are written where they are used.
_FOLDED = (tile.Constant, tile.Splat, tile.Arange)
# Register r of the result depends on register r of the operands only.
_POINTWISE = (tile.Elementwise, tile.Cast, tile.Bitcast, hopper.WgmmaWait, hopper.Pin)


def in_place(op: Operation) -> tuple[tuple[SSAValue, SSAValue], ...]:
    """Return (operand, result) pairs that are the same registers by the operation's meaning."""
    match op:
        case hopper.Wgmma() | hopper.Mma() | hopper.FmaDot():
            return ((op.acc, op.result),)
        case hopper.WgmmaWait() | hopper.Pin():
            return tuple(zip(op.values, op.res))
        case _:
            return ()


def allocate(body: Region, looks: Looks) -> Storage:
    """Assign arrays to the tensors computed in `body`."""
    return _Allocator(looks).run(body)


class _Allocator:
    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._owned_by: dict[SSAValue, SSAValue | None] = {}
        self._crosses: dict[SSAValue, set[SSAValue]] = {}
        self._moves: list[tuple[int, SSAValue, SSAValue]] = []
        self._order: dict[SSAValue, int] = {}
        self._inside: dict[Operation, set[SSAValue]] = {}

    def run(self, body: Region) -> Storage:
        for block in body.blocks:
            self._block(block, set())
        storage = self._merge()
        self._anchor(storage, {op: place for place, op in enumerate(walk(body))})
        return storage

    # --- who owns -----------------------------------------------------------------------------

    def _owner(self, value: SSAValue) -> SSAValue | None:
        """Follow views down to the tensor that has registers; None for scalars and constants."""
        if value not in self._owned_by:
            self._owned_by[value] = self._find_owner(value)
        return self._owned_by[value]

    def _find_owner(self, value: SSAValue) -> SSAValue | None:
        if not is_tensor(value) or type(value.owner) in _FOLDED:
            return None
        below = self._looks(value)
        return value if below is None else self._owner(below)

    def _owners(self, values: Iterable[SSAValue]) -> set[SSAValue]:
        return {owner for value in values if (owner := self._owner(value)) is not None}

    def _owned(self, values: Iterable[SSAValue]) -> list[SSAValue]:
        return [value for value in values if self._owner(value) is value]

    def _used_inside(self, op: Operation) -> set[SSAValue]:
        """Owners used within an operation's regions and defined outside them."""
        if op not in self._inside:
            used: set[SSAValue] = set()
            for region in op.regions:
                for inner in walk(region):
                    used |= self._owners(inner.operands)
            self._inside[op] = {value for value in used if not is_inside(value, op)}
        return self._inside[op]

    # --- liveness -----------------------------------------------------------------------------

    def _define(self, value: SSAValue, live: Iterable[SSAValue]) -> None:
        mine = self._crosses.setdefault(value, set())
        self._order.setdefault(value, len(self._order))
        for other in live:
            if other is not value:
                mine.add(other)
                self._crosses.setdefault(other, set()).add(value)

    def _move(self, weight: int, source: SSAValue, target: SSAValue) -> None:
        if self._owner(source) is source and self._owner(target) is target:
            self._moves.append((weight, source, target))

    def _block(self, block: Block, live: set[SSAValue]) -> set[SSAValue]:
        for op in reversed(operations_of(block)):
            live = self._visit(op, live)
        return live

    def _visit(self, op: Operation, after: set[SSAValue]) -> set[SSAValue]:
        match op:
            case scf.ForOp():
                return self._for(op, after)
            case scf.IfOp():
                return self._if(op, after)
            case scf.WhileOp():
                return self._while(op, after)
            case _:
                return self._plain(op, after)

    def _plain(self, op: Operation, after: set[SSAValue]) -> set[SSAValue]:
        results = self._owned(op.results)
        if type(op) in (tile.Atomic, tile.CompareExchange):
            results = [result for result in results if result.first_use is not None]
        pairs = in_place(op)
        reads = self._owners(op.operands)
        for result in results:
            live = after - {result}
            if type(op) not in _POINTWISE:
                live |= reads - {source for source, target in pairs if target is result}
            else:
                live |= self._owners(v for v in op.operands if self._owner(v) is not v)
            if type(op) in (hopper.WgmmaWait, hopper.Pin):
                # The same bits: a wait or pin does not part a value from its registers.
                live -= {source for source, target in pairs if target is result}
            self._define(result, live)
        for source, target in pairs:
            self._move(3, source, target)
        inner: set[SSAValue] = set()
        if not isinstance(op, (tile.Reduce, tile.Scan, hopper.CarryIn)):
            for region in op.regions:
                inner |= self._used_inside(op)
                for block in region.blocks:
                    inner |= self._block(block, after | inner)
        return (after - set(results)) | reads | inner

    def _for(self, op: scf.ForOp, after: set[SSAValue]) -> set[SSAValue]:
        results, arguments = list(op.results), list(op.body.block.args)[1:]
        through = (after - set(results)) | self._used_inside(op)
        for value in self._owned(results):
            self._define(value, after)
        start = self._block(op.body.block, set(through))
        for value in self._owned(arguments):
            self._define(value, start | set(self._owned(arguments)))
        for source, argument, yielded, result in zip(
            op.iter_args,
            arguments,
            terminator(op.body.block).operands,
            results,  # pyright: ignore
        ):
            self._move(4, argument, result)
            self._move(2, yielded, argument)
            self._move(1, source, argument)
        return (through | self._owners(op.operands)) - set(arguments)

    def _if(self, op: scf.IfOp, after: set[SSAValue]) -> set[SSAValue]:
        through = after - set(op.results)
        for value in self._owned(op.results):
            self._define(value, after)
        before = set(through)
        for region in op.regions:
            for block in region.blocks:
                before |= self._block(block, set(through))
                if op.results and block.last_op is not None:
                    for source, target in zip(block.last_op.operands, op.results):
                        self._move(2, source, target)
        return before | self._owners(op.operands)

    def _while(self, op: scf.WhileOp, after: set[SSAValue]) -> set[SSAValue]:
        through = (after - set(op.results)) | self._used_inside(op)
        for value in self._owned(op.results):
            self._define(value, after | through)
        body, test = op.after_region.block, op.before_region.block
        live = self._block(body, set(through))
        passed = self._owned(body.args)
        for value in passed:
            self._define(value, live | set(passed))
        live = self._block(test, (live - set(passed)) | through)
        for value in self._owned(test.args):
            self._define(value, live | set(self._owned(test.args)))
        moves = (
            zip(terminator(body).operands, test.args),
            zip(terminator(test).operands[1:], op.results),
            zip(terminator(test).operands[1:], body.args),
        )
        for pairs in moves:
            for source, target in pairs:
                self._move(2, source, target)
        for source, argument in zip(op.arguments, test.args):
            self._move(1, source, argument)
        return (through | self._owners(op.operands)) - set(test.args)

    # --- sharing ------------------------------------------------------------------------------

    def _merge(self) -> Storage:
        leader = {value: value for value in self._order}
        members = {value: [value] for value in self._order}
        for _, source, target in sorted(self._moves, key=lambda move: -move[0]):
            one, other = leader.get(source), leader.get(target)
            if one is None or other is None or one is other or source.type != target.type:
                continue
            if self._cross(members[one], members[other]):
                continue
            for value in members.pop(other):
                leader[value] = one
                members[one].append(value)
        return Storage(leader, members)

    def _cross(self, some: list[SSAValue], others: list[SSAValue]) -> bool:
        return any(self._crosses[value].intersection(others) for value in some)

    def _anchor(self, storage: Storage, order: Mapping[Operation, int]) -> None:
        """Place each array's declaration before its first definition, where all uses see it."""
        for first, values in storage.members.items():
            paths = [_path(value) for value in values]
            depth = 0
            while all(len(path) > depth + 1 for path in paths) and _one_block(paths, depth + 1):
                depth += 1
            anchor = min((path[depth] for path in paths), key=order.__getitem__)
            storage.declared_before.setdefault(anchor, []).append(first)


def _one_block(paths: list[list[Operation]], depth: int) -> bool:
    """Tell whether the ancestors at `depth` of all paths stand in one block."""
    blocks = {id(path[depth].parent_block()) for path in paths}
    return len(blocks) == 1


def _path(value: SSAValue) -> list[Operation]:
    """Return what makes a value, for block arguments their loop, after all that is around it."""
    owner = value.owner
    return [*around(owner)][::-1] + ([owner] if isinstance(owner, Operation) else [])
