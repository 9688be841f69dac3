"""Expressions and conditions as text: Python's syntax, so the host can evaluate what is printed."""

from __future__ import annotations

from collections.abc import Mapping

from tawa.integers.conditions import AllOf, AnyOf, AtLeast, Condition, Equal
from tawa.integers.expressions import Apply, Atom, Expr, Monomial, Quotient, Symbol, make
from tawa.integers.facts import remainders

Names = Mapping[Symbol, str] | None


def render(expr: Expr, names: Names = None) -> str:
    """Return `expr` as text; `names` replaces the names of symbols. Every value is printed the
    same in every process.
    """
    return _sum(expr, names)


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
                left = f"{_factor(inner - offset, names)} % {by}"
                return f"{left} == {(-number * count - offset) % by}"
    left = make({m: c for m, c in expr.terms.items() if c > 0})
    right = make({m: -c for m, c in expr.terms.items() if c < 0})
    if sign == ">=" and not left.terms:
        return f"{_sum(right, names)} <= 0"
    if sign == ">=" and left.value is not None:
        return f"{_sum(right, names)} <= {left.value}"
    if sign == "==" and (not left.terms or left.value is not None):
        left, right = right, left
    return f"{_sum(left, names)} {sign} {_sum(right, names)}"


def _sum(expr: Expr, names: Names) -> str:
    pieces: list[tuple[int, str, bool]] = []  # (coefficient, text, whether it is a // or %)
    rest = expr
    while (split := next(iter(remainders(rest)), None)) is not None:
        inner, count, by, rest = split
        pieces.append((count, f"{_factor(inner, names)} % {by}", True))
    for monomial in sorted(rest.terms, key=lambda m: _place(m, rest.terms[m])):
        divided = len(monomial) == 1 and isinstance(monomial[0], Quotient)
        pieces.append((rest.terms[monomial], _monomial(monomial, names), divided))
    text = ""
    for count, body, divided in pieces:
        if divided and (abs(count) != 1 or (count < 0 and not text)):
            body = f"({body})"
        size = abs(count)
        piece = str(size) if not body else body if size == 1 else f"{size}*{body}"
        if text:
            text += f" {'-' if count < 0 else '+'} {piece}"
        else:
            text = f"-{piece}" if count < 0 else piece
    return text or "0"


def _place(monomial: Monomial, coefficient: int) -> tuple[object, ...]:
    """Sort what is positive first, then by degree, the constant last."""
    return (
        coefficient < 0,
        -len(monomial),
        tuple(atom.order for atom in monomial),
    )


def _monomial(monomial: Monomial, names: Names) -> str:
    if len(monomial) == 1:
        return _atom(monomial[0], names)
    return "*".join(
        f"({_atom(atom, names)})" if isinstance(atom, Quotient) else _atom(atom, names)
        for atom in monomial
    )


def _atom(atom: Atom, names: Names) -> str:
    match atom:
        case Symbol():
            return (names or {}).get(atom, atom.name)
        case Quotient():
            return f"{_factor(atom.dividend, names)}//{_factor(atom.divisor, names)}"
        case Apply():
            return f"{atom.function}({', '.join(_sum(item, names) for item in atom.inputs)})"


def _factor(expr: Expr, names: Names) -> str:
    """Return text that can stand on either side of `//` and `%`."""
    text = _sum(expr, names)
    if (expr.value or 0) < 0:
        return f"({text})"
    simple = expr.value is not None or (
        len(expr.terms) == 1
        and all(c == 1 and len(m) == 1 for m, c in expr.terms.items())
        and not any(isinstance(atom, Quotient) for atom in expr.atoms())
    )
    return text if simple else f"({text})"
