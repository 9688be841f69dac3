"""Conditions over integer expressions, as values: decided, evaluated and substituted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, TypeAlias

from tawa.integers.expressions import (
    Expr,
    Functions,
    Names,
    Operand,
    Symbol,
    factor_text,
    lift,
    make,
    remainders,
    render,
)
from tawa.integers.facts import EVERYTHING, Bounds, Range, range_of


class _Printed:
    """What is shown as `render_condition` writes it."""

    __slots__ = ()

    def __str__(self: Any) -> str:
        return render_condition(self)


@dataclass(frozen=True, slots=True)
class Equal(_Printed):
    """`expr == 0`."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class AtLeast(_Printed):
    """`expr >= 0`."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class AllOf(_Printed):
    """Every one of `parts`; of none: true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(_Printed):
    """One of `parts` at least; of none: false."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Equal | AtLeast | AllOf | AnyOf

TRUE = AllOf(())
FALSE = AnyOf(())


def equal(left: Operand, right: Operand = 0) -> Condition:
    """Return `left == right`; constants are decided, coefficients are brought to lowest terms."""
    expr = lift(left) - right
    if (number := expr.value) is not None:
        return TRUE if number == 0 else FALSE
    shared = gcd(*[c for m, c in expr.terms.items() if m])
    if expr.offset % shared:
        return FALSE  # whole numbers times `shared` never make the constant
    expr = make({m: c // shared for m, c in expr.terms.items()})
    flipped = -expr
    return Equal(min(expr, flipped, key=_sign))


def _sign(expr: Expr) -> tuple[int, tuple[Any, ...]]:
    """Sort an expression before its negative: more positive coefficients first."""
    return sum(-1 if c > 0 else 1 for m, c in expr.terms.items() if m), expr.order


def at_least(left: Operand, right: Operand = 0) -> Condition:
    """Return `left >= right`; constants are decided, the constant is rounded towards the rest."""
    expr = lift(left) - right
    if (number := expr.value) is not None:
        return TRUE if number >= 0 else FALSE
    shared = gcd(*[c for m, c in expr.terms.items() if m])
    return AtLeast(make({m: n for m, c in expr.terms.items() if (n := c // shared)}))


def divides(number: Operand, expr: Operand) -> Condition:
    """Return `expr % number == 0`."""
    return equal(lift(expr) % number)


def all_of(parts: Iterable[Condition]) -> Condition:
    """Return the conjunction, without what is true or said twice."""
    kept: dict[Condition, None] = {}
    for part in parts:
        for each in part.parts if isinstance(part, AllOf) else (part,):
            if each == FALSE:
                return FALSE
            kept[each] = None
    return next(iter(kept)) if len(kept) == 1 else AllOf(tuple(kept))


def any_of(parts: Iterable[Condition]) -> Condition:
    """Return the disjunction, without what is false or said twice."""
    kept: dict[Condition, None] = {}
    for part in parts:
        for each in part.parts if isinstance(part, AnyOf) else (part,):
            if each == TRUE:
                return TRUE
            kept[each] = None
    return next(iter(kept)) if len(kept) == 1 else AnyOf(tuple(kept))


def substituted(condition: Condition, values: Mapping[Symbol, Operand]) -> Condition:
    """Replace symbols and decide what has become constant."""
    match condition:
        case Equal(expr):
            return condition if (n := expr.substitute(values)) is expr else equal(n)
        case AtLeast(expr):
            return condition if (n := expr.substitute(values)) is expr else at_least(n)
        case AllOf(parts):
            return all_of([substituted(part, values) for part in parts])
        case AnyOf(parts):
            return any_of([substituted(part, values) for part in parts])


def holds(
    condition: Condition, values: Mapping[Symbol, Any], functions: Functions | None = None
) -> bool:
    """Evaluate a condition for numbers; raises what `Expr.evaluate` raises."""
    match condition:
        case Equal(expr):
            return bool(expr.evaluate(values, functions) == 0)
        case AtLeast(expr):
            return bool(expr.evaluate(values, functions) >= 0)
        case AllOf(parts):
            return all(holds(part, values, functions) for part in parts)
        case AnyOf(parts):
            return any(holds(part, values, functions) for part in parts)


def decide(condition: Condition, bounds: Bounds, default: Range = EVERYTHING) -> bool | None:
    """Return what ranges say of a condition, for all values within bounds; None: it depends."""
    match condition:
        case Equal(expr):
            found = range_of(expr, bounds, default)
            if found.low == found.high == 0:
                return True
            outside = (found.low is not None and found.low > 0) or (
                found.high is not None and found.high < 0
            )
            return False if outside else None
        case AtLeast(expr):
            found = range_of(expr, bounds, default)
            if found.is_natural:
                return True
            return False if found.high is not None and found.high < 0 else None
        case AllOf(parts):
            verdicts = [decide(part, bounds, default) for part in parts]
            return False if False in verdicts else (None if None in verdicts else True)
        case AnyOf(parts):
            verdicts = [decide(part, bounds, default) for part in parts]
            return True if True in verdicts else (None if None in verdicts else False)


def expressions(condition: Condition) -> list[Expr]:
    """Return the expressions of a condition, in its order."""
    match condition:
        case Equal(expr) | AtLeast(expr):
            return [expr]
        case AllOf(parts) | AnyOf(parts):
            return [expr for part in parts for expr in expressions(part)]


def symbols_of(condition: Condition) -> frozenset[Symbol]:
    """Return every symbol a condition depends on."""
    found: set[Symbol] = set()
    found.update(*(expr.symbols for expr in expressions(condition)))
    return frozenset(found)


def render_condition(condition: Condition, names: Names = None) -> str:
    """Return a condition as text."""
    match condition:
        case Equal(expr):
            return _relation(expr, "==", names)
        case AtLeast(expr):
            return _relation(expr, ">=", names)
        case AllOf(()):
            return "True"
        case AnyOf(()):
            return "False"
        case AllOf(parts):
            return " and ".join(_grouped(part, AnyOf, names) for part in parts)
        case AnyOf(parts):
            return " or ".join(_grouped(part, AllOf, names) for part in parts)


def _grouped(part: Condition, other: type, names: Names) -> str:
    text = render_condition(part, names)
    return f"({text})" if isinstance(part, other) else text


def _relation(expr: Expr, sign: str, names: Names) -> str:
    """Write terms with a negative coefficient on the right; a remainder stays whole."""
    if sign == "==":
        for inner, count, by, rest in remainders(expr):
            number = rest.value
            if abs(count) == 1 and number is not None and 0 <= -number * count < by:
                offset = inner.offset
                left = f"{factor_text(inner - offset, names)} % {by}"
                return f"{left} == {(-number * count - offset) % by}"
    left = make({m: c for m, c in expr.terms.items() if c > 0})
    right = make({m: -c for m, c in expr.terms.items() if c < 0})
    if sign == ">=" and not left.terms:
        return f"{render(right, names)} <= 0"
    if sign == ">=" and left.value is not None:
        return f"{render(right, names)} <= {left.value}"
    if sign == "==" and (not left.terms or left.value is not None):
        left, right = right, left
    return f"{render(left, names)} {sign} {render(right, names)}"
