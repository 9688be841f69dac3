"""What must hold of a kernel's text before anything is asked of its runs.

Declarations fit the hardware; roles have warps, registers and named barriers of their own; barriers
are initialised before they are used, and blocks of a cluster meet at both ends; a kernel that is
launched early waits for those before it; what one thread is to do one thread does, and what whole
warps or warpgroups are to do, they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, ViewType
from tawa.ir.walk import all_of, has, is_terminator, marked_pure, walk
from tawa.target import Target
from tawa.verify.footprints import WARPGROUP
from tawa.verify.forwarded import launch_of
from tawa.verify.memory import (
    check_barriers,
    check_buffer,
    check_copy,
    check_count,
    check_map,
    check_start,
)
from tawa.verify.rings import is_alone, warps_of
from tawa.verify.rules import Refused, rule

_THREADS_MOST = 1024
_CLUSTER_MOST = 16
_DECLARED = (hopper.Shared, hopper.Barriers, hopper.TensorMap, hopper.PrefetchMap)
_SETUP = (hopper.InitBarriers, hopper.FenceBarrierInit, hopper.BlockSync, hopper.ClusterSync)
_MEETINGS = (hopper.BlockSync, hopper.ClusterSync)
_CONTROLS = (scf.ForOp, scf.IfOp, scf.WhileOp)
_BLOCKING = (hopper.Wait, hopper.NamedBarrier, hopper.Turn, hopper.WgmmaWait, *_CONTROLS)
_BY_ONE = (hopper.Expect, hopper.TmaLoad, hopper.NextProgram)
_BY_WARPGROUPS = (hopper.Wgmma, hopper.WgmmaFence, hopper.WgmmaCommit, hopper.WgmmaWait)
_BY_WARPS = (
    *_BY_WARPGROUPS,
    *(hopper.NamedBarrier, hopper.Turn, hopper.SetRegisters, hopper.CopyAsync),
    *(hopper.CopyAsyncArrive, hopper.SharedTranspose),
)
_ELECTED = (hopper.Arrive, hopper.TmaStore, hopper.BulkCommit, hopper.BulkWait)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launch of a kernel is made with."""

    threads: int
    registers: int
    cluster: int
    shared: int
    early: bool

    @staticmethod
    def of(kernel: tile.Kernel, target: Target) -> Launch:
        """Return what is written with a kernel, and otherwise follows from its roles."""
        found = launch_of(kernel)
        target = target.shared_by(found.get("blocks", 0) or 1)
        roles = all_of(kernel, hopper.Role)
        last = max((role.first_warp.data + role.warps.data for role in roles), default=0)
        threads = found.get("threads", 0) or 32 * last
        return Launch(
            threads,
            found.get("registers", 0) or target.registers_at_launch(threads),
            found.get("cluster", 0) or 1,
            found.get("shared", 0) or target.shared_per_block,
            bool(found.get("early")),
        )


_KNOWN = frozenset(
    {
        *tile.Tile.operations,
        *hopper.Hopper.operations,
        *(scf.ForOp, scf.IfOp, scf.WhileOp, scf.YieldOp, scf.ConditionOp),
    }
)


def check_known(kernel: tile.Kernel) -> None:
    """Refuse what is no hopper IR, and operations of which nobody here knows what they do."""
    if not has(kernel, hopper.Role):
        raise Refused(rule("form"), "the kernel has no roles: it is not hopper IR", kernel)
    for operation in walk(kernel):
        if type(operation) not in _KNOWN:
            raise Refused(rule("form"), f"the check does not know {operation.name}", operation)


def check_static(kernel: tile.Kernel, target: Target) -> None:
    """Check the text of a kernel in hopper IR. Raises `Refused`."""
    launch = Launch.of(kernel, target)
    _check_launch(launch, target)
    _check_form(kernel, launch)
    for operation in walk(kernel):
        match operation:
            case hopper.Shared():
                check_buffer(operation)
            case hopper.Barriers():
                check_barriers(operation)
            case hopper.TensorMap():
                check_map(operation, target)
            case hopper.Expect():
                check_count("bytes", "bytes", operation.bytes.data, operation)
            case _:
                continue
    roles = all_of(kernel, hopper.Role)
    _check_warps(roles, launch)
    _check_registers(roles, launch, target)
    _check_named(roles, target)
    for role in roles:
        _check_threads(role)
        if launch.early:
            _check_early(role)


