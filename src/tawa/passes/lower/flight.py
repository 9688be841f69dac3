"""What is in flight: accumulators and reads of wgmma groups, by age; and the facts of structured
control flow that decide where an accumulator may stay in its registers.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tawa.ir import hopper
from tawa.ir.types import is_tensor
from tawa.ir.walk import around, has, home_of, is_inside, terminator, walk
from tawa.passes.lower.views import root_slot

UNBOUNDED = 1 << 20


@dataclass(frozen=True, slots=True)
class Read:
    """An asynchronous read of slot `index` of a buffer."""

    buffer: SSAValue
    index: SSAValue


@dataclass(frozen=True, slots=True)
class Operand:
    """Registers that a group reads: they may not be computed anew while it does."""

    value: SSAValue


Thing: TypeAlias = SSAValue | Read | Operand


@dataclass(slots=True)
class Flight:
    """What is in flight at one point: the age of each thing, and a bound on the groups open."""

    ages: dict[Thing, int] = field(default_factory=dict[Thing, int])
    groups: int = 0

    def copy(self) -> Flight:
        """Return an independent copy."""
        return Flight(dict(self.ages), self.groups)

    def commit(self) -> None:
        """One more group: everything grows older by it."""
        self.ages = {thing: age + 1 for thing, age in self.ages.items()}
        self.groups = min(UNBOUNDED, self.groups + 1)

    def wait(self, pending: int) -> None:
        """All but the youngest `pending` groups are complete."""
        self.ages = {thing: age for thing, age in self.ages.items() if age < pending}
        self.groups = min(self.groups, pending)

    def join(self, other: Flight) -> None:
        """Take what may be in flight on either path, at its smaller age."""
        for thing, age in other.ages.items():
            self.ages[thing] = min(age, self.ages.get(thing, age))
        self.groups = max(self.groups, other.groups)

    def rename(self, pairs: list[tuple[SSAValue, SSAValue]]) -> None:
        """Move ages from values to those that take over their registers."""
        moved = [(new, self.ages.pop(old)) for old, new in pairs if old in self.ages]
        for new, age in moved:
            self.ages[new] = min(age, self.ages.get(new, age))


_WRITERS = (hopper.SharedStore, hopper.SharedTranspose, hopper.TmaLoad, hopper.CopyAsync)


def has_products_or_waits(operation: Operation, own: Container[SSAValue]) -> bool:
    """Tell whether an operation holds products, or waits that another role must end: those at the
    barriers `own` end by what this one frees.
    """
    return any(
        isinstance(op, hopper.Wgmma) or (isinstance(op, hopper.Wait) and op.barriers not in own)
        for op in walk(operation)
    )


def live_in(operation: Operation) -> list[SSAValue]:
    """Return values from outside that the regions of an operation use, carried ones apart."""
    return [
        operand
        for inner in walk(operation)
        if inner is not operation
        for operand in inner.operands
        if is_tensor(operand) and not is_inside(operand, operation)
    ]


def needed_before(branch: scf.IfOp) -> list[SSAValue]:
    """Return values from outside that each region of a branch uses, or one does and what follows.

    A wait in one region would give these another name there, and the other path none. So it is with
    one that a region hands on while another puts something else in its place: that would be written
    to registers of a product in flight.
    """
    used = [
        {operand for inner in walk(region) for operand in inner.operands if is_tensor(operand)}
        for region in branch.regions
    ]
    both = all(region.blocks for region in branch.regions)
    everywhere = used[0].intersection(*used[1:]) if both else set[SSAValue]()
    handed_on = {
        value
        for region in branch.regions
        if region.blocks
        for value in moved(terminator(region.block))
    }
    following = branch.next_op
    return [
        value
        for value in dict.fromkeys(live_in(branch))
        if value in everywhere
        or value in handed_on
        or (following is not None and used_from(value, following))
    ]


def drop_inner(flight: Flight, operation: Operation, keep: set[SSAValue] | None = None) -> None:
    """Forget accumulators that live only inside an operation.

    Reads stay until waited for, and so do register operands: the next iteration computes them anew.
    """
    for thing in list(flight.ages):
        if (
            isinstance(thing, SSAValue)
            and thing not in (keep or ())
            and is_inside(thing, operation)
        ):
            del flight.ages[thing]


def root(value: SSAValue) -> SSAValue:
    """Return the value whose registers an accumulator shares, as far as its block goes."""
    while isinstance(value, OpResult):
        match value.owner:
            case hopper.Wgmma() as product:
                value = product.acc
            case hopper.WgmmaWait() as wait:
                value = wait.values[value.index]
            case _:
                return value
    return value


def moved(end: Operation) -> list[SSAValue]:
    """Return the operands of a terminator that would be copied to other registers.

    An accumulator in flight may be carried on only in place: from the loop's own argument, or for a
    branch from the value that the other branch passes on too.
    """
    parent = end.parent_op()
    match parent:
        case scf.ForOp():
            args = parent.body.block.args[1:]
            return [v for v, arg in zip(end.operands, args) if root(v) is not arg]
        case scf.IfOp():
            others = [terminator(r.block) for r in parent.regions if r.blocks]
            return [
                value
                for index, value in enumerate(end.operands)
                if len({id(root(other.operands[index])) for other in others}) > 1
            ]
        case _:
            return list(end.operands)


def left_behind(end: Operation, flight: Flight) -> list[SSAValue]:
    """Return the accumulators in flight that an iteration of a loop does not hand on.

    Some path has not waited for them, since another alone uses them: the next iteration writes
    their registers.
    """
    loop = end.parent_op()
    if not isinstance(loop, scf.ForOp):
        return []
    inside = [v for v in flight.ages if isinstance(v, SSAValue) and is_inside(v, loop)]
    return [value for value in inside if value not in end.operands]


def asked_at_once(end: Operation) -> list[SSAValue]:
    """Return the values an iteration of a loop hands on that the next reads before it starts a
    product.

    In flight over the end of the iteration they would overlap with nothing, and ptxas, to which the
    iteration before the first writes the same registers, serialises the loop's products (C7515).
    """
    loop = end.parent_op()
    if not isinstance(loop, scf.ForOp):
        return []
    block = loop.body.block
    early = takewhile(lambda operation: not has(operation, hopper.Wgmma), block.ops)
    reading = [op for op in early if not isinstance(op, hopper.WgmmaWait)]
    read = {root(operand) for op in reading for inner in walk(op) for operand in inner.operands}
    return [value for value, arg in zip(end.operands, block.args[1:]) if arg in read]


def carried_anew(end: Operation) -> list[SSAValue]:
    """Return the carried values whose registers a terminator writes."""
    parent = end.parent_op()
    if not isinstance(parent, scf.ForOp):
        return []
    pairs = zip(parent.body.block.args[1:], end.operands)
    return [argument for argument, value in pairs if root(value) is not argument]


def carried_as(operation: Operation) -> list[SSAValue]:
    """Return the carried values whose registers an operation's results will be.

    A result that its loop carries on is computed in the registers of the value it replaces, also
    where a pin, which is no copy, stands between.
    """
    found: list[SSAValue] = []
    work = list(operation.results)
    while work:
        for use in work.pop().uses:
            match use.operation:
                case scf.YieldOp() as end if isinstance(loop := end.parent_op(), scf.ForOp):
                    found.append(loop.body.block.args[use.index + 1])
                case hopper.Pin() as pin:
                    work.append(pin.res[use.index])
                case _:
                    continue
    return found


def follows(operation: Operation, wait: Operation) -> bool:
    """Tell whether an operation is reached only after `wait`, in its block or nested below it."""
    place = home_of(wait).find_ancestor_op_in_block(operation)
    return place is not None and wait.is_before_in_block(place)


def used_from(value: SSAValue, before: Operation) -> bool:
    """Tell whether `value` is used at or after an operation, other than through other paths."""
    if isinstance(value, BlockArgument) and not visible(value, before):
        return False
    users = [use.operation for use in value.uses]
    return any(before.is_ancestor(user) or follows(user, before) for user in users)


def lives_on(value: SSAValue, at: Operation, index: int) -> bool:
    """Tell whether a value may be used after, or beside, its use as operand `index` of an
    operation; in a later iteration as well.
    """
    current = at
    others = [u.operation for u in value.uses if u.operation is not at or u.index != index]
    if any(other is current or current.is_ancestor(other) for other in others):
        return True
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while True:
        block = home_of(current)
        for other in others:
            there = block.find_ancestor_op_in_block(other)
            if there is not None and current.is_before_in_block(there):
                return True
        if block is home:
            return False
        parent = block.parent_op()
        assert parent is not None
        if isinstance(parent, (scf.ForOp, scf.WhileOp)):
            return True
        current = parent


def settled_before(loop: scf.ForOp) -> list[SSAValue]:
    """Return the values a loop starts from that must be at rest.

    Without products in it, all: a wait in the loop would be repeated. Else those that are used
    besides: a wait in the loop, or for its result where it makes no iteration, would name the
    registers for one of the two alone.
    """
    products = has(loop, hopper.Wgmma)
    return [
        value
        for index, value in enumerate(loop.operands)
        if is_tensor(value) and (not products or lives_on(value, loop, index))
    ]


def visible(value: SSAValue, at: Operation) -> bool:
    """Tell whether a value is defined in the block of an operation or one around it."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    return any(each.parent is block for each in (at, *around(at)))


def written_after(barrier: hopper.NamedBarrier) -> set[SSAValue]:
    """Return the buffers written between a barrier and the next one."""
    written: set[SSAValue] = set()
    operation = barrier.next_op
    while operation is not None and not isinstance(operation, hopper.NamedBarrier):
        for inner in walk(operation):
            if isinstance(inner, _WRITERS):
                written.add(root_slot(inner.view).buffer)
        operation = operation.next_op
    return written
