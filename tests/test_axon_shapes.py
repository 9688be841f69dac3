"""The solver of shapes against all words of up to two dimensions, and guards against isl."""

from __future__ import annotations

import random
from itertools import pairwise, permutations, product
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tawa.axon.shapes import constraints as c
from tawa.axon.shapes.presburger import implied, is_possible, simplify
from tawa.axon.shapes.solver import Conflict, Solver
from tawa.axon.shapes.words import Fresh, Source, Span
from tawa.integers import any_of, at_least, broadcast, constant, divides, equal
from tawa.integers.conditions import all_of, holds

HERE = Source(1, "test", Span(1, 1, 2), Span(1, 1, 2))
WORDS = [word for rank in range(3) for word in product((1, 2), repeat=rank)]

items = st.sampled_from(["A", "B", "C", "x", "y", 1, 2])
words = st.lists(items, max_size=3).map(tuple)
relations = st.one_of(
    st.tuples(st.just("same"), words, words),
    st.tuples(st.just("same"), words, words),
    st.tuples(st.just("broadcast"), words, words, words),
    st.tuples(st.just("product"), st.sampled_from(["x", "y", 1, 2, 4]), words),
    st.tuples(st.just("rank"), st.sampled_from(["x", "y", 1, 2]), words),
    st.tuples(st.just("at"), st.sampled_from(["x", 1, 2]), words, st.integers(-2, 1)),
    st.tuples(st.just("axis"), st.integers(-2, 2), words, words),
    st.tuples(
        st.just("permute"), words, words, st.sampled_from([*permutations((0, 1)), (0, 0), (-1, 0)])
    ),
    st.tuples(
        st.sampled_from(["drop", "ones"]), words, words, st.sampled_from([(), (0,), (-1,), (0, 1)])
    ),
    st.tuples(st.just("insert"), words, words, st.sampled_from([(0,), (1,), (-1,), (0, 1)])),
    st.tuples(st.just("uniform"), words, st.sampled_from(["x", 1, 2])),
    st.tuples(st.just("twice"), words, words),
)


def meant(relation, values):
    """Whether a relation holds for values of its variables."""

    def word(given):
        found = []
        for item in given:
            value = values.get(item, item)
            found.extend(value if isinstance(value, tuple) else [value])
        return tuple(found)

    match relation:
        case ("same", a, b):
            return word(a) == word(b)
        case ("broadcast", result, a, b):
            try:
                return word(result) == np.broadcast_shapes(word(a), word(b))
            except ValueError:
                return False
        case ("product", size, a):
            return values.get(size, size) == prod(word(a))
        case ("rank", size, a):
            return values.get(size, size) == len(word(a))
        case ("at", size, a, index):
            found = word(a)
            inside = -len(found) <= index < len(found)
            return inside and found[index] == values.get(size, size)
        case ("axis", index, before, after):
            return len(word(before)) == index if index >= 0 else len(word(after)) == -index - 1
        case ("permute", result, a, order):
            found = np.zeros(word(a))
            if found.ndim != len(order) or len({o % found.ndim for o in order}) < found.ndim:
                return False
            return np.transpose(found, order).shape == word(result)
        case (("drop" | "ones") as kind, result, a, axes):
            found = np.zeros(word(a))
            if any(not -found.ndim <= axis < found.ndim for axis in axes):
                return False
            if len({axis % found.ndim for axis in axes}) < len(axes):
                return False
            return found.sum(axis=axes, keepdims=kind == "ones").shape == word(result)
        case ("insert", result, a, axes):
            found = word(a)
            rank = len(found) + len(axes)
            if any(not -rank <= axis < rank for axis in axes):
                return False
            return np.expand_dims(np.zeros(found), axes).shape == word(result)
        case ("uniform", a, size):
            return all(item == values.get(size, size) for item in word(a))
        case ("twice", a, b):
            return word(a) == tuple(2 * item for item in word(b))