# --- the block ------------------------------------------------------------------------------------


def _check_launch(launch: Launch, target: Target) -> None:
    threads, registers = launch.threads, launch.registers
    if not 0 < threads <= _THREADS_MOST or threads % 32:
        raise Refused(rule("form"), f"a block has {threads} threads")
    if not 1 <= launch.cluster <= _CLUSTER_MOST:
        raise Refused(rule("form"), f"a cluster has {launch.cluster} blocks")
    if registers * threads > target.registers_per_block:
        raise Refused(
            rule("register budget"),
            f"{threads} threads of {registers} registers make {registers * threads}, a block has "
            f"{target.registers_per_block}",
        )


def _check_form(kernel: tile.Kernel, launch: Launch) -> None:
    """Set-up, roles, and meetings at the end; barriers are initialised, fenced and published."""
    operations = list(kernel.body.block.ops)
    roles = [place for place, op in enumerate(operations) if isinstance(op, hopper.Role)]
    before, after = operations[: roles[0]], operations[roles[-1] + 1 :]
    for operation in before:
        if not isinstance(operation, (*_SETUP, *_DECLARED)) and not marked_pure(operation):
            raise Refused(rule("form"), f"{operation.name} stands before the roles", operation)
    for operation in operations[roles[0] : roles[-1] + 1]:
        if not isinstance(operation, hopper.Role):
            raise Refused(rule("form"), f"{operation.name} stands between roles", operation)
    for operation in after:
        if not isinstance(operation, _MEETINGS) and not is_terminator(operation):
            raise Refused(rule("form"), f"{operation.name} stands after the roles", operation)
    for operation in walk(kernel):
        if isinstance(operation, _SETUP) and operation.parent is not kernel.body.block:
            raise Refused(rule("form"), f"{operation.name} stands inside a role", operation)
    _check_set_up(kernel, before, launch)
    afar = _first_afar(kernel)
    if afar is not None and not any(
        isinstance(op, hopper.ClusterSync) and op.relaxed is None for op in after
    ):
        raise Refused(
            rule("peers alive"),
            f"{afar.name} reaches other blocks of the cluster, which do not meet at the end: one "
            "may be gone before it gets there",
            afar,
        )


def _check_set_up(kernel: tile.Kernel, before: Sequence[Operation], launch: Launch) -> None:
    inits = [op for op in before if isinstance(op, hopper.InitBarriers)]
    made = [op.barriers for op in inits]
    used = {
        value
        for operation in walk(kernel)
        if not isinstance(operation, hopper.InitBarriers)
        for value in operation.operands
        if isinstance(value.type, BarriersType)
    }
    for barriers in all_of(kernel, hopper.Barriers):
        times = made.count(barriers.result)
        if times > 1 or (not times and barriers.result in used):
            how = "twice" if times else "nowhere"
            what = f"{barriers.label.data} is initialised {how}"
            raise Refused(rule("barrier initialised"), what, barriers)
    if not inits:
        return
    last = max(before.index(each) for each in inits)
    fences = [n for n, op in enumerate(before) if isinstance(op, hopper.FenceBarrierInit)]
    fence = next((place for place in fences if place > last), None)
    afar = _first_afar(kernel)
    seen = afar or next(iter(all_of(kernel, hopper.TmaLoad)), None)
    if seen is not None and fence is None:
        raise Refused(
            rule("barrier fenced"),
            f"no fence_barrier_init stands after the last init_barriers, and {seen.name} makes TMA "
            "or other blocks see these barriers",
            inits[-1],
        )
    kinds = (hopper.ClusterSync,) if afar is not None else _MEETINGS
    since = last if fence is None else fence
    if not any(isinstance(op, kinds) for op in before[since + 1 :]):
        who = "the blocks of the cluster" if afar is not None else "the threads of the block"
        raise Refused(
            rule("barrier initialised"),
            f"{who} do not meet between the initialisation of the barriers and the roles",
            inits[-1],
        )


def _first_afar(kernel: tile.Kernel) -> Operation | None:
    """Return an operation that reaches other blocks of the cluster."""
    return next((op for op in all_of(kernel, hopper.Arrive, hopper.TmaLoad) if blocks_of(op)), None)


