"""Roles: aref roles become hopper roles, an ordinary kernel becomes one role "main".

Purpose: give each role its warps, its register budget, and a body that stands on its own.
Before -> after:
    %pid = tile.program_id {axis = 0}          hopper.role {label = "load", first_warp = 0}
    aref.role {label = "load"}           ->      hopper.set_registers "dec" {count = 40}
      ... %pid ...                               %pid = hopper.block_id {axis = 0} ...
Requires: pure set-up before the roles. Ensures: roles in the order of their warps, producers first
(warps 0..3); set-up is recomputed inside each role that uses it.
Declines when: never. Register budgets whose sum exceeds the block's are `PlanError`.
"""

from __future__ import annotations

from xdsl.dialects.builtin import DictionaryAttr, IntAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.errors import PlanError
from tawa.ir import aref, hopper, tile
from tawa.ir.types import i32, is_tensor
from tawa.ir.walk import all_of, walk
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, erase, recomputed, replace
from tawa.plan.plan import Plan
from tawa.target import Target

_WARPGROUP = 4


def form_roles(lowering: Lowering) -> None:
    """Replace aref roles, or the whole body of an ordinary kernel, by hopper roles."""
    block = lowering.kernel.body.block
    roles = [op for op in block.ops if isinstance(op, aref.Role)]
    if not roles:
        _form_main(lowering)
    else:
        _form_specialized(lowering, roles)
    for role in lowering.roles:
        _sink_setup(lowering, role)
        _rename_ids(lowering, role)
        if _runs_on_one_thread(role):
            lowering.single.add(role)


def _form_main(lowering: Lowering) -> None:
    """Move the whole body of an ordinary kernel into one role; its rings stand before it."""
    block = lowering.kernel.body.block
    warps = lowering.plan.warps
    body = Block()
    for operation in [op for op in block.ops if not isinstance(op, aref.Create)]:
        operation.detach()
        body.add_op(operation)
    registers = lowering.target.registers_at_launch(32 * warps)
    block.add_op(_role("main", 0, warps, registers, Region(body)))


def _form_specialized(lowering: Lowering, roles: list[aref.Role]) -> None:
    """Lay the roles out over the block's warps, producers first."""
    # setmaxnreg and wgmma count warpgroups from warp 0, so the load warpgroup stands first and
    # consumers stay aligned to warpgroups.
    ordered = sorted(roles, key=lambda role: not _produces(role))
    block = lowering.kernel.body.block
    budget = {role.label: role.registers for role in lowering.plan.roles}
    first = 0
    formed: list[hopper.Role] = []
    for role in ordered:
        label, warps = role.label.data, role.warps.data
        count = role.instances.data if role.instances is not None else 1
        planned = role.registers.data if role.registers is not None else budget.get(label, 0)
        for index in range(count):
            name = label if count == 1 else f"{label}{index}"
            body = role.detach_region(role.body) if index == count - 1 else role.body.clone()
            _bind_instance(body.block, index)
            made = _role(name, first, warps, planned, body)
            made.location = role.location
            block.add_op(made)
            formed.append(made)
            first += warps
        erase(role)
    _set_registers(lowering, formed, 32 * first)


def _produces(role: aref.Role) -> bool:
    """Tell whether a role only puts: its warps stand first."""
    kinds = {type(op) for op in walk(role)}
    return aref.PutEnter in kinds and aref.GetEnter not in kinds


def _role(label: str, first: int, warps: int, registers: int, body: Region) -> hopper.Role:
    return hopper.Role.make(
        regions=[body], label=label, first_warp=first, warps=warps, registers=registers
    )


def _bind_instance(block: Block, index: int) -> None:
    """Replace the instance index (block argument 0) by its constant, and tell turns of it."""
    for operation in walk(block):
        if isinstance(operation, aref.Turn):
            operation.attributes["instance"] = IntAttr(index)
    if not block.args:
        return
    value = Emitter.at_start(block).constant(index, i32, "instance")
    block.args[0].replace_all_uses_with(value)
    block.erase_arg(block.args[0])


def _set_registers(lowering: Lowering, roles: list[hopper.Role], threads: int) -> None:
    """Move registers between the roles by setmaxnreg, where all roles are whole warpgroups."""
    target = lowering.target
    launch = target.registers_at_launch(threads)
    if any(role.warps.data % _WARPGROUP for role in roles):
        # setmaxnreg is executed by all warps of a warpgroup: a role of fewer warps cannot.
        for role in roles:
            role.attributes["registers"] = IntAttr(launch)
        lowering.note("register reallocation", "a role is not made of whole warpgroups")
        return
    for role in roles:
        if not role.registers.data:
            role.attributes["registers"] = IntAttr(launch)
    taken = sum(role.registers.data * role.warps.data * 32 for role in roles)
    if taken > launch * threads:
        rows = ", ".join(
            f"{role.label.data} {role.registers.data} x {role.warps.data * 32}" for role in roles
        )
        raise PlanError(
            f"{lowering.kernel.sym_name.data}: the roles' registers do not fit.",
            why=f"{rows} threads make {taken:,}; a kernel of {threads} threads is built with "
            f"{launch} a thread, {launch * threads:,} in all, and setmaxnreg only moves those.",
            remedy="lower a role's budget (registers=) or use fewer warps.",
        )
    for role in roles:
        _set_register(target, launch, role)


