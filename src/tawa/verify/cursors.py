"""Lemma 3a: the slots and phases that a role carries are those of the numbers of its rings.

A *number* counts the waits of a role for an array of barriers, or its arrivals there, from 0. The
barrier of number n in a ring of D is n mod D, its phase n div D mod 2. The flow of a role
(`role_flow.py`) has a term for each of them, beside the scalars: how many waits, and arrivals,
came before. A scalar that is a slot has the term of a number p, of which it is p mod D; one that is
a phase has that of a number q, of which it is q div D mod 2. So to advance adds 1 to all, to step
over numbers that another instance takes adds their count, to flip a phase alone adds D, and a slot
or phase is that of number n where p - n, and q - n, are multiples of D.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.walk import all_of
from tawa.verify.forwarded import loops_around
from tawa.verify.rings import (
    Rings,
    constant,
    flip_of,
    is_alone,
    is_slot,
    label_of,
    slots_of,
    step_of,
)
from tawa.verify.role_state import Counter, Lattice, State
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Term
from tawa.verify.values import Span, Values

Arrival: TypeAlias = hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive
ARRIVALS = (hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive)
Pair: TypeAlias = tuple[hopper.Role, SSAValue, SSAValue]
"""A role, a ring that it waits for, one that it arrives at."""


@dataclass(slots=True)
class Numbers:
    """What the flows of all roles show of rings. `leads`: how many waits are answered by the phases
    before the first arrival."""

    values: Values
    rings: Rings
    leads: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    behind: dict[Pair, int | None] = field(default_factory=dict[Pair, "int | None"])
    """How many waits are behind an arrival at least, None where that is not known."""
    _tiles: dict[SSAValue, Term] = field(default_factory=dict[SSAValue, Term])

    def note(self, pair: Pair, least: int | None) -> None:
        """Note that so many waits are behind an arrival."""
        before = self.behind.get(pair, least)
        self.behind[pair] = None if least is None or before is None else min(least, before)

    def check_begins(self) -> None:
        """Refuse waits that a phase answers before the first arrival where a slot is to be filled
        first, and those that none answers where all slots are free at the start."""
        for ring in self.rings.buffers.values():
            for array, slots in ((ring.filled, 0), (ring.freed, 1)):
                if array is None:
                    continue
                if self.leads.get(array, wanted := slots * slots_of(array)) != wanted:
                    raise Refused(
                        rule("slots"),
                        f"the first waits for {label_of(array)} are answered "
                        + ("late" if slots else "at once")
                        + f", and {ring.label} "
                        + ("is free at the start" if slots else "is not filled yet"),
                        ring.made,
                    )

    # --- instances --------------------------------------------------------------------------------

    def agent(self, role: hopper.Role) -> object:
        """Return what is the same for the instances of a role, of which each number has one."""
        for loop in all_of(role, scf.ForOp):
            span = self.values.span(loop)
            if span.share > 1:
                return span.length, span.step, span.share
        return role

    def waited(self, loop: scf.ForOp, ring: SSAValue) -> SSAValue:
        """Return the ring whose waits in a tile are as many as the numbers of a ring that it has:
        that where it waits for what it hands on there, or the ring itself."""
        waits = {each.barriers for each in all_of(loop, hopper.Wait)}
        for each in (*self.rings.partners(ring), ring):
            if each in waits:
                return each
        raise self._unlike(loop, ring)

    def tile(self, loop: scf.ForOp, ring: SSAValue) -> Term:
        """Return how many numbers of a ring a tile has, the same for all tiles of all instances."""
        term = self._waits(loop.body.block, self.waited(loop, ring))
        if term is None or ("iteration", 0) in self.values.terms.support(term):
            raise self._unlike(loop, ring)
        if self._tiles.setdefault(ring, term) != term:
            raise self._unlike(loop, ring)
        return term

    def _unlike(self, loop: scf.ForOp, ring: SSAValue) -> Refused:
        what = f"tiles are not shown to have equally many numbers of {label_of(ring)}"
        return Refused(rule("form"), what, loop)

    def _waits(self, block: Block, ring: SSAValue) -> Term | None:
        """Return how often a block waits at a ring, None where that is no sum of loops."""
        terms = self.values.terms
        total = terms.zero
        for operation in block.ops:
            number: Term | None = None
            match operation:
                case hopper.Wait(barriers=barriers) if barriers is ring:
                    number = terms.one
                case hopper.OneThread():
                    number = self._waits(operation.body.block, ring)
                case scf.IfOp():
                    regions = operation.true_region, operation.false_region
                    sides = {
                        self._waits(e.block, ring) if e.blocks else terms.zero for e in regions
                    }
                    number = sides.pop() if len(sides) == 1 else None
                case scf.ForOp():
                    inside = self._waits(operation.body.block, ring)
                    own = "iteration", len(loops_around(operation))
                    if inside is not None and own not in terms.support(inside):
                        number = terms.mul(inside, self._iterations(self.values.span(operation)))
                case scf.WhileOp():
                    inside = self._waits(operation.after_region.block, ring)
                    number = inside if inside == terms.zero else None
                case _:
                    continue
            if number is None:
                return None
            total = terms.add(total, number)
        return total

    def _iterations(self, span: Span) -> Term:
        terms = self.values.terms
        length, step = terms.number(span.length), terms.number(span.step)
        if length is not None and step is not None and step > 0:
            return terms.constant(max(0, -(-length // step)))
        leaves = terms.support_of((span.length, span.step))
        return terms.atom(("iterations", span.length, span.step), leaves)


@dataclass(slots=True)
class Cursors:
    """The numbers of the rings that one role waits for, and arrives at."""

    role: hopper.Role
    numbers: Numbers
    lattice: Lattice
    slots: set[SSAValue]
    """Scalars that slots are computed from."""
    phases: dict[SSAValue, int]
    """Scalars that are phases, and nothing else, and the depth of their rings."""
    _stepped: dict[int, set[SSAValue]] = field(default_factory=dict[int, set[SSAValue]])
    """By depth: slots that are a step, which is no number in the text, after another."""
    _slots: set[tuple[SSAValue, int]] = field(default_factory=set[tuple[SSAValue, int]])
    _counters: list[Counter] = field(default_factory=list[Counter])
    _by_all: set[SSAValue] = field(default_factory=set[SSAValue])
    """Rings that all threads wait for."""
    _by_each: set[SSAValue] = field(default_factory=set[SSAValue])
    """Rings at which threads arrive each for itself, or warps do."""
    _instance: bool = False

    def __post_init__(self) -> None:
        waits, arrivals = all_of(self.role, hopper.Wait), all_of(self.role, *ARRIVALS)
        self._by_all = {each.barriers for each in waits if not is_alone(each)}
        self._by_each = {each.barriers for each in arrivals if not _is_by_one(each)}
        self._counters = [
            *dict.fromkeys(("waits", each.barriers) for each in waits),
            *dict.fromkeys(("arrivals", each.barriers) for each in arrivals),
        ]
        for value in self.slots:
            step = step_of(value)
            if step is not None and constant(step.more) is None:
                self._stepped.setdefault(step.depth, set()).add(value)
        spans = (self.numbers.values.span(each) for each in all_of(self.role, scf.ForOp))
        self._instance = any(span.share > 1 for span in spans)

    def begin(self, state: State) -> None:
        """Count from 0."""
        state.values.update(dict.fromkeys(self._counters, self.lattice.terms.zero))

    # --- instances --------------------------------------------------------------------------------

    def enter(self, state: State, loop: Operation) -> None:
        """An instance begins with the tiles before its first one behind it."""
        if isinstance(loop, scf.ForOp) and (span := self.numbers.values.span(loop)).share > 1:
            self._step_over(state, loop, span.part)

    def end_tile(self, state: State, loop: Operation) -> None:
        """An instance has given back all that it got, and the others take a tile each."""
        if not isinstance(loop, scf.ForOp) or self.numbers.values.span(loop).share == 1:
            return
        for counter in self._counters:
            waited = "waits", self.numbers.waited(loop, counter[1])
            if state.values[waited] != state.values[counter]:
                raise self._refused("held", "holds slots at the end of a tile", loop)
        self._step_over(state, loop, self.numbers.values.span(loop).share - 1)

    def _step_over(self, state: State, loop: scf.ForOp, tiles: int) -> None:
        terms = self.lattice.terms
        for counter in self._counters:
            more = self.numbers.tile(loop, counter[1])
            state.values[counter] = terms.add(state.values[counter], more, tiles)

    # --- scalars ----------------------------------------------------------------------------------

    def slot(self, state: State, value: SSAValue) -> Term:
        """Return the number that a slot stands for, which is a step after another."""
        step = step_of(value)
        if step is None:
            return self.lattice.symbol()
        return self.lattice.terms.add(state.values[step.slot], state.values[step.more])

    def step(self, state: State, value: SSAValue) -> None:
        """Refuse a step that `is_slot` takes for one, and which may come to no slot of the ring."""
        step = step_of(value)
        if step is None or value not in self._stepped.get(step.depth, ()):
            return
        if not self._is_natural(state.values[step.more]):
            raise self._refused("cursor", "may step back in a ring", self.role)
        if not self.is_slot(step.slot, step.depth):
            raise self._refused("cursor", "may step from what is no slot of a ring", self.role)

    def flipped(self, state: State, value: SSAValue) -> Term:
        """Return the number that a phase stands for which is made of another."""
        terms, flip, depth = self.lattice.terms, flip_of(value), self.phases[value]
        if flip is None:
            return self.lattice.symbol()
        before = self.phase(state, flip.phase, depth)
        if flip.step is None:
            return terms.add(before, terms.constant(depth))
        slot, more, length = flip.step
        aligned = self.aligned(before, state.values[slot], depth)
        if aligned is None or length != depth or not self.is_slot(slot, depth):
            return self.lattice.symbol()
        number = state.values[more]
        return terms.add(aligned, number) if self._is_natural(number) else self.lattice.symbol()

    def phase(self, state: State, value: SSAValue, depth: int) -> Term:
        """Return the number that a phase stands for in rings of a depth."""
        match constant(value):
            case None if self.phases.get(value) == depth:
                return state.values[value]
            case 0 | 1 as number:
                return self.lattice.terms.constant(number * depth)
            case _:  # others are no parity of an mbarrier
                return self.lattice.symbol()

    def _is_natural(self, number: Term) -> bool:
        least = self.lattice.terms.least(number, self.lattice.natural | self.lattice.terms.natural)
        return least is not None and least >= 0

    def is_slot(self, value: SSAValue, slots: int) -> bool:
        """Tell whether a scalar is one of so many slots."""
        if (value, slots) not in self._slots:
            if not is_slot(value, slots, set(self._stepped.get(slots, ()))):
                return False
            self._slots.add((value, slots))
        return True

    def aligned(self, phase: Term, number: Term, depth: int) -> Term | None:
        """Return what a phase stands for as well, in the same revolution, that is a multiple of the
        depth from a number."""
        terms = self.lattice.terms
        if terms.residue(terms.sub(phase, number), depth) == 0:
            return phase
        one, other = terms.residue(phase, depth), terms.residue(number, depth)
        if one is None or other is None:
            return None
        return terms.add(phase, terms.constant(other - one))

    # --- rings ------------------------------------------------------------------------------------

    def wait(self, state: State, wait: hopper.Wait) -> None:
        """A role waits for its next number."""
        counter, depth = ("waits", wait.barriers), slots_of(wait.barriers)
        number = state.values[counter]
        phase = self.aligned(self.phase(state, wait.phase, depth), number, depth)
        ahead = None
        if phase is not None:
            terms = self.lattice.terms
            ahead = terms.residue(terms.sub(phase, number), 2 * depth)
        if ahead is None or self.numbers.leads.setdefault(wait.barriers, ahead) != ahead:
            raise self._misplaced("waits", wait)
        self._count(state, counter, wait)

    def arrive(self, state: State, arrival: Arrival) -> None:
        """A role arrives for its next number."""
        terms, array = self.lattice.terms, arrival.barriers
        counter = "arrivals", array
        number = state.values[counter]
        partners = self.numbers.rings.partners(array)
        for what, waited in self._counters:
            if what == "waits":
                handed = waited in partners
                behind = terms.number(terms.sub(state.values[what, waited], number))
                if handed:  # it holds the slot, for which it waited with this number
                    behind = 1
                elif self._instance:  # others may not have waited yet
                    behind = None
                elif behind is not None:
                    behind = min(behind, self._known(waited, arrival, behind))
                self.numbers.note((self.role, waited, array), behind)
        self._count(state, counter, arrival)

    def _known(self, waited: SSAValue, arrival: Arrival, behind: int) -> int:
        """Return of how many waits behind an arrival who arrives knows at most, where threads do
        not all wait and arrive, each for itself."""
        array = arrival.barriers
        alone = waited not in self._by_all, array not in self._by_each
        if all(alone) or self.role.warps.data == 1:
            return behind
        if not any(alone) and not _is_by_one(arrival) and waited is not array:
            return behind
        return 1 - slots_of(array) if waited is array else -slots_of(array)

    def _count(self, state: State, counter: Counter, operation: hopper.Wait | Arrival) -> None:
        terms, depth = self.lattice.terms, slots_of(operation.barriers)
        number, slot = state.values[counter], state.values[operation.slot]
        apart = terms.residue(terms.sub(slot, number), depth)
        if apart != 0 or not self.is_slot(operation.slot, depth):
            raise self._misplaced("waits" if counter[0] == "waits" else "arrives", operation)
        state.values[counter] = terms.add(number, terms.one)

    def _misplaced(self, does: str, operation: hopper.Wait | Arrival) -> Refused:
        return self._refused(
            "cursor",
            f"{does} at {label_of(operation.barriers)} where slot and phase are not shown to be "
            "those of its number",
            operation,
        )

    def _refused(self, name: str, what: str, operation: Operation) -> Refused:
        return Refused(rule(name), f"{self.role.label.data} {what}", operation)


def _is_by_one(arrival: Arrival) -> bool:
    """Tell whether a thread arrives for warps that it may be ahead of."""
    elected = isinstance(arrival, hopper.Arrive) and arrival.by.data not in ("warp", "all")
    return elected or isinstance(arrival, hopper.Expect) or is_alone(arrival)
