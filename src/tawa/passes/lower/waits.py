"""Waits: every fence, commit and wait of the tensor cores, and every release, from the final order.

Purpose: place `wgmma_fence`, `wgmma_commit`, `wgmma_wait` and the arrives that free slots.
Before -> after:
    %acc' = hopper.wgmma %a, %b, %acc      hopper.wgmma_fence; hopper.wgmma; hopper.wgmma_commit
    hopper.arrive %freed[%slot]      ->    hopper.wgmma_wait {pending = 1}
    scf.yield %acc'                        scf.if %more { hopper.arrive %freed[%oldest] }
The pass walks structured control flow with the *age* of everything in flight: the number of groups
committed since the one that makes an accumulator or reads a tile. A use then needs a wait with
`pending` = age; paths join by the smaller age, which is always safe. Accumulators may stay in
flight through loops and branches where they keep their registers, and where more than the end of a
iteration lies between a product and what reads it.
A release (R2: release after read, wgmma reads shared memory asynchronously) is held back to the
first wait that covers it, at the latest to the end of its block; in a loop with `mma_depth` P > 1
it lags P - 1 iterations instead, and the last P - 1 slots are freed after the loop, for every trip
count from 0. Requires: layouts and stores lowered. Ensures: nothing that wgmma writes or reads is
touched early. Declines when: `mma_depth`: products under a branch of the loop, or more than 7
groups in flight.

Releases that lag: a slot is freed P - 1 iterations after the product that reads it was issued.

So that products of several iterations are in flight at once (the tensor cores stay fed across the
wait), each iteration frees the slot of the iteration P - 1 before, and what is still lent is freed
after the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.liveness import names_of
from tawa.analysis.statements import name_of
from tawa.ir import hopper
from tawa.ir.types import is_tensor
from tawa.ir.walk import all_of, move_before, terminator
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.dots import trip_counter
from tawa.passes.lower.emit import Emitter, append_operands, erase, new_region, widen_for
from tawa.passes.lower.flight import (
    UNBOUNDED,
    Flight,
    Operand,
    Read,
    asked_at_once,
    carried_anew,
    carried_as,
    drop_inner,
    follows,
    has_products_or_waits,
    left_behind,
    live_in,
    moved,
    needed_before,
    settled_before,
    used_from,
    written_after,
)
from tawa.passes.lower.views import root_slot

_MOST_PENDING = 7  # PTX ISA, wgmma.wait_group: the largest N in use


def place_waits(lowering: Lowering, role: hopper.Role) -> None:
    """Place the tensor-core synchronization and the releases of `role`."""
    products = all_of(role, hopper.Wgmma)
    if not products:
        return
    for product in products:
        Emitter.before(product).put(hopper.WgmmaFence())
        Emitter.after(product).put(hopper.WgmmaCommit())
    body = role.body.block
    # A role's block has no terminator; what is held at its end goes before this one.
    end = scf.YieldOp()
    body.add_op(end)
    freed = {ring.freed.result for ring in lowering.rings.values()}
    arrives = [op.barriers for op in all_of(role, hopper.Arrive)]
    placer, flight = _Placer(lowering, role, frozenset(freed.intersection(arrives))), Flight()
    placer.block(body, flight, emit=True)
    placer.finish(flight, end)
    erase(end)


@dataclass(slots=True)
class _Placer:
    """Walks the blocks of one role; with `emit` false only the flight is computed. `own` are the
    barriers at which the role frees slots.
    """

    lowering: Lowering
    role: hopper.Role
    own: frozenset[SSAValue]

    # --- one block ------------------------------------------------------------------------------

    def block(self, block: Block, flight: Flight, *, emit: bool) -> list[Held]:
        """Process a block; return the releases still held at its end (loops only let them lag)."""
        held: list[Held] = []
        for operation in list(block.ops):
            there = self._operation(operation, flight, held, emit=emit)
            self._let_go(held, flight, there, emit=emit)
        parent = block.parent_op()
        if isinstance(parent, scf.ForOp):
            return held
        self._force_all(held, flight, terminator(block), emit=emit)
        return []

    def _operation(
        self, operation: Operation, flight: Flight, held: list[Held], *, emit: bool
    ) -> Operation:
        """Process one operation; return it, or the loop that has taken its place."""
        match operation:
            case hopper.Wgmma():
                if is_tensor(operation.a):
                    self._need([operation.a], flight, operation, emit=emit)
                flight.ages.pop(operation.acc, None)
            case hopper.WgmmaCommit():
                product = operation.prev_op
                assert isinstance(product, hopper.Wgmma)
                _take_off(product, flight)
            case hopper.Arrive() if (ring := self._freed_ring(operation)) is not None:
                self._release(operation, ring, flight, held)
            case hopper.Wait():
                self._make_room(operation, flight, held, emit=emit)
            case hopper.NamedBarrier():
                self._need_buffers(written_after(operation), flight, operation, emit=emit)
            case scf.ForOp() | scf.WhileOp() | scf.IfOp():
                if has_products_or_waits(operation, self.own):
                    self._force_all(held, flight, operation, emit=emit)
                    self._need(live_in(operation), flight, operation, emit=emit)
                elif isinstance(operation, scf.IfOp):
                    # Waited for once, before the paths part; and what that frees is free.
                    self._need(needed_before(operation), flight, operation, emit=emit)
                else:
                    # Once, before the loop: a wait in it would be repeated, and after it as well.
                    self._need(live_in(operation), flight, operation, emit=emit)
                if isinstance(operation, scf.ForOp):
                    self._need(settled_before(operation), flight, operation, emit=emit)
                return self._structured(operation, flight, emit=emit)
            case scf.YieldOp() | scf.ConditionOp():
                self._need(moved(operation), flight, operation, emit=emit)
                self._need(left_behind(operation, flight), flight, operation, emit=emit)
                self._need(asked_at_once(operation), flight, operation, emit=emit)
                self._need_registers(carried_anew(operation), flight, operation, emit=emit)
            case _:
                self._need(list(operation.operands), flight, operation, emit=emit)
                written = [*operation.results, *carried_as(operation)]
                self._need_registers(written, flight, operation, emit=emit)
        return operation

    # --- waits ----------------------------------------------------------------------------------

    def finish(self, flight: Flight, end: Operation) -> None:
        """Wait for the products that a role started and did not use on every path to its end."""
        self._wait(0, flight, end, emit=True)

    def _need(
        self, values: list[SSAValue], flight: Flight, before: Operation, *, emit: bool
    ) -> None:
        """Make accumulators readable before an operation."""
        ages = [flight.ages[value] for value in values if value in flight.ages]
        if ages:
            self._wait(min(ages), flight, before, emit=emit)

    def _need_registers(
        self, values: list[SSAValue], flight: Flight, before: Operation, *, emit: bool
    ) -> None:
        """Make sure that no group reads registers which an operation is about to write."""
        operands = [Operand(value) for value in values]
        ages = [flight.ages[operand] for operand in operands if operand in flight.ages]
        if ages:
            self._wait(min(ages), flight, before, emit=emit)

    def _need_buffers(
        self, buffers: set[SSAValue], flight: Flight, before: Operation, *, emit: bool
    ) -> None:
        """Make sure that all reads of some buffers are complete before an operation."""
        ages = [
            age
            for thing, age in flight.ages.items()
            if isinstance(thing, Read) and thing.buffer in buffers
        ]
        if ages:
            self._wait(min(ages), flight, before, emit=emit)

    def _wait(self, pending: int, flight: Flight, before: Operation, *, emit: bool) -> None:
        """Insert a wait unless at most `pending` groups can be open anyway."""
        done = [t for t, age in flight.ages.items() if age >= pending and isinstance(t, SSAValue)]
        complete = flight.groups <= pending
        flight.wait(pending)
        values = [value for value in done if used_from(value, before)]
        if not emit or (complete and not values):
            return
        _wait_for(Emitter.before(before), values, pending)

    # --- releases -------------------------------------------------------------------------------

    def _freed_ring(self, arrive: hopper.Arrive) -> Ring | None:
        rings = self.lowering.rings.values()
        return next((ring for ring in rings if ring.freed.result is arrive.barriers), None)

    def _release(self, arrive: hopper.Arrive, ring: Ring, flight: Flight, held: list[Held]) -> None:
        """Hold a release back while what it frees is being read."""
        buffers = {buffer.result for buffer in ring.buffers}
        exact = not self.lowering.apart(self.role, ring)
        reads = [
            thing
            for thing in flight.ages
            if isinstance(thing, Read)
            and thing.buffer in buffers
            and (thing.index is arrive.slot or not exact)
        ]
        if reads:
            following = arrive.next_op
            assert following is not None, "a release does not end its block"
            held.append(Held(arrive, reads, following))

    def _let_go(self, held: list[Held], flight: Flight, after: Operation, *, emit: bool) -> None:
        """Free the slots whose reads are complete by now."""
        for item in list(held):
            if any(read in flight.ages for read in item.reads):
                continue
            held.remove(item)
            if emit and item.arrive is not after:
                # The wait that completed the reads stands before `after`; free at once after it.
                anchor = after if isinstance(after.prev_op, hopper.WgmmaWait) else after.next_op
                move_before(item.arrive, anchor or after)

    def _force_all(
        self, held: list[Held], flight: Flight, before: Operation, *, emit: bool
    ) -> None:
        for item in held:
            self._force(item, flight, before, emit=emit)
        held.clear()

    def _force(self, item: Held, flight: Flight, before: Operation, *, emit: bool) -> None:
        """Wait for the reads of a held release and free the slot before an operation."""
        ages = [flight.ages[read] for read in item.reads if read in flight.ages]
        if ages:
            self._wait(min(ages), flight, before, emit=emit)
        if emit:
            move_before(item.arrive, before)

    def _make_room(
        self, wait: hopper.Wait, flight: Flight, held: list[Held], *, emit: bool
    ) -> None:
        """A role must not wait for a slot of a ring of which it holds all others."""
        for ring in self.lowering.rings.values():
            if ring.filled.result is not wait.barriers:
                continue
            mine = [item for item in held if item.arrive.barriers is ring.freed.result]
            while len(mine) >= ring.depth:
                item = mine.pop(0)
                held.remove(item)
                self._force(item, flight, wait, emit=emit)

    # --- control flow ---------------------------------------------------------------------------

    def _structured(self, operation: Operation, flight: Flight, *, emit: bool) -> Operation:
        match operation:
            case scf.ForOp():
                return self._for(operation, flight, emit=emit)
            case scf.IfOp():
                self._if(operation, flight, emit=emit)
            case scf.WhileOp():
                self._while(operation, flight, emit=emit)
            case _:
                raise TypeError(f"{operation.name} is not structured control flow")
        return operation

    def _if(self, branch: scf.IfOp, flight: Flight, *, emit: bool) -> None:
        around = [thing for thing in flight.ages if isinstance(thing, SSAValue)]
        ends: list[Flight] = []
        for region in branch.regions:
            inner = flight.copy()
            if region.blocks:
                self.block(region.block, inner, emit=emit)
                yielded = terminator(region.block).operands
                inner.rename(list(zip(yielded, branch.results)))
            ends.append(inner)
        flight.ages, flight.groups = ends[0].ages, ends[0].groups
        for end in ends[1:]:
            flight.join(end)
        # What both paths have waited for is complete, yet a wait in a path names it for that path
        # alone: one that leaves all open groups open names it for what follows.
        named = min(flight.groups, _MOST_PENDING)
        flight.ages |= {value: named for value in around if value not in flight.ages}

    def _while(self, loop: scf.WhileOp, flight: Flight, *, emit: bool) -> None:
        # Nothing stays in flight round a while loop: its condition is most often read from memory.
        self._wait(0, flight, loop, emit=emit)
        self.block(loop.before_region.block, flight, emit=emit)
        self._wait(0, flight, terminator(loop.before_region.block), emit=emit)
        self.block(loop.after_region.block, flight, emit=emit)
        self._wait(0, flight, terminator(loop.after_region.block), emit=emit)

    def _for(self, loop: scf.ForOp, flight: Flight, *, emit: bool) -> scf.ForOp:
        block = loop.body.block
        entry = flight.copy()
        entry.rename(list(zip(loop.iter_args, block.args[1:])))
        head = self._head(loop, entry)
        end = head.copy()
        held = self.block(block, end, emit=emit)
        depth = self._lag(loop, held)
        if held and depth == 0:
            self._force_all(held, end, terminator(block), emit=emit)
        end.rename(list(zip(terminator(block).operands, loop.results)))
        drop_inner(end, loop)
        flight.rename(list(zip(loop.iter_args, loop.results)))
        flight.join(end)
        if held and emit:
            return free_later(self.lowering, loop, held, depth, flight)
        if held:
            flight.wait(0)
        return loop

    def _head(self, loop: scf.ForOp, entry: Flight) -> Flight:
        """Return the flight at the head of any iteration: the join of the entry and the back
        edge.
        """
        head = entry.copy()
        block = loop.body.block
        while True:
            end = head.copy()
            held = self.block(block, end, emit=False)
            if self._lag(loop, held) == 0:
                self._force_all(held, end, terminator(block), emit=False)
            end.rename(list(zip(terminator(block).operands, block.args[1:])))
            drop_inner(end, loop, keep=set(block.args))
            merged = head.copy()
            merged.join(end)
            if merged.groups > head.groups and head.groups > entry.groups:
                merged.groups = UNBOUNDED
            if merged.ages == head.ages and merged.groups == head.groups:
                return head
            head = merged

    def _lag(self, loop: scf.ForOp, held: list[Held]) -> int:
        """Return the iterations by which the releases held at the end of a body may lag."""
        depth = self.lowering.loop_plan(loop).mma_depth - 1
        if not held or depth <= 0:
            return 0
        block = loop.body.block
        groups = all_of(loop, hopper.WgmmaCommit)
        feature = f"mma_depth {depth + 1} of {name_of(loop)}"
        if any(group.parent is not block for group in groups):
            self.lowering.note(feature, "a product stands under a branch or an inner loop")
            return 0
        room = min(self._ring_depth(item) for item in held)
        if depth >= room:
            self.lowering.note(feature, f"the ring has {room} slots")
            depth = room - 1
        if len(groups) * (depth + 1) > _MOST_PENDING:
            depth = max(0, _MOST_PENDING // len(groups) - 1)
            self.lowering.note(feature, f"at most {_MOST_PENDING} groups can be in flight")
        return depth

    def _ring_depth(self, item: Held) -> int:
        ring = self._freed_ring(item.arrive)
        assert ring is not None
        return ring.depth


def _take_off(product: hopper.Wgmma, flight: Flight) -> None:
    """Commit the group of one product: what it writes and reads is in flight."""
    flight.commit()
    flight.ages[product.result] = 0
    for operand in (product.a, product.b):
        if is_tensor(operand):
            # The registers are written where the tensor is computed that the operand is a view of.
            flight.ages |= {Operand(name): 0 for name in names_of(operand)}
        else:
            slot = root_slot(operand)
            flight.ages[Read(slot.buffer, slot.index)] = 0


# --- releases that lag ----------------------------------------------------------------------------


@dataclass(slots=True)
class Held:
    """A release waiting for the wait that covers it, and what comes after it in its block."""

    arrive: hopper.Arrive
    reads: list[Read]
    next_op: Operation


def free_later(
    lowering: Lowering, loop: scf.ForOp, held: list[Held], depth: int, flight: Flight
) -> scf.ForOp:
    """Free slots `depth` iterations after their reads were issued, the last ones after the loop.

    Returns the loop rebuilt, with the slots still lent carried through it; `flight` is empty then.
    """
    block = loop.body.block
    groups = sum(isinstance(op, hopper.WgmmaCommit) for op in block.ops)
    results = list(loop.results)
    iteration = trip_counter(lowering, loop)
    loop = _loop_of(block)
    zero = Emitter.before(loop).constant(0)
    wide = widen_for(loop, [zero] * (depth * len(held)))
    flight.rename(list(zip(results, wide.results)))
    olds = list(block.args[-depth * len(held) :])
    end = terminator(block)
    results = list(wide.results[-depth * len(held) :])
    after = Emitter.after(wide)
    _drain(wide, flight, after)
    iterations = wide.results[lowering.iterations[block].index - 1]
    for index, item in enumerate(held):
        mine = olds[index * depth : (index + 1) * depth]
        # mine[0] is the slot of the iteration before this one, mine[-1] the oldest still lent.
        append_operands(end, [item.arrive.slot, *mine[:-1]])
        for number, old in enumerate(mine):
            hint = "oldest" if number == depth - 1 else f"older{number + 1}"
            old.name_hint = hint
            results[index * depth + number].name_hint = f"{hint}_end"
        before = Emitter.before(item.next_op)
        age = _groups_between(item) + depth * groups - 1
        if not _waited(item.next_op, age):
            _wait_for(before, [], age)
        due = (
            before.apply("ge", iteration, before.constant(depth))
            if depth > 1
            else (before.apply("gt", iteration, before.constant(0)))
        )
        _arrive_if(before, due, item.arrive, mine[-1])
        for number in reversed(range(depth)):  # in the order in which they were taken
            left = after.apply("gt", iterations, after.constant(number))
            _arrive_if(after, left, item.arrive, results[index * depth + number])
        erase(item.arrive)
    return wide


def _drain(loop: scf.ForOp, flight: Flight, after: Emitter) -> None:
    """Wait for all products; accumulators are readable from here on, also those that were in flight
    round the loop.
    """
    in_flight = [thing for thing in flight.ages if isinstance(thing, SSAValue)]
    values = [value for value in loop.results if value in flight.ages and value.first_use]
    values += [v for v in in_flight if v.owner is not loop and used_from(v, loop)]
    flight.wait(0)
    _wait_for(after, values, 0)


def _wait_for(emitter: Emitter, values: list[SSAValue], pending: int) -> None:
    """Insert a wait for accumulators, by whose results what follows names them."""
    wait = emitter.put(
        hopper.WgmmaWait.make(values, results=[[value.type for value in values]], pending=pending)
    )
    for value, ready in zip(values, wait.res):
        ready.name_hint = value.name_hint
        value.replace_uses_with_if(
            ready, lambda use: use.operation is not wait and follows(use.operation, wait)
        )


def _arrive_if(emitter: Emitter, condition: SSAValue, like: hopper.Arrive, slot: SSAValue) -> None:
    arrive = hopper.Arrive.make(like.barriers, slot, attributes=like.attributes)
    emitter.put(scf.IfOp(condition, [], new_region(arrive, scf.YieldOp())))


def _groups_between(item: Held) -> int:
    """Count the groups from the last product reading the slot to the release, inclusive."""
    count, operation = 0, item.arrive.prev_op
    indices = {read.index for read in item.reads}
    while operation is not None:
        if isinstance(operation, hopper.WgmmaCommit):
            count += 1
            product = operation.prev_op
            assert isinstance(product, hopper.Wgmma)
            views = [view for view in (product.a, product.b) if not is_tensor(view)]
            if any(root_slot(view).index in indices for view in views):
                return count
        operation = operation.prev_op
    return count


def _waited(before: Operation, pending: int) -> bool:
    """Tell whether a wait as strict stands just before an operation, releases aside."""
    operation = before.prev_op
    while isinstance(operation, (hopper.Arrive, scf.IfOp)) or (
        operation is not None and operation.dialect_name() == "tile"
    ):
        operation = operation.prev_op
    return isinstance(operation, hopper.WgmmaWait) and operation.pending.data <= pending


def _loop_of(block: Block) -> scf.ForOp:
    loop = block.parent_op()
    assert isinstance(loop, scf.ForOp)
    return loop
