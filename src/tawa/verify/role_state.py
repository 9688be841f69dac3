"""What is known at a point of a role, and how two such states are joined (Lemma 5).

A state holds for all threads of a role, which are convergent. Its parts:

- `values`: the terms of scalars. A position in a ring is the number of the position: what is
  wrapped at the end of a ring (add, eq depth, select) is the number after it. Waits and arrivals
  are counted like scalars (`cursors.py`).
- `truths`: which terms are known to be positive, or not.
- `must`: facts that hold on every path (a slot is held or written, products are fenced).
- `may`: what is not over on some path: accesses to shared memory, stores that are not written. A
  fact that is worse on one path is as bad after the join: its numbers are the least of both.
- `names`, `sets`: which registers a tensor names, and what products do with them.
- `owed`: puts by TMA that have begun; where states are joined there is none, or the same.

Facts end in the number of a slot. Where two states are joined whose scalars differ, those that
differ by the same amount stay together: `a` and `a + d` become `a + s` with one new symbol s for
each d, in scalars and facts alike.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from xdsl.ir import SSAValue

from tawa.ir import hopper
from tawa.verify.rings import Access
from tawa.verify.terms import Atom, Term, Terms

OVER = 1 << 30
"""The age of what is done, and of registers that no product has."""
FINISHED = OVER - 1
"""The age of a product that is done and that no wait has named."""


class Fact(NamedTuple):
    """What holds of a thing: a slot is "held" or "fenced", or was "written", an access "put" what
    it writes there, or there was a "wgmma fence"; `alone` for one thread only.
    """

    kind: str
    thing: SSAValue | Access | None = None
    alone: bool = False
    number: Term = 0


class Key(NamedTuple):
    """What may not be over: an "access", a store that is not yet "written", or a "wait" of which
    not all may know."""

    kind: Literal["access", "written", "wait"]
    thing: Access | hopper.Wait
    number: Term


class Status(NamedTuple):
    """How far something is: `age` counts the groups committed since, `OVER` where it is done;
    `level` says who knows of that: 0 its own threads, 1 their warpgroup, 2 the role; `fenced` who
    knows that its threads have fenced the proxy since, -1 where they have not.
    """

    age: int
    level: int
    fenced: int


class Registers(NamedTuple):
    """The registers of a tensor: the ages of the products that accumulate in them and that read
    them as operand A, and whether something has written them.
    """

    product: int = OVER
    operand: int = OVER
    filled: int = 1


Counter: TypeAlias = tuple[str, SSAValue]
"""What is counted like a scalar: "waits" for, or "arrivals" at, an array of barriers."""
Name: TypeAlias = tuple[int, bool]
"""Which registers a tensor names, and whether they have a newer name."""


@dataclass(slots=True)
class State:
    """What is known at a point of a role."""

    values: dict[SSAValue | Counter, Term] = field(default_factory=dict[SSAValue | Counter, Term])
    truths: dict[Term, bool] = field(default_factory=dict[Term, bool])
    must: set[Fact] = field(default_factory=set[Fact])
    may: dict[Key, Status] = field(default_factory=dict[Key, Status])
    names: dict[SSAValue, Name] = field(default_factory=dict[SSAValue, Name])
    sets: dict[int, Registers] = field(default_factory=dict[int, Registers])
    owed: dict[SSAValue, tuple[Term, int]] = field(default_factory=dict[SSAValue, tuple[Term, int]])
    """By array of barriers: the slot of a put that has begun, and the bytes still to be copied."""

    def copy(self) -> State:
        """Return a state of its own that knows the same."""
        return State(
            dict(self.values),
            dict(self.truths),
            set(self.must),
            dict(self.may),
            dict(self.names),
            dict(self.sets),
            dict(self.owed),
        )


@dataclass(slots=True)
class Steady:
    """A state for every iteration from some one on: `iteration` counts these, from 0. `others`
    are symbols of what grows by unlike amounts, each with a scalar that has it.
    """

    state: State
    iteration: Term
    others: tuple[tuple[Term, SSAValue | Counter], ...]


@dataclass(slots=True)
class Lattice:
    """Joins the states of one role."""

    terms: Terms
    natural: set[Atom] = field(default_factory=set[Atom])
    _symbols: list[Atom] = field(default_factory=list[Atom])
    _numbers: count[int] = field(default_factory=count)

    def symbol(self, natural: bool = False) -> Term:
        """Return a number of which nothing is known but, perhaps, that it is not negative."""
        term = self.terms.atom(("symbol", len(self._symbols)))
        (atom,) = self.terms.atoms(term)
        self._symbols.append(atom)
        if natural:
            self.natural.add(atom)
        return term

    def registers(self) -> int:
        """Return a number for registers that nothing has named yet."""
        return next(self._numbers)

    # --- conditions -------------------------------------------------------------------------------

    def decide(self, state: State, x: Term) -> bool | None:
        """Tell whether x > 0, None where that is not known."""
        terms = self.terms
        least = terms.least(x, self.natural)
        if least is not None and least > 0:
            return True
        most = terms.least(terms.scale(x, -1), self.natural)
        if most is not None and most >= 0:
            return False
        for known, holds in state.truths.items():
            apart = terms.least(terms.sub(x, known) if holds else terms.sub(known, x), self.natural)
            if apart is not None and apart >= 0:
                return holds
        return None

    def assume(self, state: State, x: Term, holds: bool) -> State | None:
        """Return a state in which x > 0 does or does not hold, None where it cannot be."""
        known = self.decide(state, x)
        if known is not None:
            return state.copy() if known == holds else None
        found = state.copy()
        found.truths[x] = holds
        return found

    # --- joins ------------------------------------------------------------------------------------

    def join(self, one: State, other: State) -> State:
        """Return a state that holds wherever one of two does."""
        moves = {
            apart: self.symbol(self._rises(apart))
            for apart in self._apart(one, other)
            if apart != self.terms.zero
        }
        return self._joined(one, other, moves)

    def join_all(self, states: Iterable[State]) -> State | None:
        """Return a state that holds wherever one of some does, None of none."""
        found: State | None = None
        for state in states:
            found = state if found is None else self.join(found, state)
        return found

    def steady(self, one: State, following: State, since: int, odd: Container[Term] = ()) -> Steady:
        """Return a state for each iteration from that of `one` on, if what is different in the
        following one goes on in this way; symbols from number `since` on are of one iteration, and
        amounts that are `odd` are others in each.
        """
        inside = set(self._symbols[since:])
        moves: dict[Term, Term] = {}
        others: list[tuple[Term, SSAValue | Counter]] = []
        iteration = self.symbol(True)
        for apart, value in self._apart(one, following).items():
            if apart == self.terms.zero:
                continue
            if apart in odd or self.terms.atoms(apart) & inside:
                moves[apart] = self.symbol(self._rises(apart))
                others.append((moves[apart], value))
            else:
                moves[apart] = self.terms.mul(apart, iteration)
        return Steady(self._joined(one, following, moves), iteration, tuple(others))

    @property
    def symbols(self) -> int:
        """How many symbols were made."""
        return len(self._symbols)

    def _rises(self, apart: Term) -> bool:
        least = self.terms.least(apart, self.natural)
        return least is not None and least >= 0

    def _apart(self, one: State, other: State) -> dict[Term, SSAValue | Counter]:
        """Return by how much scalars of two states differ, each with one of those that do."""
        found: dict[Term, SSAValue | Counter] = {}
        for value, term in one.values.items():
            follows = other.values.get(value, term)
            if follows != term:
                found.setdefault(self.terms.sub(follows, term), value)
        return found

    def _joined(self, one: State, other: State, moves: Mapping[Term, Term]) -> State:
        terms = self.terms

        def moved(number: Term, apart: Term) -> tuple[Term, Term]:
            return terms.add(number, apart), terms.add(number, moves[apart])

        values: dict[SSAValue | Counter, Term] = {}
        for value, term in one.values.items():
            follows = other.values.get(value)
            if follows == term:
                values[value] = term
            elif follows is not None:
                values[value] = terms.add(term, moves[terms.sub(follows, term)])
        must = one.must & other.must
        for apart in moves:
            for fact in one.must:
                later, between = moved(fact.number, apart)
                if fact._replace(number=later) in other.must:
                    must.add(fact._replace(number=between))
        may: dict[Key, Status] = {}
        gone_on: tuple[set[Key], set[Key]] = set(), set()
        for key, status in one.may.items():
            for apart in moves:
                later, between = moved(key.number, apart)
                same = key._replace(number=later)
                if same in other.may:
                    gone_on[0].add(key)
                    gone_on[1].add(same)
                    _worst(may, key._replace(number=between), status, other.may[same])
        for side, matched in zip((one, other), gone_on, strict=True):
            for key, status in side.may.items():
                if key not in matched:
                    _worst(may, key, status)
        truths = {x: holds for x, holds in one.truths.items() if other.truths.get(x) == holds}
        names, sets = self._names(one, other)
        return State(values, truths, must, may, names, sets, dict(one.owed))

    def _names(self, one: State, other: State) -> tuple[dict[SSAValue, Name], dict[int, Registers]]:
        """Join names: registers that are one in either state are one afterwards."""
        if one.names == other.names and one.sets == other.sets:
            return dict(one.names), dict(one.sets)
        leader: dict[tuple[int, int], tuple[int, int]] = {}

        def find(at: tuple[int, int]) -> tuple[int, int]:
            while leader.get(at, at) != at:
                at = leader[at]
            return at

        for name, (mine, stale) in one.names.items():
            its = other.names.get(name)
            if its is not None and not stale and not its[1]:
                leader[find((0, mine))] = find((1, its[0]))
        made: dict[tuple[int, int], int] = {}
        sets: dict[int, Registers] = {}

        def number(at: tuple[int, int]) -> int:
            at = find(at)
            if at not in made:
                made[at] = self.registers()
            return made[at]

        def put(at: int, *found: Registers) -> None:
            for registers in found:
                sets[at] = _least(sets.get(at, registers), registers)

        joined: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for at in list(leader):
            joined.setdefault(find(at), {find(at)}).add(at)
        names: dict[SSAValue, Name] = {}
        for name in (*one.names, *(each for each in other.names if each not in one.names)):
            mine, its = one.names.get(name), other.names.get(name)
            if mine is not None and its is not None and (mine[1] or its[1]):
                both = {(0, mine[0]), (1, its[0])}
                if joined.get(find((0, mine[0]))) == both:  # one, by a newer name in each
                    names[name] = (number((0, mine[0])), True)
                    continue
                names[name] = (self.registers(), True)
                put(names[name][0], one.sets[mine[0]], other.sets[its[0]])
            elif mine is not None:
                names[name] = (number((0, mine[0])), mine[1])
            elif its is not None:
                names[name] = (number((1, its[0])), its[1])
        for side, state in ((0, one), (1, other)):
            for registers, held in state.sets.items():
                if find((side, registers)) in made:
                    put(number((side, registers)), held)
        return names, sets

    # --- repeating --------------------------------------------------------------------------------

    def _later(self, steady: Steady, following: State) -> Callable[[Term], Term | None]:
        """Return what tells what a term is in the next iteration."""
        terms, state = self.terms, steady.state
        shifts = [(steady.iteration, terms.one)]
        for symbol, value in steady.others:
            apart = terms.sub(following.values[value], state.values[value])
            shifts.append((symbol, apart))

        @cache
        def later(term: Term) -> Term | None:
            for symbol, apart in shifts:
                parts = terms.linear(term, symbol)
                if parts is None:
                    return None
                if parts[1] != terms.zero:
                    term = terms.add(term, terms.mul(parts[1], apart))
            return term

        return later

    def repeats(self, steady: Steady, following: State, since: int) -> Steady | bool:
        """Tell whether one more iteration of a steady state leads to the state of the next one. If
        it does for less than the state says, return one that says less: scalars that do not go on
        as it says grow by unlike amounts, which are one for those that grow alike.
        """
        state, later = steady.state, self._later(steady, following)
        for symbol, value in steady.others:
            (atom,) = self.terms.atoms(symbol)
            apart = self.terms.sub(following.values[value], state.values[value])
            if atom in self.natural and not self._rises(apart):
                self.natural.remove(atom)
                return steady
        odd = {
            self.terms.sub(after, term)
            for value, term in state.values.items()
            if (after := following.values.get(value, term)) != later(term)
        }
        if odd:
            return self.steady(state, following, since, odd)
        expected: dict[Key, Status] = {}
        for key, status in state.may.items():
            number = later(key.number)
            if number is None:
                return False
            _worst(expected, key._replace(number=number), status)
        for key, status in following.may.items():
            known = expected.get(key)
            if known is None or _least(known, status) != known:
                return False
        lost = {
            fact
            for fact in state.must
            if (number := later(fact.number)) is None
            or fact._replace(number=number) not in following.must
        }
        untrue = {x for x, holds in state.truths.items() if following.truths.get(x) != holds}
        state.must -= lost
        for x in untrue:
            del state.truths[x]
        if not _names_repeat(state, following):
            state.names, state.sets = self._names(state, following)
            return steady
        return steady if lost or untrue else True


def _names_repeat(state: State, following: State) -> bool:
    same: dict[int, int] = {}
    newer: dict[int, int] = {}
    """By registers of a name that is not stale: those it names in the following state."""
    for name, (registers, stale) in state.names.items():
        if not stale and name in following.names:
            newer[registers] = following.names[name][0]
    for name, (registers, stale) in following.names.items():
        known = state.names.get(name)
        if known is None:
            return False
        held = state.sets[known[0]]
        if (stale and not known[1]) or _least(held, following.sets[registers]) != held:
            return False
        if stale and newer.get(known[0], registers) != registers:
            return False
        if not stale and not known[1] and same.setdefault(registers, known[0]) != known[0]:
            return False
    return True


Worst = TypeVar("Worst", Status, Registers)


def _least(one: Worst, other: Worst) -> Worst:
    """Return the worse of two: the least number of each."""
    return type(one)(*map(min, one, other))


def _worst(may: dict[Key, Status], key: Key, *found: Status) -> None:
    for status in found:
        may[key] = _least(may.get(key, status), status)
