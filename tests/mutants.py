"""Mutants of hopper kernels: every synchronization operation dropped, moved or changed.

`mutants(kernel)` yields each mutant as a named function that breaks a fresh clone. A mutant is
`harmless` where it is provably the same program (the reason is given); all others must be caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects import scf
from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr, TensorType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import IsTerminator, Pure

from mutants_control import control_changes
from mutants_operations import operation_changes
from tawa.ir import hopper, tile
from tawa.ir.types import ViewType, i32
from told_kernels import untold

SYNC = (
    hopper.InitBarriers,
    hopper.FenceBarrierInit,
    hopper.BlockSync,
    hopper.ClusterSync,
    hopper.GridWait,
    hopper.SetRegisters,
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.ProxyFence,
    hopper.NamedBarrier,
    hopper.Turn,
    hopper.BulkCommit,
    hopper.BulkWait,
    hopper.CopyAsyncArrive,
    hopper.WgmmaFence,
    hopper.WgmmaCommit,
    hopper.WgmmaWait,
)


@dataclass(frozen=True)
class Mutant:
    """`make()` returns the broken kernel; `operation` is the operation of the original."""

    kind: str
    index: int
    operation: Operation
    make: Callable[[], tile.Kernel]
    harmless: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.operation.name.removeprefix('hopper.')} #{self.index}"


def role_of(operation: Operation) -> hopper.Role:
    parent = operation.parent_op()
    while not isinstance(parent, hopper.Role):
        assert parent is not None
        parent = parent.parent_op()
    return parent


def sync_operations(kernel: tile.Kernel) -> list[Operation]:
    return [op for op in kernel.walk() if isinstance(op, SYNC)]


def _clone(kernel: tile.Kernel, index: int) -> tuple[tile.Kernel, Operation]:
    copy = kernel.clone()
    return copy, list(copy.walk())[index]


def _mutant(
    kernel: tile.Kernel,
    operation: Operation,
    index: int,
    kind: str,
    change: Callable[[Operation], None],
) -> Mutant:
    def make() -> tile.Kernel:
        copy, found = _clone(kernel, index)
        change(found)
        return copy

    return Mutant(kind, index, operation, make, harmless(kernel, operation, kind))


# --- which mutants are the same program -----------------------------------------------------------


def harmless(kernel: tile.Kernel, operation: Operation, kind: str) -> str:
    """Return why a mutant provably behaves like the original, or nothing."""
    following = operation.next_op
    match operation:
        case hopper.InitBarriers() if kind == "swap" and isinstance(following, hopper.InitBarriers):
            return "barriers may be initialised in any order"
        case hopper.InitBarriers() if kind == "swap" and not _seen_by_copies(kernel, operation):
            return "no copy and no other block uses these barriers"
        case hopper.ClusterSync() if kind == "not relaxed":
            return "it publishes more than it has to"
        case hopper.ClusterSync() if kind == "relaxed" and _in_set_up(operation):
            return "what is written before it are barriers, and they are fenced"
        case hopper.FenceBarrierInit() if kind == "swap" and _thread_0_loads(kernel):
            return "the thread that fences is the only one that starts copies"
        case hopper.FenceBarrierInit() if _no_copy_or_block_waits(kernel):
            return "no copy and no other block uses barriers"
        case hopper.Shared() if kind == "offset+16" and _by_threads(operation):
            return "threads alone use it, and 16 bytes are all that they need"
        case hopper.SetRegisters() if not _takes_registers(kernel, kind, operation):
            return "no role takes registers, so none need be given back"
        case hopper.BulkCommit() if _commits_again(operation, kind):
            return "the next commit closes the same group before any wait"
        case hopper.TmaStore() if kind == "swap" and _commits_again(following, "drop"):
            return "the next commit closes the same group before any wait"
        case hopper.WgmmaFence() if kind in ("drop", "swap") and _fenced_before(operation):
            return "an earlier fence covers it: no registers are touched in between"
        case hopper.WgmmaCommit() if kind == "swap" and isinstance(following, hopper.Wait):
            return "a group may be closed after a wait that does not wait for it"
        case hopper.WgmmaFence() if kind == "to start" and _untouched_before(operation):
            return "no registers are touched between the places of the fence"
        case hopper.ProxyFence() if kind in ("drop", "swap") and _proxy_fenced_before(operation):
            return "an earlier proxy fence of the same threads stands after their last access"
        case hopper.Wgmma() if kind == "always adds" and _starts_as_zeros(operation):
            return "its accumulator starts as zeros"
        case hopper.WgmmaWait() if kind == "unnamed" and _feeds_products_only(operation):
            return "products of the same queue alone use what it waits for"
        case hopper.BulkWait() if kind == "to end" and _once_a_tile(operation):
            return "it waits at the end of a tile, of all groups, before the next meets there"
        case hopper.Expect() | hopper.Arrive() if kind == "to end" and _goes_on(operation):
            return "nobody waits before the end, and the phase is open until then"
        case hopper.Arrive() | hopper.TmaStore() | hopper.BulkCommit() | hopper.BulkWait() if (
            kind in _ELECTED and _one_group(operation)
        ):
            return "the role is one warpgroup: the elected thread is the same"
        case hopper.NamedBarrier() if kind == "kind=sync":
            return "it waits where it only announced itself: more order, and the run ends"
        case hopper.NamedBarrier() if kind.startswith("id="):
            return "another barrier of the block, at which nobody meets meanwhile"
        case _ if kind == "swap" and isinstance(following, hopper.Turn) and not operation.regions:
            return "turns order no accesses"
        case hopper.PrefetchMap() if kind == "swap":
            return "a hint orders nothing"
        case hopper.GridWait() if kind == "swap" and isinstance(following, hopper.LaunchDependents):
            return "the next kernel waits for the end of this one, whenever it begins"
        case _ if kind == "swap" and isinstance(following, hopper.GridWait):
            return "nothing above the roles touches global memory"
        case hopper.Turn() if kind == "swap" and following is not None and not following.regions:
            return "turns order no accesses"
        case hopper.BulkWait() | hopper.NamedBarrier() if not _same_buffers(operation):
            if kind in ("drop", "pending+1", "swap", "by=role"):
                return "no memory is used both before and after it"
    return ""


def _in_set_up(sync: hopper.ClusterSync) -> bool:
    """Tell whether a meeting stands between the fence of the barriers and the roles."""
    before = sync.prev_op
    return isinstance(before, hopper.FenceBarrierInit) and isinstance(sync.next_op, hopper.Role)


def _by_threads(buffer: hopper.Shared) -> bool:
    """Tell whether no copy engine and no tensor core reads or writes a buffer."""
    layout = buffer.result.type.layout.data
    return not layout.swizzle and not any(
        isinstance(op, hopper.TmaLoad | hopper.TmaStore | hopper.Wgmma)
        for op in _users(buffer.result)
    )


def _users(value: SSAValue) -> Iterator[Operation]:
    """Yield what uses a buffer, through views of it."""
    for use in value.uses:
        yield use.operation
        for result in use.operation.results:
            if isinstance(result.type, ViewType):
                yield from _users(result)


def _fenced_before(fence: hopper.WgmmaFence) -> bool:
    """Tell whether an earlier fence of the block has only products, waits and scalars after it."""
    harmless = (hopper.Wgmma, hopper.WgmmaCommit, hopper.Wait, hopper.Turn)
    before = fence.prev_op
    while before is not None and not isinstance(before, hopper.WgmmaFence):
        tensors = any(isinstance(v.type, TensorType) for v in (*before.operands, *before.results))
        if not isinstance(before, harmless) and (tensors or before.regions):
            return False
        before = before.prev_op
    return before is not None


def _between(first: Operation | None, last: Operation) -> Iterator[Operation]:
    while first is not None and first is not last:
        yield from first.walk()
        first = first.next_op


def _untouched_before(fence: hopper.WgmmaFence) -> bool:
    """Tell whether nothing from the start of the block to a fence touches registers of products."""
    block = fence.parent
    assert block is not None
    quiet = (hopper.Wgmma, hopper.WgmmaCommit, hopper.WgmmaFence, hopper.Turn)
    return not any(
        isinstance(value.type, TensorType)
        for item in _between(block.first_op, fence)
        if not isinstance(item, quiet)
        for value in (*item.operands, *item.results)
    )


_ACCESSES = (
    hopper.SharedLoad,
    hopper.SharedStore,
    hopper.SharedTranspose,
    hopper.FmaDot,
    hopper.CopyAsync,
)


def _proxy_fenced_before(fence: hopper.ProxyFence) -> bool:
    """Tell whether a fence that surely comes first stands before this one in its role, with no
    access in between.
    """
    around: set[Block] = set()
    block = fence.parent
    while block is not None:
        around.add(block)
        parent = block.parent_op()
        block = parent.parent if parent is not None else None
    fenced = False
    for item in role_of(fence).walk():
        if item is fence:
            return fenced
        if isinstance(item, hopper.ProxyFence):
            fenced = fenced or item.parent in around
        if isinstance(item, (*_ACCESSES, scf.ForOp)) or _tells_of_copies(item):
            fenced = False
    return False


def _tells_of_copies(operation: Operation) -> bool:
    """Tell whether an operation waits for copies of other threads, which a later fence covers."""
    return isinstance(operation, hopper.Wait) and any(
        isinstance(use.operation, hopper.CopyAsyncArrive) for use in operation.barriers.uses
    )


def _starts_as_zeros(wgmma: hopper.Wgmma) -> bool:
    value = wgmma.acc
    while isinstance(value, BlockArgument):
        loop = value.owner.parent_op()
        if not isinstance(loop, scf.ForOp):
            return False
        value = loop.iter_args[value.index - 1]
    return isinstance(value.owner, tile.Constant)


def _feeds_products_only(wait: hopper.WgmmaWait) -> bool:
    users = [use.operation for result in wait.res for use in result.uses]
    return all(isinstance(user, (hopper.Wgmma, hopper.WgmmaWait)) for user in users)


def _once_a_tile(wait: hopper.BulkWait) -> bool:
    """Tell whether a wait for all groups is the only one of its kind in its block."""
    block = wait.parent
    assert block is not None
    same = [op for op in block.ops if isinstance(op, hopper.BulkWait) and op.read == wait.read]
    return not wait.pending.data and len(same) == 1


_ELECTED = ("by=role", "by=warpgroup")


def _goes_on(operation: Operation) -> bool:
    """Tell whether what follows an operation in its block waits for no other agent."""
    meets = (hopper.Wait, hopper.NamedBarrier, hopper.Turn, hopper.GridWait, hopper.SetRegisters)
    after = operation.next_op
    while after is not None:
        if after.regions or isinstance(after, meets):
            return False
        after = after.next_op
    return True


def _one_group(
    operation: hopper.Arrive | hopper.TmaStore | hopper.BulkCommit | hopper.BulkWait,
) -> bool:
    if f"by={operation.by.data}" not in _ELECTED:
        return False
    return role_of(operation).warps.data <= 4


def _thread_0_loads(kernel: tile.Kernel) -> bool:
    launch = kernel.launch.data
    loaders = [r for r in kernel.walk() if isinstance(r, hopper.Role) and _has(r, hopper.TmaLoad)]
    single = launch["cluster"].data == 1
    return single and all(role.first_warp.data == 0 for role in loaders)


def _no_copy_or_block_waits(kernel: tile.Kernel) -> bool:
    return kernel.launch.data["cluster"].data == 1 and not _has(kernel, hopper.TmaLoad)


def _seen_by_copies(kernel: tile.Kernel, init: hopper.InitBarriers) -> bool:
    return any(
        isinstance(use.operation, hopper.TmaLoad)
        or (isinstance(use.operation, hopper.Arrive) and use.operation.cluster is not None)
        for use in init.barriers.uses
    )


def _has(operation: Operation, kind: type[Operation]) -> bool:
    return any(isinstance(inner, kind) for inner in operation.walk())


def _takes_registers(kernel: tile.Kernel, kind: str, changed: hopper.SetRegisters) -> bool:
    if kind == "swap" or kind.startswith("direction"):
        return True
    others = [op for op in kernel.walk() if isinstance(op, hopper.SetRegisters)]
    if any(op.direction.data == "inc" for op in others):
        return True
    launched = kernel.launch.data["registers"].data
    count = int(kind.removeprefix("count=")) if kind.startswith("count=") else launched
    return not changed.count.data <= count <= launched


def _commits_again(operation: Operation | None, kind: str) -> bool:
    """Tell whether another commit of the same block follows with no wait in between, in a role
    where no wait counts groups.
    """
    if kind not in ("drop", "by=role") or not isinstance(operation, hopper.BulkCommit):
        return False
    waits = (op for op in role_of(operation).walk() if isinstance(op, hopper.BulkWait))
    if any(wait.pending.data for wait in waits):
        return False
    after = operation.next_op
    while after is not None:
        if isinstance(after, hopper.BulkCommit):
            return True
        if after.regions or (isinstance(after, hopper.BulkWait) and after.pending.data):
            return False
        if isinstance(after, hopper.BulkWait) and _same_buffers(after):
            return False
        after = after.next_op
    return False


def _same_buffers(operation: Operation) -> bool:
    """Tell whether threads or TMA stores use one buffer before and after an operation."""
    parent = operation.parent_op()
    if not isinstance(parent, hopper.Role):
        return True
    if isinstance(operation, hopper.BulkWait) and not operation.read.value.data:
        return True
    if _overlap(parent):
        return True
    before: set[SSAValue] = set()
    after: set[SSAValue] = set()
    found = before
    for inner in parent.walk():
        if inner is operation:
            found = after
        if isinstance(inner, (hopper.SharedLoad, hopper.SharedStore, hopper.TmaStore)):
            view = inner.view
            while not isinstance(view.owner, hopper.Slot):
                view = view.owner.view
            found.add(view.owner.buffer)
    return bool(before & after)


def _overlap(role: hopper.Role) -> bool:
    """Tell whether buffers of the kernel share bytes."""
    block = role.parent
    assert block is not None
    spans = sorted(
        (op.offset.data, op.offset.data + op.result.type.bytes)
        for op in block.ops
        if isinstance(op, hopper.Shared)
    )
    return any(first[1] > second[0] for first, second in pairwise(spans))


# --- how to break a kernel ------------------------------------------------------------------------


def drop(operation: Operation) -> None:
    """Remove an operation; a wait's results become its operands again."""
    if isinstance(operation, hopper.WgmmaWait):
        for result, value in zip(operation.res, operation.values):
            result.replace_all_uses_with(value)
    Rewriter.erase_op(operation)