def _set_register(target: Target, launch: int, role: hopper.Role) -> None:
    count, lowest, highest = role.registers.data, target.registers_min, target.registers_max
    if count == launch:
        return
    if count % 8 or not lowest <= count <= highest:
        raise PlanError(
            f"{role.label.data}: {count} registers a thread is not a budget.",
            why=f"setmaxnreg takes multiples of 8 in {lowest}..{highest}.",
            remedy=f"use {max(lowest, min(highest, count // 8 * 8))}.",
        )
    direction = "dec" if count < launch else "inc"
    Emitter.at_start(role.body.block).put(
        hopper.SetRegisters.make(count=count, direction=direction)
    )


def share_registers(kernel: tile.Kernel, plan: Plan, target: Target) -> None:
    """Share out the registers of a kernel whose launch is set as `plan` does, which differs from
    the plan that it was lowered by in these and in `blocks` alone: what lowering by `plan` gives.
    """
    assert kernel.launch is not None
    roles = all_of(kernel, hopper.Role)
    threads = 32 * sum(role.warps.data for role in roles)
    launch = target.shared_by(plan.blocks).registers_at_launch(threads)
    moves = all(role.warps.data % _WARPGROUP == 0 for role in roles)
    for role in roles:
        planned = plan.role_of(role.label.data)
        budget = planned.registers if planned is not None and moves else 0
        role.attributes["registers"] = IntAttr(budget or launch)
        for change in all_of(role, hopper.SetRegisters):
            erase(change)
        _set_register(target, launch, role)
    facts = {**kernel.launch.data, "registers": IntAttr(launch)}
    early = {name: facts.pop(name) for name in ("early",) if name in facts}
    shared = {"blocks": IntAttr(plan.blocks)} if plan.blocks > 1 else {}
    kernel.attributes["launch"] = DictionaryAttr({**facts, **shared, **early})


def _sink_setup(lowering: Lowering, role: hopper.Role) -> None:
    """Clone into the role the set-up scalars it uses, which are recomputed and never sent."""
    outer = lowering.kernel.body.block
    mapped: dict[SSAValue, SSAValue] = {}
    anchor = next(
        (op for op in role.body.block.ops if not isinstance(op, hopper.SetRegisters)), None
    )
    emitter = Emitter.before(anchor) if anchor is not None else Emitter.at_end(role.body.block)

    def stays(owner: Operation) -> bool:
        return owner.parent is not outer or isinstance(owner, aref.Create)

    for operation in walk(role.body):
        for index, operand in enumerate(operation.operands):
            if (local := recomputed(operand, stays, emitter.put, mapped)) is not operand:
                operation.operands[index] = local


def _rename_ids(lowering: Lowering, role: hopper.Role) -> None:
    """Program ids of a kernel that is not persistent are block ids."""
    for operation in walk(role.body):
        match operation:
            case tile.ProgramId():
                new = hopper.BlockId.make(results=[i32], axis=operation.axis)
            case tile.NumPrograms() if lowering.plan.persistent:
                new = hopper.GridExtent.make(results=[i32], axis=operation.axis)
            case tile.NumPrograms():
                new = hopper.NumBlocks.make(results=[i32], axis=operation.axis)
            case _:
                continue
        replace(operation, [Emitter.before(operation).put(new).result])


def _runs_on_one_thread(role: hopper.Role) -> bool:
    """Tell whether a role only starts copies and computes scalars: threads would be in the way.

    Tensors may pass through it as loads of descriptors alone.
    """
    moved = (tile.DescLoad, tile.Reshape, aref.PutExit)
    puts = False
    for operation in walk(role.body):
        puts |= isinstance(operation, aref.PutEnter)
        if isinstance(operation, aref.GetEnter):
            return False
        tensors = any(map(is_tensor, (*operation.operands, *operation.results)))
        if tensors and not isinstance(operation, moved):
            return False
    return puts


def erase_setup(lowering: Lowering) -> None:
    """Remove set-up that no role uses any more."""
    for operation in reversed(list(lowering.kernel.body.block.ops)):
        unused = not any(result.first_use for result in operation.results)
        if unused and operation.dialect_name() in ("tile", "aref") and operation.results:
            erase(operation)
