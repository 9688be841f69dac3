"""Purpose: make one program for each role: a copy of the whole, less what is not the role's.

Before -> after::

    scf.for %k .. {                   aref.role "load" {         aref.role "mma" {
      %slot = aref.put_enter %ab        scf.for %k .. {            scf.for %k .. (%acc) {
      %a = tile.desc_load ..              %slot = aref.put_enter     %a = aref.get_enter %ab
      aref.put_exit %slot(%a)     ->      %a = tile.desc_load ..     %acc2 = tile.dot %a ..
      %a2 = aref.get_enter %ab            aref.put_exit %slot(%a)    aref.get_exit %ab
      %acc2 = tile.dot %a2, ..          }                          }
      aref.get_exit %ab               }                            tile.desc_store ..
    }                                                            }
    tile.desc_store ..

The producer keeps puts, and atomics whose result it sends; the role "transpose" what takes tiles
from one ring and puts them to another (the producer, where there is no such role); the consumer
everything else that has an effect. Dead-code elimination then keeps what these need in each copy:
indices, bounds and conditions stand in all, carried values only where they are used.

Requires: the output of `insert_arefs`. Ensures: aref IR; both copies have the same control flow
around puts and gets of a ring, so each put meets one get. Descriptors made from arguments stand
before the roles, once.
Declines: never; a plan that is not specialized leaves the kernel as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.analysis.hardware import is_host_made
from tawa.analysis.liveness import Keep, needed_by
from tawa.analysis.statements import ATOMICS, VIEWS, has_effect
from tawa.errors import InternalError
from tawa.ir import aref, hopper, tile
from tawa.ir.types import ArefType, shape_of
from tawa.ir.walk import walk
from tawa.passes.dead import sweep
from tawa.passes.lower.emit import erase
from tawa.plan.plan import Declined, Plan, RolePlan
from tawa.target import Target


def distribute(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Split the one program into the plan's roles."""
    if not plan.specialized:
        return ()
    body = kernel.body.block
    _hoist_descriptors(kernel)
    setup = _setup(body)
    program = [operation for operation in body.ops if operation not in setup]
    alone = any(role.label == "transpose" for role in plan.roles)
    links = _links(program, alone)
    roles = [_make_role(role, program) for role in plan.roles]
    _short_circuit(roles[0].body.block, frozenset() if alone else links.taken)
    for operation in reversed(program):
        erase(operation)
    for index, (role, planned) in enumerate(zip(roles, plan.roles, strict=True)):
        body.add_op(role)
        sweep(role.body.block, links.keeps(index, planned))
    _check(roles[0])
    return ()


@dataclass(frozen=True, slots=True)
class _Links:
    """Which rings tiles are taken from (`taken`) to be transposed and put to others (`given`).

    A role of its own does it (`alone`), else the producer.
    """

    taken: frozenset[SSAValue]
    given: frozenset[SSAValue]
    alone: bool

    def keeps(self, index: int, role: RolePlan) -> Keep:
        """Return which statements with an effect the role of a place in the plan keeps."""
        if index == 0:
            return self._is_producers
        return self._is_transposers if role.label == "transpose" else self._is_consumers

    def _is_producers(self, operation: Operation) -> bool:
        ring = _put_to(operation)
        if not self.alone and isinstance(operation, (aref.GetEnter, aref.GetExit)):
            return operation.aref in self.taken
        mine = ring is not None and (ring not in self.given or not self.alone)
        return mine or _is_sent(operation)

    def _is_transposers(self, operation: Operation) -> bool:
        """Its puts and gets, and the gets of scalars, which every role takes."""
        match operation:
            case aref.GetEnter() | aref.GetExit():
                return operation.aref in self.taken or _holds_scalars(operation.aref)
            case _:
                return _put_to(operation) in self.given

    def _is_consumers(self, operation: Operation) -> bool:
        match operation:
            case aref.PutEnter() | aref.PutExit():
                return False
            case aref.GetEnter() | aref.GetExit():
                return operation.aref not in self.taken
            case _:
                return not _is_sent(operation) and has_effect(operation)


def _put_to(operation: Operation) -> SSAValue | None:
    """Return the ring that a put goes to."""
    match operation:
        case aref.PutEnter():
            return operation.aref
        case aref.PutExit(slot=slot) if isinstance(slot.owner, aref.PutEnter):
            return slot.owner.aref
        case _:
            return None


