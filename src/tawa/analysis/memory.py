"""Which memory a statement goes to, and whether two statements may meet there.

Memory is named by the kernel's arguments. Two accesses through one argument meet unless the affine
analysis proves the opposite; accesses through different arguments meet only if the caller passed
overlapping arrays, which a guard checks at launch.

Boxes of tensors, and proofs that two accesses never touch the same element.

An offset is a polynomial of scalars (`tawa.analysis.polynomial`). Coordinates are far below 2^31,
so that no overflow is assumed: one that wrapped would be outside every tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.polynomial import Atom, Call, Iteration, Polynomial, polynomial, trip_count
from tawa.analysis.statements import (
    READS,
    WRITES,
    accessed,
    clobbers,
    enclosing_loops,
    orders_others,
)
from tawa.ir import hopper, tile
from tawa.ir.types import PtrType, element_type
from tawa.ir.walk import Holder, all_of, passed_on, walk


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
    iteration, and loads of the next iteration may pass the stores of this one.
    """
    return _met(kernel, lambda access, store: bool(access or store))


def stored_in_loops(kernel: tile.Kernel) -> frozenset[tuple[int, int]]:
    """Return the pairs of arguments that one loop of a kernel stores to and accesses.

    Asynchronous stores of an iteration would have to be complete before an access of the next.
    """
    return _met(kernel, lambda access, store: not set(access).isdisjoint(store))


_Loops: TypeAlias = list[Operation]


def _met(
    kernel: tile.Kernel, which: Callable[[_Loops, _Loops], bool]
) -> frozenset[tuple[int, int]]:
    """Return the pairs of arguments of an access and a store, of those pairs that `which` chooses
    by the loops around each. There are none where programs wait for one another.
    """
    if synchronizers(kernel):
        return frozenset()
    stores = [(store, enclosing_loops(store)) for store in writers(kernel)]
    pairs: set[tuple[int, int]] = set()
    for access in all_of(kernel, *WRITES, *READS):
        around = enclosing_loops(access)
        met = meetings(access, [store for store, own in stores if which(around, own)])
        pairs |= frozenset() if met.unknown else met.guards
    return frozenset((min(pair), max(pair)) for pair in pairs)


def synchronizers(kernel: tile.Kernel) -> list[Operation]:
    """Return the statements after which memory written by other programs may be seen."""
    return [operation for operation in walk(kernel) if orders_others(operation)]


# --- boxes of tensors -----------------------------------------------------------------------------


Span: TypeAlias = tuple[int, int]
"""The least and the greatest value, both included."""


@dataclass(frozen=True, slots=True)
class Box:
    """A block of a tensor: an offset and an extent along each dimension, in elements."""

    offsets: tuple[Polynomial, ...]
    extents: tuple[int, ...]


def _varies(atom: Atom, loops: Collection[Operation]) -> bool:
    """Tell whether an atom may differ between two iterations of one of `loops`."""
    match atom:
        case Call(inputs=inputs):
            return any(_varies(leaf, loops) for item in inputs for leaf in item.leaves)
        case Iteration(loop=counted):
            return any(loop.is_ancestor(counted) for loop in loops)
        case _:
            return any(loop.is_ancestor(atom.value.owner) for loop in loops)


def _parts(form: Polynomial, loops: Collection[Operation]) -> tuple[Polynomial, Polynomial]:
    """Return the terms that stay the same in all iterations of `loops`, and the others."""
    return form.parted(lambda term, _: not any(_varies(atom, loops) for atom in term))


def _span(form: Polynomial) -> Span | None:
    """Return the range of a sum of numbers of iterations, where it is known how many there are."""
    low = high = 0
    for monomial, factor in form.terms.items():
        match monomial:
            case (Iteration(loop=loop),) if count := trip_count(loop):
                last = factor * (count - 1)
            case _:
                return None
        low, high = low + min(0, last), high + max(0, last)
    return low, high


def difference(a: Polynomial, b: Polynomial, loops: Collection[Operation]) -> Span | None:
    """Return the range of `a - b` where the two stand in any iterations of the common `loops`.

    Terms that do not change in those loops cancel; the others stand for two unrelated values.
    """
    (steady, first), (still, second) = _parts(a, loops), _parts(b, loops)
    gap, one, two = (steady - still).as_constant, _span(first), _span(second)
    if gap is None or one is None or two is None:
        return None
    return gap + one[0] - two[1], gap + one[1] - two[0]


def disjoint(a: Box, b: Box, loops: Collection[Operation]) -> bool:
    """Tell whether two blocks of one tensor never share an element, in any iterations of
    `loops`.
    """
    for mine, theirs, width_a, width_b in zip(a.offsets, b.offsets, a.extents, b.extents):
        span = difference(mine, theirs, loops)
        if span is not None and (span[0] >= width_b or span[1] <= -width_a):
            return True
    return False


def disjoint_in_other_iterations(a: Box, b: Box, loops: Sequence[Operation]) -> bool:
    """Tell whether two blocks of one tensor never share an element where the two stand in unlike
    iterations of at least one of `loops`, innermost first.
    """
    return disjoint(a, b, loops) or all(
        _parted_by(a, b, loop, loops[:place]) for place, loop in enumerate(loops)
    )


def _parted_by(a: Box, b: Box, loop: Operation, inside: Sequence[Operation]) -> bool:
    """Tell whether blocks in unlike iterations of a loop, in any of those `inside`, are disjoint:
    where an iteration moves both by as much as they are wide.
    """
    if not isinstance(loop, scf.ForOp):
        return False
    for mine, theirs, width_a, width_b in zip(a.offsets, b.offsets, a.extents, b.extents):
        (by, rest), (same, other) = (form.divide((Iteration(loop),)) for form in (mine, theirs))
        if by != same:
            continue
        span, least = difference(rest, other, (loop, *inside)), _least(by, loop)
        if span is not None and span[0] + least >= width_b and span[1] - least <= -width_a:
            return True
    return False


def _least(by: Polynomial, loop: scf.ForOp) -> int:
    """Return how far an iteration moves at least that moves by `by`: a number, or that many steps,
    which are positive.
    """
    if (number := by.as_constant) is not None:
        return abs(number)
    step = polynomial(loop.step)
    monomial, factor = next(iter(step.terms.items()))
    times = by.terms.get(monomial, 0) // factor
    return abs(times) if step.scaled(times) == by else 0
