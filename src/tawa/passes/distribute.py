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

The producer keeps puts, and atomics whose result it sends; the consumer everything else that has
an effect. Dead-code elimination then keeps what these need in each copy: indices, bounds and
conditions stand in both, carried values only where they are used.

Requires: the output of `insert_arefs`. Ensures: aref IR; both copies have the same control flow
around puts and gets of a ring, so each put meets one get. Descriptors made from arguments stand
before the roles, once.
Declines: never; a plan that is not specialized leaves the kernel as it is.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.analysis.effects import ATOMICS, has_effect
from tawa.analysis.liveness import Keep, needed_by
from tawa.analysis.roles import is_host_made
from tawa.errors import InternalError
from tawa.ir import aref, tile
from tawa.passes.dead import sweep
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
    producer, *consumers = plan.roles
    roles = [_make_role(producer, program, _is_producers)]
    _short_circuit(roles[0].body.block)
    roles.extend(_make_role(role, program, _is_consumers) for role in consumers)
    for operation in reversed(program):
        operation.detach()
        operation.erase()
    for role, keep in zip(roles, (_is_producers, *(_is_consumers for _ in consumers))):
        body.add_op(role)
        sweep(role.body.block, keep)
    _check(roles[0])
    return ()


def _hoist_descriptors(kernel: tile.Kernel) -> None:
    """Make descriptors that depend on arguments only at the top, where the host finds them."""
    body = kernel.body.block
    copies: dict[SSAValue, SSAValue] = {}
    for operation in list(kernel.walk()):
        if not isinstance(operation, tile.MakeDesc) or operation.parent is body:
            continue
        if not is_host_made(operation.result):
            continue
        chain = needed_by(operation)
        for needed in [inner for inner in kernel.walk() if inner in chain and not inner.regions]:
            if needed.results[0] in copies:
                continue
            _add_setup(body, needed.clone(copies))
        operation.result.replace_all_uses_with(copies[operation.result])


def _add_setup(body: Block, operation: Operation) -> None:
    before = next((op for op in body.ops if isinstance(op, aref.Create)), body.first_op)
    assert before is not None, "a kernel with descriptors has statements"
    body.insert_op_before(operation, before)


def _setup(body: Block) -> set[Operation]:
    """Return what stands before the roles: rings, and descriptors with what they are made from."""
    makers = [op for op in body.ops if isinstance(op, tile.MakeDesc) and is_host_made(op.result)]
    return {op for op in body.ops if isinstance(op, aref.Create)} | needed_by(*makers)


def _make_role(plan: RolePlan, program: list[Operation], keep: Keep) -> aref.Role:
    block = Block()
    copies: dict[SSAValue, SSAValue] = {}
    for operation in program:
        block.add_op(operation.clone(copies))
    attributes = {
        "label": StringAttr(plan.label),
        "warps": IntAttr(plan.warps),
        "registers": IntAttr(plan.registers),
    }
    if plan.instances > 1:
        attributes["instances"] = IntAttr(plan.instances)
    return aref.Role.build(attributes=attributes, regions=[Region(block)])


def _is_sent(operation: Operation) -> bool:
    return isinstance(operation, ATOMICS) and any(
        isinstance(use.operation, aref.PutExit) for use in operation.results[0].uses
    )


def _is_producers(operation: Operation) -> bool:
    return isinstance(operation, (aref.PutEnter, aref.PutExit)) or _is_sent(operation)


def _is_consumers(operation: Operation) -> bool:
    if isinstance(operation, (aref.PutEnter, aref.PutExit)) or _is_sent(operation):
        return False
    return has_effect(operation)


def _short_circuit(block: Block) -> None:
    """In the producer a value that was sent is the value it put: it never gets its own slots."""
    for operation in list(block.walk()):
        match operation:
            case aref.GetEnter():
                values = _put_before(operation)
                for result, value in zip(operation.values, values, strict=True):
                    result.replace_all_uses_with(value)
                operation.detach()
                operation.erase()
            case aref.GetExit():
                operation.detach()
                operation.erase()
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
    for operation in producer.walk():
        if isinstance(operation, tile.Dot):
            raise InternalError("the producer computes a product: the partition is wrong")