def set_attribute(name: str, value: object) -> Callable[[Operation], None]:
    return lambda operation: operation.attributes.__setitem__(name, value)


def _constant(before: Operation, number: int) -> SSAValue:
    made = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[i32])
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def _flip(operation: hopper.Wait) -> None:
    flipped = tile.Elementwise(
        operands=[[operation.phase, _constant(operation, 1)]],
        attributes={"function": StringAttr("xor")},
        result_types=[i32],
    )
    Rewriter.insert_op(flipped, InsertPoint.before(operation))
    operation.operands[2] = flipped.result


def _fix_slot(place: int, number: int) -> Callable[[Operation], None]:
    def change(operation: Operation) -> None:
        operation.operands[place] = _constant(operation, number)

    return change


def _swap_with_next(operation: Operation) -> None:
    following = operation.next_op
    assert following is not None
    following.detach()
    block = operation.parent
    assert block is not None
    block.insert_op_before(following, operation)


def without(name: str) -> Callable[[Operation], None]:
    return lambda operation: operation.attributes.__delitem__(name)


def unname(wait: hopper.WgmmaWait) -> None:
    """The wait stays, but the values it waits for keep their old names."""
    for result, value in zip(wait.res, wait.values):
        result.replace_all_uses_with(value)
    bare = hopper.WgmmaWait(operands=[[]], attributes={"pending": wait.pending}, result_types=[[]])
    Rewriter.insert_op(bare, InsertPoint.before(wait))
    Rewriter.erase_op(wait)


