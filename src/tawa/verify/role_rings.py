"""Which buffers roles hand to one another, and which barriers say so: read from the text alone.

A *ring* is a buffer that several roles access, or that a role fills and takes itself. Which arrays
of barriers hand its slots over is found by `rings.py`: the check needs some pair for which its
rules hold, and a wrong guess can only refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.control import passed_on
from tawa.ir.types import BufferType, ViewType
from tawa.ir.walk import all_of, walk
from tawa.verify.footprints import (
    WARPGROUP,
    Place,
    Shares,
    place_of,
    register_layout,
    rows_of,
    rows_of_product,
    shares_of,
    shares_of_rows,
    transposing_layouts,
    view_shape,
)
from tawa.verify.held import constant
from tawa.verify.rings import Ring

By: TypeAlias = Literal["threads", "cp.async", "tma load", "tma store", "wgmma"]
"""Who accesses: threads, or an engine on their behalf."""


@dataclass(frozen=True, slots=True)
class Access:
    """What an operation does to a view: `shares` says which words for each warp of the role."""

    operation: Operation
    view: SSAValue
    place: Place
    by: By
    write: bool
    shares: Shares
    role: hopper.Role

    @property
    def asynchronous(self) -> bool:
        """Whether the async proxy makes it."""
        return self.by not in ("threads", "cp.async")


def warps_of(by: str, role: hopper.Role) -> range:
    """Return the warps of a role one of whose threads does what is done `by` some."""
    warps = role.warps.data
    if by in ("thread", "role"):
        return range(1)
    return range(0, warps, WARPGROUP if by == "warpgroup" else 1)


def accesses_of(operation: Operation, role: hopper.Role) -> Iterator[Access]:
    """Yield what an operation reads and writes in shared memory."""
    warps = role.warps.data
    groups = -(-warps // WARPGROUP)

    def access(view: SSAValue, by: By, write: bool, shares: Shares | None, like: SSAValue | None):
        place = place_of(view, operation)
        if shares is None:
            layout = register_layout(like) if like is not None else None
            alone = is_alone(operation)
            shares = shares_of(place, layout, 1 if alone else warps)
        return Access(operation, view, place, by, write, shares, role)

    match operation:
        case hopper.SharedLoad():
            yield access(operation.view, "threads", False, None, operation.result)
        case hopper.SharedGather():
            yield access(operation.view, "threads", False, None, None)
        case hopper.SharedStore():
            yield access(operation.view, "threads", True, None, operation.value)
        case hopper.FmaDot():
            for view in (operation.a, operation.b):
                yield access(view, "threads", False, None, None)
        case hopper.SharedTranspose():
            source = place_of(operation.source, operation)
            target = place_of(operation.view, operation)
            have, made = transposing_layouts(view_shape(operation.source), warps)
            yield access(operation.source, "threads", False, shares_of(source, have, warps), None)
            yield access(operation.view, "threads", True, shares_of(target, made, warps), None)
        case hopper.CopyAsync():
            yield access(operation.view, "cp.async", True, None, operation.pointer)
        case hopper.TmaLoad():
            place = place_of(operation.view, operation)
            yield access(operation.view, "tma load", True, shares_of(place, None, 1), None)
        case hopper.TmaStore():
            place, rows = place_of(operation.view, operation), rows_of(operation.view)
            leaders = warps_of(operation.by.data, role)
            share = rows // len(leaders)
            for number, leader in enumerate(leaders):
                parts: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
                parts[leader // WARPGROUP] = [(number * share, number * share + share)]
                masks = shares_of_rows(place, parts, warps)
                own = tuple(mask if warp == leader else 0 for warp, mask in enumerate(masks))
                yield access(operation.view, "tma store", False, own, None)
        case hopper.Wgmma():
            place = place_of(operation.b, operation)
            yield access(operation.b, "wgmma", False, shares_of(place, None, warps), None)
            if isinstance(operation.a.type, ViewType):
                place = place_of(operation.a, operation)
                parts = rows_of_product(operation, groups)
                masks = shares_of_rows(place, parts, warps)
                yield access(operation.a, "wgmma", False, masks, None)
        case _:
            return


def is_alone(operation: Operation) -> bool:
    """Tell whether one thread of its role executes an operation."""
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, hopper.OneThread | hopper.Role):
        parent = parent.parent_op()
    return isinstance(parent, hopper.OneThread)


def is_repeated(operation: Operation) -> bool:
    """Tell whether an operation stands in a loop."""
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, scf.ForOp | scf.WhileOp):
        parent = parent.parent_op()
    return parent is not None


def wraps_of(select: tile.Elementwise) -> int | None:
    """Return after how many slots a select takes 0 in place of the next number, None for others."""
    if select.function.data != "select":
        return None
    condition, start, following = select.inputs
    match condition.owner:
        case tile.Elementwise(function=StringAttr(data="eq"), inputs=[at, end]):
            return constant(end) if at is following and constant(start) == 0 else None
        case _:
            return None


def is_slot(value: SSAValue, slots: int, taken: set[SSAValue]) -> bool:
    """Tell whether a scalar is one of 0 .. slots - 1 wherever those of `taken` are: what loops
    carry is by induction, so a scalar that is asked is taken for one meanwhile.
    """
    number = constant(value)
    if number is not None or value in taken:
        return number is None or 0 <= number < slots
    taken.add(value)
    match value.owner:
        case tile.Elementwise(function=StringAttr(data="select")) as made:
            if wraps_of(made) == slots:
                return _is_more(made.inputs[2], 1, slots, taken)
            return all(is_slot(each, slots, taken) for each in made.inputs[1:])
        case tile.Elementwise(function=StringAttr(data="irem"), inputs=[x, end]):
            return constant(end) == slots and _is_more(x, None, slots, taken)
        case _:
            origins = passed_on(value)
            return bool(origins) and all(is_slot(each, slots, taken) for each in origins)


def _is_more(value: SSAValue, more: int | None, slots: int, taken: set[SSAValue]) -> bool:
    """Tell whether a scalar is a slot and `more`, or (None) a number in the text that is not
    negative."""
    match value.owner:
        case tile.Elementwise(function=StringAttr(data="add"), inputs=[slot, step]):
            number = constant(step)
            fits = number is not None and (number >= 0 if more is None else number == more)
            return fits and is_slot(slot, slots, taken)
        case _:
            return False


@dataclass(slots=True)
class Buffer:
    """A buffer of a kernel: who accesses it, and the array at which its slots are filled."""

    label: str
    start: int
    stop: int
    accesses: list[Access] = field(default_factory=list[Access])
    filled: SSAValue | None = None
    producer: hopper.Role | None = None
    own: bool = False
    """Whether one role fills it by copies and takes its slots, by barriers, from itself."""

    @property
    def shared(self) -> bool:
        """Whether its slots are handed over at barriers: between roles, or to who fills them."""
        return self.own or len({access.role for access in self.accesses}) > 1

    def has(self, *by: By, beside: hopper.Role | None = None) -> bool:
        """Tell whether there are accesses by some engine, in another role than one."""
        return any(access.by in by and access.role is not beside for access in self.accesses)


@dataclass
class Rings:
    """The buffers of a kernel and its pairs of arrays of barriers."""

    kernel: tile.Kernel
    found: dict[SSAValue, Ring]
    buffers: dict[SSAValue, Buffer] = field(default_factory=dict[SSAValue, Buffer])
    of: dict[Operation, list[Access]] = field(default_factory=dict[Operation, list[Access]])
    partner: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def __post_init__(self) -> None:
        for shared in all_of(self.kernel, hopper.Shared):
            kind = shared.result.type
            assert isinstance(kind, BufferType)
            start = shared.offset.data
            self.buffers[shared.result] = Buffer(shared.label.data, start, start + kind.bytes)
        for role in all_of(self.kernel, hopper.Role):
            for operation in walk(role):
                found = list(accesses_of(operation, role))
                if found:
                    self.of[operation] = found
                for access in found:
                    self.buffers[access.place.buffer].accesses.append(access)
        for value, ring in self.found.items():
            if ring.filled is None:
                continue
            buffer = self.buffers[value]
            buffer.filled, buffer.producer = ring.filled, ring.producer
            buffer.own = len({access.role for access in buffer.accesses}) == 1 and (
                ring.freed is not None or ring.copied
            )
            if ring.freed is not None:
                self.partner[ring.filled], self.partner[ring.freed] = ring.freed, ring.filled

    def overlapping(self, buffer: SSAValue) -> list[SSAValue]:
        """Return a buffer and those that share bytes with it."""
        mine = self.buffers[buffer]
        return [
            value
            for value, other in self.buffers.items()
            if value is buffer or (mine.start < other.stop and other.start < mine.stop)
        ]

    def released_at(self, array: SSAValue) -> list[SSAValue]:
        """Return the rings whose slots are handed over at an array, and what lies in them."""
        filled = {array, self.partner.get(array, array)}
        rings = [value for value, buffer in self.buffers.items() if buffer.filled in filled]
        return list(dict.fromkeys(each for ring in rings for each in self.overlapping(ring)))


__all__ = [
    "Access",
    "Buffer",
    "By",
    "Rings",
    "accesses_of",
    "is_alone",
    "is_repeated",
    "is_slot",
    "warps_of",
    "wraps_of",
]
