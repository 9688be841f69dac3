"""What the lemmas of docs/design/proof.md say of integers, asked of z3: for all numbers of a ring,
all trip counts, all iterations. The facts are those that the check itself makes.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tawa.ir import parse
from tawa.ir.hopper import Role
from tawa.ir.walk import all_of
from tawa.verify.cursors import Cursors, Numbers
from tawa.verify.decisions import EXACT, Ahead, Decisions, Place
from tawa.verify.rings import rings_of
from tawa.verify.role_state import Lattice
from tawa.verify.system import Parity
from tawa.verify.terms import ALWAYS, Conditions, Holds, Term, Terms
from tawa.verify.values import Span, Values

DATA = Path(__file__).parent / "data"
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


def test_what_is_never_negative() -> None:
    """Of numbers of programs remainders, quotients, lesser ones, and recurrences."""
    terms = Terms()
    program, size = terms.atom(("program", 0)), terms.atom(("launch", "grid_extent", 0))
    anything, below = terms.atom(("argument", "n", 0)), terms.sub(program, terms.one)

    def is_natural(term: Term) -> bool:
        return Conditions(terms).positive(terms.add(term, terms.one)) == ALWAYS

    def function(name: str, a: Term, b: Term, kind: str = "i32") -> Term:
        return terms.function(name, kind, [a, b])

    def carried(start: Term, after: Term) -> Term:
        return terms.atom(("carried", 0, 0, start, after))

    found = [function(name, program, size) for name in ("irem", "idiv", "min")]
    found += [function("irem", program, anything), carried(size, program)]
    assert all(map(is_natural, found))
    others = [function(name, below, size) for name in ("irem", "idiv", "min")]
    others += [function(name, program, anything) for name in ("idiv", "min")]
    others += [function("xor", program, size), function("irem", program, size, "f32")]
    others += [carried(below, program), carried(program, anything)]
    assert not any(map(is_natural, others))


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


def phase_of(number: Any, depth: int) -> Any:
    return (number / depth) % 2


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_slot_and_a_phase_follow_the_number_that_they_stand_for(depth: int) -> None:
    """To advance adds 1, to step over numbers their count, to flip a phase the depth."""
    n, more = z3.Ints("n more")
    slot, phase = n % depth, phase_of(n, depth)
    wraps = slot + 1 == depth
    advanced = z3.If(wraps, 0, slot + 1), z3.If(wraps, 1 - phase, phase)
    stepped = (slot + more) % depth, (phase + (slot + more) / depth) % 2
    for (at, parity), later in ((advanced, n + 1), (stepped, n + more)):
        follows = z3.And(at == later % depth, parity == phase_of(later, depth))
        assert counterexample(n >= 0, more >= 0, z3.Not(follows)) is None
    assert counterexample(n >= 0, 1 - phase != phase_of(n + depth, depth)) is None


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slots_and_phases_are_those_of_a_number_where_the_terms_say_so(depth: int) -> None:
    """Random terms for a phase, a slot and a number: what the check takes for the same is it."""
    rng = random.Random(depth)
    kernel = parse((DATA / "gemm.hopper.mlir").read_text())
    lattice = Lattice(terms := Terms())
    numbers = Numbers(Values(kernel), rings_of(kernel))
    cursors = Cursors(all_of(kernel, Role)[0], numbers, lattice, set(), {})
    values = {terms.atom(("argument", name, n)): z3.Int(name) for n, name in enumerate("xy")}
    said = 0
    for _ in range(200):

        def drawn() -> Term:
            term = terms.constant(rng.randrange(-3, 9))
            for atom in values:
                term = terms.add(term, atom, rng.choice((0, 1, depth, 2 * depth)))
            return term

        slot, phase, number = drawn(), drawn(), drawn()
        p, q, n = (meaning(terms, each, values) for each in (slot, phase, number))
        if terms.residue(terms.sub(slot, number), depth) == 0:
            assert counterexample(p % depth != n % depth) is None
        aligned = cursors.aligned(phase, number, depth)
        if aligned is None:
            continue
        a = meaning(terms, aligned, values)
        same = z3.And(phase_of(a, depth) == phase_of(q, depth), (a - n) % depth == 0)
        assert counterexample(z3.Not(same)) is None
        ahead = terms.residue(terms.sub(aligned, number), 2 * depth)
        if ahead is not None:
            said += 1
            assert counterexample(phase_of(q, depth) != phase_of(n + ahead, depth)) is None
    assert said > 10


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
