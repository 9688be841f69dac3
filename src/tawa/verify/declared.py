"""Declarations of shared memory, barriers and tensor maps, against what the hardware takes, and
what lies where in shared memory (H5).

Buffers and barriers lie in bytes of their own, inside of what the launch asks for. Two buffers may
share bytes where one role alone uses them, by threads and engines that its own order separates
(`role_flow.py`): scratch memory that is used one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType, TensorMapType, ViewType, bit_width
from tawa.ir.walk import all_of
from tawa.target import Target
from tawa.verify.footprints import place_of
from tawa.verify.rings import Rings
from tawa.verify.rules import Refused, rule

COUNT_MOST = (1 << 20) - 1
"""Arrivals and bytes one phase of an mbarrier can count (PTX ISA, "mbarrier object")."""

_PLAIN_ALIGNMENT = 16
_BARRIER_BYTES = 8


def check_buffer(operation: hopper.Shared) -> None:
    """A buffer and its slots start where its swizzle does."""
    kind = operation.result.type
    assert isinstance(kind, BufferType)
    layout, offset, label = kind.layout.data, operation.offset.data, operation.label.data
    engine = any(_engines(operation.result))
    unit = layout.alignment if layout.swizzle or engine else _PLAIN_ALIGNMENT
    for what, number in (("starts at byte", offset), ("has slots of bytes", kind.slot_bytes)):
        if number % unit:
            raise Refused(
                rule("buffers in place"),
                f"buffer {label} {what} {number}; a {layout.swizzle}-byte swizzle and the engines "
                f"that read it need a multiple of {unit}",
                operation,
            )


def _engines(value: SSAValue) -> Iterator[Operation]:
    """Yield the operations by which TMA or wgmma touches a buffer."""
    for use in value.uses:
        operation = use.operation
        if isinstance(operation, hopper.TmaLoad | hopper.TmaStore | hopper.Wgmma):
            yield operation
        for result in operation.results:
            if isinstance(result.type, ViewType):
                yield from _engines(result)


def check_barriers(operation: hopper.Barriers) -> None:
    """An array of barriers counts what an mbarrier can."""
    kind = operation.result.type
    assert isinstance(kind, BarriersType)
    label = operation.label.data
    if kind.count.data < 1:
        raise Refused(rule("form"), f"{label} has no barrier", operation)
    check_count("arrivals", f"arrivals at {label}", operation.arrivals.data, operation)


def check_count(which: str, what: str, number: int, operation: Operation) -> None:
    """A phase of an mbarrier counts `number` arrivals or bytes."""
    if not 0 < number <= COUNT_MOST:
        raise Refused(
            rule(which),
            f"{number} {what} in a phase; an mbarrier counts 1 to {COUNT_MOST}",
            operation,
        )


def check_map(operation: hopper.TensorMap, target: Target) -> None:
    """A tensor map is one that TMA takes."""
    kind = operation.result.type
    assert isinstance(kind, TensorMapType)
    box, swizzle = kind.box_shape, operation.swizzle.data
    inner = box[-1] * bit_width(kind.element) // 8
    why = ""
    if len(box) > target.tma_rank:
        why = f"has {len(box)} dimensions, TMA takes {target.tma_rank}"
    elif not all(1 <= extent <= target.tma_box_extent for extent in box):
        why = f"has an extent beyond {target.tma_box_extent}"
    elif inner % target.tma_alignment:
        why = f"has rows of {inner} bytes, no multiple of {target.tma_alignment}"
    elif swizzle and inner > swizzle:
        why = f"has rows of {inner} bytes, wider than its swizzle of {swizzle}"
    elif swizzle not in (0, 32, 64, 128):
        why = f"has a swizzle of {swizzle} bytes"
    if why:
        text = "x".join(map(str, box))
        raise Refused(
            rule("maps fit their views"), f"the box {text} of a tensor map {why}", operation
        )


def check_copy(
    operation: hopper.TmaLoad | hopper.TmaStore, origin: SSAValue, view: SSAValue, shares: int
) -> None:
    """The boxes of a tensor map are those of the view, of which each box is in one of `shares`."""
    kind, placed, owner = origin.type, view.type, origin.owner
    assert isinstance(kind, TensorMapType)
    assert isinstance(placed, ViewType)
    if not isinstance(owner, hopper.TensorMap):
        raise Refused(rule("form"), f"{operation.name} has no tensor map", operation)
    layout, box, panel = placed.layout.data, kind.box_shape, placed.within.data.panel
    rows, width = prod(layout.stored_shape[:-1]), layout.stored_shape[-1]
    why = ""
    if kind.element != placed.element:
        why = "elements of another type"
    elif owner.swizzle.data != layout.swizzle:
        why = f"a swizzle of {owner.swizzle.data} bytes, the view one of {layout.swizzle}"
    elif layout.order != tuple(range(len(layout.order))):
        why = "rows that the view does not store one after the other"
    elif min(panel, width) % box[-1] or width % box[-1]:
        why = f"a box {box[-1]} wide, the view panels of {min(panel, width)}"
    elif rows != prod(box[:-1]) * shares:
        why = f"a box of {prod(box[:-1])} rows, the view {rows} in {shares} shares"
    elif not _lies_together(box, layout.shape, min(panel, width)):
        text = "x".join(map(str, box))
        why = f"boxes {text}, which do not lie together in a tile placed as {layout}"
    if why:
        raise Refused(
            rule("maps fit their views"),
            f"{operation.name} moves boxes of a tensor map that has {why}",
            operation,
        )
    check_start(operation, view)


def _lies_together(box: tuple[int, ...], shape: tuple[int, ...], width: int) -> bool:
    """Tell whether a box fills memory without gaps: where one of its extents is less than the
    tile's (or panel's), all slower ones are 1. A share of a tile is cut off its slowest extent.
    """
    padded = (*(1 for _ in range(len(box) - len(shape))), *shape[:-1], width)
    whole = True
    for part, extent in zip(reversed(box), reversed(padded)):
        if not whole and part != 1:
            return False
        whole = whole and part == extent
    return True


def check_start(operation: Operation, view: SSAValue) -> None:
    """A view that an engine takes starts where the swizzle's pattern does."""
    kind = view.type
    assert isinstance(kind, ViewType)
    first, unit = place_of(view, operation).first_byte, kind.layout.data.alignment
    if first % unit:
        raise Refused(
            rule("buffers in place"),
            f"{operation.name} takes a view that starts {first} bytes into its slot; its swizzle "
            f"repeats every {unit}",
            operation,
        )


