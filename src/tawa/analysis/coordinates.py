"""Coordinates that TMA takes: of 32 bits, and columns at multiples of 16 bytes, in every iteration.

What is not known when compiling becomes a number that a launch must find not negative, or a
multiple (`tawa.runtime.guards`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tawa.analysis.masks import Refusal
from tawa.analysis.polynomial import (
    ONE,
    ZERO,
    Atom,
    Call,
    Iteration,
    Leaf,
    Monomial,
    Polynomial,
    divisor,
    is_argument,
    is_listed,
    is_program_value,
    place_of,
)
from tawa.analysis.ranges import range_of

# The extent of a dimension the kernel does not bound: within what a tensor map and i32 hold.
UNBOUNDED = Polynomial.constant((1 << 31) - 1)
LAST = Polynomial.constant((1 << 31) - 1)
# The least coordinate that TMA takes; what lies below 0 reads as zero and is not written.
LEAST = Polynomial.constant(-(1 << 31))


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension in memory: the tensor's dimension (None: a single index), and its numbers.

    `wrap` is the bound of a wrapped index that must be shown harmless, else None. Each of the
    `block` indices stands `repeat` times in the tile. `least` is the least offset that reads and
    writes what the program does: below 0 where the mask hides what is there. `natural` must not be
    negative, besides.
    """

    dim: int | None
    stride: Polynomial
    offset: Polynomial
    extent: Polynomial
    block: int
    wrap: Polynomial | None = None
    repeat: int = 1
    least: Polynomial = ZERO
    natural: Polynomial = ZERO


def limits_of(item: Dim) -> list[Polynomial] | Refusal:
    """Return what must not be negative for TMA to take the coordinates of a dimension."""
    above = item.offset - item.least
    parts, besides = _natural_when(above), _natural_when(item.natural)
    if isinstance(parts, Refusal):
        return parts
    if isinstance(besides, Refusal):
        return besides
    highest = item.offset if parts == [above] else _before_loops(item.offset)
    # TMA takes coordinates of 32 bits, extents and strides that count upwards.
    room = LAST - Polynomial.constant(item.block) - highest
    return [*parts, *besides, room, item.stride - ONE, item.extent]


def _natural_when(index: Polynomial) -> list[Polynomial] | Refusal:
    """Return what must not be negative for an index not to be.

    What a loop hides in a quotient, adds an argument at a time, or takes away is listed iteration
    by iteration.
    """
    parts = _without_iterations(_unsettled(index))
    falls = parts is not None and any(map(_surely_negative, parts))
    if (parts is None or falls or _grows_unboundedly(index)) and is_listed(index):
        return [index]
    if parts is None:
        return Refusal("an index is not affine in a loop")
    if falls:
        return Refusal("an index falls in a loop whose iterations no launch can list")
    if _grows_unboundedly(index):
        return Refusal("an index grows by a run-time amount in a loop")
    return parts


def starts_of(offset: Polynomial, unit: int) -> tuple[tuple[Polynomial, int], ...] | None:
    """Return what must be multiples for boxes to begin at multiples of `unit` elements.

    None where one surely does not. PTX names no such rule for tiled copies; an H200 stops with an
    illegal instruction.
    """
    found: list[tuple[Polynomial, int]] = []
    unsettled = _unsettled(offset)
    if not is_multiple(offset - unsettled, unit):
        return None
    for part in _without_iterations(unsettled) or (unsettled,):
        _, open_terms = part.parted(lambda term, by: _is_term_multiple(term, by, unit))
        if (number := open_terms.as_constant) is not None and number % unit:
            return None
        if not open_terms.is_zero:
            found.append((open_terms, unit))
    return tuple(dict.fromkeys(found))


def is_multiple(stride: Polynomial, unit: int) -> bool:
    """Tell whether a polynomial is known to be a multiple of a number."""
    return all(_is_term_multiple(*term, unit) for term in stride.terms.items())


def _is_term_multiple(monomial: Monomial, coefficient: int, unit: int) -> bool:
    known = (
        divisor(atom.value)
        for atom in monomial
        if isinstance(atom, Leaf) and is_argument(atom.value)
    )
    return prod(known, start=coefficient) % unit == 0


def _without_iterations(poly: Polynomial) -> list[Polynomial] | None:
    """Return polynomials without loops that are all >= 0 only if `poly` is in every iteration."""
    iterations = sorted(
        {atom for monomial in poly.terms for atom in monomial if isinstance(atom, Iteration)},
        key=place_of,
    )
    if not iterations:
        return [poly] if is_program_value(poly) and not poly_has_trip(poly) else None
    quotient, rest = poly.divide((iterations[0],))
    first, second = _without_iterations(quotient), _without_iterations(rest)
    return None if first is None or second is None else first + second


def _unsettled(poly: Polynomial) -> Polynomial:
    """Return an index without the terms that hide an iteration number (in a quotient, say) and are
    surely not negative: of these there is nothing that a launch could check.
    """
    return poly.parted(
        lambda term, by: _hides_iteration(term) and surely_nonnegative(Polynomial({term: by}))
    )[1]


def _hides_iteration(monomial: Monomial) -> bool:
    return any(
        isinstance(atom, Call)
        and any(isinstance(leaf, Iteration) for leaf in Polynomial.atom(atom).leaves)
        for atom in monomial
    )


def _moves(atom: Atom) -> bool:
    """Tell whether an atom changes from iteration to iteration."""
    return isinstance(atom, Iteration) or _hides_iteration((atom,))


def _grows_unboundedly(poly: Polynomial) -> bool:
    """Tell whether a loop moves an index by more than a constant, so that 32 bits may not do."""
    return any(any(map(_moves, monomial)) and len(monomial) > 1 for monomial in poly.terms)


def _before_loops(poly: Polynomial) -> Polynomial:
    """Return the part of an index that no loop moves; what loops add is a 32-bit number."""
    return poly.parted(lambda term, _: any(map(_moves, term)))[1]


def poly_has_trip(poly: Polynomial) -> bool:
    """Tell whether an iteration number occurs anywhere in `poly`."""
    return any(isinstance(leaf, Iteration) for leaf in poly.leaves)


def surely_nonnegative(poly: Polynomial) -> bool:
    """Tell whether a polynomial is a sum of products of what is never negative."""
    return all(number > 0 and all(map(_is_natural, term)) for term, number in poly.terms.items())


def _surely_negative(poly: Polynomial) -> bool:
    return not poly.is_zero and surely_nonnegative(-poly - ONE)


def _is_natural(atom: Atom) -> bool:
    return isinstance(atom, Iteration) or range_of(atom.value).is_natural
