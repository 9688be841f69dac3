"""What agents do at rings: waits, arrivals and copies are those of their numbers, and a slot of a
buffer is used by who holds it (Lemma 3a).
"""

from __future__ import annotations

from dataclasses import dataclass

from tawa.ir import hopper
from tawa.verify.cursors import NOTHING, Cursors, Fact, Facts, Operand
from tawa.verify.rules import Refused, rule
from tawa.verify.state import HOLDS, State
from tawa.verify.steps import Access, Arrive, Copy, Ref, Wait
from tawa.verify.system import System


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
            alone = step.alone and pair not in system.spoken
            if pair in system.careful and (alone or system.is_one_warp(who)):
                state.safe[pair] += 1
        return True

    def _bound(self, state: State, pair: int, depth: int) -> None:
        """A wait and an arrival that part by more than a revolution are no ring of one another."""
        if abs(state.ahead[pair]) > depth:
            self.system.dead.add(pair)
        if pair in self.system.dead:
            state.ahead[pair] = state.safe[pair] = 0

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
        for pair in system.pairs_of_arrival[place]:
            ahead = state.safe[pair] if pair in system.careful else state.ahead[pair]
            system.note(pair, ahead - (number - done))
        if step.bytes:
            if state.owed[place]:
                raise self._bytes(ring, state.owed[place], step)
            state.owed[place], state.last[place] = step.bytes, number
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
                if pair in system.careful:  # a revolution behind is too late already
                    state.safe[pair] = max(state.safe[pair] - less, -depth)
        state.early[place] = frozenset(early.items())

    def copy(self, state: State, who: int, step: Copy) -> None:
        """A copy completes on the barrier of the number at which its bytes are expected."""
        system, ring = self.system, step.ring
        place = system.arriver.get((who, ring))
        owed = state.owed[place] if place is not None else 0
        if place is None or owed < step.bytes:
            raise self._bytes(ring, owed - step.bytes, step)
        number = state.last[place]
        if not self._is_slot(state, who, step.slot, ring, number):
            raise self._misplaced(who, step.operation, ring, "copies")
        state.owed[place] -= step.bytes
        self.access(state, who, step, ring, number)

    def _bytes(self, ring: int, left: int, step: Arrive | Copy) -> Refused:
        what = f"{left} bytes too many" if left > 0 else f"{-left} bytes too few"
        return Refused(
            rule("bytes"), f"{self.system.label(ring)} expects {what} in a phase", step.operation
        )

    def _misplaced(self, who: int, operation: Wait | object, ring: int, what: str) -> Refused:
        return Refused(
            rule("cursor"),
            f"{self.system.agents[who].name} {what} at {self.system.label(ring)} where slot and "
            "phase are not shown to be those of its number",
            operation,  # type: ignore[arg-type]
        )

    # --- buffers ----------------------------------------------------------------------------------

    def access(
        self,
        state: State,
        who: int,
        step: Access | Copy,
        ring: int | None = None,
        number: int = 0,
    ) -> None:
        """A slot of a buffer that agents share is used by who holds it: leave of the rings that may
        keep them apart those of which this is so."""
        possible = self.system.shared.get(step.buffer)
        if possible is None:
            return
        kept = {
            rings
            for rings in possible
            if (ring is None or rings[0] == ring)
            and self._holds(state, who, step.index, rings, None if ring is None else number)
        }
        if not kept:
            label = step.buffer.owner
            name = label.label.data if isinstance(label, hopper.Shared) else "a buffer"
            raise Refused(
                rule("held"),
                f"{self.system.agents[who].name} uses a slot of {name} and is not shown to hold it",
                step.operation,
            )
        if len(kept) < len(possible):
            self.system.shared[step.buffer] = kept

    def _holds(
        self, state: State, who: int, slot: Ref, rings: tuple[int, int], copied: int | None
    ) -> bool:
        """Tell whether an agent holds the slot: between its wait for one of two rings and its
        arrival at the other. A copy has arrived already, and is `copied`, that number."""
        filled, freed = rings
        system = self.system
        if freed < 0:
            return self._holds_own(state, who, slot, filled, copied)
        ways = ((freed, filled), (filled, freed))  # a producer's, a consumer's
        for waited, arrived in ways if copied is None else ways[:1]:
            waiter = system.waiter.get((who, waited))
            arriver = system.arriver.get((who, arrived))
            if waiter is None or arriver is None:
                continue
            pair = system.pair.get((waiter, arriver))
            if pair is None or pair in system.dead:
                continue
            ahead = state.ahead[pair]
            done = state.units[arriver] // system.needs[arriver]
            early = {number for number, _ in state.early[arriver]}
            held = set(range(done, done + ahead)) - early
            if copied is not None:
                held = set(range(copied, min(copied + 1, done + ahead)))
            depth, more = system.depths[filled], state.waits[waiter] - ahead - done
            at, other = (self.slots(state, who, slot, ring) for ring in (arrived, waited))
            if any(n % depth in at and (n + more) % depth in other for n in held):
                return True
        return False

    def _holds_own(self, state: State, who: int, slot: Ref, ring: int, copied: int | None) -> bool:
        """The same of a ring that an agent fills and takes itself: what is copied has been used, a
        revolution before; what is used has come, and is not yet copied anew."""
        system = self.system
        waiter, arriver = system.waiter.get((who, ring)), system.arriver.get((who, ring))
        if waiter is None or arriver is None:
            return False
        waits, depth = state.waits[waiter], system.depths[ring]
        begun = -(-state.units[arriver] // system.needs[arriver])
        held = range(begun - depth, waits)
        if copied is not None:
            held = range(copied, copied + (copied - depth < waits))
        slots = self.slots(state, who, slot, ring)
        return any(number % depth in slots for number in held)


__all__ = ["Rings"]
