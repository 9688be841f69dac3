"""Which buffers roles hand to one another, and which barriers say so: read from the text alone.

A *ring* is a buffer that several roles access. Its slots are filled by whoever writes them and
arrives (or copies) at `filled`, and given back by whoever reads them and arrives at `freed`. Which
arrays these are is guessed from the nearest wait for the same slot: the check needs some pair for
which its rules hold, and a wrong guess can only refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
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


@dataclass(slots=True)
class Buffer:
    """A buffer of a kernel: who accesses it, and the arrays at which its slots are filled."""

    label: str
    start: int
    stop: int
    accesses: list[Access] = field(default_factory=list[Access])
    filled: list[SSAValue] = field(default_factory=list[SSAValue])
    own: bool = False
    """Whether one role fills it by copies and takes its slots, by barriers, from itself."""

    @property
    def shared(self) -> bool:
        """Whether its slots are handed over at barriers: between roles, or to who fills them."""
        return self.own or len({access.role for access in self.accesses}) > 1

    def fills(self, role: hopper.Role) -> bool:
        """Tell whether a role writes it."""
        return any(access.write and access.role is role for access in self.accesses)

    def has(self, *by: By, beside: hopper.Role | None = None) -> bool:
        """Tell whether there are accesses by some engine, in another role than one."""
        return any(access.by in by and access.role is not beside for access in self.accesses)


@dataclass
class Rings:
    """The buffers of a kernel and its pairs of arrays of barriers."""

    kernel: tile.Kernel
    buffers: dict[SSAValue, Buffer] = field(default_factory=dict[SSAValue, Buffer])
    of: dict[Operation, list[Access]] = field(default_factory=dict[Operation, list[Access]])
    partner: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def __post_init__(self) -> None:
        for shared in all_of(self.kernel, hopper.Shared):
            kind = shared.result.type
            assert isinstance(kind, BufferType)
            start = shared.offset.data
            self.buffers[shared.result] = Buffer(shared.label.data, start, start + kind.bytes)
        roles = {role: walk(role) for role in all_of(self.kernel, hopper.Role)}
        for role, operations in roles.items():
            for operation in operations:
                found = list(accesses_of(operation, role))
                if found:
                    self.of[operation] = found
                for access in found:
                    self.buffers[access.place.buffer].accesses.append(access)
        for operations in roles.values():
            self._pair(operations, (hopper.Expect, hopper.CopyAsyncArrive))
        for operations in roles.values():
            self._pair(operations, (hopper.Arrive,))
        for buffer in self.buffers.values():
            self._fill(buffer, roles)

    def _pair(self, operations: list[Operation], kinds: tuple[type[Operation], ...]) -> None:
        """Pair the barriers at which an operation arrives with those waited for before it."""
        waits: list[hopper.Wait] = []
        for operation in operations:
            if isinstance(operation, hopper.Wait):
                waits.append(operation)
            if not isinstance(operation, kinds) or operation.operands[0] in self.partner:
                continue
            array, slot = operation.operands[:2]
            for wait in reversed(waits):
                other = wait.barriers
                if wait.slot is not slot or other is array or other in self.partner:
                    continue
                if hopper.Arrive in kinds or other in self.freed:
                    self.partner[array], self.partner[other] = other, array
                    break

    @cached_property
    def freed(self) -> set[SSAValue]:
        """The arrays at which threads arrive and nobody expects bytes."""
        expected = {op.barriers for op in all_of(self.kernel, hopper.Expect)}
        return {op.barriers for op in all_of(self.kernel, hopper.Arrive)} - expected

    def _fill(self, buffer: Buffer, roles: dict[hopper.Role, list[Operation]]) -> None:
        for access in buffer.accesses:
            if buffer.shared:
                break
            operations = roles[access.role]
            if access.by == "cp.async":
                array = self._arrives(access.operation, access.place.index, operations)
                buffer.own = _has(hopper.Wait, array, operations)
            elif isinstance(access.operation, hopper.TmaLoad):
                array = access.operation.barriers
                buffer.own = _has(hopper.Wait, array, operations) and _has(
                    hopper.Arrive, self.partner.get(array), operations
                )
        if not buffer.shared:
            return
        for access in buffer.accesses:
            if not access.write:
                continue
            operation = access.operation
            if isinstance(operation, hopper.TmaLoad):
                filled: SSAValue | None = operation.barriers
            else:
                filled = self._arrives(operation, access.place.index, roles[access.role])
            if filled is not None and filled not in buffer.filled:
                buffer.filled.append(filled)

    @staticmethod
    def _arrives(store: Operation, slot: SSAValue, operations: list[Operation]) -> SSAValue | None:
        """Return the barriers at which a role next arrives for the slot that it has written."""
        place = operations.index(store)
        for operation in (*operations[place:], *operations[:place]):
            if not isinstance(operation, hopper.Arrive | hopper.CopyAsyncArrive):
                continue
            if operation.slot is slot:
                return operation.barriers
        return None

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
        rings = [value for value, buffer in self.buffers.items() if filled & {*buffer.filled}]
        return list(dict.fromkeys(each for ring in rings for each in self.overlapping(ring)))


def _has(
    kind: type[hopper.Wait] | type[hopper.Arrive],
    array: SSAValue | None,
    operations: list[Operation],
) -> bool:
    """Tell whether operations wait, or arrive, at an array of barriers."""
    return any(isinstance(each, kind) and each.barriers is array for each in operations)


__all__ = ["Access", "Buffer", "By", "Rings", "accesses_of", "is_alone", "is_repeated", "warps_of"]