def _always_adds(wgmma: hopper.Wgmma) -> None:
    """The accumulator is never taken as zero."""
    plain = hopper.Wgmma(
        operands=[wgmma.a, wgmma.b, wgmma.acc, []],
        attributes=dict(wgmma.attributes),
        result_types=[wgmma.result.type],
    )
    Rewriter.insert_op(plain, InsertPoint.before(wgmma))
    wgmma.result.replace_all_uses_with(plain.result)
    Rewriter.erase_op(wgmma)


def ring_places(loop: scf.ForOp) -> list[tuple[int, int]]:
    """Return (place, modulus) of the carried scalars of a loop at role level that are slots, of
    their ring's depth, or phases, of 2, of a wait in it.
    """
    if not isinstance(loop.parent_op(), (hopper.Role, hopper.OneThread)):
        return []
    found: dict[int, int] = {}
    for wait in loop.walk():
        if not isinstance(wait, hopper.Wait):
            continue
        for value, modulus in ((wait.slot, wait.barriers.type.count.data), (wait.phase, 2)):
            place = _carried_by(value, loop)
            if place is not None and modulus > 1:
                found[place] = modulus
    return sorted(found.items())


def _carried_by(value: SSAValue, loop: scf.ForOp) -> int | None:
    """Return which value a loop carries is passed down, unchanged, to an operand in it."""
    while isinstance(value, BlockArgument):
        inner = value.owner.parent_op()
        if not isinstance(inner, scf.ForOp) or not value.index:
            return None
        if inner is loop:
            return value.index - 1
        value = inner.iter_args[value.index - 1]
    return None