def blocks_of(operation: hopper.Arrive | hopper.TmaLoad) -> int:
    """Return to how many blocks of a cluster an operation goes; 0 where to its own alone."""
    to = operation.cluster if isinstance(operation, hopper.Arrive) else operation.multicast
    return 0 if to is None else to.data


# --- roles ----------------------------------------------------------------------------------------


def _check_warps(roles: Sequence[hopper.Role], launch: Launch) -> None:
    taken: dict[int, str] = {}
    for role in roles:
        label = role.label.data
        for warp in range(role.first_warp.data, role.first_warp.data + role.warps.data):
            if warp in taken or 32 * warp >= launch.threads:
                owner = taken.get(warp, "nobody: the block has no such warp")
                raise Refused(rule("form"), f"warp {warp} of {label} belongs to {owner}", role)
            taken[warp] = label


def _check_registers(roles: Sequence[hopper.Role], launch: Launch, target: Target) -> None:
    """Roles give registers back before anything that they wait for, and take no more than that."""
    left = 0
    for role in roles:
        label, granted = role.label.data, launch.registers
        for change in all_of(role, hopper.SetRegisters):
            count, gives = change.count.data, change.direction.data == "dec"
            why = ""
            if count % target.register_unit or not (
                target.registers_min <= count <= target.registers_max
            ):
                why = f"asks for {count} registers a thread, which setmaxnreg cannot give"
            elif change.parent is not role.body.block:
                why = "moves registers under a loop or condition, or in one thread"
            elif (gives and count > granted) or (not gives and count < granted):
                way = "gives" if gives else "takes"
                why = f"has {granted} registers a thread, and {way} some to have {count}"
            elif (late := _waits_before(change, gives)) is not None:
                why = f"moves registers after {late.name}, for which it may wait meanwhile"
            if why:
                raise Refused(rule("register budget"), f"{label} {why}", change)
            if role.warps.data % WARPGROUP or role.first_warp.data % WARPGROUP:
                raise Refused(
                    rule("whole warpgroups"),
                    f"{label} moves registers, but its {role.warps.data} warps are no warpgroups",
                    change,
                )
            granted = count
        if role.registers.data > granted:
            raise Refused(
                rule("register budget"),
                f"{label} is built for {role.registers.data} registers a thread, and has {granted}",
                role,
            )
        left += 32 * role.warps.data * (launch.registers - granted)
    if left < 0:
        raise Refused(
            rule("register budget"),
            f"roles take {-left} registers more than others give back",
            roles[-1],
        )


def _waits_before(change: hopper.SetRegisters, gives: bool) -> Operation | None:
    """Return what a role may wait at before it moves registers; it may wait for what it takes."""
    before = change.prev_op
    while before is not None:
        takes = isinstance(before, hopper.SetRegisters) and before.direction.data == "inc"
        if isinstance(before, _BLOCKING) or has(before, hopper.Wait) or (gives and takes):
            return before
        before = before.prev_op
    return None


def _check_named(roles: Sequence[hopper.Role], target: Target) -> None:
    """Named barriers have one group of threads each, which all of them count."""
    owners: dict[int, tuple[object, int, hopper.Role]] = {}
    met: dict[int, dict[hopper.Role, hopper.NamedBarrier]] = {}
    for role in roles:
        label, warps = role.label.data, role.warps.data
        for meet in all_of(role, hopper.NamedBarrier, hopper.Turn):
            first = meet.id.data
            match meet:
                case hopper.Turn():
                    groups, threads, scope = meet.groups.data, 2 * 32 * WARPGROUP, "turns"
                    fits = groups > 1 and warps == WARPGROUP * groups
                case _:
                    scope, threads = meet.scope.data, meet.threads.data
                    groups = warps // WARPGROUP if scope == "warpgroup" else 1
                    per = {"warpgroup": 32 * WARPGROUP, "role": 32 * warps}
                    fits = threads == per.get(scope, threads) and threads % 32 == 0
                    fits = fits and (meet.kind.data == "sync" or scope == "roles")
            if scope in ("turns", "warpgroup"):
                fits = fits and not (warps % WARPGROUP or role.first_warp.data % WARPGROUP)
            if not fits or first < 1 or first + groups > target.named_barriers or not groups:
                does = f"meets by {scope} of {threads} threads"
                if scope == "turns":
                    does = f"takes turns of {groups} warpgroups"
                raise Refused(
                    rule("named barrier"),
                    f"{label}, of {warps} warps, {does} at {groups} named barriers from {first} on",
                    meet,
                )
            who = scope if scope == "roles" else (role, scope if groups > 1 else "role", first)
            for number in range(first, first + groups):
                owner = owners.setdefault(number, (who, threads, role))
                if owner[:2] != (who, threads):
                    raise Refused(
                        rule("named barrier"),
                        f"{label} uses named barrier {number} with {threads} threads by {scope}, "
                        f"and {owner[2].label.data} with {owner[1]} in another way",
                        meet,
                    )
            if scope == "roles" and isinstance(meet, hopper.NamedBarrier):
                met.setdefault(first, {})[role] = meet
    for number, by in met.items():
        here = sum(32 * role.warps.data for role in by)
        meet = next(iter(by.values()))
        if here != meet.threads.data:
            raise Refused(
                rule("named barrier"),
                f"roles of {here} threads in all meet at named barrier {number}, which counts "
                f"{meet.threads.data}",
                meet,
            )


