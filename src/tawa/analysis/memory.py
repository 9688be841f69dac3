"""Which memory a statement goes to, and whether two statements may meet there.

Memory is named by the kernel's arguments. Two accesses through one argument meet unless the affine
analysis proves the opposite; accesses through different arguments meet only if the caller passed
overlapping arrays, which a guard checks at launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.boxes import Box, disjoint
from tawa.analysis.effects import WRITES, accessed, clobbers, enclosing_loops, orders_others
from tawa.analysis.polynomial import polynomial
from tawa.ir import hopper, tile
from tawa.ir.control import passed_on
from tawa.ir.types import PtrType, element_type
from tawa.ir.walk import Holder, all_of, walk


def roots_of(value: SSAValue) -> frozenset[int] | None:
    """Return the indices of the kernel's arguments a pointer or descriptor may come from.

    None: from anywhere (an address that was itself read from memory, or made from an integer).
    """
    return _roots(value, set())


def _roots(value: SSAValue, seen: set[SSAValue]) -> frozenset[int] | None:
    if value in seen:
        return frozenset()
    seen.add(value)
    sources = _sources(value)
    if sources is None:
        return None
    if isinstance(sources, int):
        return frozenset({sources})
    found: frozenset[int] = frozenset()
    for source in sources:
        roots = _roots(source, seen)
        if roots is None:
            return None
        found |= roots
    return found


def _sources(value: SSAValue) -> list[SSAValue] | int | None:
    """Return the values a pointer is made from, or the number of the argument it is."""
    if found := passed_on(value):
        return found
    match value:
        case BlockArgument():
            return value.index if isinstance(value.owner.parent_op(), tile.Kernel) else None
        case OpResult(owner=tile.PtrAdd() | tile.MakeDesc() | tile.DescExtent()):
            return [value.owner.operands[0]]
        case OpResult(owner=tile.Bitcast(value=inner)) if isinstance(
            element_type(inner.type), PtrType
        ):
            return [inner]
        case OpResult(owner=tile.Elementwise() as operation):
            return list(operation.inputs)[1:] if operation.function.data == "select" else None
        case OpResult(owner=hopper.ConvertLayout()):
            return [value.owner.operands[0]]
        case OpResult(owner=hopper.Pin() as pin):
            return [pin.values[value.index]]
        case OpResult(owner=hopper.SharedLoad() as load):
            # Pointers that went from thread to thread through scratch memory.
            users = [use.operation for use in load.view.uses]
            return [user.value for user in users if isinstance(user, hopper.SharedStore)] or None
        case OpResult(owner=tile.Splat() | tile.Broadcast() | tile.ExpandDims() | tile.Reshape()):
            return [value.owner.operands[0]]
        case OpResult(owner=tile.Transpose() | tile.Split() | tile.Join()):
            return list(value.owner.operands)
        case _:
            return None


def reached(operation: Operation) -> frozenset[int] | None:
    """Return the arguments through which a statement goes to memory; None where it is not known.

    Inline PTX with effects goes wherever a pointer that it is given leads to, or, where it says
    that it has to do with memory and is given none, anywhere.
    """
    if not isinstance(operation, tile.AsmEffect):
        return roots_of(accessed(operation))
    pointers = [v for v in operation.inputs if isinstance(element_type(v.type), PtrType)]
    if not pointers and clobbers(operation):
        return None
    found: frozenset[int] = frozenset()
    for pointer in pointers:
        if (roots := roots_of(pointer)) is None:
            return None
        found |= roots
    return found


def writers(top: Holder) -> list[Operation]:
    """Return all statements that write memory, in program order, and inline PTX that may."""
    found = all_of(top, *WRITES, tile.AsmEffect)
    return [op for op in found if reached(op) != frozenset()]


def box_of(operation: Operation) -> Box | None:
    """Return the block a descriptor access touches."""
    match operation:
        case tile.DescLoad() | tile.DescStore() | tile.DescAtomic():
            kind = operation.desc.type
            if kind.window is not None:  # whose pixels lie anywhere in the images
                return None
            offsets = tuple(polynomial(offset) for offset in operation.offsets)
            return Box(offsets, kind.block_shape)
        case _:
            return None


def may_meet(a: Operation, b: Operation) -> bool:
    """Tell whether two accesses that share an argument may touch the same element."""
    first, second = box_of(a), box_of(b)
    if first is None or second is None or accessed(a) is not accessed(b):
        return True
    around = enclosing_loops(b)
    common = [loop for loop in enclosing_loops(a) if loop in around]
    return not disjoint(first, second, common)


@dataclass(frozen=True, slots=True)
class Meeting:
    """What stands against moving a read: the writer it may meet, or arguments to be guarded."""

    writers: tuple[Operation, ...] = ()
    guards: frozenset[tuple[int, int]] = frozenset()
    unknown: bool = False


def meetings(read: Operation, all_writers: list[Operation]) -> Meeting:
    """Return the writers a read may meet, and the pairs of arguments (read, written) to guard."""
    mine = roots_of(accessed(read))
    met: list[Operation] = []
    guards: set[tuple[int, int]] = set()
    for writer in all_writers:
        theirs = reached(writer)
        if mine is None or theirs is None:
            return Meeting((writer,), frozenset(), unknown=True)
        if mine & theirs and may_meet(read, writer):
            met.append(writer)
        guards |= {(a, b) for a in mine for b in theirs if a != b}
    return Meeting(tuple(met), frozenset(guards))


def stored_apart(all_writers: list[Operation]) -> frozenset[tuple[int, int]]:
    """Return the pairs of arguments stored to, where one of the stores is asynchronous.

    Such stores have no order unless they are waited for: a guard is cheaper.
    """
    pairs: set[tuple[int, int]] = set()
    for store in all_writers:
        mine = reached(store)
        if mine is None or not isinstance(store, (tile.DescStore, tile.DescAtomic)):
            continue
        for other in all_writers:
            theirs = reached(other) or frozenset()
            pairs |= {(min(a, b), max(a, b)) for a in mine for b in theirs if a != b}
    return frozenset(pairs)


def met_in_loops(kernel: tile.Kernel) -> frozenset[tuple[int, int]]:
    """Return the pairs of arguments, one of them stored to, of which a loop accesses one.

    Where they do not overlap, the threads of a block need not wait for one another in each
    iteration, and loads of the next iteration may pass the stores of this one. There are none where
    programs wait for one another.
    """
    if synchronizers(kernel):
        return frozenset()
    stores = writers(kernel)
    pairs: set[tuple[int, int]] = set()
    for access in walk(kernel):
        if isinstance(access, (*WRITES, tile.Load, tile.DescLoad)):
            looped = bool(enclosing_loops(access))
            met = meetings(access, [w for w in stores if looped or enclosing_loops(w)])
            pairs |= frozenset() if met.unknown else met.guards
    return frozenset((min(pair), max(pair)) for pair in pairs)


def stored_in_loops(kernel: tile.Kernel) -> frozenset[tuple[int, int]]:
    """Return the pairs of arguments that one loop of a kernel stores to and accesses.

    Asynchronous stores of an iteration would have to be complete before an access of the next.
    """
    if synchronizers(kernel):
        return frozenset()
    stores = [(store, enclosing_loops(store)) for store in writers(kernel)]
    pairs: set[tuple[int, int]] = set()
    for access in walk(kernel):
        if isinstance(access, (*WRITES, tile.Load, tile.DescLoad)):
            loops = set(enclosing_loops(access))
            met = meetings(access, [store for store, own in stores if not loops.isdisjoint(own)])
            pairs |= frozenset() if met.unknown else met.guards
    return frozenset((min(pair), max(pair)) for pair in pairs)


def synchronizers(kernel: tile.Kernel) -> list[Operation]:
    """Return the statements after which memory written by other programs may be seen."""
    return [operation for operation in walk(kernel) if orders_others(operation)]
