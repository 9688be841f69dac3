"""The library of integer facts against plain arithmetic, by brute force over small numbers."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tawa.integers import (
    Range,
    all_of,
    any_of,
    at_least,
    broadcast,
    ceildiv,
    constant,
    divides,
    equal,
    maximum,
    minimum,
    range_of,
    render,
    symbol,
)
from tawa.integers.conditions import decide, holds, substituted, symbols_of

X, Y, Z = (symbol(name) for name in "xyz")
NAMES = ("x", "y", "z")


@cache  # making a strategy takes longer than drawing from it
def trees(depth=3):
    leaf = st.one_of(st.integers(-4, 6), st.sampled_from(NAMES))
    numbers = st.integers(1, 5)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%", "ceildiv"]), inner, numbers),
            st.tuples(st.sampled_from(["//", "%", "ceildiv"]), inner, inner),
        ),
        max_leaves=7,
    )


def build(tree):
    """The expression; None where a divisor is 0."""
    match tree:
        case int(number):
            return constant(number)
        case str(name):
            return symbol(name)
        case (op, left, right):
            a, b = build(left), build(right)
            if a is None or b is None or (op in ("//", "%", "ceildiv") and b.value == 0):
                return None
            return {
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
                "//": lambda: a // b,
                "%": lambda: a % b,
                "ceildiv": lambda: ceildiv(a, b),
                "min": lambda: minimum(a, b),
                "max": lambda: maximum(a, b),
            }[op]()


def plain(tree, values):
    match tree:
        case int(number):
            return number
        case str(name):
            return values[name]
        case (op, left, right):
            a, b = plain(left, values), plain(right, values)
            return {
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
                "//": lambda: a // b,
                "%": lambda: a % b,
                "ceildiv": lambda: -(-a // b),
                "min": lambda: min(a, b),
                "max": lambda: max(a, b),
            }[op]()


def named(tree):
    """The names in a tree: others have no part in its value."""
    if isinstance(tree, tuple):
        return set().union(*map(named, tree[1:]))
    return {tree} & set(NAMES)


def settings_of(tree, low=-2, high=5):
    names = sorted(named(tree))
    for numbers in product(range(low, high), repeat=len(names)):
        yield dict(zip(names, numbers, strict=True))


def keyed(values):
    return {next(iter(symbol(name).symbols)): number for name, number in values.items()}


@settings(max_examples=300, deadline=None)
@given(trees())
def test_a_normal_form_has_the_value_of_what_was_written(tree):
    expr = build(tree)
    if expr is None:
        return
    written = compile(render(expr), "text", "eval")
    for values in settings_of(tree):
        try:
            expected = plain(tree, values)
        except ZeroDivisionError:
            continue  # the normal form may be defined where the text is not
        assert expr.evaluate(keyed(values)) == expected
        assert eval(written, {"min": min, "max": max}, values) == expected
        assert expr.substitute(keyed(values)).value == expected


@settings(max_examples=200, deadline=None)
@given(trees(), st.tuples(*[st.integers(-3, 3)] * 3), st.tuples(*[st.integers(0, 4)] * 3))
def test_ranges_hold_every_value(tree, lows, widths):
    expr = build(tree)
    if expr is None:
        return
    spans = [range(low, low + width + 1) for low, width in zip(lows, widths)]
    names = keyed(dict(zip(NAMES, spans)))
    found = range_of(expr, {name: Range(s[0], s[-1]) for name, s in names.items()})
    for numbers in product(*spans):
        try:
            value = expr.evaluate(keyed(dict(zip(NAMES, numbers))))
        except ZeroDivisionError:
            continue
        assert found.holds(Range(value, value))


@cache
def conditions():
    simple = st.one_of(
        st.tuples(st.sampled_from(["equal", "at_least"]), trees(), trees()),
        st.tuples(st.just("divides"), trees(), st.integers(1, 4)),
    )
    several = st.sampled_from(["all", "any"])
    return st.recursive(
        simple,
        lambda inner: st.builds(
            lambda kind, parts: (kind, *parts), several, st.lists(inner, max_size=3)
        ),
        max_leaves=6,
    )


def made(tree):
    match tree:
        case ("all", *parts):
            inner = [made(part) for part in parts]
            return None if None in inner else all_of(inner)
        case ("any", *parts):
            inner = [made(part) for part in parts]
            return None if None in inner else any_of(inner)
        case (kind, left, right):
            a, b = build(left), build(right)
            if a is None or b is None:
                return None
            if kind == "divides":
                return divides(b, a)
            return equal(a, b) if kind == "equal" else at_least(a, b)


def truth(tree, values):
    match tree:
        case ("all", *parts):
            return not [part for part in parts if not truth(part, values)]
        case ("any", *parts):
            return bool([part for part in parts if truth(part, values)])
        case ("divides", left, right):
            return plain(left, values) % right == 0
        case (kind, left, right):
            a, b = plain(left, values), plain(right, values)
            return a == b if kind == "equal" else a >= b


@settings(max_examples=200, deadline=None)
@given(conditions())
def test_conditions_are_what_was_written(tree):
    condition = made(tree)
    if condition is None:
        return
    written = compile(str(condition), "text", "eval")
    verdict = decide(condition, {}, Range(-2, 4))
    for values in settings_of(tree):
        try:
            expected = truth(tree, values)
        except ZeroDivisionError:
            continue
        try:
            keys = keyed(values)
            assert holds(condition, keys) == expected
            assert eval(written, {"min": min, "max": max}, values) == expected
        except ZeroDivisionError:
            continue  # `any` and `all` of what was written stop at another part
        assert verdict in (None, expected)
        if symbols_of(condition):
            decided = substituted(condition, keys)
            assert holds(decided, {}) == expected


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((X - 1) // 2 + 1, "(x + 1)//2"),
        (2 * ((X + 1) // 2), "2*((x + 1)//2)"),
        (((X + 1) // 2 + 1) // 2, "(x + 3)//4"),
        (X % 2, "x % 2"),
        ((X * Y) // Y, "x"),
        ((X * Y + Y) // (X + 1), "y"),
        (3 - X, "3 - x"),
        (-(X // 2), "-(x//2)"),
        ((6 * X + 3) // 4, "x + (x + 1)//2"),
        (maximum(X + 1, X, 3), "max(x + 1, 3)"),
        (minimum(X, minimum(Y, Z)), "min(x, y, z)"),
        (equal(2 * ((X + 1) // 2), X), "x % 2 == 0"),
        (divides(16, X), "x % 16 == 0"),
        (at_least(X, 3), "x >= 3"),
        (at_least(3, X), "x <= 3"),
        (at_least(2 * X, 3), "x >= 2"),
        (equal(2 * X, 3), "False"),
    ],
)
def test_texts(expr, text):
    assert str(expr) == text


def test_a_broadcast_size():
    size = broadcast(X, Y, 1, X)
    assert str(size) == "broadcast(x, y)"
    assert size.substitute({next(iter(X.symbols)): 1}) is Y
    assert broadcast(X, 3).value == 3
    assert broadcast(1, 1).value == 1
    for x, y in ((1, 4), (4, 1), (0, 1), (1, 1), (5, 5)):
        assert size.evaluate(keyed({"x": x, "y": y})) == np.broadcast_shapes((x,), (y,))[0]


def test_equal_expressions_are_one():
    assert (X + Y) * (X - Y) is X * X - Y * Y
    assert symbol("a", 1) is symbol("a", 1)
    assert len({symbol("a", 1), symbol("b", 1), symbol("a", 2)}) == 3


def test_a_quotient_by_zero_is_refused():
    with pytest.raises(ZeroDivisionError):
        X // 0


def test_solving_for_a_symbol():
    (x,) = X.symbols
    assert (X - 2 * Y).solved(x) == 2 * Y
    assert (2 * X - Y).solved(x) is None
    assert (X - X // 2).solved(x) is None
