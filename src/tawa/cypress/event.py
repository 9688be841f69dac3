"""Events: what a block does for one tile, in order, with every copy written out.

Tensors are slots: what a variant makes, or what a copy brings in. A copy-in stands at the launch
that first wants the tensor in a nearer memory, a copy-out where a task has written it; what is
there already is not copied again. `lower` makes them of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tawa.cypress.leaf import LeafFacts
from tawa.cypress.machine import WARPGROUP
from tawa.cypress.mapping import Instance
from tawa.cypress.size import Int, Size
from tawa.cypress.tensor import Tensor, TensorType
from tawa.cypress.tree import Spread
from tawa.language.dtypes import dtype
from tawa.layouts.register import RegisterLayout


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A tensor inside of a block."""

    name: str
    element: dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """Return name, type and shape."""
        return f"{self.name}: {self.element}{list(self.shape)}"


@dataclass(frozen=True, slots=True, eq=False)
class CopyIn:
    """A part of a tensor of the program, brought into shared memory, or `direct` to registers."""

    slot: Slot
    source: Tensor
    direct: bool


@dataclass(frozen=True, slots=True, eq=False)
class CopyOut:
    """A slot that goes to a part of a tensor of the program; `staged` through shared memory."""

    target: Tensor
    slot: Slot
    staged: bool
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Iota:
    """A slot of where a part lies along one dimension, or of what of it lies inside: `bounded`."""

    slot: Slot
    start: Int
    bounded: Int | None  # the extent of the program's tensor

    def __str__(self) -> str:
        """Return the elements in words."""
        end = "" if self.bounded is None else f" < {self.bounded}"
        return f"{self.start}:+{self.slot.shape[0]}{end}"


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A leaf on slots. `a`: where the first operand of its `product` is taken from, if moved.

    What is copied in lies in shared memory, what is computed in registers.
    """

    spread: Spread
    facts: LeafFacts
    slots: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    a: Literal["", "registers", "shared"]
    product: str


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """A loop in order; `carried` are the slots that it changes and that were there before.

    `index` counts its `extent` iterations; it is emitted from start to stop by step, its `bounds`.
    """

    name: str
    index: Size
    extent: Int
    body: tuple[Event, ...]
    carried: tuple[Slot, ...]
    bounds: tuple[Int, Int, int]


Event = CopyIn | CopyOut | Iota | Call | For


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """The program of a block: the grid it is one of, and its events.

    `numbers` are what the call gives besides the tensors of the `parameters`, by name; `shared`
    are the slots that loops carry in shared memory, each with the leaf that wants it there,
    `layouts` says of those that threads have by blocks which of them has which element. `removed`
    tells of copies that are not made, and why.
    """

    block: Instance
    parameters: tuple[tuple[Tensor, TensorType], ...]
    numbers: dict[str, Slot]
    indices: tuple[Size, ...]
    grid: tuple[Int, ...]
    body: tuple[Event, ...]
    shared: Mapping[Slot, Instance]
    layouts: Mapping[Slot, RegisterLayout]
    removed: tuple[str, ...]


def told(event: Event) -> str:
    """Return an event in words; of a loop, its head."""
    match event:
        case CopyIn():
            into = "REGISTER" if event.direct else "SHARED"
            return f"{event.slot} = copy {_where(event.source)} into {into}"
        case CopyOut():
            how = "by SHARED" if event.staged else "from REGISTER"
            return f"copy {event.slot.name} {how} to {_where(event.target)}"
        case Iota():
            return f"{event.slot} = {event}"
        case Call():
            names = ", ".join(slot.name for slot in event.slots)
            outputs = ", ".join(slot.name for slot in event.outputs)
            return f"{outputs} = call {event.spread.leaf.name}({names})"
        case For():
            return f"for {event.index} in {event.extent}"


def _where(tensor: Tensor) -> str:
    at = ", ".join(f"{o}:+{n}" for o, n in zip(tensor.offsets, tensor.box, strict=True))
    return f"{tensor.root.name}[{at}]"


def outputs_of(event: Event) -> tuple[Slot, ...]:
    """Return the slots that an event changes."""
    match event:
        case Call():
            return event.outputs
        case For():
            return event.carried
        case CopyIn() | CopyOut() | Iota():
            return ()


def walk(body: tuple[Event, ...], inside: For | None = None) -> Iterator[tuple[Event, For | None]]:
    """Return the events of a body, with those in loops, each with the loop that it stands in."""
    for event in body:
        yield event, inside
        if isinstance(event, For):
            yield from walk(event.body, event)


def calls(body: tuple[Event, ...]) -> list[Call]:
    """Return the calls of events, with those in loops."""
    return [event for event, _ in walk(body) if isinstance(event, Call)]


def loops(body: tuple[Event, ...]) -> list[For]:
    """Return the loops of events, with those in loops."""
    return [event for event, _ in walk(body) if isinstance(event, For)]


def warpgroups(events: Events) -> int:
    """Return how many warpgroups share the tile of a block; raises MappingError."""
    counts = {call.spread.over(WARPGROUP): call.spread.leaf for call in calls(events.body)}
    if len(counts) > 1:
        (few, one), (many, other), *_ = sorted(counts.items(), key=lambda pair: pair[0])
        raise one.error(
            f' runs on {few} warpgroups, "{other.name}" on {many}',
            why="the warpgroups of a block share all of its work",
            remedy="part both over the same number of WARPGROUP",
        )
    return next(iter(counts), 1)
