"""Mutants of hopper kernels: every synchronization operation dropped, moved or changed.

`mutants(kernel)` yields each mutant as a named function that breaks a fresh clone. A mutant is
`harmless` where it is provably the same program (the reason is given); all others must be caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import BoolAttr, IntAttr, StringAttr, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import IsTerminator, Pure

from tawa.ir import hopper, tile
from tawa.ir.types import i32

SYNC = (
    hopper.InitBarriers,
    hopper.FenceBarrierInit,
    hopper.BlockSync,
    hopper.ClusterSync,
    hopper.SetRegisters,
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.ProxyFence,
    hopper.NamedBarrier,
    hopper.Turn,
    hopper.BulkCommit,
    hopper.BulkWait,
    hopper.CopyAsyncCommit,
    hopper.CopyAsyncWait,
    hopper.WgmmaFence,
    hopper.WgmmaCommit,
    hopper.WgmmaWait,
)
FENCES = (hopper.ProxyFence, hopper.WgmmaFence)


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
        case hopper.FenceBarrierInit() if kind == "swap" and _thread_0_loads(kernel):
            return "the thread that fences is the only one that starts copies"
        case hopper.FenceBarrierInit() if _no_copy_or_block_waits(kernel):
            return "no copy and no other block uses barriers"
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
        case _ if kind == "swap" and isinstance(following, hopper.Turn):
            return "turns order no accesses"
        case hopper.PrefetchMap() if kind == "swap":
            return "a hint orders nothing"
        case hopper.Turn() if kind == "swap":
            return "turns order no accesses"
        case hopper.BulkWait() | hopper.NamedBarrier() if not _same_buffers(operation):
            if kind in ("drop", "pending+1", "swap"):
                return "no memory is used both before and after it"
    return ""


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
    if kind == "swap":
        return True
    others = [op for op in kernel.walk() if isinstance(op, hopper.SetRegisters)]
    if any(op.direction.data == "inc" for op in others):
        return True
    launched = kernel.launch.data["registers"].data
    count = int(kind.removeprefix("count=")) if kind.startswith("count=") else launched
    return not changed.count.data <= count <= launched


def _commits_again(operation: Operation | None, kind: str) -> bool:
    """Tell whether another commit of the same block follows with no wait in between."""
    if kind != "drop" or not isinstance(operation, hopper.BulkCommit):
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


def drops(kernel: tile.Kernel) -> Iterator[Mutant]:
    for index, operation in enumerate(kernel.walk()):
        if isinstance(operation, SYNC):
            yield _mutant(kernel, operation, index, "drop", drop)


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
                if operation.barriers.type.count.data > 1:
                    yield one("slot 0", _fix_slot(1, 0))
            case hopper.Arrive():
                for by in ("warp", "warpgroup", "role", "all", "thread"):
                    if by != operation.by.data:
                        yield one(f"by={by}", set_attribute("by", StringAttr(by)))
                if operation.barriers.type.count.data > 1:
                    yield one("slot 0", _fix_slot(1, 0))
            case hopper.Slot():
                if operation.buffer.type.slots.data > 1:
                    yield one("slot 0", _fix_slot(1, 0))
            case hopper.TmaLoad():
                if operation.barriers.type.count.data > 1:
                    place = len(operation.operands) - 1
                    yield one("slot 0", _fix_slot(place, 0))
            case hopper.WgmmaWait() | hopper.CopyAsyncWait() | hopper.BulkWait():
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


__all__ = ["Mutant", "changes", "drops", "mutants", "scf", "swaps", "sync_operations"]
