"""Static rules: what must hold of a kernel's declarations and types before anything runs.

Alignment of buffers against the swizzle, tensor maps against the views they fill, counts against
the widths of the hardware's counters, the block against the multiprocessor.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.types import BarriersType, BufferType, TensorMapType, ViewType, bit_width
from tawa.layouts.shared import SharedLayout
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.regions import Buffer, footprint
from tawa.simulator.proof.rules import Violation
from tawa.target import Target

COUNT_MOST = (1 << 20) - 1
"""Arrivals and bytes one phase of an mbarrier can count (PTX ISA, "mbarrier object")."""

Buffers: TypeAlias = dict[SSAValue, Buffer]

_THREADS_MOST = 1024
_CLUSTER_MOST = 16
_PLAIN_ALIGNMENT = 16
_WARPGROUP = 4
_CHECKED = (
    hopper.Shared,
    hopper.Barriers,
    hopper.TensorMap,
    hopper.Expect,
    hopper.TmaLoad,
    hopper.TmaStore,
    hopper.Wgmma,
)


def check_form(
    census: Census,
    launch: dict[str, int],
    threads: int,
    registers: int,
    buffers: Buffers,
    target: Target,
) -> None:
    """Raise Violation where a declaration breaks a rule of the hardware."""
    _check_launch(launch, threads, registers, target)
    for operation in census.of(*_CHECKED):
        match operation:
            case hopper.Shared():
                _check_buffer(operation)
            case hopper.Barriers():
                _check_barriers(operation)
            case hopper.TensorMap():
                _check_map(operation, target)
            case hopper.Expect():
                if not 0 < operation.bytes.data <= COUNT_MOST:
                    sentence = (
                        f"a phase expects {operation.bytes.data} bytes; an mbarrier counts 1 to "
                        f"{COUNT_MOST}."
                    )
                    raise Violation("expected bytes", sentence, operation)
            case hopper.TmaLoad():
                parts = operation.multicast.data if operation.multicast is not None else 1
                _check_copy(operation, operation.map, operation.view, parts, buffers)
            case hopper.TmaStore():
                role = role_of(operation)
                groups = -(-role.warps.data // _WARPGROUP)
                shares = groups if operation.by.data == "warpgroup" else 1
                _check_copy(operation, operation.map, operation.view, shares, buffers)
            case hopper.Wgmma():
                for view in (operation.a, operation.b):
                    if isinstance(view.type, ViewType):
                        _check_operand(operation, view, buffers)


def role_of(operation: Operation) -> hopper.Role:
    """Return the role an operation stands in. Raises Violation where it stands in none."""
    parent = operation.parent_op()
    while not isinstance(parent, hopper.Role):
        if parent is None:
            raise Violation("form", f"{operation.name} stands outside all roles.", operation)
        parent = parent.parent_op()
    return parent


def _check_launch(launch: dict[str, int], threads: int, registers: int, target: Target) -> None:
    if not 0 < threads <= _THREADS_MOST or threads % 32:
        raise Violation("form", f"a block of {threads} threads.")
    if not 1 <= launch.get("cluster", 1) <= _CLUSTER_MOST:
        raise Violation("form", f"a cluster of {launch['cluster']} blocks.")
    if registers * threads > target.registers_per_block:
        sentence = (
            f"{threads} threads of {registers} registers: {registers * threads} in all, a block "
            f"has {target.registers_per_block}."
        )
        raise Violation("register budget", sentence)


def _check_buffer(operation: hopper.Shared) -> None:
    kind = operation.result.type
    assert isinstance(kind, BufferType)
    layout, offset = kind.layout.data, operation.offset.data
    moved = _uses_engine(operation.result)
    unit = layout.alignment if layout.swizzle or moved else _PLAIN_ALIGNMENT
    for what, number in (("starts at byte", offset), ("has slots of bytes", kind.slot_bytes)):
        if number % unit:
            sentence = (
                f"buffer {operation.label.data} {what} {number}; a {layout.swizzle}-byte swizzle "
                f"and the engines that read it need a multiple of {unit}."
            )
            raise Violation("buffers in place", sentence, operation)


def _uses_engine(buffer: SSAValue) -> bool:
    """Tell whether TMA or wgmma touches a buffer."""
    work = [use.operation for use in buffer.uses]
    while work:
        operation = work.pop()
        if isinstance(operation, (hopper.TmaLoad, hopper.TmaStore, hopper.Wgmma)):
            return True
        if isinstance(operation, (hopper.Slot, *_VIEWS)):
            work += [use.operation for use in operation.result.uses]
    return False


_VIEWS = (hopper.TransposeView, hopper.SliceView, hopper.ReshapeView)


def _check_barriers(operation: hopper.Barriers) -> None:
    kind = operation.result.type
    assert isinstance(kind, BarriersType)
    label, count = operation.label.data, operation.arrivals.data
    if not 0 < count <= COUNT_MOST:
        sentence = f"{label} counts {count} arrivals; an mbarrier counts 1 to {COUNT_MOST}."
        raise Violation("arrival count", sentence, operation)
    if kind.count.data < 1:
        raise Violation("form", f"{label} has no barrier.", operation)


def _check_map(operation: hopper.TensorMap, target: Target) -> None:
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
        raise Violation("maps fit their views", f"the box {text} of a tensor map {why}.", operation)


def _check_copy(
    operation: hopper.TmaLoad | hopper.TmaStore,
    origin: SSAValue,
    view: SSAValue,
    shares: int,
    buffers: Buffers,
) -> None:
    kind, placed = origin.type, view.type
    assert isinstance(kind, TensorMapType)
    assert isinstance(placed, ViewType)
    layout, owner = placed.layout.data, origin.owner
    if not isinstance(owner, hopper.TensorMap):
        raise Violation("form", f"{operation.name} has no tensor map.", operation)
    rows, width = prod(layout.stored_shape[:-1]), layout.stored_shape[-1]
    box = kind.box_shape
    panel = placed.within.data.panel
    why = ""
    if kind.element != placed.element:
        why = "elements of another type"
    elif owner.swizzle.data != layout.swizzle:
        why = f"a swizzle of {owner.swizzle.data} bytes, the view one of {layout.swizzle}"
    elif layout.order != tuple(range(len(layout.order))):
        why = "rows that the view does not store one after the other"
    elif min(panel, width) % box[-1] or width % box[-1]:
        why = f"a box {box[-1]} wide, the view panels of {min(panel, width)}"
    elif rows % (prod(box[:-1]) * shares):
        why = f"a box of {prod(box[:-1])} rows, the view {rows} in {shares} shares"
    elif not _lies_together(box, layout.shape, min(panel, width)):
        text = "x".join(map(str, box))
        why = f"boxes {text}, which do not lie together in a tile placed as {layout}"
    if why:
        sentence = f"{operation.name} moves boxes of a tensor map that has {why}."
        raise Violation("maps fit their views", sentence, operation)
    _check_start(operation, view, layout, buffers)


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


def _check_operand(operation: hopper.Wgmma, view: SSAValue, buffers: Buffers) -> None:
    kind = view.type
    assert isinstance(kind, ViewType)
    _check_start(operation, view, kind.layout.data, buffers)


def _check_start(
    operation: Operation, view: SSAValue, layout: SharedLayout, buffers: Buffers
) -> None:
    """A view that an engine takes starts where the swizzle's pattern does."""
    first = footprint(view, buffers).first_byte
    if first % layout.alignment:
        sentence = (
            f"{operation.name} takes a view that starts {first} bytes into its slot; its swizzle "
            f"repeats every {layout.alignment}."
        )
        raise Violation("buffers in place", sentence, operation)
