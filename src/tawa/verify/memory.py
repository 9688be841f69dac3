"""H5: what lies where in shared memory, and that boxes of tensor maps are those of their views.

Buffers and barriers lie in bytes of their own, inside of what the launch asks for. Two buffers may
share bytes where one role alone uses them, by threads and engines that its own order separates
(`role_flow`): scratch memory that is used one after the other. A buffer, its slots and each view
that an engine takes start where the pattern of their swizzle does.
"""

from __future__ import annotations

from itertools import combinations
from math import prod

from xdsl.dialects.builtin import DictionaryAttr, IntAttr
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType, TensorMapType, ViewType
from tawa.ir.walk import all_of
from tawa.layouts.shared import SharedLayout
from tawa.verify.rings import VIEWS, Ring, is_view
from tawa.verify.rules import Refused, rule

_BARRIER_BYTES = 8
_PLAIN_ALIGNMENT = 16
_WARPGROUP = 4


def check_memory(kernel: tile.Kernel, rings: dict[SSAValue, Ring]) -> None:
    """Raise Refused where something does not lie where it must, or over something else."""
    for ring in rings.values():
        _check_buffer(ring)
    _check_spans(kernel, rings)
    for operation in all_of(kernel, hopper.TmaLoad, hopper.TmaStore, hopper.Wgmma):
        match operation:
            case hopper.TmaLoad():
                shares = 1 if operation.multicast is None else operation.multicast.data
                _check_copy(operation, operation.map, operation.view, shares)
            case hopper.TmaStore():
                groups = -(-_role(operation).warps.data // _WARPGROUP)
                shares = groups if operation.by.data == "warpgroup" else 1
                _check_copy(operation, operation.map, operation.view, shares)
            case hopper.Wgmma():
                for view in (operation.a, operation.b):
                    if is_view(view):
                        _check_start(operation, view)


def _role(operation: Operation) -> hopper.Role:
    parent = operation.parent_op()
    while not isinstance(parent, hopper.Role):
        if parent is None:
            raise Refused(rule("form"), f"{operation.name} stands outside all roles", operation)
        parent = parent.parent_op()
    return parent


# --- bytes ----------------------------------------------------------------------------------------


def _check_spans(kernel: tile.Kernel, rings: dict[SSAValue, Ring]) -> None:
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
    most = _launched(kernel)
    for first, end, operation in spans:
        if first < 0 or (most is not None and end > most):
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


def _launched(kernel: tile.Kernel) -> int | None:
    match kernel.launch:
        case DictionaryAttr(data=launch):
            match launch.get("shared"):
                case IntAttr(data=size):
                    return size
                case _:
                    return None
        case _:
            return None


def _is_scratch(rings: dict[SSAValue, Ring], *both: hopper.Shared | hopper.Barriers) -> bool:
    """Tell whether one role alone uses two buffers, which nobody hands on."""
    roles: set[hopper.Role] = set()
    for each in both:
        ring = rings.get(each.result)
        if ring is None or ring.filled is not None:
            return False
        roles |= {access.role for access in ring.accesses}
    return len(roles) <= 1


# --- starts ---------------------------------------------------------------------------------------


def _check_buffer(ring: Ring) -> None:
    kind = ring.buffer.result.type
    assert isinstance(kind, BufferType)
    layout = kind.layout.data
    engine = layout.swizzle or any(access.engine for access in ring.accesses)
    unit = layout.alignment if engine else _PLAIN_ALIGNMENT
    for what, number in (
        ("starts at byte", ring.buffer.offset.data),
        ("has slots of bytes", kind.slot_bytes),
    ):
        if number % unit:
            raise Refused(
                rule("in place"),
                f"{ring.name} {what} {number}; a swizzle of {layout.swizzle} bytes and what "
                f"accesses it need a multiple of {unit}",
                ring.buffer,
            )


def _check_start(operation: Operation, view: SSAValue) -> None:
    kind = view.type
    assert isinstance(kind, ViewType)
    first, layout = _first_byte(view), kind.layout.data
    if first % layout.alignment:
        raise Refused(
            rule("in place"),
            f"{operation.name} takes a view that starts {first} bytes into its slot; its swizzle "
            f"repeats every {layout.alignment}",
            operation,
        )


def _first_byte(view: SSAValue) -> int:
    """Return where in its slot the first element of a view lies."""
    owner = view.owner
    if not isinstance(owner, VIEWS):
        return 0
    before = _first_byte(owner.view)
    if not isinstance(owner, hopper.SliceView):
        return before
    kind = owner.view.type
    assert isinstance(kind, ViewType)
    start = tuple(each.data for each in owner.start)
    return before + _offset(kind.layout.data, kind.within.data, start)


def _offset(layout: SharedLayout, within: SharedLayout, start: tuple[int, ...]) -> int:
    """Return the bytes from the start of a view to an element of it, unswizzled: a panel has all
    the rows of the slot.
    """
    row, column = layout.stored(start)
    if not layout.swizzle:
        return (row * within.stored_shape[-1] + column) * layout.bits // 8
    panel, inside = divmod(column, layout.panel)
    return (panel * within.rows + row) * layout.swizzle + inside * layout.bits // 8


# --- tensor maps ----------------------------------------------------------------------------------


def _check_copy(
    operation: hopper.TmaLoad | hopper.TmaStore, origin: SSAValue, view: SSAValue, shares: int
) -> None:
    """Boxes of a map fill a view (each block's, or warpgroup's, share of it) without gaps."""
    kind, placed, owner = origin.type, view.type, origin.owner
    assert isinstance(kind, TensorMapType)
    assert isinstance(placed, ViewType)
    if not isinstance(owner, hopper.TensorMap):
        raise Refused(rule("form"), f"{operation.name} has no tensor map", operation)
    layout = placed.layout.data
    rows, width = prod(layout.stored_shape[:-1]), layout.stored_shape[-1]
    box = kind.box_shape
    panel = min(placed.within.data.panel, width)
    why = ""
    if kind.element != placed.element:
        why = "elements of another type"
    elif owner.swizzle.data != layout.swizzle:
        why = f"a swizzle of {owner.swizzle.data} bytes, the view one of {layout.swizzle}"
    elif layout.order != tuple(range(len(layout.order))):
        why = "rows that the view does not store one after the other"
    elif panel % box[-1] or width % box[-1]:
        why = f"a box {box[-1]} wide, the view panels of {panel}"
    elif rows % (prod(box[:-1]) * shares):
        why = f"a box of {prod(box[:-1])} rows, the view {rows} in {shares} shares"
    elif not _lies_together(box, layout.shape, panel):
        text = "x".join(map(str, box))
        why = f"boxes {text}, which do not lie together in a tile placed as {layout}"
    if why:
        raise Refused(
            rule("maps"), f"{operation.name} moves boxes of a tensor map that has {why}", operation
        )
    _check_start(operation, view)


def _lies_together(box: tuple[int, ...], shape: tuple[int, ...], width: int) -> bool:
    """Tell whether a box fills memory without gaps: where one of its extents is less than the
    tile's (or panel's), all slower ones are 1. A share of a tile is cut off its slowest extent.
    """
    padded = (*(1 for _ in range(len(box) - len(shape))), *shape[:-1], width)
    whole = True
    for part, extent in zip(reversed(box), reversed(padded)):  # of a view: unit dimensions beyond
        if not whole and part != 1:
            return False
        whole = whole and part == extent
    return True


__all__ = ["check_memory"]
