"""Where all agents are, and what they do at rings: waits and arrivals are those of their numbers
(Lemma 3a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tawa.verify.cursors import NOTHING, Cursors, Fact, Facts, Operand
from tawa.verify.decisions import Known, Labels, Loop
from tawa.verify.rules import Refused, rule
from tawa.verify.steps import Arrive, Ref, Wait
from tawa.verify.system import System

Env: TypeAlias = dict[int, Facts]
"""By scalar: what it is known to stand for."""
HOLDS, HANDED = 1, 2
"""Of a turn: an agent holds it, an instance has handed it on."""


@dataclass(slots=True)
class State:
    """Where all agents are. Numbers of a ring are counted from where its origin was last set."""

    at: list[int]
    labels: list[Labels]
    loops: list[tuple[Loop, ...]]
    waits: list[int]
    units: list[int]
    early: list[frozenset[tuple[int, int]]]
    """By arriver: (number, arrivals) of numbers whose turn has not come."""
    ahead: list[int]
    """By pair of a wait and an arrival of one agent: waits done less numbers arrived."""
    exact: list[bool]
    """By ring: whether its origin is still the beginning."""
    turn: list[int]
    """By agent: whether its warpgroup, or its instance, holds the turn."""
    known: Known
    env: list[Env]
    parked: list[dict[int, Env]]
    """What instances that are not at work know, counted from the beginning of the tile."""
    active: list[int]
    announced: frozenset[int] = frozenset()
    """Named barriers that have been announced and not yet taken."""

    def copy(self, known: Known) -> State:
        """Return a state that goes its own way."""
        return State(
            list(self.at),
            list(self.labels),
            list(self.loops),
            list(self.waits),
            list(self.units),
            list(self.early),
            list(self.ahead),
            list(self.exact),
            list(self.turn),
            known,
            [dict(each) for each in self.env],
            [dict(each) for each in self.parked],
            list(self.active),
            self.announced,
        )

    def key(self) -> tuple[object, ...]:
        """Return all but what scalars stand for."""
        return (
            tuple(self.at),
            tuple(self.labels),
            tuple(self.waits),
            tuple(self.units),
            tuple(self.early),
            tuple(self.ahead),
            tuple(self.exact),
            tuple(self.turn),
            frozenset(self.known.items()),
            tuple(self.active),
            self.announced,
        )


@dataclass(frozen=True, slots=True)
class Rings:
    """The rings of a system: each method does one step of an agent, or refuses it."""

    system: System
    cursors: Cursors

    # --- what scalars stand for -------------------------------------------------------------------

    def operand(self, state: State, who: int, ref: Ref) -> Operand:
        """Return what is known of a scalar, or its number in the text."""
        return ref[0] if isinstance(ref, tuple) else state.env[who].get(ref, NOTHING)

    def constant(self, state: State, who: int, number: int, value: int) -> Facts:
        """What a number in the text stands for, while all is counted from the beginning."""
        found: set[Fact] = set()
        for ring, counts in self.system.counters[who].items():
            if state.exact[ring] and ring in self.system.about.get(value, ()):
                now = {self.count(state, counter) for counter in counts}
                found |= set(self.cursors.constant(number, ring, now))
        return frozenset(found)

    def counts(self, state: State, who: int) -> dict[int, int]:
        """Return how far an agent is at each ring: its waits there, or its arrivals."""
        return {
            ring: self.count(state, each[0]) for ring, each in self.system.counters[who].items()
        }

    def count(self, state: State, counter: tuple[str, int]) -> int:
        """Return how many waits have been done, or numbers arrived."""
        kind, place = counter
        if kind == "wait":
            return state.waits[place]
        return state.units[place] // self.system.needs[place]

    # --- rings ------------------------------------------------------------------------------------

    def slots(self, state: State, who: int, value: Ref, ring: int) -> set[int]:
        """Return which numbers a slot may be, each for all that are whole revolutions away."""
        depth = self.system.depths[ring]
        found = self.operand(state, who, value)
        if isinstance(found, int):
            if not 0 <= found < depth or not (depth == 1 or state.exact[ring]):
                return set()
            return {found}
        return {
            each.at % depth
            for each in found
            if each.kind == "slot" and each.ring == ring and each.far == self.system.zero
        }

    def _is_slot(self, state: State, who: int, value: Ref, ring: int, number: int) -> bool:
        return number % self.system.depths[ring] in self.slots(state, who, value, ring)

    def wait(self, state: State, who: int, step: Wait) -> bool:
        """Wait for the agent's next number; False where that has not come."""
        system, ring, operation = self.system, step.ring, step.operation
        place = system.waiter[who, ring]
        number, depth = state.waits[place], system.depths[step.ring]
        found = self.operand(state, who, step.phase)
        if isinstance(found, int):
            known = state.exact[ring] and found in (0, 1)  # others are no parity of an mbarrier
            flips = {found ^ (number // depth) & 1} if known else set[int]()
        else:
            near = (
                self.cursors.moved(each, number)
                for each in found
                if each.kind == "phase" and each.ring == ring and each.far == system.zero
            )
            flips = {each.flip for each in near if each is not None}
        if len(flips) != 1 or not self._is_slot(state, who, step.slot, ring, number):
            raise self._misplaced(who, step.operation, ring, "waits")
        (flip,) = flips
        lead = system.leads.setdefault(ring, flip * depth)
        if lead != flip * depth:
            raise self._misplaced(who, step.operation, ring, "waits")
        if not self._is_complete(state, ring, number - lead):
            return False
        if system.agents[who].share > 1 and state.turn[who] != HOLDS:
            raise Refused(
                rule("meetings"),
                f"{system.agents[who].name} waits for {system.label(ring)} while it is another "
                "instance's turn",
                operation,
            )
        state.waits[place] += 1
        for pair in system.pairs_of_wait[place]:
            if pair in system.dead:
                continue
            state.ahead[pair] += 1
            self._bound(state, pair, depth)
        return True

    def _bound(self, state: State, pair: int, depth: int) -> None:
        """A wait and an arrival that part by more than a revolution are no ring of one another."""
        if abs(state.ahead[pair]) > depth:
            self.system.dead.add(pair)
        if pair in self.system.dead:
            state.ahead[pair] = 0

    def _is_complete(self, state: State, ring: int, number: int) -> bool:
        needs = self.system.needs
        return number < 0 or all(
            number < state.units[place] // needs[place]
            or (number, needs[place]) in state.early[place]
            for place in self.system.arrivers_of[ring]
        )

    def arrive(self, state: State, who: int, step: Arrive) -> None:
        """Arrive for the number that the slot says, which is one of the next revolution."""
        system, ring = self.system, step.ring
        place = system.arriver[who, ring]
        need, depth = system.needs[place], system.depths[ring]
        done = state.units[place] // need
        slots = self.slots(state, who, step.slot, ring)
        if len(slots) != 1:
            raise self._misplaced(who, step.operation, ring, "arrives")
        (slot,) = slots
        number = done + (slot - done) % depth
        if system.agents[who].share > 1 and not state.turn[who]:
            system.dead.update(system.pairs_of_arrival[place])  # others may not have waited yet
        for pair in system.pairs_of_arrival[place]:
            system.note(pair, state.ahead[pair] - (number - done))
        early = dict(state.early[place])
        units = step.units + (early.pop(number, 0) if number > done else state.units[place] % need)
        if units > need:
            raise Refused(
                rule("arrivals"),
                f"{system.agents[who].name} arrives {units} times at {system.label(ring)}, where "
                f"{need} arrivals are its part of a phase",
                step.operation,
            )
        if number > done:
            early[number] = units
        else:
            state.units[place] += step.units
            while state.units[place] % need == 0 and (now := state.units[place] // need) in early:
                state.units[place] += early.pop(now)
            for pair in system.pairs_of_arrival[place]:
                if pair in system.dead:
                    continue
                less = state.units[place] // need - done
                state.ahead[pair] -= less
                self._bound(state, pair, depth)
        state.early[place] = frozenset(early.items())

    def _misplaced(self, who: int, operation: Wait | object, ring: int, what: str) -> Refused:
        return Refused(
            rule("cursor"),
            f"{self.system.agents[who].name} {what} at {self.system.label(ring)} where slot and "
            "phase are not shown to be those of its number",
            operation,  # type: ignore[arg-type]
        )
