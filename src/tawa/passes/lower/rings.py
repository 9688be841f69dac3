"""Arefs become rings: shared buffers with filled and freed barriers, and explicit slot and phase.

Purpose: lower every `aref` operation to waits, expects, copies and arrives on mbarriers.
Before -> after:
    %slot = aref.put_enter %ab               hopper.wait %freed[%slot], %phase
    %a = tile.desc_load ...            ->    hopper.expect %filled[%slot] {bytes}
    aref.put_exit %slot(%a)                  hopper.tma_load %a_map[..], %a_view, %filled[%slot]
    %a = aref.get_enter %ab                  hopper.wait %filled[%slot], %phase
    aref.get_exit %ab                        %a = hopper.shared_load %a_view; hopper.arrive %freed
Requires: roles formed. Ensures: slot and phase run through every enclosing loop, branch and while;
the producer's phase starts at 1 (a fresh barrier reports the phase before it complete), the
consumer's at 0. Arrives on `freed` stand where the program frees; `waits` moves them after the
covering wait and `count_arrivals` settles who arrives.
Declines when: never.

Rotate: a pipelined loop waits for the next iteration's tile under the product still in flight.

Purpose: end the overlap of a coarse schedule where the code of it ends. ptxas moves arithmetic
across `wgmma.wait_group` but not across the blocks of its control-flow graph, and pins alone leave
no trace in PTX; the spin wait for the next tile, which must come anyway, is such a block boundary.
Before -> after:
    scf.for %j (.. %slot, %phase ..) {            scf.if %lb < %ub { hopper.wait %f[%slot0], %p0 }
      hopper.wait %filled[%slot], %phase    ->    scf.for %j (.. %slot, %phase ..) {
      ..                                            ..
      hopper.pin %p                                 hopper.pin %p
      ..                                            scf.if %j + step < %ub {
    }                                                 hopper.wait %filled[%next_slot], %next_phase
                                                    }
                                                  }
An iteration with several stretches of pinned work ends the last of them with the wait for its first
tile, and the earlier ones, in order, with those for its next tiles. Requires: rings lowered.
Ensures: each wait is done once for each iteration, as before, and before what it stood before.
Declines when: never; a loop whose first wait is not for a carried slot stays, and one that would
wait for a slot while it holds all slots of the ring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from tawa.ir import aref, hopper
from tawa.ir.types import element_type, is_tensor, shape_of
from tawa.ir.walk import all_of, marked_pure, move_before, terminator, walk
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.emit import Carrier, Emitter, State, erase, new_region, replace
from tawa.passes.lower.exchange import load_scalar, stored_as, word_layout
from tawa.passes.lower.puts import by_one_thread, publish
from tawa.passes.lower.views import load_view, slot_view

_TURNING = (aref.PutEnter, aref.GetEnter, aref.GetExit, aref.GetSkip)

_Index: TypeAlias = tuple[SSAValue, Literal["slot", "phase", "oldest"]]


def lower_rings(lowering: Lowering) -> None:
    """Replace every aref of the kernel by a ring."""
    creates = [op for op in lowering.kernel.body.block.ops if isinstance(op, aref.Create)]
    for create in creates:
        lowering.rings[create.result] = _make_ring(lowering, create)
    for role in lowering.roles:
        second = _second_names(lowering, role)
        _Weaver(lowering, role).run()
        for name in second:
            erase(name)
    for create in creates:
        erase(create)


def _second_names(lowering: Lowering, role: hopper.Role) -> list[aref.Create]:
    """Give the rings that a role fills and also takes from another name for what it takes.

    It goes round such a ring twice: as the producer, and as a consumer with indices of its own.
    """
    names: dict[SSAValue, aref.Create] = {}
    operations = walk(role)
    filled = {op.aref for op in operations if isinstance(op, aref.PutEnter)}
    for operation in operations:
        if not isinstance(operation, (aref.GetEnter, aref.GetExit)) or operation.aref not in filled:
            continue
        ring = operation.aref
        if ring not in names:
            assert isinstance(ring.owner, aref.Create), "a ring is created before the roles"
            names[ring] = Emitter.before(ring.owner).put(ring.owner.clone())
            lowering.rings[names[ring].result] = lowering.rings[ring]
        operation.operands[0] = names[ring].result
    return list(names.values())


def _make_ring(lowering: Lowering, create: aref.Create) -> Ring:
    kind = create.result.type
    depth, label = create.depth.data, create.label.data
    names = label.split("+")
    buffers = [
        _payload_buffer(
            lowering, names[index] if index < len(names) else f"{label}.{index}", item, depth
        )
        for index, item in enumerate(kind.payload)
    ]
    filled = lowering.new_barriers(f"{label} filled", depth, "filled")
    freed = lowering.new_barriers(f"{label} freed", depth, "freed")
    return Ring(label, depth, buffers, filled, freed)


def _payload_buffer(lowering: Lowering, label: str, kind: Attribute, depth: int) -> hopper.Shared:
    """Declare the buffer of one payload tile; a scalar takes one word of it."""
    shape, element = shape_of(kind), stored_as(element_type(kind))
    layout = lowering.placement(shape, element) if shape else word_layout(kind)
    buffer = lowering.new_buffer(label, layout, element, depth)
    buffer.result.name_hint = f"{re.split('[@ ]', label)[0]}_ring"
    return buffer


@dataclass(slots=True)
class _Weaver:
    """Threads the indices of every ring through one role and replaces its aref operations.

    `entered` maps a put's slot value to its index, `borrowed` lists the slots each get has lent and
    not yet freed, oldest first; a ring whose frees stand in other blocks than its gets has an index
    of its own for them ("oldest").
    """

    lowering: Lowering
    role: hopper.Role
    entered: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    borrowed: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    stale: dict[SSAValue, None] = field(default_factory=dict[SSAValue, None])
    apart: set[SSAValue] = field(default_factory=set[SSAValue])

    def run(self) -> None:
        block = self.role.body.block
        arefs = list(dict.fromkeys(_arefs(block)))
        if not arefs:
            return
        self.apart = {ref for ref in arefs if not _paired(block, ref)}
        self.lowering.freed_apart.update((self.role, self._ring(ref)) for ref in self.apart)
        first = next(op for op in block.ops if not isinstance(op, hopper.SetRegisters))
        emitter = Emitter.before(first)
        zero, one = emitter.constant(0, hint="zero"), emitter.constant(1, hint="one")
        state: State = {}
        for ref in arefs:
            puts = any(op.aref is ref for op in all_of(block, aref.PutEnter))
            state[ref, "slot"] = zero
            state[ref, "phase"] = one if puts else zero
            state[ref, "oldest"] = zero
        Carrier(self._touched, self._visit, self._flush_all, self._leave).run(block, state)

    def _touched(self, operation: Operation) -> list[_Index]:
        if type(operation) not in _TURNING:
            return []
        match operation:
            case aref.GetSkip() if operation.aref in self.apart:
                return [(operation.aref, kind) for kind in ("slot", "phase", "oldest")]
            case aref.PutEnter() | aref.GetEnter() | aref.GetSkip():
                return [(operation.aref, "slot"), (operation.aref, "phase")]
            case aref.GetExit() if operation.aref in self.apart:
                return [(operation.aref, "oldest")]
            case _:
                return []

    def _visit(self, operation: Operation, state: State) -> None:
        match operation:
            case aref.PutEnter():
                self._enter(operation, operation.aref, state, self._ring(operation.aref).freed)
                self.entered[operation.slot] = state[operation.aref, "slot"]
            case aref.PutExit():
                self._put_exit(operation, state)
            case aref.GetEnter():
                self._get_enter(operation, state)
            case aref.GetExit():
                self._get_exit(operation, state)
            case aref.GetSkip():
                self._skip(operation, state)
            case _:
                pass

    def _leave(self, block: Block, state: State) -> None:
        last = block.last_op
        emitter = Emitter.at_end(block)
        if last is not None and last.name in ("scf.yield", "scf.condition"):
            emitter = Emitter.before(last)
        for ref in list(self.stale):
            self._advance(emitter, ref, state)

    def _ring(self, ref: SSAValue) -> Ring:
        return self.lowering.rings[ref]

    def _enter(
        self, operation: Operation, ref: SSAValue, state: State, barriers: hopper.Barriers
    ) -> None:
        """Wait for the next slot; its index advances when the exit, or another enter, comes."""
        emitter = Emitter.before(operation)
        if ref in self.stale:
            self._advance(emitter, ref, state)
        wait = hopper.Wait.make(barriers.result, state[ref, "slot"], state[ref, "phase"])
        if isinstance(operation, aref.PutEnter) and by_one_thread(operation):
            # Who publishes has waited: no thread is left behind by two phases.
            emitter.put(hopper.OneThread.make(regions=[new_region(wait)]))
        else:
            emitter.put(wait)
        self.stale[ref] = None

    def _advance(self, emitter: Emitter, ref: SSAValue, state: State) -> None:
        """Step to the next slot; the phase flips where the slot wraps."""
        self.stale.pop(ref, None)
        slot, phase = state[ref, "slot"], state[ref, "phase"]
        state[ref, "slot"], wraps = next_slot(emitter, slot, self._ring(ref).depth)
        flipped = emitter.apply("xor", phase, emitter.constant(1))
        state[ref, "phase"] = emitter.apply("select", wraps, flipped, phase, hint="next_phase")

    def _flush_all(self, operation: Operation, state: State) -> None:
        """Bring all indices up to date before the walk enters `operation`."""
        for ref in list(self.stale):
            self._advance(Emitter.before(operation), ref, state)

    def _put_exit(self, operation: aref.PutExit, state: State) -> None:
        owner = operation.slot.owner
        assert isinstance(owner, aref.PutEnter)
        ring, slot = self._ring(owner.aref), self.entered[operation.slot]
        publish(self.lowering, self.role, operation, ring, slot)
        if owner.aref in self.stale:
            self._advance(Emitter.before(operation), owner.aref, state)
        erase(operation)
        erase(owner)

    def _get_enter(self, operation: aref.GetEnter, state: State) -> None:
        ref = operation.aref
        ring = self._ring(ref)
        self._enter(operation, ref, state, ring.filled)
        slot = state[ref, "slot"]
        self.borrowed.setdefault(ref, []).append(slot)
        emitter = Emitter.before(operation)
        values: list[SSAValue] = []
        for buffer, result in zip(ring.buffers, operation.values, strict=True):
            view = slot_view(emitter, buffer, slot)
            load = load_view if is_tensor(result) else self._load_scalar
            values.append(load(emitter, view, result.type, result.name_hint))
        replace(operation, values)

    def _load_scalar(
        self, emitter: Emitter, view: SSAValue, kind: Attribute, hint: str | None
    ) -> SSAValue:
        return load_scalar(emitter, view, kind, self.role, hint)

    def _get_exit(self, operation: aref.GetExit, state: State) -> None:
        ref = operation.aref
        emitter = Emitter.before(operation)
        slot = state[ref, "oldest"] if ref in self.apart else self.borrowed[ref].pop(0)
        emitter.put(hopper.Arrive.make(self._ring(ref).freed.result, slot, by="warpgroup"))
        if ref in self.apart:
            state[ref, "oldest"], _ = next_slot(emitter, slot, self._ring(ref).depth)
        elif ref in self.stale and not self.borrowed[ref]:
            self._advance(emitter, ref, state)
        erase(operation)

    def _skip(self, operation: aref.GetSkip, state: State) -> None:
        """Step over slots that another instance takes; each wrap flips the phase."""
        ref = operation.aref
        emitter = Emitter.before(operation)
        if ref in self.stale:
            self._advance(emitter, ref, state)
        depth = emitter.constant(self._ring(ref).depth)
        place = emitter.apply("add", state[ref, "slot"], operation.count)
        state[ref, "slot"] = emitter.apply("irem", place, depth, hint="next_slot")
        wraps = emitter.apply("and", emitter.apply("idiv", place, depth), emitter.constant(1))
        state[ref, "phase"] = emitter.apply("xor", state[ref, "phase"], wraps, hint="next_phase")
        if ref in self.apart:
            oldest = emitter.apply("add", state[ref, "oldest"], operation.count)
            state[ref, "oldest"] = emitter.apply("irem", oldest, depth)
        erase(operation)


def next_slot(emitter: Emitter, slot: SSAValue, depth: int) -> tuple[SSAValue, SSAValue]:
    """Return the slot after `slot` in a ring of `depth`, and whether it wrapped (i1)."""
    after = emitter.apply("add", slot, emitter.constant(1))
    wraps = emitter.apply("eq", after, emitter.constant(depth))
    return emitter.apply("select", wraps, emitter.constant(0), after, hint="next_slot"), wraps


def _arefs(top: Operation | Block) -> list[SSAValue]:
    """Return the arefs whose indices something in `top` moves on, in the order of the text."""
    return [operation.aref for operation in all_of(top, *_TURNING)]


def _paired(block: Block, ref: SSAValue) -> bool:
    """Tell whether, in each block, every get of `ref` is followed by its own exit."""
    inner = (b for op in block.ops for region in op.regions for b in region.blocks)
    if not all(_paired(each, ref) for each in inner):
        return False
    balance = 0
    for operation in block.ops:
        match operation:
            case aref.GetEnter() if operation.aref is ref:
                balance += 1
            case aref.GetExit() if operation.aref is ref:
                balance -= 1
            case _ if balance and operation.regions and ref in _arefs(operation):
                return False
            case _:
                pass
        if balance < 0:
            return False
    return balance == 0


# --- waits of the next iteration ------------------------------------------------------------------


def rotate_waits(lowering: Lowering, role: hopper.Role) -> None:
    """Rotate the first waits of each loop of `role` that pins values."""
    for loop in all_of(role, scf.ForOp):
        ends = _ends(loop.body.block)
        for end in ends and (ends[-1], *ends[:-1]):
            _rotate(lowering, loop, end)


def _ends(block: Block) -> list[hopper.Pin]:
    """Return the last pin of each stretch of work whose values are pinned."""
    pins = [op for op in block.ops if isinstance(op, hopper.Pin)]
    return [pin for pin in pins if not isinstance(pin.next_op, hopper.Pin)]


def _rotate(lowering: Lowering, loop: scf.ForOp, pin: hopper.Pin) -> None:
    """Move the first wait of an iteration that is not rotated yet to after `pin` of the iteration
    before.
    """
    block = loop.body.block
    wait = _first_wait(block)
    anchor = pin.next_op
    if wait is None or anchor is None or not wait.is_before_in_block(pin):
        return
    if _holds_all(lowering, wait, anchor):
        return
    end = terminator(block)
    slot, phase = wait.slot, wait.phase
    carried = [value.index - 1 for value in (slot, phase) if isinstance(value, BlockArgument)]
    following = [end.operands[index] for index in carried]
    if not all(_hoist(value, anchor) for value in following):
        return
    first = Emitter.before(loop)
    begins = first.apply("lt", loop.lb, loop.ub)
    initial = [loop.iter_args[index] for index in carried]
    first.put(scf.IfOp(begins, [], _waiting(wait, initial)))
    emitter = Emitter.before(anchor)
    after = emitter.apply("add", block.args[0], loop.step)
    more = emitter.apply("lt", after, loop.ub, hint="another")
    emitter.put(scf.IfOp(more, [], _waiting(wait, following)))
    erase(wait)


def _holds_all(lowering: Lowering, wait: hopper.Wait, anchor: Operation) -> bool:
    """Tell whether at `anchor` the role may hold every slot of the ring that it would wait for.

    What it frees after `anchor` it holds there: the iteration's own slot, and one more for a slot
    of the iteration before, whose release the schedule has put off.
    """
    ring = next(r for r in lowering.rings.values() if r.filled.result is wait.barriers)
    late = [
        op.slot
        for op in wait.parent_block().ops  # pyright: ignore[reportOptionalMemberAccess]
        if isinstance(op, hopper.Arrive)
        and op.barriers is ring.freed.result
        and not op.is_before_in_block(anchor)
    ]
    held = 1 + any(slot is not wait.slot for slot in late)
    return bool(late) and ring.depth <= held


def _first_wait(block: Block) -> hopper.Wait | None:
    """Return the wait for a carried slot before the first product of an iteration."""
    for operation in block.ops:
        match operation:
            case hopper.Wait(slot=BlockArgument() as slot, phase=BlockArgument() as phase):
                return operation if slot.owner is block and phase.owner is block else None
            case _ if operation.regions:
                return None
            case _:
                continue
    return None


def _waiting(like: hopper.Wait, place: list[SSAValue]) -> Region:
    wait = hopper.Wait.make(like.barriers, *place)
    wait.location = like.location
    return new_region(wait, scf.YieldOp())


def _hoist(value: SSAValue, anchor: Operation) -> bool:
    """Make `value` available before `anchor`, moving pure scalars up; tell whether it is."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner.parent is not anchor.parent:
        return True
    if owner.is_before_in_block(anchor):
        return True
    if not marked_pure(owner) or not all(_hoist(operand, anchor) for operand in owner.operands):
        return False
    move_before(owner, anchor)
    return True
