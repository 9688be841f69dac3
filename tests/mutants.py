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

    @property
    def name(self) -> str:
        return f"{self.kind} {self.operation.name.removeprefix('hopper.')} #{self.index}"


def sync_operations(kernel: tile.Kernel) -> list[Operation]:
    return [op for op in kernel.walk() if isinstance(op, SYNC)]


def _clone(kernel: tile.Kernel, index: int) -> tuple[tile.Kernel, Operation]:
    copy = kernel.clone()
    return copy, list(copy.walk())[index]


def _mutant(
    kernel: tile.Kernel, operation: Operation, index: int, kind: str, change: Callable[[Operation], None]
) -> Mutant:
    def make() -> tile.Kernel:
        copy, found = _clone(kernel, index)
        change(found)
        return copy

    return Mutant(kind, index, operation, make)


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
        if following is None or not isinstance(operation, SYNC) and not isinstance(following, SYNC):
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
    if not (computes.has_trait(Pure) or isinstance(computes, (hopper.Barriers, hopper.Shared))):
        return False
    registers = any(isinstance(value.type, TensorType) for value in _uses(computes))
    return not registers or not isinstance(sync, (hopper.WgmmaFence, hopper.WgmmaWait))


def _uses(operation: Operation) -> list[SSAValue]:
    return [value for inner in operation.walk() for value in inner.operands]


def mutants(kernel: tile.Kernel) -> Iterator[Mutant]:
    yield from drops(kernel)
    yield from changes(kernel)
    yield from swaps(kernel)


__all__ = ["Mutant", "changes", "drops", "mutants", "scf", "swaps", "sync_operations"]
