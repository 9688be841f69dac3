"""Which barriers guard which shared memory: read from the operations, never from a name.

A buffer is *handed on* where a copy engine fills it, or where one role writes what another reads.
Then it has an array of barriers that is completed when a slot is filled and, if it is filled again,
one that is completed when a slot is free. What is claimed here is checked by `refinement.py`: a
writer holds the slot it has waited for, a reader the one that it was told of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import ViewType
from tawa.ir.walk import all_of, walk
from tawa.verify.footprints import words_of
from tawa.verify.rules import Refused, rule

_Arrives = TypeVar("_Arrives", hopper.Arrive, hopper.CopyAsyncArrive)
VIEWS = (hopper.TransposeView, hopper.SliceView, hopper.ReshapeView)


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a role to a buffer through a view."""

    operation: Operation
    role: hopper.Role
    view: SSAValue
    writes: bool
    engine: bool
    """By the async proxy: TMA or wgmma."""


@dataclass(slots=True)
class Ring:
    """A buffer and what guards it. `producer` is the role that completes `filled`."""

    buffer: hopper.Shared
    accesses: list[Access] = field(default_factory=list[Access])
    filled: SSAValue | None = None
    freed: SSAValue | None = None
    producer: hopper.Role | None = None
    copied: bool = False
    """By cp.async."""

    @property
    def name(self) -> str:
        """The buffer's label."""
        return self.buffer.label.data

    def readers(self) -> list[hopper.Role]:
        """Return the roles that use what the producer puts in, each once."""
        ours = (each.role for each in self.accesses if not self.is_put(each))
        return list(dict.fromkeys(ours))

    @property
    def words_read(self) -> int:
        """A mask of the words of a slot that are read by who did not put them there."""
        found = 0
        for access in self.accesses:
            if not access.writes and not self.is_put(access):
                found |= words_of(access.view, access.operation)
        return found

    def is_put(self, access: Access) -> bool:
        """Tell whether an access fills a slot: other writes are of who has the slot."""
        if not access.writes or access.role is not self.producer:
            return False
        by_copy = isinstance(access.operation, hopper.TmaLoad | hopper.CopyAsync)
        return by_copy or not (self.copied or self.by_engine)

    @property
    def by_engine(self) -> bool:
        """Tell whether TMA fills it."""
        return any(isinstance(each.operation, hopper.TmaLoad) for each in self.accesses)


def slot_of(view: SSAValue) -> hopper.Slot:
    """Return the slot that a view is of. Raises Refused where it is of none."""
    owner = view.owner
    while isinstance(owner, VIEWS):
        owner = owner.view.owner
    if not isinstance(owner, hopper.Slot):
        raise Refused(rule("form"), "a view of shared memory is of no slot")
    return owner


def views_of(operation: Operation) -> list[tuple[SSAValue, bool, bool]]:
    """Return the views that an operation accesses, whether it writes, whether by an engine."""
    match operation:
        case hopper.TmaLoad():
            return [(operation.view, True, True)]
        case hopper.TmaStore():
            return [(operation.view, False, True)]
        case hopper.Wgmma():
            views = [each for each in (operation.a, operation.b) if is_view(each)]
            return [(view, False, True) for view in views]
        case hopper.CopyAsync() | hopper.SharedStore():
            return [(operation.view, True, False)]
        case hopper.SharedLoad() | hopper.SharedGather():
            return [(operation.view, False, False)]
        case hopper.SharedTranspose():
            return [(operation.source, False, False), (operation.view, True, False)]
        case hopper.FmaDot():
            return [(operation.a, False, False), (operation.b, False, False)]
        case _ if isinstance(operation, VIEWS):
            return []
        case _ if any(map(is_view, operation.operands)):
            raise Refused(
                rule("form"), f"{operation.name} uses shared memory in an unknown way", operation
            )
        case _:
            return []


def is_view(value: SSAValue) -> bool:
    """Tell whether a value is a view of shared memory."""
    return isinstance(value.type, ViewType)


