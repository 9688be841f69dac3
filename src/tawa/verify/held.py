"""Which slot of a ring a scalar names, counted from the one that a role has waited for last.

For each array of barriers that a role waits for: w is the slot of the last wait (before the first
one: -1). A *place* is how far a scalar is ahead of w, modulo the slots; `held` are the places of
slots that were waited for and not given away since, on every path. A wait for the slot at place k
moves w, so that all places are k less. Loops join what the entry and the back edge say until
nothing changes: places and sets of them are finitely many, and joins only take away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.ir import tile


@dataclass(frozen=True, slots=True)
class Place:
    """`ahead` of the slot that was waited for last; `slot`: surely one of 0 .. slots - 1."""

    ahead: int
    slot: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """What a role knows of one array of `slots` barriers that it waits for."""

    slots: int
    last: int | None
    """The slot of the last wait, where it is a number."""
    places: Mapping[SSAValue, Place]
    held: frozenset[int] = frozenset()

    def place(self, value: SSAValue) -> Place | None:
        """Return where a scalar is, if that is known."""
        known = self.places.get(value)
        if known is not None:
            return known
        number = constant(value)
        if number is None or self.last is None:
            return None
        return Place((number - self.last) % self.slots, 0 <= number < self.slots)

    def holds(self, value: SSAValue) -> bool:
        """Tell whether a scalar is a slot that is surely held."""
        place = self.place(value)
        return place is not None and place.slot and place.ahead in self.held

    def waited(self, value: SSAValue) -> Held:
        """Return what is known after a wait for a slot."""
        place, number = self.place(value), constant(value)
        if place is None:
            return Held(self.slots, number, {value: Place(0)}, frozenset({0}))
        by = place.ahead
        places = {
            each: replace(known, ahead=(known.ahead - by) % self.slots)
            for each, known in self.places.items()
        }
        last = number if self.last is None else (self.last + by) % self.slots
        held = frozenset((each - by) % self.slots for each in self.held) | {0}
        return Held(self.slots, last, {**places, value: Place(0)}, held)

    def given(self, value: SSAValue) -> Held:
        """Return what is known after a slot was given away: which one, or nobody knows."""
        place = self.place(value)
        return replace(self, held=frozenset() if place is None else self.held - {place.ahead})

    def named(self, value: SSAValue, place: Place | None) -> Held:
        """Return what is known once a scalar was computed."""
        if place is None:
            return self
        return replace(self, places={**self.places, value: place})

    def computed(self, operation: tile.Elementwise) -> Place | None:
        """Return the place of what a scalar function gives: the next slot, or one of two alike."""
        match operation.function.data, list(operation.inputs):
            case "add", [value, other]:
                return self._added(value, other, 1) or self._added(other, value, 1)
            case "sub", [value, other]:
                return self._added(value, other, -1)
            case "irem", [value, other] if constant(other) == self.slots:
                place = self.place(value)
                return None if place is None or not self._counts_up(value) else Place(place.ahead)
            case "select", [condition, one, other]:
                return self._wrapped(condition, one, other) or self._either(one, other)
            case _:
                return None

    def _added(self, value: SSAValue, other: SSAValue, sign: int) -> Place | None:
        place, number = self.place(value), constant(other)
        if place is None or number is None:
            return None
        return Place((place.ahead + sign * number) % self.slots, slot=not number and place.slot)

    def _counts_up(self, value: SSAValue) -> bool:
        """Tell whether a scalar is a slot and a number that is not negative: irem is modulo."""
        match value.owner:
            case tile.Elementwise(function=function, inputs=[one, other]) if function.data == "add":
                for slot, more in ((one, other), (other, one)):
                    number, place = constant(more), self.place(slot)
                    if number is not None and number >= 0 and place is not None and place.slot:
                        return True
                return False
            case _:
                return False

    def _wrapped(self, condition: SSAValue, one: SSAValue, other: SSAValue) -> Place | None:
        """A slot and one, or 0 where that is the number of slots."""
        end, place = condition.owner, self.place(other)
        if place is None or constant(one) != 0 or not isinstance(end, tile.Elementwise):
            return None
        if end.function.data != "eq" or end.inputs[0] is not other:
            return None
        if constant(end.inputs[1]) != self.slots or not self._is_next(other):
            return None
        return Place(place.ahead)

    def _is_next(self, value: SSAValue) -> bool:
        match value.owner:
            case tile.Elementwise(function=function, inputs=[one, other]):
                place = self.place(one)
                plain = function.data == "add" and constant(other) == 1
                return plain and place is not None and place.slot
            case _:
                return False

    def _either(self, one: SSAValue, other: SSAValue) -> Place | None:
        first = self.place(one)
        return first if first is not None and first == self.place(other) else None

    def join(self, other: Held) -> Held:
        """Return what both sides say."""
        if self == other:
            return self
        places = {
            value: place for value, place in self.places.items() if other.places.get(value) == place
        }
        last = self.last if self.last == other.last else None
        return Held(self.slots, last, places, self.held & other.held)


def constant(value: SSAValue) -> int | None:
    """Return the number that a scalar is in the text."""
    match value.owner:
        case tile.Constant(value=IntAttr(data=number)):
            return number
        case _:
            return None


__all__ = ["Held", "Place", "constant"]
