"""Normal forms: equal to what they are forms of, and the same for two ways to say one thing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tawa.simulator.proof.expressions import Expr, Expressions, Scalar
from tawa.simulator.proof.forms import Form, Forms, direction
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.numbers import trip_count

ARGUMENTS = ("a", "b", "c")
UNITS = {"a": 1, "b": 16, "c": 1}


class World:
    """Expressions of three arguments and the number of blocks, by which loops advance."""

    def __init__(self) -> None:
        self.expressions = Expressions()
        self.names = {
            name: self.expressions.unknown("argument", (name,), UNITS[name]) for name in ARGUMENTS
        }
        self.names["blocks"] = self.expressions.unknown("num_blocks", (0,), 1)
        self.forms = Forms(self.expressions.units, [self.names["blocks"]])

    def make(self, term: Any) -> Scalar:
        """Return an expression of tuples: (function, *args), a name or a number."""
        match term:
            case int():
                return term
            case str():
                return self.names[term]
            case (function, *args):
                made = [self.make(arg) for arg in args]
                if all(isinstance(arg, int) for arg in made):
                    return FUNCTIONS[function](*made)
                return self.expressions.apply(function, tuple(made))
        raise AssertionError(term)

    def form(self, term: Any) -> Form:
        return self.forms.of(self.make(term))

    def value(self, form: Form, numbers: dict[str, int]) -> int:
        """Compute a form from what its atoms are said to be."""
        return form[1] + sum(many * self.atom(at, numbers) for at, many in form[0])

    def atom(self, place: int, numbers: dict[str, int]) -> int:
        atom = self.forms.atoms[place]
        if isinstance(atom, Expr):
            name = next(name for name, item in self.names.items() if item is atom)
            return numbers[name] // UNITS.get(name, 1)
        function, args = atom
        return MEANINGS.get(function, FUNCTIONS.get(function))(
            *[self.value(arg, numbers) for arg in args]
        )


def rounded(x: int, by: int) -> int:
    return FUNCTIONS["idiv"](x, by) - (x // by)


MEANINGS: dict[str, Any] = {
    "positive": lambda x: int(x > 0),
    "zero": lambda x: int(x == 0),
    "above": lambda x: max(0, x),
    "down": lambda x, by: x // by,
    "over": lambda x, by: -(-x // by),
    "rounded": rounded,
    "product": lambda x, y: x * y,
    "both": lambda x, y: x * y,
    "unlike": lambda x, y: int(x != y),
    "select": lambda condition, apart: condition * apart,
}

COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
numbers = st.integers(-9, 9) | st.sampled_from([16, 64, -64, 100]) | st.sampled_from(ARGUMENTS)
numbers |= st.just("blocks")


def more(inner):
    truths = st.tuples(st.sampled_from(COMPARE), inner, inner)
    truths |= st.tuples(st.sampled_from(["and", "or", "xor"]), truths, truths)
    truths |= st.tuples(st.just("xor"), truths, st.just(1))
    sums = st.tuples(st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner)
    parts = st.tuples(
        st.sampled_from(["idiv", "irem"]),
        inner,
        st.sampled_from([1, 2, 3, 8, 64, "blocks", ("mul", 2, "blocks")]),
    )
    return sums | parts | truths | st.tuples(st.just("select"), truths, inner, inner)


terms = st.recursive(numbers, more, max_leaves=8)
given_numbers = st.fixed_dictionaries(
    {
        "a": st.integers(-70, 70),
        "b": st.integers(-9, 9).map(lambda n: 16 * n),
        "c": st.integers(-5, 5),
        "blocks": st.integers(1, 7),
    }
)


def evaluate(term: Any, numbers: dict[str, int]) -> int:
    match term:
        case int():
            return term
        case str():
            return numbers[term]
        case (function, *args):
            return FUNCTIONS[function](*[evaluate(arg, numbers) for arg in args])
    raise AssertionError(term)


@settings(max_examples=300)
@given(terms, st.lists(given_numbers, min_size=3, max_size=3))
def test_a_form_is_what_it_is_a_form_of(term, inputs):
    world = World()
    form = world.form(term)
    for each in inputs:
        assert world.value(form, each) == evaluate(term, each)


@settings(max_examples=200)
@given(terms, terms, st.sampled_from([1, 64, "blocks", ("mul", 3, "blocks")]), given_numbers)
def test_trips_are_those_of_a_loop(high, low, by, numbers):
    world = World()
    form = world.forms.trips(*[world.form(term) for term in (high, low, by)])
    wanted = trip_count(*[evaluate(term, numbers) for term in (high, low, by)])
    assert world.value(form, numbers) == wanted


ALIKE = {
    "comparisons turned": (("lt", "a", "c"), ("gt", "c", "a")),
    "and so much more": (("lt", "a", 5), ("le", "a", 4)),
    "negated": (("xor", ("le", "a", 4), 1), ("gt", "a", 4)),
    "De Morgan": (
        ("and", ("gt", "a", 4), ("lt", "c", 2)),
        ("xor", ("or", ("ge", "c", 2), ("le", "a", 4)), 1),
    ),
    "sides of a choice": (
        ("select", ("lt", "a", 3), "a", "c"), ("select", ("ge", "a", 3), "c", "a"),
    ),
    "a minimum by a maximum": (("min", "a", "c"), ("sub", ("add", "a", "c"), ("max", "c", "a"))),
    "multiples": (("lt", ("mul", 64, "a"), 200), ("le", "a", 3)),
    "units": (("lt", "b", 20), ("lt", "b", 32)),
    "the rest": (("irem", "a", 8), ("sub", "a", ("mul", 8, ("idiv", "a", 8)))),
    "more than the blocks": (
        ("lt", ("add", "a", "blocks"), "c"),
        ("gt", ("sub", "c", ("add", "blocks", "a")), 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_two_ways_to_say_one_thing(name):
    world = World()
    one, other = (world.form(term) for term in ALIKE[name])
    assert one == other


def test_what_differs_by_a_number_is_known_together():
    world = World()
    one, other = world.form(("mul", 2, ("add", "a", 5))), world.form(("sub", 7, "a"))
    assert one != other
    assert direction(one) == direction(other)