def _holds_scalars(ring: SSAValue) -> bool:
    kind = ring.type
    assert isinstance(kind, ArefType)
    return not any(shape_of(item) for item in kind.payload)


def _links(program: list[Operation], alone: bool) -> _Links:
    """Find the rings whose tiles are handed on: what a put holds comes from a get."""
    taken: set[SSAValue] = set()
    given: set[SSAValue] = set()
    for operation in (inner for top in program for inner in walk(top)):
        if not isinstance(operation, aref.PutExit):
            continue
        for value in operation.values:
            while isinstance(value.owner, VIEWS):
                value = value.owner.operands[0]
            if isinstance(value.owner, aref.GetEnter):
                taken.add(value.owner.aref)
                ring = _put_to(operation)
                assert ring is not None, "a slot is entered before it is published"
                given.add(ring)
    return _Links(frozenset(taken), frozenset(given), alone)


def _hoist_descriptors(kernel: tile.Kernel) -> None:
    """Make descriptors that depend on arguments only at the top, where the host finds them."""
    body = kernel.body.block
    copies: dict[SSAValue, SSAValue] = {}
    for operation in walk(kernel):
        if not isinstance(operation, tile.MakeDesc) or operation.parent is body:
            continue
        if not is_host_made(operation.result):
            continue
        chain = _made_from(operation)
        for needed in [inner for inner in walk(kernel) if inner in chain]:
            if needed.results[0] in copies:
                continue
            _add_setup(body, needed.clone(copies))
        operation.result.replace_all_uses_with(copies[operation.result])


def _made_from(operation: Operation) -> set[Operation]:
    """Return a statement and those that its operands are computed from, wherever they stand."""
    found = {operation}
    pending = [operation]
    while pending:
        owners = (value.owner for value in pending.pop().operands)
        new = [owner for owner in owners if isinstance(owner, Operation) and owner not in found]
        found.update(new)
        pending += new
    return found


def _add_setup(body: Block, operation: Operation) -> None:
    before = next((op for op in body.ops if isinstance(op, aref.Create)), body.first_op)
    assert before is not None, "a kernel with descriptors has statements"
    body.insert_op_before(operation, before)


def _setup(body: Block) -> set[Operation]:
    """Return what stands before the roles: rings, and descriptors with what they are made from."""
    makers = [op for op in body.ops if isinstance(op, tile.MakeDesc) and is_host_made(op.result)]
    return {op for op in body.ops if isinstance(op, aref.Create)} | needed_by(*makers)


def _make_role(plan: RolePlan, program: list[Operation]) -> aref.Role:
    block = Block()
    copies: dict[SSAValue, SSAValue] = {}
    for operation in program:
        block.add_op(operation.clone(copies))
    return aref.Role.make(
        regions=[Region(block)],
        label=plan.label,
        warps=plan.warps,
        registers=plan.registers,
        instances=plan.instances if plan.instances > 1 else None,
    )


def _is_sent(operation: Operation) -> bool:
    return isinstance(operation, (*ATOMICS, hopper.NextProgram)) and any(
        isinstance(use.operation, aref.PutExit) for use in operation.results[0].uses
    )


def _short_circuit(block: Block, taken: frozenset[SSAValue]) -> None:
    """In the producer a value that was sent is the value it put: it never gets its own slots,
    but for the tiles it transposes (`taken`), which it reads there.
    """
    for operation in walk(block):
        match operation:
            case aref.GetEnter() | aref.GetExit() if operation.aref in taken:
                pass
            case aref.GetEnter():
                values = _put_before(operation)
                for result, value in zip(operation.values, values, strict=True):
                    result.replace_all_uses_with(value)
                erase(operation)
            case aref.GetExit():
                erase(operation)
            case _:
                pass


def _put_before(get: aref.GetEnter) -> list[SSAValue]:
    operation = get.prev_op
    while operation is not None:
        if isinstance(operation, aref.PutExit):
            enter = operation.slot.owner
            if isinstance(enter, aref.PutEnter) and enter.aref is get.aref:
                return list(operation.values)
        operation = operation.prev_op
    raise InternalError("a get of an aref has no put before it in its block")


def _check(producer: aref.Role) -> None:
    """Each put must hold what its own loads give: nothing the producer would have to compute."""
    for operation in walk(producer):
        if isinstance(operation, tile.Dot):
            raise InternalError("the producer computes a product: the partition is wrong")
