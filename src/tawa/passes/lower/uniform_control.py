"""What threads read for themselves and control depends on: one thread reads, and tells the others.

Purpose: every thread of a role makes the same iterations and takes the same sides where the role
meets, waits or computes together, though the memory that decides it may change between two reads.
Before -> after:
                                             hopper.one_thread { %x = tile.load %p {volatile}
    %n = tile.load %p {volatile}                                 hopper.shared_store %x }
    scf.for %i = %0 to %n { .. wgmma .. } -> hopper.named_barrier (role); %n = hopper.shared_load
                                             scf.for %i = %0 to %n { .. wgmma .. }
In a loop a barrier before the store keeps the readers of the iteration before apart. Loads that
stand together are told together. What is computed from a tile of which several threads read the
same element for themselves (a sum of eight words that every warp reads), or from lanes that combine
in different orders, is told when it is a scalar. Requires: layouts assigned, accesses separated:
where threads meet is known. Ensures: what decides control flow around anything but work of each
thread for itself is the same number in all threads of the role. Values that decide no such thing
stay as they are. Declines when: never. A role that one thread runs needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.memory import roots_of
from tawa.analysis.statements import CONTROL, WRITES, accessed, enclosing_loops, is_volatile
from tawa.ir import hopper, tile
from tawa.ir.functions import FUNCTIONS
from tawa.ir.types import is_tensor, layout_of
from tawa.ir.walk import around, decisive, is_terminator, marked_pure, passed_on, reach, walk
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, erase
from tawa.passes.lower.exchange import load_scalar, store_scalar, stored_as, word_layout
from tawa.passes.lower.views import whole_buffer

_APART = frozenset(
    (
        *(tile.Constant, tile.ProgramId, tile.NumPrograms, tile.DescExtent, tile.Arange),
        *(tile.Splat, tile.ExpandDims, tile.Broadcast, tile.Reshape, tile.Transpose),
        *(tile.Split, tile.Join, tile.Elementwise, tile.Cast, tile.Bitcast, tile.PtrAdd),
        *(tile.Asm, tile.AsmEffect),
        *(tile.Load, tile.Store, tile.Atomic, tile.CompareExchange),
        *(tile.Assume, tile.Print, tile.Assert, *CONTROL),
        *(hopper.BlockId, hopper.NumBlocks, hopper.GridExtent, hopper.ClusterRank),
        *(hopper.Counter, hopper.Uninitialized, hopper.Pin, hopper.Columns),
    )
)
"""What each thread does for itself, whatever the others do."""


def broadcast_control(lowering: Lowering, role: hopper.Role) -> None:
    """Let one thread of `role` read what decides where all of them meet."""
    if role in lowering.single:
        return
    facts = _Facts(lowering, role)
    # A barrier that tells a value makes the control flow around it decisive as well.
    while facts.any and (found := list(_to_tell(role, facts))):
        for run in _runs(found):
            _tell(lowering, role, run)


# --- what threads may find different --------------------------------------------------------------


class _Facts:
    """Which reads of a role may give its threads different values."""

    def __init__(self, lowering: Lowering, role: hopper.Role) -> None:
        self._warps = role.warps.data
        self._kernel = lowering.kernel
        self.any = any(map(self.may_differ, walk(role)))

    @cached_property
    def _written(self) -> frozenset[int] | None:
        return _written(self._kernel)

    def may_differ(self, operation: Operation) -> bool:
        """Tell whether threads that hold one value of an operation may hold different numbers."""
        match operation:
            case tile.Load():
                return self._may_change(operation) and self.is_shared(operation.result)
            case tile.AsmEffect():
                return any(map(self.is_shared, operation.results))
            case tile.Reduce():
                return _crosses_lanes(operation) and not _is_symmetric(operation)
            case _:
                return False

    def is_shared(self, value: SSAValue) -> bool:
        """Tell whether more than one thread holds a scalar, or an element of a tile."""
        if not is_tensor(value):
            return True
        layout = layout_of(value.type)
        return layout.register_count * 32 * self._warps != prod(layout.shape)

    def _may_change(self, load: tile.Load) -> bool:
        """Tell whether two reads of one address may give different numbers."""
        if is_volatile(load):
            return True
        roots = roots_of(load.pointer)
        return roots is None or self._written is None or bool(roots & self._written)


def _written(kernel: tile.Kernel) -> frozenset[int] | None:
    """Return the arguments that a kernel writes through, lowered or not; None: unknown ones."""
    found: frozenset[int] = frozenset()
    for operation in walk(kernel):
        match operation:
            case hopper.TmaStore(map=SSAValue(owner=hopper.TensorMap() as owner)):
                roots = roots_of(owner.desc)
            case _ if isinstance(operation, WRITES):
                roots = roots_of(accessed(operation))
            case _:
                continue
        if roots is None:
            return None
        found |= roots
    return found


def _crosses_lanes(reduce: tile.Reduce) -> bool:
    axis = reduce.axis.data
    lanes = layout_of(reduce.inputs[0].type).lanes
    return any(item.extent > 1 and item.step[axis] for item in lanes)


def _is_symmetric(reduce: tile.Reduce) -> bool:
    """Tell whether two lanes that combine what both have get the same, whichever comes first."""
    match list(reduce.body.block.ops):
        case [tile.Elementwise(function=name), tile.Yield()]:
            # The extrema of the hardware order zeros by sign, and give one NaN.
            return FUNCTIONS[name.data].commutative or name.data.startswith(("min", "max"))
        case _:
            return False


# --- what must agree ------------------------------------------------------------------------------


def _to_tell(role: hopper.Role, facts: _Facts) -> Iterator[SSAValue]:
    """Yield the scalars in which threads may differ, and which decide where they meet."""

    def differs(value: SSAValue) -> bool:
        owner = value.owner
        return isinstance(owner, Operation) and not is_tensor(value) and _begins(owner, facts)

    decide = [value for control in _meeting(role) for value in decisive(control)]
    found = reach(decide, lambda value: () if differs(value) else _sources(value, facts))
    return filter(differs, found)


def _meeting(role: hopper.Role) -> list[Operation]:
    """Return the control flow of a role in which threads do more than each its own."""
    inside: set[Operation] = set()
    for operation in walk(role.body):
        if type(operation) in _APART or is_terminator(operation):
            continue
        inside.update(around(operation))
    # What one thread executes is its own.
    shared = [op for op in walk(role.body) if op in inside and decisive(op)]
    return [op for op in shared if not any(type(each) is hopper.OneThread for each in around(op))]


def _begins(operation: Operation, facts: _Facts) -> bool:
    """Tell whether threads may differ in a scalar result though they do not in scalars before."""
    if facts.may_differ(operation):
        return True
    tiles = [value for value in operation.operands if is_tensor(value)]
    return any(facts.may_differ(owner) for owner in _makers(tiles, facts))


def _makers(tiles: Iterable[SSAValue], facts: _Facts) -> Iterator[Operation]:
    """Yield what makes tiles, and the tiles that they are made of."""
    work, seen = list(tiles), set[SSAValue]()
    while work:
        value = work.pop()
        if value in seen or not is_tensor(value):
            continue
        seen.add(value)
        if isinstance(value.owner, Operation):
            yield value.owner
        work += _sources(value, facts)


def _sources(value: SSAValue, facts: _Facts) -> list[SSAValue]:
    """Return the values whose differences among threads may show in `value`."""
    if not facts.is_shared(value):
        return []
    maker = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    match maker:
        case hopper.SharedLoad():
            return []  # what all find in memory that they have met for
        case scf.ForOp() if isinstance(value, BlockArgument) and not value.index:
            return [maker.lb, maker.step]
        case scf.ForOp() | scf.IfOp() | scf.WhileOp():
            # Which iteration or side is the last to give it.
            ends = decisive(maker) if isinstance(value, OpResult) else []
            return [*ends, *passed_on(value)]
        case _:
            return list(value.owner.operands) if isinstance(value.owner, Operation) else []


# --- telling --------------------------------------------------------------------------------------


def _runs(found: list[SSAValue]) -> Iterator[list[SSAValue]]:
    """Group what is told at once: loads of a block with nothing but arithmetic between them, none
    of which needs what another one reads.
    """
    rest = {value.owner: value for value in found}
    for maker in [owner for owner in rest if isinstance(owner, Operation)]:
        before = maker.prev_op
        while before is not None and _may_move(before) and before not in rest:
            before = before.prev_op
        if maker not in rest or (before is not None and before in rest):
            continue  # a run begins with its first
        run, following = [rest.pop(maker)], maker.next_op
        while following is not None and isinstance(maker, tile.Load):
            if isinstance(following, tile.Load) and following in rest:
                if set(following.operands) & _following_from(run, following):
                    break
                run.append(rest.pop(following))
            elif not _may_move(following):
                break
            following = following.next_op
        yield run


def _may_move(operation: Operation) -> bool:
    return marked_pure(operation) and not operation.regions and not is_terminator(operation)


def _following_from(run: list[SSAValue], last: Operation) -> set[SSAValue]:
    """Return the values of a run, and what is computed from them before `last`."""
    known = set(run)
    first = run[0].owner
    operation = first if isinstance(first, Operation) else None
    while operation is not None and operation is not last:
        if known & set(operation.operands):
            known.update(operation.results)
        operation = operation.next_op
    return known


def _tell(lowering: Lowering, role: hopper.Role, run: list[SSAValue]) -> None:
    """Give all threads the numbers that one of them has: of loads, that it alone reads."""
    makers = [value.owner for value in run if isinstance(value.owner, Operation)]
    first, last = makers[0], makers[-1]
    later = _users_between(run, first, last)
    following, block = last.next_op, last.parent
    emitter = Emitter.after(last)
    if enclosing_loops(last) and not _have_met(first):
        emitter.put(lowering.role_barrier(role))
    label = f"told in {role.label.data}"
    kinds = [value.type for value in run]
    buffers = [lowering.new_buffer(label, word_layout(kind), stored_as(kind)) for kind in kinds]
    views = [whole_buffer(emitter, buffer) for buffer in buffers]
    one = emitter.one_thread()
    # What is read is on its way together.
    mine = [
        one.put(maker.clone()).results[0] if isinstance(maker, tile.Load) else value
        for value, maker in zip(run, makers, strict=True)
    ]
    for value, view in zip(mine, views, strict=True):
        store_scalar(one, value, view, role)
    emitter.put(lowering.role_barrier(role))
    for value, view, maker in zip(run, views, makers, strict=True):
        told = load_scalar(emitter, view, value.type, role, value.name_hint)
        value.replace_uses_with_if(told, lambda use: use.operation.parent is not one.block)
        if isinstance(maker, tile.Load):
            erase(maker)
    assert block is not None
    for operation in later:
        operation.detach()
        if following is None:
            block.add_op(operation)
        else:
            block.insert_op_before(operation, following)


def _have_met(operation: Operation) -> bool:
    """Tell whether all threads of the role have met right before an operation."""
    before = operation.prev_op
    while before is not None and _may_move(before):
        before = before.prev_op
    if not isinstance(before, hopper.NamedBarrier):
        return False
    return before.kind.data == "sync" and before.scope.data == "role"


def _users_between(run: list[SSAValue], first: Operation, last: Operation) -> list[Operation]:
    """Return what is computed from a run before its last load: it is computed after it instead."""
    known = _following_from(run, last)
    found: list[Operation] = []
    operation = first.next_op
    while operation is not None and first is not last and operation is not last:
        if known & set(operation.operands) and not known.isdisjoint(operation.results):
            found.append(operation)
        operation = operation.next_op
    return found
