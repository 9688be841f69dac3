"""Static rules of roles: their warps, the registers they move, the hardware barriers they use."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.rules import Violation
from tawa.target import Target

_WARPGROUP = 4
_CONTROLS = (scf.ForOp, scf.IfOp, scf.WhileOp)


def enclosing(operation: Operation) -> Iterator[Operation]:
    """Yield what an operation stands in, inside first."""
    while (parent := operation.parent_op()) is not None:
        yield parent
        operation = parent


def check_roles(
    census: Census, roles: list[hopper.Role], threads: int, registers: int, target: Target
) -> None:
    """Raise Violation where a role breaks one; `threads` and `registers` are those at launch."""
    taken: dict[int, str] = {}
    named: dict[int, str] = {}
    for role in roles:
        label = role.label.data
        for warp in range(role.first_warp.data, role.first_warp.data + role.warps.data):
            if warp in taken or 32 * warp >= threads:
                owner = taken.get(warp, "nobody: the block has no such warp")
                raise Violation("form", f"warp {warp} of {label} belongs to {owner}.", role)
            taken[warp] = label
        _check_registers(census, role, registers, target)
        _check_named(census, role, named, target)


def _check_registers(census: Census, role: hopper.Role, registers: int, target: Target) -> None:
    changes = census.of(hopper.SetRegisters, within=role)
    label, granted = role.label.data, registers
    for change in changes:
        count = change.count.data
        if count % target.register_unit or not (
            target.registers_min <= count <= target.registers_max
        ):
            sentence = f"{label} asks for {count} registers a thread, which setmaxnreg cannot give."
            raise Violation("register budget", sentence, change)
        if role.warps.data % _WARPGROUP or role.first_warp.data % _WARPGROUP:
            sentence = (
                f"{label} moves registers, but its {role.warps.data} warps are no warpgroups."
            )
            raise Violation("whole warpgroups", sentence, change)
        if any(isinstance(around, _CONTROLS) for around in enclosing(change)):
            sentence = (
                f"{label} moves registers in a loop or under a condition: how many it has after "
                "that is another number for each input."
            )
            raise Violation("register budget", sentence, change)
        granted = count
    if role.registers.data > granted:
        sentence = (
            f"{label} is built for {role.registers.data} registers a thread, but has {granted}"
            f" {'after setmaxnreg' if changes else 'from the launch: no set_registers gives more'}."
        )
        raise Violation("register budget", sentence, role)


def _check_named(census: Census, role: hopper.Role, named: dict[int, str], target: Target) -> None:
    label, mine = role.label.data, set[int]()
    for meet in census.of(hopper.NamedBarrier, hopper.Turn, within=role):
        match meet:
            case hopper.NamedBarrier():
                numbers, shared = _meeting(role, meet, target), meet.scope.data == "roles"
            case hopper.Turn():
                numbers, shared = _turns(role, meet, target), False
        for number in numbers:
            owner = named.get(number)
            if not shared and number not in mine and owner is not None:
                sentence = f"{label} uses named barrier {number}, which belongs to {owner}."
                raise Violation("named barrier", sentence, meet)
            named.setdefault(number, label)
            mine.add(number)


def _meeting(role: hopper.Role, meet: hopper.NamedBarrier, target: Target) -> range:
    """Return the barriers at which a role meets. Raises Violation where there are none such."""
    label, scope, threads = role.label.data, meet.scope.data, meet.threads.data
    groups = role.warps.data // _WARPGROUP if scope == "warpgroup" else 1
    numbers = range(meet.id.data, meet.id.data + groups)
    if not _exist(numbers, target) or threads % 32:
        sentence = (
            f"{label} uses named barrier {meet.id.data} for {groups} groups of {threads} threads."
        )
        raise Violation("named barrier", sentence, meet)
    expected = {"warpgroup": 128, "role": 32 * role.warps.data}.get(scope, threads)
    if threads != expected:
        sentence = (
            f"{label} meets at named barrier {meet.id.data} with {threads} threads, but the "
            f"{scope} has {expected}."
        )
        raise Violation("named barrier", sentence, meet)
    return numbers


def _turns(role: hopper.Role, turn: hopper.Turn, target: Target) -> range:
    """Return the barriers of a role's turns. Raises Violation where its warpgroups are others."""
    groups = turn.groups.data
    numbers = range(turn.id.data, turn.id.data + groups)
    whole = role.warps.data == _WARPGROUP * groups and role.first_warp.data % _WARPGROUP == 0
    if not whole or groups < 2 or not _exist(numbers, target):
        sentence = (
            f"{role.label.data}, of {role.warps.data} warps, takes turns of {groups} warpgroups at "
            f"named barriers from {turn.id.data} on."
        )
        raise Violation("named barrier", sentence, turn)
    return numbers


def _exist(numbers: range, target: Target) -> bool:
    return bool(numbers) and numbers[0] >= 1 and numbers[-1] < target.named_barriers
