"""What the lemmas of docs/design/proof.md say of integers, asked of z3: for all numbers of a ring,
all trip counts, all iterations. The facts are those that the check itself makes.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from tawa.verify.conditions import Conditions, Holds
from tawa.verify.cursors import Cursors, Fact, Facts, Operand, Parity
from tawa.verify.decisions import EXACT, Ahead, Decisions, Place
from tawa.verify.terms import Term, Terms
from tawa.verify.values import Span

z3 = pytest.importorskip("z3", reason="z3-solver is of the test extra")


ORDERS = "QF_IDL"
"""Differences of integers, and nothing else: what comes before what."""


def counterexample(*claims: Any, logic: str = "") -> Any:
    """Return numbers for which all claims hold, None where there are none."""
    solver = z3.SolverFor(logic) if logic else z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*claims)
    found = solver.check()
    assert found != z3.unknown, solver.reason_unknown()
    return solver.model() if found == z3.sat else None


# --- what terms say -------------------------------------------------------------------------------


def meaning(terms: Terms, term: Term, of: dict[Term, Any]) -> Any:
    """A sum of numbers times arguments, for z3."""
    total: Any = z3.IntVal(0)
    for atom, value in of.items():
        parts = terms.linear(term, atom)
        assert parts is not None
        factor = terms.number(parts[1])
        assert factor is not None
        term, total = parts[0], total + factor * value
    number = terms.number(term)
    assert number is not None
    return total + number


# --- Lemma 2: what an answer decides --------------------------------------------------------------


def test_a_family_ends_once() -> None:
    """If an iteration is not made no later one is, whatever the length and the step."""
    length, step, i, later = z3.Ints("length step i later")
    goes_on = length - step * later > 0
    assert counterexample(step > 0, later >= i, length - step * i <= 0, goes_on) is None
    assert counterexample(later >= i, length - step * i <= 0, goes_on) is not None


@pytest.mark.parametrize("step", [1, 2, 3, 64])
@pytest.mark.parametrize("length", [-5, 0, 1, 6, 7, 1000])
def test_the_end_of_a_loop_of_numbers(length: int, step: int) -> None:
    decisions = Decisions(Conditions(terms := Terms()), slots=5)
    loop = decisions.loop(Span(terms.constant(length), terms.constant(step)), 0)
    end, i = decisions.ends[loop], z3.Int("i")
    assert counterexample(i >= 0, (length - step * i > 0) != (i < end)) is None


@pytest.mark.parametrize("b", [-7, -2, -1, 0, 1, 2, 7])
@pytest.mark.parametrize("a", [-3, -1, 1, 2])
@pytest.mark.parametrize("what", ["positive", "zero"])
def test_conditions_on_iterations_do_not_change_beyond_those_met_exactly(
    what: str, a: int, b: int
) -> None:
    conditions = Conditions(terms := Terms())
    decisions = Decisions(conditions, slots=100)
    x = terms.add(terms.constant(b), terms.iteration(0), a)
    positive = what == "positive"
    made = conditions.positive(x) if positive else conditions.equal(x, terms.zero)
    decisions.learn(made, guards=True)
    first, i = decisions.exact(0), z3.Int("i")

    def holds(at: Any) -> Any:
        return a * at + b > 0 if what == "positive" else a * at + b == 0

    assert counterexample(i > first, holds(i) != holds(first + 1)) is None


def test_what_others_knew_under_a_tag_is_not_of_who_gets_it_next() -> None:
    """One has left a loop whose end it found, 4 + c for its own c; another one comes beyond the
    iterations that are met exactly, and asks for the same end."""
    decisions = Decisions(Conditions(terms := Terms()))
    end = decisions.loop(Span(terms.atom(("argument", "n", 0)), terms.one), 0)
    none = frozenset[int | Holds]()
    left = Place((), (), (Ahead(False, none, none),), ended=True)
    rest = Ahead(False, none, frozenset({end})), Ahead(False, none, none)
    comes = Place(((EXACT, 5),), ((end, 1),), rest, ended=False)
    known, labels = decisions.settled({(end, (), 0): (3, 4)}, [left, comes], 1)
    assert labels == [(), ((0, 0),)]
    assert (end, (), 0) not in known


# --- Lemma 3a: what scalars stand for -------------------------------------------------------------


def stands_for(fact: Fact, value: Any, n: Any, depth: int, far: Any) -> Any:
    """What a fact says of a scalar where numbers are counted from `n`."""
    at = n + fact.at + far(fact.far)
    match fact.kind:
        case "slot":
            return value == at % depth
        case "raw":
            return value == (at - 1) % depth + 1
        case "wraps":
            return value == (at % depth == 0)
        case "phase":
            return value == (at / depth + fact.flip) % 2
        case _:
            assert fact.over is not None
            began, before = fact.over
            start = n + began + far(before)
            turns = (start % depth + at - start) / depth
            return value == {"place": start % depth + at - start, "turns": turns}.get(
                fact.kind, turns % 2
            )


def applied(name: str, inputs: list[Any], depth: int) -> Any:
    match name:
        case "add":
            return inputs[0] + inputs[1]
        case "eq":
            return inputs[0] == inputs[1]
        case "select":
            return z3.If(inputs[0], inputs[1], inputs[2])
        case "xor":  # of 0 and 1
            return (inputs[0] + inputs[1]) % 2
        case "irem":
            return inputs[0] % depth
        case "idiv":
            return inputs[0] / depth
        case _:
            return inputs[0] % 2  # and 1


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scalars_stand_for_the_numbers_that_they_are_said_to(depth: int) -> None:
    """Random programs of what slots and phases are made of, from any number on, over any step."""
    rng = random.Random(depth)
    terms = Terms()
    cursors = Cursors((depth,), terms)
    n, m = z3.Ints("n m")
    amount = terms.atom(("argument", "m", 0))
    phase_at = rng.randrange(depth)
    scalars: list[tuple[Facts, Any]] = [
        (frozenset({Fact("slot", 0, 0, terms.zero)}), n % depth),
        (frozenset({Fact("phase", 0, 0, terms.zero)}), (n / depth) % 2),
        (frozenset({Fact("phase", 0, phase_at, terms.zero, 1)}), ((n + phase_at) / depth + 1) % 2),
    ]
    functions = ("add", "eq", "select", "select", "xor", "xor", "step", "irem", "idiv", "and")
    kinds: set[str] = set()
    for _ in range(400):
        name = rng.choice(functions)
        facts, value = rng.choice(scalars)
        other, its = rng.choice(scalars)
        step: Term | None = None
        given: list[tuple[Operand, Any]]
        match name:
            case "add" | "xor" | "and":
                given = [(facts, value), (1, 1)]
                if name == "xor" and rng.random() < 0.5:
                    given = [(facts, value), (other, its)]
            case "step":
                name, step, given = "add", amount, [(facts, value), (frozenset(), m)]
            case "select":
                third, last = rng.choice(scalars)
                given = [(facts, value), rng.choice([(0, 0), (other, its)]), (third, last)]
            case _:
                given = [(facts, value), (depth, depth)]
        if any(z3.is_bool(each) for _, each in given[name == "select" :]):
            continue
        if name == "select" and not z3.is_bool(value):
            continue
        made = cursors.apply(name, [each for each, _ in given], step)
        if not made or any(made == each for each, _ in scalars):
            continue
        result = applied(name, [each for _, each in given], depth)
        kinds |= {fact.kind for fact in made}
        for fact in made:
            said = stands_for(fact, result, n, depth, lambda far: meaning(terms, far, {amount: m}))
            assert counterexample(n >= 0, m >= 0, z3.Not(said)) is None, (name, given, fact)
        scalars.append((made, result))
    assert kinds >= {"slot", "raw", "wraps", "phase", "place", "turns", "odd"}


def test_the_next_slot_and_phase_of_a_ring_of_any_depth() -> None:
    depth, n, turns, slot = z3.Ints("depth n turns slot")
    number = [n == turns * depth + slot, slot >= 0, slot < depth]
    wraps = slot + 1 == depth
    later, at = z3.If(wraps, turns + 1, turns), z3.If(wraps, 0, slot + 1)
    follows = z3.And(n + 1 == later * depth + at, at >= 0, at < depth)
    assert counterexample(*number, z3.Not(follows)) is None


# --- Lemma 3b: parity -----------------------------------------------------------------------------


@pytest.mark.parametrize(("least", "most", "exact"), [(0, 1, True), (-1, 1, False), (0, 2, False)])
def test_a_wait_of_a_parity_is_for_its_phase(least: int, most: int, exact: bool) -> None:
    """So many phases less k are complete: the one before was seen, the one after is not over."""
    phase, complete = z3.Ints("phase complete")
    passes = complete % 2 != phase % 2  # the phase of this parity is not the open one
    between = [phase >= 0, complete >= 0, complete - phase >= least, complete - phase <= most]
    told = counterexample(*between, passes != (complete > phase))
    assert (told is None) == exact


def test_waits_that_are_said_not_to_be_mistaken_come_before_the_next_phase() -> None:
    """Random agents and rings: when each does what, as z3 may choose it, but for their orders."""
    rng = random.Random(7)
    accepted = refused = 0
    window = range(-4, 10)
    for _ in range(20):
        depths = [rng.choice((1, 2, 3)) for _ in range(2)]
        leads = {0: 0, 1: depths[1]}
        waiters, arrivers = {0: [1], 1: [0]}, {0: [0], 1: [1]}
        least = {(0, 1, 0): rng.randrange(-1, 3), (1, 0, 1): rng.randrange(-1, 3)}
        parity = Parity(depths, leads, waiters, arrivers, least)
        waits = {r: {n: z3.Int(f"wait {r} {n}") for n in window} for r in (0, 1)}
        arrivals = {r: {n: z3.Int(f"arrive {r} {n}") for n in window} for r in (0, 1)}
        order: list[Any] = []
        for ring in (0, 1):
            for each in (waits, arrivals):
                order += [each[ring][a] < each[ring][b] for a, b in pairwise(window)]
            for n in window:  # a wait is answered by the arrival of its number
                if n - leads[ring] in window:
                    order.append(arrivals[ring][n - leads[ring]] < waits[ring][n])
        for (_, waited, arrived), behind in least.items():
            for n in window:
                if n + behind - 1 in window:
                    order.append(waits[waited][n + behind - 1] < arrivals[arrived][n])
        if counterexample(*order, logic=ORDERS) is None:
            continue  # the agents hang
        mistaken = {ring for ring, _ in parity.mistaken()}
        for ring in (0, 1):
            late = arrivals[ring][4 + depths[ring] - leads[ring]] < waits[ring][4]
            assert (ring in mistaken) == (counterexample(*order, late, logic=ORDERS) is not None)
            accepted += ring not in mistaken
            refused += ring in mistaken
    assert accepted > 2
    assert refused > 2
