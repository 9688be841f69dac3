"""Shared memory: where each buffer lies.

Purpose: lay the buffers out, check the total.
Before -> after: ``hopper.shared "a" {offset = 0}`` with provisional offsets -> final offsets;
barrier arrays last; the scratch buffers of one role share one place.
Requires / ensures: every buffer is declared; offsets are aligned to the layout's swizzle span.
Declines when: never; more than a block has is `OverBudget`, which lists the buffers.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr

from tawa.errors import OverBudget
from tawa.ir import hopper
from tawa.passes.lower.context import Lowering

_BARRIER_BYTES = 8
_SMALL = 1024
"""Bytes of scratch buffers that are used together, up to which they may have a place of their own.
A reduction takes a word for each warp."""
_SMALL_IN_ALL = 8192


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def place_buffers(lowering: Lowering) -> int:
    """Give every buffer and barrier array its offset; return the bytes of the block.

    Raises `OverBudget` when they exceed `target.shared_per_block`.
    """
    shared = {
        buffer for groups in lowering.scratch.values() for group in groups for buffer in group
    }
    offset = 0
    rows: list[tuple[str, int, int]] = []
    block = lowering.kernel.body.block
    buffers = [op for op in block.ops if isinstance(op, hopper.Shared) and op not in shared]
    buffers = [buffer for buffer in buffers if buffer not in lowering.over]
    # Largest alignment first: a scalar's line between two tiles would cost what aligns the second.
    for buffer in sorted(buffers, key=lambda each: -each.result.type.layout.data.alignment):
        offset = _place(buffer, offset)
        rows.append(_row(buffer))
    for role, groups in lowering.scratch.items():
        first = offset
        for group in [group for group in groups if lies_apart(lowering, group[0])]:
            offset = _place_all(group, offset)
        start = offset
        for group in [group for group in groups if not lies_apart(lowering, group[0])]:
            offset = max(offset, _place_all(group, start))
        rows.append((f"scratch of {role.label.data}", 1, offset - first))
    for buffer, below in lowering.over.items():
        assert buffer.result.type.bytes <= below.result.type.bytes, (
            "a buffer lies over a smaller one"
        )
        buffer.attributes["offset"] = below.offset
    barrier_bytes = 0
    offset = _round_up(offset, _BARRIER_BYTES)
    for barriers in (op for op in block.ops if isinstance(op, hopper.Barriers)):
        barriers.attributes["offset"] = IntAttr(offset)
        size = barriers.result.type.count.data * _BARRIER_BYTES
        offset += size
        barrier_bytes += size
    if offset > lowering.target.shared_per_block:
        _refuse(lowering, rows, barrier_bytes, offset)
    return offset


def lies_apart(lowering: Lowering, buffer: hopper.Shared) -> bool:
    """Tell whether a scratch buffer lies over no other: it is small, and its kernel has no roles
    whose rings need the memory.
    """
    if lowering.plan.specialized:
        return False
    groups = [group for groups in lowering.scratch.values() for group in groups]
    small = [group for group in groups if sum(_held(each) for each in group) <= _SMALL]
    taken = sum(each.result.type.bytes for group in small for each in group)
    return any(buffer in group for group in small) and taken <= _SMALL_IN_ALL


def _held(buffer: hopper.Shared) -> int:
    """Return the bytes of a buffer's elements: it may take more, up to a span of its swizzle."""
    return buffer.result.type.layout.data.bytes


def _place(buffer: hopper.Shared, offset: int) -> int:
    kind = buffer.result.type
    start = _round_up(offset, kind.layout.data.alignment)
    buffer.attributes["offset"] = IntAttr(start)
    return start + kind.bytes


def _place_all(group: list[hopper.Shared], offset: int) -> int:
    """Place buffers that are in use together one after the other; return the end."""
    for buffer in group:
        offset = _place(buffer, offset)
    return offset


def _row(buffer: hopper.Shared) -> tuple[str, int, int]:
    kind = buffer.result.type
    return buffer.label.data, kind.slots.data, kind.bytes


def _refuse(
    lowering: Lowering, rows: list[tuple[str, int, int]], barriers: int, total: int
) -> None:
    limit = lowering.target.shared_per_block
    listing = "".join(
        f"\n    {label}: {slots} x {size // slots:,} bytes = {size:,}"
        for label, slots, size in sorted(rows, key=lambda row: -row[2])
    )
    error = OverBudget(
        f"{lowering.kernel.sym_name.data} needs {total:,} bytes of shared memory",
        why=f"a block has {limit:,}; the buffers are{listing}\n    barriers: {barriers:,}",
        remedy="use smaller block sizes or fewer stages (num_stages, depth=), or more parts=",
    )
    error.excess = total - limit
    raise error