def check_memory(kernel: tile.Kernel, rings: Rings, most: int) -> None:
    """Raise Refused where something lies over something else, or beyond the `most` bytes that the
    launch asks for.
    """
    spans: list[tuple[int, int, hopper.Shared | hopper.Barriers]] = []
    for operation in all_of(kernel, hopper.Shared, hopper.Barriers):
        kind, first = operation.result.type, operation.offset.data
        if isinstance(operation, hopper.Barriers):
            assert isinstance(kind, BarriersType)
            size = _BARRIER_BYTES * kind.count.data
            if first % _BARRIER_BYTES:
                raise Refused(
                    rule("in place"),
                    f"barriers {operation.label.data} start at byte {first}, no multiple of 8",
                    operation,
                )
        else:
            assert isinstance(kind, BufferType)
            size = kind.bytes
        spans.append((first, first + size, operation))
    for first, end, operation in spans:
        if first < 0 or end > most:
            raise Refused(
                rule("in place"),
                f"{operation.label.data} ends at byte {end}; the launch asks for {most}",
                operation,
            )
    for (first, end, one), (start, stop, other) in combinations(spans, 2):
        if first < stop and start < end and not _is_scratch(rings, one, other):
            raise Refused(
                rule("in place"),
                f"{one.label.data} and {other.label.data} share the bytes from "
                f"{max(first, start)} to {min(end, stop)}",
                other,
            )


def _is_scratch(rings: Rings, *both: hopper.Shared | hopper.Barriers) -> bool:
    """Tell whether one role alone uses two buffers, which nobody hands on."""
    roles: set[hopper.Role] = set()
    for each in both:
        ring = rings.buffers.get(each.result)
        if ring is None or ring.filled is not None:
            return False
        roles |= ring.roles
    return len(roles) <= 1