class Variables:
    def __init__(self):
        self.fresh = Fresh()
        self.rows = {name: self.fresh.row(name) for name in "ABC"}
        self.dims = {name: self.fresh.dim(name) for name in "xy"}

    def size(self, item):
        return constant(item) if isinstance(item, int) else self.dims[item]

    def word(self, given):
        return tuple([self.rows[i] if i in self.rows else self.size(i) for i in given])

    def constraint(self, relation):
        numbers = lambda given: tuple([constant(n) for n in given])  # noqa: E731
        match relation:
            case ("same", a, b):
                return c.SameWord(HERE, self.word(a), self.word(b))
            case ("broadcast", result, *inputs):
                return c.Computed(
                    HERE, self.word(result), "broadcast", tuple(map(self.word, inputs))
                )
            case ("product", size, a):
                return c.Product(HERE, self.size(size), self.word(a))
            case ("rank", size, a):
                return c.Rank(HERE, self.size(size), self.word(a))
            case ("at", size, a, index):
                return c.At(HERE, self.size(size), self.word(a), constant(index))
            case ("axis", index, before, after):
                return c.Axis(HERE, constant(index), self.word(before), self.word(after))
            case ("permute", result, a, order):
                return c.Computed(
                    HERE, self.word(result), "permute", (self.word(a), numbers(order))
                )
            case (("drop" | "ones") as kind, result, a, axes):
                kept = kind == "ones"
                return c.Computed(
                    HERE,
                    self.word(result),
                    "ones" if kept else "drop",
                    (self.word(a), numbers(axes)),
                )
            case ("insert", result, a, axes):
                return c.Computed(HERE, self.word(result), "insert", (self.word(a), numbers(axes)))
            case ("uniform", a, size):
                return c.uniform(HERE, self.word(a), self.size(size))
            case ("twice", a, b):
                one, other = self.fresh.symbol("one"), self.fresh.symbol("other")
                from tawa.integers.expressions import of_atom

                condition = equal(of_atom(one), 2 * of_atom(other))
                words = self.word(a), self.word(b)
                return c.Pointwise(HERE, (condition,), (one, other), words)


@settings(max_examples=80, deadline=None)
@given(st.lists(relations, min_size=1, max_size=4))
def test_what_is_solved_is_neither_more_nor_less_than_what_was_asked(asked):
    names = sorted({i for r in asked for part in r[1:] for i in _names(part)})
    domains = [WORDS if name.isupper() else range(5) for name in names]
    true, false = [], []
    for values in product(*domains):
        chosen = dict(zip(names, values))
        (true if all(meant(relation, chosen) for relation in asked) else false).append(chosen)
    rng = random.Random(len(false))
    some = [(chosen, True) for chosen in rng.sample(true, min(len(true), 40))]
    some += [(chosen, False) for chosen in rng.sample(false, min(len(false), 40))]
    for chosen, expected in some:
        made = Variables()
        solver = Solver(made.fresh)
        try:
            for relation in asked:
                solver.post(made.constraint(relation))
            solver.settle()  # what follows from the relations alone must not lose a solution
            for name, value in chosen.items():
                word = value if isinstance(value, tuple) else (value,)
                solver.post(c.SameWord(HERE, made.word((name,)), made.word(word)))
            solver.settle()
            found = True
        except Conflict:
            found = False
        assert found == expected, (asked, chosen)
        if found:
            assert not solver.waiting
            assert not solver.facts


def _names(part):
    if isinstance(part, str):
        return [part]
    return [i for i in part if isinstance(i, str)] if isinstance(part, tuple) else []


@st.composite
def conditions(draw, depth=1):
    sizes = SIZES
    form = sum((draw(st.integers(-3, 3)) * s for s in sizes), constant(draw(st.integers(-4, 4))))
    kind = draw(st.sampled_from(["equal", "least", "divides", "floor", "broadcast", "any", "prod"]))
    match kind:
        case "equal":
            return equal(form)
        case "least":
            return at_least(form)
        case "divides":
            return divides(draw(st.integers(2, 4)), form)
        case "floor":
            return equal(2 * (form // draw(st.integers(2, 3))), sizes[0])
        case "broadcast":
            return at_least(broadcast(sizes[0], sizes[1]), draw(st.integers(0, 3)))
        case "prod":
            return equal(sizes[0] * sizes[1], draw(st.integers(0, 4)) * sizes[2])
        case _:
            if not depth:
                return equal(form)
            return any_of([draw(conditions(depth=0)), draw(conditions(depth=0))])


SIZES = [Fresh().dim(name) for name in "abc"]


@settings(max_examples=80, deadline=None)
@given(st.lists(conditions(), min_size=1, max_size=4))
def test_simplified_guards_say_what_the_conditions_say(asked):
    simple = simplify(asked)
    possible = is_possible(asked)
    last = implied(asked[-1], asked[:-1]) if asked[:-1] else False
    symbols = [next(iter(size.symbols)) for size in SIZES]
    whole = all_of(asked)
    for numbers in product(range(6), repeat=3):
        values = dict(zip(symbols, numbers))
        expected = holds(whole, values)
        assert all(holds(condition, values) for condition in simple) == expected
        assert possible or not expected
        if last and all(holds(condition, values) for condition in asked[:-1]):
            assert expected


def test_windows_and_levels():
    (h,) = SIZES[:1]
    down = [h]
    for _ in range(5):
        down.append((down[-1] + 1) // 2)
    levels = [equal(2 * small, large) for large, small in pairwise(down)]
    assert [str(g) for g in simplify(levels)] == ["a % 32 == 0"]
    half = (h + 1) // 2
    assert [str(g) for g in simplify([equal(2 * half, h), divides(7, half)])] == ["a % 14 == 0"]