def rings_of(kernel: tile.Kernel) -> dict[SSAValue, Ring]:
    """Return each buffer of a kernel with its accesses and what guards it.

    Raises Refused where two roles share a buffer that no barrier guards.
    """
    rings: dict[SSAValue, Ring] = {
        shared.result: Ring(shared) for shared in all_of(kernel, hopper.Shared)
    }
    waited: dict[SSAValue, set[hopper.Role]] = {}
    programs = {role: walk(role) for role in all_of(kernel, hopper.Role)}
    for role, operations in programs.items():
        for operation in operations:
            if isinstance(operation, hopper.Wait):
                waited.setdefault(operation.barriers, set()).add(role)
            for view, writes, engine in views_of(operation):
                ring = rings[slot_of(view).buffer]
                ring.accesses.append(Access(operation, role, view, writes, engine))
    for ring in rings.values():
        _find_filled(ring, programs, waited)
    filled = {ring.filled for ring in rings.values()}
    for ring in rings.values():
        if ring.filled is not None:
            _find_freed(ring, programs, filled)
    return rings


def _find_filled(
    ring: Ring,
    programs: dict[hopper.Role, list[Operation]],
    waited: dict[SSAValue, set[hopper.Role]],
) -> None:
    roles = {each.role for each in ring.accesses}
    found: dict[tuple[hopper.Role, SSAValue], None] = {}
    ring.copied = any(isinstance(each.operation, hopper.CopyAsync) for each in ring.accesses)
    for access in ring.accesses:
        match access.operation:
            case hopper.TmaLoad(barriers=barriers):
                found[access.role, barriers] = None
            case hopper.CopyAsync() as copy:
                arrives = _following(programs[access.role], copy, hopper.CopyAsyncArrive)
                found |= {(access.role, each.barriers): None for each in arrives[:1]}
            case _:
                continue
    if not found and len(roles) > 1:
        for access in ring.accesses:
            if access.writes:
                told = [
                    arrive.barriers
                    for arrive in _following(programs[access.role], access.operation, hopper.Arrive)
                    if waited.get(arrive.barriers, set()) & (roles - {access.role})
                ]
                found |= {(access.role, barriers): None for barriers in told[:1]}
    if len(found) > 1 or (len(roles) > 1 and not found):
        raise Refused(
            rule("slots"),
            f"{len(roles)} roles use {ring.name}, and {len(found) or 'no'} barriers say when it is "
            "filled",
            ring.buffer,
        )
    for ring.producer, ring.filled in found:
        pass


def _following(
    program: Sequence[Operation], operation: Operation, kind: type[_Arrives]
) -> list[_Arrives]:
    place = program.index(operation)
    return [each for each in program[place:] if isinstance(each, kind)]


def _find_freed(
    ring: Ring, programs: dict[hopper.Role, list[Operation]], filled: set[SSAValue | None]
) -> None:
    """The producer waits for it before it fills a slot; readers arrive there."""
    assert ring.producer is not None
    program = programs[ring.producer]
    readers = set(ring.readers())
    arrived = {
        each.barriers
        for role in readers
        for each in programs[role]
        if isinstance(each, hopper.Arrive)
    }
    waits = [
        each
        for each in program
        if isinstance(each, hopper.Wait)
        and each.barriers not in filled
        and each.barriers in arrived
    ]
    found: dict[SSAValue, None] = {}
    for access in ring.accesses:
        if ring.is_put(access) and waits:
            before = set(program[: program.index(access.operation)])
            index = slot_of(access.view).index
            # What a role puts and reads itself may need no barrier: another ring's is not its own.
            able = waits if readers - {ring.producer} else [w for w in waits if w.slot == index]
            nearest = [each for each in able if each in before]
            found |= dict.fromkeys(each.barriers for each in (nearest[-1:] or able[:1]))
    if len(found) > 1 or (not found and readers - {ring.producer}):
        raise Refused(
            rule("slots"),
            f"{len(found) or 'no'} barriers say when {ring.name} is free to be filled again",
            ring.buffer,
        )
    ring.freed = next(iter(found), None)


__all__ = ["Access", "Ring", "is_view", "rings_of", "slot_of", "views_of"]
