"""Which shared memory an operation accesses, and which barriers guard it: read from the operations,
never from a name.

A buffer is *handed on* where a copy engine fills it, or where one role writes what another reads.
Then it has an array of barriers that is completed when a slot is filled and, if it is filled again,
one that is completed when a slot is free. A wrong guess can only refuse: `role_memory.py` needs
some pair for which a writer holds the slot it has waited for, a reader the one it was told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType, ViewType
from tawa.ir.walk import all_of, passed_on, walk
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
from tawa.verify.forwarded import around, overlap
from tawa.verify.rules import Refused, rule

By: TypeAlias = Literal["threads", "cp.async", "tma load", "tma store", "wgmma"]
"""Who accesses: threads, or an engine on their behalf."""
VIEWS = (hopper.TransposeView, hopper.SliceView, hopper.ReshapeView)
_NUMBERS = 1 << 31
"""How many numbers of an i32 scalar, as slots are, are not negative."""
_Arrives = TypeVar("_Arrives", hopper.Arrive, hopper.CopyAsyncArrive)


@dataclass(frozen=True, eq=False)
class Access:
    """What an operation does to a view: `shares` says which words for each warp of the role.
    `alone`: one thread does it, of warp `leader`, which is 0 where all threads do."""

    operation: Operation
    view: SSAValue
    place: Place
    by: By
    write: bool
    shares: Shares
    role: hopper.Role
    alone: bool
    leader: int = 0

    @cached_property
    def asynchronous(self) -> bool:
        """Whether the async proxy makes it."""
        return self.by not in ("threads", "cp.async")

    @cached_property
    def words(self) -> int:
        """A mask of the words of the slot that it touches."""
        return _union(self.shares)


@dataclass
class Buffer:
    """A buffer, who accesses it and what guards it. `producer` is the role that completes `filled`,
    by cp.async where it is `copied`.
    """

    made: hopper.Shared
    accesses: list[Access] = field(default_factory=list[Access])
    filled: SSAValue | None = None
    freed: SSAValue | None = None
    producer: hopper.Role | None = None
    copied: bool = False

    @property
    def label(self) -> str:
        """The buffer's name."""
        return self.made.label.data

    @cached_property
    def roles(self) -> set[hopper.Role]:
        """The roles that access it."""
        return {access.role for access in self.accesses}

    @cached_property
    def own(self) -> bool:
        """Whether one role fills it and takes its slots, by barriers, from itself."""
        guarded = self.filled is not None and (self.freed is not None or self.copied)
        return guarded and len(self.roles) == 1

    @cached_property
    def handed(self) -> bool:
        """Whether its slots are handed over at barriers: between roles, or to who fills them."""
        return self.own or len(self.roles) > 1

    def has(self, *by: By, beside: hopper.Role | None = None) -> bool:
        """Tell whether there are accesses by some engine, in another role than one."""
        return any(access.by in by and access.role is not beside for access in self.accesses)

    def is_put(self, access: Access) -> bool:
        """Tell whether an access fills a slot: other writes are of who has the slot."""
        if not access.write or access.role is not self.producer:
            return False
        return access.by in ("tma load", "cp.async") or not (self.copied or self.has("tma load"))

    def readers(self) -> list[hopper.Role]:
        """Return the roles that use what the producer puts in, each once."""
        return list(dict.fromkeys(each.role for each in self.accesses if not self.is_put(each)))

    @cached_property
    def words_read(self) -> int:
        """A mask of the words of a slot that are read by who did not put them there."""
        return _union(each.words for each in self.accesses if not each.write)


@dataclass(slots=True)
class Rings:
    """The buffers of a kernel, and what each operation accesses."""

    buffers: dict[SSAValue, Buffer]
    of: dict[Operation, list[Access]] = field(default_factory=dict[Operation, list[Access]])
    _beside: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    _partners: dict[SSAValue, list[SSAValue]] = field(
        default_factory=dict[SSAValue, list[SSAValue]]
    )
    _handed: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])

    def of_filled(self, array: SSAValue) -> list[Buffer]:
        """Return the buffers whose slots are filled where an array of barriers completes."""
        return [each for each in self.buffers.values() if each.filled is array]

    def partners(self, array: SSAValue) -> list[SSAValue]:
        """Return the arrays at which slots come back that are handed on at an array."""
        if array not in self._partners:
            pairs = [(each.filled, each.freed) for each in self.buffers.values()]
            found = [
                other
                for pair in pairs
                for one, other in (pair, pair[::-1])
                if one is array and other is not None
            ]
            self._partners[array] = list(dict.fromkeys(found))
        return self._partners[array]

    def overlapping(self, buffer: SSAValue) -> list[SSAValue]:
        """Return a buffer and those that share bytes with it."""
        if buffer not in self._beside:
            mine = self.buffers[buffer]
            self._beside[buffer] = [
                value for value, other in self.buffers.items() if overlap(mine.made, other.made)
            ]
        return self._beside[buffer]

    def handed_at(self, array: SSAValue) -> list[SSAValue]:
        """Return the rings whose slots are handed over at an array, and what lies in them."""
        if array not in self._handed:
            rings = [v for v, each in self.buffers.items() if array in (each.filled, each.freed)]
            found = [each for ring in rings for each in self.overlapping(ring)]
            self._handed[array] = list(dict.fromkeys(found))
        return self._handed[array]


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


