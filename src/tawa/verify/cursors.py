"""Lemma 3: what the slots and phases that roles carry stand for, as numbers of rings (3a, cursors),
and that a wait which knows the parity of a phase alone waits for that phase (3b).

A *number* counts the waits for an array of barriers, or its completions, from 0. The barrier of
number n in a ring of D is n mod D, its phase n div D mod 2. A *fact* says which number a scalar
stands for, whatever the number is: `slot`, `raw` (one more than the slot before, not yet wrapped),
`wraps` (whether the slot is 0), `phase`; and for the step over numbers that another instance takes,
`place` (a slot and how many are stepped over), `turns` and `odd` (how often that wraps).

A wait for completion n of a barrier of a ring of D, done in the order of the numbers, is mistaken
only if completion n + D comes before it has seen n. So an arrival of completion n + D must come
after the wait: in the order of its agent, or because it waits itself for what comes after the wait,
and so on. `least` says how many waits an agent has at least behind it before each of its arrivals.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tawa.verify.terms import Term, Terms

Kind: TypeAlias = Literal["slot", "raw", "wraps", "phase", "place", "turns", "odd"]


class Fact(NamedTuple):
    """A scalar stands for number `at` + `far` of ring `ring`; a phase is flipped `flip` times.

    `at` counts from where the run last set its origin; `far` is a term, 0 but for instances. Of a
    step, `over` says from which number it went.
    """

    kind: Kind
    ring: int
    at: int
    far: Term
    flip: int = 0
    over: tuple[int, Term] | None = None


Facts: TypeAlias = frozenset[Fact]
NOTHING: Facts = frozenset()
Operand: TypeAlias = "int | Facts"
"""A scalar: a number in the text, or what is known of it."""
TRACKED = {"add": 0, "xor": 0, "select": 2}
"""By function: the operand that is a slot or a phase, also where it is a number in the text."""


@dataclass(frozen=True, slots=True)
class Cursors:
    """How operations on scalars turn facts into facts."""

    depths: tuple[int, ...]
    terms: Terms

    def apply(self, name: str, inputs: list[Operand], amount: Term | None) -> Facts:
        """Return what is known of a function's result; `amount` is what it adds, as a term."""
        match name, inputs:
            case "add", [frozenset() as slot, int() | frozenset() as more]:
                return self._added(slot, more, amount)
            case "add", [int(number), frozenset() as slot]:
                return self._added(slot, number, amount)
            case ("eq", [frozenset() as raw, int(depth)]) | (
                "eq",
                [int(depth), frozenset() as raw],
            ):
                return frozenset(
                    each._replace(kind="wraps")
                    for each in raw
                    if each.kind == "raw" and self.depths[each.ring] == depth
                )
            case "select", [frozenset() as wraps, yes, no]:
                return self._selected(wraps, yes, no)
            case ("xor", [frozenset() as phase, int(1)]) | ("xor", [int(1), frozenset() as phase]):
                return frozenset(
                    each._replace(flip=each.flip ^ 1) for each in phase if each.kind == "phase"
                )
            case "xor", [frozenset() as phase, frozenset() as odd]:
                return self._turned(phase, odd)
            case (("irem" | "idiv"), [frozenset() as place, int(depth)]):
                kind: Kind = "slot" if name == "irem" else "turns"
                return frozenset(
                    each._replace(kind=kind, over=each.over if kind == "turns" else None)
                    for each in place
                    if each.kind == "place" and self.depths[each.ring] == depth
                )
            case ("and", [frozenset() as turns, int(1)]) | ("and", [int(1), frozenset() as turns]):
                return frozenset(e._replace(kind="odd") for e in turns if e.kind == "turns")
            case _:
                return NOTHING

    def _added(self, slot: Facts, more: Operand, amount: Term | None) -> Facts:
        found: set[Fact] = set()
        for each in slot:
            if each.kind != "slot":
                continue
            if more == 1:
                found.add(each._replace(kind="raw", at=each.at + 1))
            if amount is not None:
                number = self.terms.offset(amount)
                far = self.terms.add(amount, self.terms.one, -number)
                over = each.at, each.far
                far = self.terms.add(each.far, far)
                found.add(each._replace(kind="place", at=each.at + number, far=far, over=over))
        return frozenset(found)

    def _selected(self, wraps: Facts, yes: Operand, no: Operand) -> Facts:
        """A slot that wraps to 0, or a phase that flips where the slot does."""
        if not isinstance(no, frozenset):
            return NOTHING
        there = {(each.ring, each.at, each.far) for each in wraps if each.kind == "wraps"}
        found: set[Fact] = set()
        for each in no:
            if each.kind == "raw" and yes == 0 and (each.ring, each.at, each.far) in there:
                found.add(each._replace(kind="slot"))
            if each.kind != "phase" or not isinstance(yes, frozenset):
                continue
            if each._replace(flip=each.flip ^ 1) not in yes:
                continue
            for ring, at, far in there:
                before = self.moved(each, at - 1)
                if ring == each.ring and far == each.far and before is not None:
                    found.add(before._replace(at=at))
        return frozenset(found)

    def near(self, fact: Fact, count: int) -> Fact:
        """Say of a slot or a phase what it is for a number from `count` to a revolution later."""
        if fact.kind not in ("slot", "phase"):
            return fact
        at = count + (fact.at - count) % self.depths[fact.ring]
        if fact.kind == "slot":
            return fact._replace(at=at)
        found = self.moved(fact, at)
        assert found is not None
        return found

    def moved(self, phase: Fact, at: int) -> Fact | None:
        """Say of a phase what it is for another number, whole revolutions away."""
        turns, rest = divmod(at - phase.at, self.depths[phase.ring])
        return None if rest else phase._replace(at=at, flip=(phase.flip + turns) & 1)

    def _turned(self, phase: Facts, odd: Facts) -> Facts:
        found: set[Fact] = set()
        for step in odd:
            if step.kind != "odd" or step.over is None:
                continue
            at, far = step.over
            for each in phase:
                if each.kind != "phase" or each.ring != step.ring or each.far != far:
                    continue
                before = self.moved(each, at)
                if before is not None:
                    found.add(before._replace(at=step.at, far=step.far))
        return frozenset(found)

    def constant(self, number: int, ring: int, counts: Iterable[int]) -> Iterable[Fact]:
        """Say what a number in the text stands for where all counts are known from the start: the
        slot of this revolution, and the phase of the operations that are next.
        """
        depth = self.depths[ring]
        for count in counts:
            if 0 <= number < depth:
                yield Fact("slot", ring, number + count // depth * depth, self.terms.zero)
            if number in (0, 1):
                first = count // depth * depth
                for at in range(first, first + depth):
                    yield Fact("phase", ring, at, self.terms.zero, (number + count // depth) & 1)


Pair = tuple[int, int, int]
"""An agent, the ring that it waits for, the ring that it arrives at."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Rings by number: `depths`, and `leads`, how many waits the first phases answer at once."""

    depths: Sequence[int]
    leads: Mapping[int, int]
    waiters: Mapping[int, Sequence[int]]
    arrivers: Mapping[int, Sequence[int]]
    least: Mapping[Pair, int]
    """Waits done less numbers arrived, when an arrival is made: the least there is."""

    several: Container[int] = ()
    """Rings at which several threads arrive for one phase."""

    def mistaken(self) -> list[tuple[int, int]]:
        """Return the (ring, agent) of waits that may take one phase for another."""
        return [
            (ring, agent)
            for ring, agents in self.waiters.items()
            for agent in agents
            if not self._is_behind(ring, self.arrivers.get(ring, ()), [agent])
        ]

    def hasty(self) -> list[tuple[int, int]]:
        """Return the (ring, agent) of arrivals that may be counted for the phase before theirs: a
        barrier counts arrivals, whoever makes them, so each waits, perhaps by way of others, for
        what came after the completion a revolution ago.
        """
        return [
            (ring, agent)
            for ring, agents in self.arrivers.items()
            if ring in self.several
            for agent in agents
            if not self._is_behind(ring, [agent], self.waiters.get(ring, ()))
        ]

    def _is_behind(self, ring: int, arriving: Sequence[int], waiting: Sequence[int]) -> bool:
        """Tell whether arrivals of some agents at a number come after a wait of one of others for
        the number a revolution before; follow what they come after, counting from the arrival.
        """
        behind: dict[tuple[int, int], int] = {}
        arrivals: list[tuple[int, int, int]] = [(agent, ring, 0) for agent in arriving]
        steps = 0
        while arrivals and steps < 4 * (len(self.least) + 1):
            steps += 1
            agent, at, number = arrivals.pop(0)
            for (who, waited, arrived), least in self.least.items():
                if who != agent or arrived != at:
                    continue
                # Arrival m comes after wait m + least - 1.
                seen = number + least - 1
                if seen <= behind.get((who, waited), seen - 1):
                    continue
                behind[who, waited] = seen
                if waited not in self.leads:
                    continue
                done = seen - self.leads[waited]
                arrivals += [(other, waited, done) for other in self.arrivers.get(waited, ())]
        needed = self.leads.get(ring, 0) - self.depths[ring]
        return any(behind.get((agent, ring), needed - 1) >= needed for agent in waiting)
