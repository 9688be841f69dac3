"""More mutants of operations that synchronize: done twice, at the next slot, by other threads, for
fewer blocks, in another place; puts in another order; kernels launched early that do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects.builtin import DictionaryAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import IsTerminator, Pure

from tawa.ir import hopper, tile
from tawa.ir.types import i32

Change = Callable[[Operation], None]
Found = Iterator[tuple[str, Change]]

_PUTS = (hopper.Wait, hopper.Expect, hopper.TmaLoad)
_WRITES = (hopper.TmaLoad, hopper.SharedStore, hopper.CopyAsync)
"""Which of the tiles it holds a role reads is arithmetic; where it writes is not."""
_BULK = (hopper.TmaStore, hopper.BulkCommit, hopper.BulkWait)
_AGAIN = (
    hopper.Arrive,
    hopper.Expect,
    hopper.CopyAsyncArrive,
    hopper.TmaLoad,
    hopper.Turn,
)


def operation_changes(kernel: tile.Kernel) -> Iterator[tuple[int, Operation, str, Change]]:
    """Yield where an operation stands in the walk, itself, and each change of it, by kind."""
    cluster = kernel.launch.data["cluster"].data if kernel.launch is not None else 1
    for index, operation in enumerate(kernel.walk()):
        for kind, change in (*_changes(operation, cluster), *_ring(operation), *_places(operation)):
            yield index, operation, kind, change


def _changes(operation: Operation, cluster: int) -> Found:
    match operation:
        case tile.Kernel() if operation.launch is not None and not _early(operation):
            yield "launched early", _launch_early
        case hopper.Barriers():
            for more in (4, 8):
                offset = IntAttr(operation.offset.data + more)
                yield f"offset+{more}", _set("offset", offset)
        case hopper.TmaLoad():
            yield "drop", Rewriter.erase_op
            yield from _multicasts(operation, cluster)
        case hopper.Arrive() if operation.cluster is not None and operation.cluster.data > 2:
            yield "fewer blocks", _set("cluster", IntAttr(operation.cluster.data // 2))
        case hopper.SetRegisters():
            other = {"inc": "dec", "dec": "inc"}[operation.direction.data]
            yield f"direction={other}", _set("direction", StringAttr(other))
        case hopper.NamedBarrier() if operation.scope.data == "roles":
            yield "twice", _twice
        case hopper.NamedBarrier() if operation.scope.data == "role":
            if operation.threads.data > 128:
                yield "scope=warpgroup", _of_warpgroups
        case hopper.Turn():
            yield "id+1", _set("id", IntAttr(operation.id.data + 1))
            yield "groups+1", _set("groups", IntAttr(operation.groups.data + 1))
        case hopper.ClusterSync():
            yield "own block", lambda sync: Rewriter.replace_op(sync, hopper.BlockSync())
            if operation.relaxed is None:
                yield "relaxed", _set("relaxed", UnitAttr())
            else:
                yield "not relaxed", lambda sync: sync.attributes.__delitem__("relaxed")
        case hopper.Role():
            yield "first_warp+4", _set("first_warp", IntAttr(operation.first_warp.data + 4))
        case hopper.OneThread():
            yield "not elected", _inline
        case hopper.SharedStore() if operation.owners is not None:
            yield "by all", lambda store: store.attributes.__delitem__("owners")
        case _:
            pass
    if isinstance(operation, _BULK):
        other = "warpgroup" if operation.by.data == "role" else "role"
        yield f"by={other}", _set("by", StringAttr(other))
    if isinstance(operation, _AGAIN):
        yield "twice", _twice


def _multicasts(load: hopper.TmaLoad, cluster: int) -> Found:
    if load.multicast is None and cluster > 1:
        yield "to all blocks", _set("multicast", IntAttr(cluster))
    if load.multicast is not None and load.multicast.data > 2:
        yield "fewer blocks", _set("multicast", IntAttr(load.multicast.data // 2))


def _ring(operation: Operation) -> Found:
    """Yield the changes of the slot at which an operation meets others, or accesses memory."""
    match operation:
        case hopper.Expect(barriers=barriers) if (count := barriers.type.count.data) > 1:
            yield "slot 0", _first_slot
            yield "next slot", _next_slot(1, count)
        case hopper.Wait() | hopper.Arrive() | hopper.CopyAsyncArrive():
            if (count := operation.barriers.type.count.data) > 1:
                yield "next slot", _next_slot(1, count)
        case hopper.TmaLoad(barriers=barriers) if (count := barriers.type.count.data) > 1:
            yield "next slot", _next_slot(len(operation.operands) - 1, count)
        case hopper.Slot(buffer=buffer) if (count := buffer.type.slots.data) > 1:
            if any(isinstance(use.operation, _WRITES) for use in operation.result.uses):
                yield "next slot", _next_slot(1, count)
        case _:
            return


def _places(operation: Operation) -> Found:
    """Yield the moves within a block: as early as operands allow, as late as can be, and a put
    after the one that follows.
    """
    block = operation.parent
    if not isinstance(block, Block):
        return
    match operation:
        case hopper.GridWait() if not _ends(block, operation):
            yield "to end", _to_end
        case hopper.Arrive() | hopper.Expect() | hopper.CopyAsyncArrive():
            if _last_operand(operation) not in (None, operation.prev_op):
                yield "early", _early_in_block
            if not _ends(block, operation):
                yield "to end", _to_end
        case hopper.Wait() if (first := _put(operation)) and _put(first[-1].next_op):
            yield "put later", _put_later
        case _:
            return


# --- what is done ---------------------------------------------------------------------------------


def _set(name: str, value: Attribute) -> Change:
    return lambda operation: operation.attributes.__setitem__(name, value)


def _twice(operation: Operation) -> None:
    Rewriter.insert_op(operation.clone(), InsertPoint.after(operation))


def _early(kernel: tile.Kernel) -> bool:
    assert kernel.launch is not None
    return "early" in kernel.launch.data


def _launch_early(kernel: Operation) -> None:
    assert isinstance(kernel, tile.Kernel)
    assert kernel.launch is not None
    kernel.launch = DictionaryAttr({**kernel.launch.data, "early": IntAttr(1)})


def _of_warpgroups(barrier: Operation) -> None:
    barrier.attributes["scope"] = StringAttr("warpgroup")
    barrier.attributes["threads"] = IntAttr(128)


def _inline(only: Operation) -> None:
    assert isinstance(only, hopper.OneThread)
    for inner in list(only.body.block.ops):
        inner.detach()
        Rewriter.insert_op(inner, InsertPoint.before(only))
    Rewriter.erase_op(only)


def _computed(before: Operation, name: str, a: SSAValue, b: SSAValue) -> SSAValue:
    made = tile.Elementwise(
        operands=[[a, b]], attributes={"function": StringAttr(name)}, result_types=[i32]
    )
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def _constant(before: Operation, number: int) -> SSAValue:
    made = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[i32])
    Rewriter.insert_op(made, InsertPoint.before(before))
    return made.result


def _first_slot(operation: Operation) -> None:
    operation.operands[1] = _constant(operation, 0)


def _next_slot(place: int, count: int) -> Change:
    def change(operation: Operation) -> None:
        more = _computed(operation, "add", operation.operands[place], _constant(operation, 1))
        operation.operands[place] = _computed(operation, "irem", more, _constant(operation, count))

    return change


# --- where it is done -----------------------------------------------------------------------------


def _end(block: Block) -> Operation | None:
    """Return the terminator of a block, None where it has none."""
    last = block.last_op
    return last if last is not None and last.has_trait(IsTerminator) else None


def _ends(block: Block, operation: Operation) -> bool:
    following = operation.next_op
    return following is None or following is _end(block)


def _to_end(operation: Operation) -> None:
    block = operation.parent
    assert block is not None
    operation.detach()
    if (end := _end(block)) is not None:
        block.insert_op_before(operation, end)
    else:
        block.add_op(operation)


def _last_operand(operation: Operation) -> Operation | None:
    """Return the last operation of the block that computes an operand, None where none does."""
    owners = {value.owner for value in operation.operands}
    before = operation.prev_op
    while before is not None and before not in owners:
        before = before.prev_op
    return before


def _early_in_block(operation: Operation) -> None:
    after = _last_operand(operation)
    assert after is not None
    operation.detach()
    Rewriter.insert_op(operation, InsertPoint.after(after))


def _put(operation: Operation | None) -> list[Operation]:
    """Return what a put that begins with a wait does: up to the last of its copies, and what is
    computed before the next put; nothing where it is no put.
    """
    found: list[Operation] = []
    while operation is not None and not operation.has_trait(IsTerminator):
        if not (isinstance(operation, _PUTS) or operation.has_trait(Pure)):
            break
        if isinstance(operation, hopper.Wait) and found:
            break
        found.append(operation)
        operation = operation.next_op
    copies = any(isinstance(item, hopper.TmaLoad) for item in found)
    return found if copies and isinstance(found[0], hopper.Wait) else []


def _put_later(operation: Operation) -> None:
    first = _put(operation)
    following = _put(first[-1].next_op)
    after = following[-1]
    for item in first:
        if isinstance(item, _PUTS):
            item.detach()
            Rewriter.insert_op(item, InsertPoint.after(after))
            after = item