# --- accesses -------------------------------------------------------------------------------------


def warps_of(by: str, role: hopper.Role) -> range:
    """Return the warps of a role one of whose threads does what is done `by` some."""
    warps = role.warps.data
    if by in ("thread", "role"):
        return range(1)
    return range(0, warps, WARPGROUP if by == "warpgroup" else 1)


def accesses_of(operation: Operation, role: hopper.Role) -> Iterator[Access]:
    """Yield what an operation reads and writes in shared memory. Raises Refused where that is not
    known.
    """
    warps = role.warps.data
    groups = -(-warps // WARPGROUP)

    def access(
        view: SSAValue,
        by: By,
        write: bool,
        shares: Shares | None,
        like: SSAValue | None,
        who: int = 0,
    ):
        place, alone = place_of(view, operation), is_alone(operation)
        if shares is None:
            layout = register_layout(like) if like is not None else None
            shares = shares_of(place, layout, 1 if alone else warps)
        return Access(operation, view, place, by, write, shares, role, alone, who)

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
                yield access(operation.view, "tma store", False, own, None, leader)
        case hopper.Wgmma():
            place = place_of(operation.b, operation)
            yield access(operation.b, "wgmma", False, shares_of(place, None, warps), None)
            if isinstance(operation.a.type, ViewType):
                place = place_of(operation.a, operation)
                parts = rows_of_product(operation, groups)
                masks = shares_of_rows(place, parts, warps)
                yield access(operation.a, "wgmma", False, masks, None)
        case _ if isinstance(operation, VIEWS):
            return
        case _ if any(isinstance(each.type, ViewType) for each in operation.operands):
            raise Refused(
                rule("form"), f"{operation.name} uses shared memory in an unknown way", operation
            )
        case _:
            return


def is_alone(operation: Operation) -> bool:
    """Tell whether one thread of its role executes an operation."""
    return any(isinstance(each, hopper.OneThread) for _, each in around(operation))


def slots_of(barriers: SSAValue) -> int:
    """Return how many barriers an array has."""
    kind = barriers.type
    assert isinstance(kind, BarriersType)
    return kind.count.data


def label_of(barriers: SSAValue) -> str:
    """Return what an array of barriers is called."""
    owner = barriers.owner
    return owner.label.data if isinstance(owner, hopper.Barriers) else "a barrier"


# --- slots ----------------------------------------------------------------------------------------


def constant(value: SSAValue) -> int | None:
    """Return the number that a scalar is in the text."""
    match value.owner:
        case tile.Constant(value=IntAttr(data=number)):
            return number
        case _:
            return None


def inputs_of(value: SSAValue, function: str) -> list[SSAValue]:
    """Return what a function of this name makes a scalar of; nothing where another one does."""
    match value.owner:
        case tile.Elementwise(function=StringAttr(data=name)) as made if name == function:
            return list(made.inputs)
        case _:
            return []


class Step(NamedTuple):
    """A slot is `more` after another one in a ring of `depth`."""

    slot: SSAValue
    more: SSAValue
    depth: int


class Flip(NamedTuple):
    """A phase is that of another one, after a step; without one it is the other phase."""

    phase: SSAValue
    step: Step | None


def step_of(value: SSAValue) -> Step | None:
    """Return how a slot follows another: by select(x = depth, 0, x), where x is the next one, or
    the rest of a sum by the depth."""
    match inputs_of(value, "select"), inputs_of(value, "irem"):
        case [condition, start, following], _ if constant(start) == 0:
            found = _sum(following, inputs_of(condition, "eq"))
            return found if found is not None and constant(found.more) == 1 else None
        case _, [following, _] as inputs:
            return _sum(following, inputs)
        case _:
            return None


def _sum(following: SSAValue, inputs: list[SSAValue]) -> Step | None:
    """Read `following`, a sum, and a number in the text."""
    match inputs_of(following, "add"), inputs:
        case [slot, more], [at, end] if at is following and (depth := constant(end)):
            return Step(slot, more, depth)
        case _:
            return None


def flip_of(value: SSAValue) -> Flip | None:
    """Return what a phase is made of: select(x = depth, xor(phase, 1), phase), where x is the slot
    after one, or xor(phase, x div depth and 1), where x is a sum, or xor(phase, 1)."""
    match inputs_of(value, "select"), inputs_of(value, "xor"):
        case [condition, other, phase], _:
            at = inputs_of(condition, "eq")
            found = _sum(at[0], at) if at else None
            flip = flip_of(other)
            flips = flip is not None and flip.step is None and flip.phase is phase
            wraps = found is not None and constant(found.more) == 1
            return Flip(phase, found) if flips and wraps else None
        case _, [phase, more] if constant(more) == 1:
            return Flip(phase, None)
        case _, [phase, odd]:
            match inputs_of(odd, "and"):
                case [turns, unit] if constant(unit) == 1:
                    inputs = inputs_of(turns, "idiv")
                    found = _sum(inputs[0], inputs) if inputs else None
                    return None if found is None else Flip(phase, found)
                case _:
                    return None
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
        case _ if (step := step_of(value)) is not None and step.depth == slots:
            more = constant(step.more)
            fits = more is not None and 0 <= more <= _NUMBERS - slots  # else the sum may wrap
            return fits and is_slot(step.slot, slots, taken)
        case tile.Elementwise(function=StringAttr(data="select")) as made:
            return all(is_slot(each, slots, taken) for each in made.inputs[1:])
        case _:
            origins = passed_on(value)
            return bool(origins) and all(is_slot(each, slots, taken) for each in origins)


# --- rings ----------------------------------------------------------------------------------------


def rings_of(kernel: tile.Kernel) -> Rings:
    """Return each buffer of a kernel with its accesses and what guards it.

    Raises Refused where two roles share a buffer that no barrier guards.
    """
    rings = Rings({made.result: Buffer(made) for made in all_of(kernel, hopper.Shared)})
    waited: dict[SSAValue, set[hopper.Role]] = {}
    programs = {role: walk(role) for role in all_of(kernel, hopper.Role)}
    for role, operations in programs.items():
        for operation in operations:
            if isinstance(operation, hopper.Wait):
                waited.setdefault(operation.barriers, set()).add(role)
            if found := list(accesses_of(operation, role)):
                rings.of[operation] = found
            for access in found:
                rings.buffers[access.place.buffer].accesses.append(access)
    for buffer in rings.buffers.values():
        _find_filled(buffer, programs, waited)
    filled = {buffer.filled for buffer in rings.buffers.values()}
    for buffer in rings.buffers.values():
        if buffer.filled is not None:
            _find_freed(buffer, programs, filled)
            _check_depths(buffer)
    return rings


def _find_filled(
    buffer: Buffer,
    programs: dict[hopper.Role, list[Operation]],
    waited: dict[SSAValue, set[hopper.Role]],
) -> None:
    found: dict[tuple[hopper.Role, SSAValue], None] = {}
    buffer.copied = buffer.has("cp.async")
    for access in buffer.accesses:
        match access.operation:
            case hopper.TmaLoad(barriers=barriers):
                found[access.role, barriers] = None
            case hopper.CopyAsync() as copy:
                arrives = _following(programs[access.role], copy, hopper.CopyAsyncArrive)
                found |= {(access.role, each.barriers): None for each in arrives[:1]}
            case _:
                continue
    roles = buffer.roles
    if not found and len(roles) > 1:
        for access in buffer.accesses:
            if access.write:
                told = [
                    arrive.barriers
                    for arrive in _following(programs[access.role], access.operation, hopper.Arrive)
                    if waited.get(arrive.barriers, set()) & (roles - {access.role})
                ]
                found |= {(access.role, barriers): None for barriers in told[:1]}
    if len(found) > 1 or (len(roles) > 1 and not found):
        raise Refused(
            rule("slots"),
            f"{len(roles)} roles use {buffer.label}, and {len(found) or 'no'} barriers say when it "
            "is filled",
            buffer.made,
        )
    for buffer.producer, buffer.filled in found:
        pass


def _check_depths(buffer: Buffer) -> None:
    """A buffer has as many slots as the arrays that guard it have barriers."""
    kind = buffer.made.result.type
    assert isinstance(kind, BufferType)
    for array in (buffer.filled, buffer.freed):
        if array is not None and slots_of(array) != kind.slots.data:
            raise Refused(
                rule("slots"),
                f"{buffer.label} has {kind.slots.data} slots, and {slots_of(array)} barriers "
                "guard them",
                buffer.made,
            )


def _following(
    program: Sequence[Operation], operation: Operation, kind: type[_Arrives]
) -> list[_Arrives]:
    place = program.index(operation)
    return [each for each in program[place:] if isinstance(each, kind)]


def _find_freed(
    buffer: Buffer, programs: dict[hopper.Role, list[Operation]], filled: set[SSAValue | None]
) -> None:
    """The producer waits for it before it fills a slot; readers arrive there."""
    assert buffer.producer is not None
    program = programs[buffer.producer]
    readers = set(buffer.readers())
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
    for access in buffer.accesses:
        if buffer.is_put(access) and waits:
            before = set(program[: program.index(access.operation)])
            index = access.place.index
            # What a role puts and reads itself may need no barrier: another ring's is not its own.
            able = waits if readers - {buffer.producer} else [w for w in waits if w.slot == index]
            nearest = [each for each in able if each in before]
            found |= dict.fromkeys(each.barriers for each in (nearest[-1:] or able[:1]))
    if len(found) > 1 or (not found and readers - {buffer.producer}):
        raise Refused(
            rule("slots"),
            f"{len(found) or 'no'} barriers say when {buffer.label} is free to be filled again",
            buffer.made,
        )
    buffer.freed = next(iter(found), None)
