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
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tawa.ir import aref, hopper
from tawa.ir.types import element_type, shape_of
from tawa.ir.walk import all_of, walk
from tawa.passes.lower.context import Lowering, Ring
from tawa.passes.lower.emit import Carrier, Emitter, State, erase, new_region, replace
from tawa.passes.lower.exchange import load_scalar, stored_as, word_layout
from tawa.passes.lower.puts import by_one_thread, publish
from tawa.passes.lower.relate import is_tensor
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
