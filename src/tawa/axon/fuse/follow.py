"""Sums that follow what they depend on: `sum(exp(x - m))` while the maximum m is still found.

A sum over columns of v(x, r), where r is one number for the row, is known for a reference r = c
and wanted for another: where v(x, c') = s(c, c') * v(x, c) + the sum of t_b(c, c') * b(x, c), the
sum moves by the same factors, if the sums of the b are kept as well. So a row is read once, with
what is known of r so far as the reference: the softmax of Milakov and Gimelshein (2018), and the
variance of Chan, Golub and LeVeque (1979), are two of what follows from the rules below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tawa.axon.fuse.trace import Node, Operand

Factor: TypeAlias = Callable[[Callable[[Node], Any], Callable[[Node], Any]], Any]
"""A number of the row, from what old and new references are."""
ONE = Node("one", dtype="float32")
"""What is 1 at each column; its sum is the number of columns."""


@dataclass(frozen=True, slots=True)
class Move:
    """How a value goes with the reference: times `scale`, if any, plus terms times their nodes."""

    scale: Factor | None = None
    terms: Mapping[Node, Factor] = field(default_factory=dict[Node, Factor])

    @property
    def shift(self) -> Factor | None:
        """The number that is added, None where there is none."""
        return self.terms.get(ONE)

    @property
    def plain(self) -> bool:
        """Whether nothing but a number is added."""
        return set(self.terms) <= {ONE}


def _times(one: Factor | None, other: Factor | None) -> Factor | None:
    if one is None or other is None:
        return one or other
    return lambda old, new: one(old, new) * other(old, new)


def _sum(one: Factor | None, other: Factor | None) -> Factor | None:
    if one is None or other is None:
        return one or other
    return lambda old, new: one(old, new) + other(old, new)


def _negated(one: Factor | None) -> Factor | None:
    return one and (lambda old, new: -one(old, new))


def _shifted(shift: Factor | None) -> dict[Node, Factor]:
    return {ONE: shift} if shift else {}


@dataclass(frozen=True, slots=True)
class Rules:
    """How values go with the numbers of the row that are `moving`.

    `wide` tells what has a value at each column; `call` computes a function of a factor by name.
    """

    moving: Callable[[Node], object]
    wide: Callable[[Node], bool]
    call: Callable[[str, Factor], Factor]
    _known: dict[Node, Move | None] = field(default_factory=dict[Node, "Move | None"])

    def move_of(self, node: Operand) -> Move | None:
        """Return how a value goes with the reference, None where no rule says so."""
        if not isinstance(node, Node) or not self.moving(node):
            return Move()
        if node not in self._known:
            self._known[node] = self._found(node)
        return self._known[node]

    def _found(self, node: Node) -> Move | None:
        if not node.dtype.startswith("float"):
            return None
        if not self.wide(node):
            return Move(terms={ONE: lambda old, new: new(node) - old(node)})
        moves = [self.move_of(each) for each in node.inputs]
        match node.name, moves, node.inputs:
            case "cast", [Move() as one], [Node(dtype=inner)] if inner.startswith("float"):
                return one if one.plain else None
            case "neg", [Move(plain=True) as one], _:
                return Move(one.scale, _shifted(_negated(one.shift)))
            case ("+" | "-") as sign, [Move(None) as one, Move(None) as two], _:
                if not one.plain or not two.plain:
                    return None
                other = two.shift if sign == "+" else _negated(two.shift)
                return Move(None, _shifted(_sum(one.shift, other)))
            case "square", [Move(plain=True) as one], [Node() as inner]:
                return _product(one, inner, one, inner)
            case "*", [Move(plain=True) as one, Move(plain=True) as two], [a, b]:
                return _product(one, a, two, b)
            case ("exp" | "exp2") as name, [Move(None, plain=True) as one], [inner] if (
                not one.shift or _never_positive(inner)
            ):
                return Move(one.shift and self.call(name, one.shift))
            case "where", [Move(), Move(plain=True) as one, Move()], [Node() as chosen, _, 0]:
                if one.shift is None:
                    return one
                return Move(one.scale, {Node("where", (chosen, 1.0, 0.0), node.dtype): one.shift})
            case _:
                return None


def _never_positive(node: Operand) -> bool:
    """Tell whether a value is at most 0 for each reference on the way to the last one.

    An exponential of others may overflow, or vanish, for a reference where it is finite for the
    last; and factors could not bring it back.
    """
    match node:
        case Node("-", (value, Node("max", (most,)))):
            return value is most
        case Node("-", (Node("min", (least,)), value)):
            return value is least
        case Node("*", (inner, int() | float() as factor) | (int() | float() as factor, inner)):
            return factor > 0 and _never_positive(inner)
        case Node("cast", (inner,)):
            return _never_positive(inner)
        case _:
            return False


def _product(one: Move, a: Operand, two: Move, b: Operand) -> Move | None:
    """Return how a product goes: (s a + p)(t b + q) = st ab + sq a + tp b + pq."""
    both = one.shift and two.shift and _times(one.shift, two.shift)
    terms = _shifted(both)
    for scale, shift, kept in ((one.scale, two.shift, a), (two.scale, one.shift, b)):
        if shift and isinstance(kept, Node):
            terms[kept] = _sum(terms.get(kept), _times(scale, shift)) or shift
        elif shift:
            more = _times(shift, lambda old, new, kept=kept: kept)
            terms.update(_shifted(_sum(terms.get(ONE), more)))
    return Move(_times(one.scale, two.scale), terms)
