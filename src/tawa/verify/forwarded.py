"""Scalars that go through memory: which store a load takes its number from, and what is written.

A load of shared memory is given the value of the one store of its buffer: in the same role where
that stands before it in its block, of another role where the barriers of a ring pair the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.memory import reached, roots_of
from tawa.analysis.statements import WRITES
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of, walk


@dataclass(frozen=True, slots=True)
class Received:
    """A scalar taken from a ring: the store and the load, each in one iteration of the loops around
    it, and the barriers that pair them. The pairing holds if the loops are the same ones.
    """

    store: Operation
    load: Operation
    filled: SSAValue


def around(inside: Operation | Block) -> Iterator[tuple[Operation | Block, Operation]]:
    """Yield what an operation is in, the innermost first, each with what is in it; a role last."""
    parent = inside.parent_op()
    while parent is not None and not isinstance(parent, tile.Kernel):
        yield inside, parent
        inside, parent = parent, None if isinstance(parent, hopper.Role) else parent.parent_op()


def loops_around(inside: Operation | Block) -> list[Operation]:
    """Return the loops around an operation within its role, the innermost first."""
    return [each for _, each in around(inside) if isinstance(each, scf.ForOp | scf.WhileOp)]


def role_of(operation: Operation) -> hopper.Role | None:
    """Return the role that an operation is part of."""
    return next((each for _, each in around(operation) if isinstance(each, hopper.Role)), None)


def launch_of(kernel: tile.Kernel) -> dict[str, int]:
    """Return the numbers that are written with a kernel of how it is launched, 1 for true."""
    found: dict[str, int] = {}
    for name, value in kernel.launch.data.items() if kernel.launch is not None else ():
        match value:
            case IntAttr(data=number):
                found[name] = number
            case IntegerAttr():
                found[name] = abs(value.value.data)
            case _:
                continue
    return found


def written_arguments(kernel: tile.Kernel) -> frozenset[int] | None:
    """Return the arguments that a kernel writes through; None where that is not known."""
    found: frozenset[int] = frozenset()
    for operation in walk(kernel):
        if isinstance(operation, hopper.TmaStore):
            source = operation.map.owner
            roots = roots_of(source.desc) if isinstance(source, hopper.TensorMap) else None
        elif isinstance(operation, (*WRITES, tile.AsmEffect)):
            roots = reached(operation)
        else:
            continue
        if roots is None:
            return None
        found |= roots
    return found


def only_stores(kernel: tile.Kernel) -> dict[SSAValue, list[hopper.SharedStore]]:
    """Return the stores to each buffer of which nothing but whole slots is stored and loaded, and
    which overlaps no other buffer.
    """
    found: dict[SSAValue, list[hopper.SharedStore]] = {}
    buffers = all_of(kernel, hopper.Shared)
    for buffer in buffers:
        if any(overlap(buffer, other) for other in buffers if other is not buffer):
            continue
        stores: list[hopper.SharedStore] = []
        for use in buffer.result.uses:
            slot = use.operation
            if not isinstance(slot, hopper.Slot):
                break
            users = [each.operation for each in slot.result.uses]
            if not all(isinstance(each, (hopper.SharedStore, hopper.SharedLoad)) for each in users):
                break
            stores += [each for each in users if isinstance(each, hopper.SharedStore)]
        else:
            found[buffer.result] = stores
    return found


def overlap(one: hopper.Shared, other: hopper.Shared) -> bool:
    """Tell whether two buffers share bytes."""
    first, second = one.offset.data, other.offset.data
    size, its = one.result.type.bytes, other.result.type.bytes
    return first < second + its and second < first + size


def told_before(store: hopper.SharedStore, load: hopper.SharedLoad) -> bool:
    """Tell whether a store of the same role stands before a load in its block, once each time, for
    all threads: in the block itself or in what one thread does there.
    """
    top: Operation | None = store
    while top is not None and top.parent is not load.parent:
        top = top.parent_op()
        if top is not None and not isinstance(top, hopper.OneThread):
            return False
    return top is not None and top.is_before_in_block(load)


def paired(store: hopper.SharedStore, load: hopper.SharedLoad) -> Received | None:
    """Find the barriers that pair a store of one role with a load of another.

    The load stands after a wait for slot s of `filled` in its block, and takes slot s; the store
    stands before an arrival at slot r of `filled` in its block, and fills slot r. Neither stands
    under a condition. That wait is the only one of its role, that arrival the only one there is: so
    the waits and the phases of `filled` are as many as the iterations.
    """
    if role_of(store) is role_of(load) or not (is_unconditional(store) and is_unconditional(load)):
        return None
    put, got = store.view.owner, load.view.owner
    if not isinstance(put, hopper.Slot) or not isinstance(got, hopper.Slot):
        return None
    wait = load.prev_op
    while wait is not None and not (isinstance(wait, hopper.Wait) and wait.slot is got.index):
        wait = wait.prev_op
    arrive = store.next_op
    while arrive is not None and not isinstance(arrive, hopper.Arrive):
        arrive = arrive.next_op
    if not isinstance(wait, hopper.Wait) or arrive is None:
        return None
    if arrive.barriers is not wait.barriers or arrive.slot is not put.index:
        return None
    users = [use.operation for use in wait.barriers.uses]
    waits = [e for e in users if isinstance(e, hopper.Wait) and role_of(e) is role_of(load)]
    arrivals = [
        each
        for each in users
        if isinstance(each, hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive)
    ]
    if waits != [wait] or arrivals != [arrive]:
        return None
    return Received(store, load, wait.barriers)


def is_unconditional(operation: Operation) -> bool:
    """Tell whether an operation runs once in each iteration of the loops around it."""
    return not any(
        isinstance(each, scf.IfOp)
        or (isinstance(each, scf.WhileOp) and inside.parent is each.before_region.block)
        for inside, each in around(operation)
    )