# --- threads --------------------------------------------------------------------------------------


def _check_threads(role: hopper.Role) -> None:
    """What one thread is to do one does, what whole warps or warpgroups are to do, these do."""
    label, warps = role.label.data, role.warps.data
    whole = not (warps % WARPGROUP or role.first_warp.data % WARPGROUP)
    for operation in walk(role):
        alone = is_alone(operation)
        name = operation.name
        why = ""
        if isinstance(operation, _BY_ONE) and not alone:
            why = f"{name} is executed by all threads of {label}, not by one"
        elif isinstance(operation, _BY_WARPS) and alone:
            why = f"{name} is executed by one thread of {label} only"
        elif isinstance(operation, _ELECTED):
            by = operation.by.data
            if by not in ("thread", "warp", "warpgroup", "role", "all"):
                why = f'{name} by "{by}"'
            elif (by == "thread") != alone:
                inside = "inside" if alone else "outside"
                why = f'{name} by "{by}" stands {inside} the body of one thread'
            elif isinstance(operation, hopper.TmaStore) and by in ("warp", "all"):
                why = f'{name} by "{by}"'
        if why:
            raise Refused(rule("all threads of a warp"), why, operation)
        if isinstance(operation, _BY_WARPGROUPS) and not whole:
            raise Refused(
                rule("whole warpgroups"),
                f"{name} in {label}, whose warps are no warpgroups",
                operation,
            )
        match operation:
            case hopper.TmaLoad():
                parts = operation.multicast.data if operation.multicast is not None else 1
                check_copy(operation, operation.map, operation.view, parts)
            case hopper.TmaStore():
                shares = len(warps_of(operation.by.data, role))
                check_copy(operation, operation.map, operation.view, shares)
            case hopper.Wgmma():
                for view in (operation.a, operation.b):
                    if isinstance(view.type, ViewType):
                        check_start(operation, view)
            case _:
                continue


def _check_early(role: hopper.Role) -> None:
    """A role waits for the kernels before, under no loop or condition, above all that may touch
    global memory.
    """
    label = role.label.data
    if not any(isinstance(each, hopper.GridWait) for each in _straight(role.body.block)):
        raise Refused(
            rule("kernels in order"),
            f"{label} is launched early and does not wait for the kernels before",
            role,
        )
    for operation in _above(role.body.block):
        if not _is_harmless(operation):
            raise Refused(
                rule("kernels in order"),
                f"{label} comes to {operation.name} before it has waited for the kernels before "
                "this one, which is launched early",
                operation,
            )


def _straight(block: Block) -> Iterator[Operation]:
    """Yield what a role, or its one thread, does in any case."""
    for operation in block.ops:
        yield operation
        if isinstance(operation, hopper.OneThread):
            yield from _straight(operation.body.block)


def _above(block: Block) -> Iterator[Operation]:
    """Yield what a role does until it has waited; the wait of its one thread is none of the others,
    who go on with what follows.
    """
    for operation in block.ops:
        match operation:
            case hopper.GridWait():
                return
            case hopper.OneThread():
                yield from _above(operation.body.block)
            case _:
                yield operation


def _is_harmless(operation: Operation) -> bool:
    match operation:
        case hopper.SetRegisters() | hopper.LaunchDependents():
            return True
        case scf.ForOp():
            return all(_is_harmless(inner) for inner in operation.body.block.ops)
        case _:
            return marked_pure(operation) or is_terminator(operation)