def _shift_start(place: int, modulus: int) -> Callable[[Operation], None]:
    def change(loop: Operation) -> None:
        operand = 3 + place
        one = _constant(loop, 1)
        more = _computed(loop, "add", loop.operands[operand], one)
        loop.operands[operand] = _computed(loop, "irem", more, _constant(loop, modulus))

    return change


def _computed(before: Operation, name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    made = tile.Elementwise(
        operands=[[a, b]], attributes={"function": StringAttr(name)}, result_types=[i32]
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def moves(kernel: tile.Kernel) -> Iterator[Mutant]:
    """Waits moved to the end of their block, all that releases or publishes to its start."""
    for index, operation in enumerate(kernel.walk()):
        block = operation.parent
        if not isinstance(block, Block) or not isinstance(operation, MOVED):
            continue
        late = isinstance(operation, (hopper.Wait, hopper.BulkWait))
        end = block.last_op if late else block.first_op
        if end is None or operation.next_op is end or operation.prev_op is end or operation is end:
            continue
        if not late and any(value.owner in block.ops for value in operation.operands):
            continue
        yield _mutant(kernel, operation, index, "to end" if late else "to start", _move_far(late))


MOVED = (
    hopper.Wait,
    hopper.BulkWait,
    hopper.Arrive,
    hopper.CopyAsyncArrive,
    hopper.Expect,
    hopper.ProxyFence,
    hopper.BulkCommit,
    hopper.WgmmaFence,
    hopper.WgmmaCommit,
)


def _move_far(late: bool) -> Callable[[Operation], None]:
    def change(operation: Operation) -> None:
        block = operation.parent
        assert block is not None
        operation.detach()
        last = block.last_op
        if late and last is not None and last.has_trait(IsTerminator):
            block.insert_op_before(operation, last)
        elif late:
            block.add_op(operation)
        else:
            assert block.first_op is not None
            block.insert_op_before(operation, block.first_op)

    return change


def drops(kernel: tile.Kernel) -> Iterator[Mutant]:
    for index, operation in enumerate(kernel.walk()):
        if isinstance(operation, SYNC):
            yield _mutant(kernel, operation, index, "drop", drop)


def _may_be_other(operation: Operation, place: int, slots: int) -> bool:
    """Tell whether a slot may be another than the first."""
    slot = operation.operands[place].owner
    return slots > 1 and not (isinstance(slot, tile.Constant) and slot.value == IntAttr(0))


def _arrives_at_once(operation: Operation) -> None:
    """Let each thread arrive by itself, whether its copies are done or not."""
    arrive = hopper.Arrive(operands=list(operation.operands), attributes={"by": StringAttr("all")})
    Rewriter.replace_op(operation, arrive)


def changes(kernel: tile.Kernel) -> Iterator[Mutant]:
    """Counts, bytes, phases, slots, budgets and electors, each off by one step."""
    for index, operation in enumerate(kernel.walk()):

        def one(
            kind: str,
            change: Callable[[Operation], None],
            index: int = index,
            operation: Operation = operation,
        ) -> Mutant:
            return _mutant(kernel, operation, index, kind, change)

        match operation:
            case hopper.Barriers():
                count = operation.arrivals.data
                for more in (-1, 1):
                    if count + more > 0:
                        yield one(
                            f"arrivals{more:+d}", set_attribute("arrivals", IntAttr(count + more))
                        )
            case hopper.Expect():
                count = operation.bytes.data
                for other in (count - 16, count + 16, count // 2):
                    yield one(f"bytes={other}", set_attribute("bytes", IntAttr(other)))
            case hopper.Wait():
                yield one("flip phase", _flip)
                if _may_be_other(operation, 1, operation.barriers.type.count.data):
                    yield one("slot 0", _fix_slot(1, 0))
            case hopper.Arrive():
                for by in ("warp", "warpgroup", "role", "all", "thread"):
                    if by != operation.by.data:
                        yield one(f"by={by}", set_attribute("by", StringAttr(by)))
                if _may_be_other(operation, 1, operation.barriers.type.count.data):
                    yield one("slot 0", _fix_slot(1, 0))
                if operation.cluster is not None:
                    yield one("own block", without("cluster"))
            case hopper.CopyAsyncArrive():
                yield one("waits no copies", _arrives_at_once)
                if _may_be_other(operation, 1, operation.barriers.type.count.data):
                    yield one("slot 0", _fix_slot(1, 0))
            case hopper.Slot():
                if _may_be_other(operation, 1, operation.buffer.type.slots.data):
                    yield one("slot 0", _fix_slot(1, 0))
            case hopper.TmaLoad():
                place = len(operation.operands) - 1
                if _may_be_other(operation, place, operation.barriers.type.count.data):
                    yield one("slot 0", _fix_slot(place, 0))
                if operation.multicast is not None:
                    yield one("alone", without("multicast"))
            case hopper.WgmmaWait() | hopper.BulkWait():
                if isinstance(operation, hopper.WgmmaWait) and operation.values:
                    yield one("unnamed", unname)
                pending = IntAttr(operation.pending.data + 1)
                yield one("pending+1", set_attribute("pending", pending))
                if isinstance(operation, hopper.BulkWait) and not operation.read.value.data:
                    yield one("read", set_attribute("read", BoolAttr.from_bool(True)))
            case hopper.SetRegisters():
                count = operation.count.data
                for other in (count + 8, count - 8):
                    if 24 <= other <= 256:
                        yield one(f"count={other}", set_attribute("count", IntAttr(other)))
            case hopper.NamedBarrier():
                threads = operation.threads.data
                for other in (threads - 32, threads + 32):
                    yield one(f"threads={other}", set_attribute("threads", IntAttr(other)))
                other = "arrive" if operation.kind.data == "sync" else "sync"
                yield one(f"kind={other}", set_attribute("kind", StringAttr(other)))
                number = operation.id.data + 1
                yield one(f"id={number}", set_attribute("id", IntAttr(number)))
            case hopper.Turn():
                other = {"take": "pass", "pass": "take", "open": "close", "close": "open"}
                other = other[operation.kind.data]
                yield one(f"kind={other}", set_attribute("kind", StringAttr(other)))
            case hopper.Shared():
                offset = operation.offset.data
                yield one("offset+16", set_attribute("offset", IntAttr(offset + 16)))
            case hopper.TensorMap():
                other = 64 if operation.swizzle.data == 128 else 128
                yield one(f"swizzle={other}", set_attribute("swizzle", IntAttr(other)))
            case hopper.Wgmma() if operation.accumulate is not None:
                yield one("always adds", _always_adds)
            case hopper.Role():
                more = IntAttr(operation.registers.data + 8)
                yield one("registers+8", set_attribute("registers", more))
            case scf.ForOp():
                for place, depth in ring_places(operation):
                    yield one(f"start {place} shifted", _shift_start(place, depth))
            case _:
                continue


def swaps(kernel: tile.Kernel) -> Iterator[Mutant]:
    """Each synchronization operation moved past its neighbour, where the IR stays well formed."""
    for index, operation in enumerate(kernel.walk()):
        following = operation.next_op
        if following is None or (
            not isinstance(operation, SYNC) and not isinstance(following, SYNC)
        ):
            continue
        if isinstance(operation, hopper.Role) or following.has_trait(IsTerminator):
            continue
        if any(value.owner is operation for value in _uses(following)):
            continue
        if _independent(operation, following) or _independent(following, operation):
            continue
        if isinstance(operation.parent, Block):
            yield _mutant(kernel, operation, index, "swap", _swap_with_next)


def _independent(computes: Operation, sync: Operation) -> bool:
    """Tell whether a computation commutes with a synchronization: it touches no memory, and no
    registers the other one waits for or fences.
    """
    if not (
        computes.has_trait(Pure)
        or isinstance(computes, (hopper.Barriers, hopper.Shared, hopper.PrefetchMap))
    ):
        return False
    registers = any(
        isinstance(value.type, TensorType) and not isinstance(value.owner, hopper.SharedLoad)
        for value in _uses(computes)
    )
    return not registers or not isinstance(sync, (hopper.WgmmaFence, hopper.WgmmaWait))


def _uses(operation: Operation) -> list[SSAValue]:
    return [value for inner in operation.walk() for value in inner.operands]


def mutants(kernel: tile.Kernel) -> Iterator[Mutant]:
    yield from drops(kernel)
    yield from changes(kernel)
    yield from swaps(kernel)
    yield from moves(kernel)
    more = (*operation_changes(kernel), *control_changes(kernel), *untold(kernel))
    for index, operation, kind, change in more:
        yield _mutant(kernel, operation, index, kind, change)


__all__ = ["Mutant", "changes", "drops", "mutants", "scf", "swaps", "sync_operations"]
