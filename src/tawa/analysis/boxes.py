"""Boxes of tensors, and proofs that two accesses never touch the same element.

An offset is a polynomial of scalars (`tawa.analysis.polynomial`). Coordinates are far below 2^31,
so that no overflow is assumed: one that wrapped would be outside every tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.analysis.polynomial import Atom, Call, Iteration, Polynomial, polynomial, trip_count

Span: TypeAlias = tuple[int, int]
"""The least and the greatest value, both included."""


@dataclass(frozen=True, slots=True)
class Box:
    """A block of a tensor: an offset and an extent along each dimension, in elements."""

    offsets: tuple[Polynomial, ...]
    extents: tuple[int, ...]


def _varies(atom: Atom, loops: Collection[Operation]) -> bool:
    """Tell whether an atom may differ between two iterations of one of `loops`."""
    match atom:
        case Call(inputs=inputs):
            return any(_varies(leaf, loops) for item in inputs for leaf in item.leaves)
        case Iteration(loop=counted):
            return any(loop.is_ancestor(counted) for loop in loops)
        case _:
            return any(loop.is_ancestor(atom.value.owner) for loop in loops)


def _parts(form: Polynomial, loops: Collection[Operation]) -> tuple[Polynomial, Polynomial]:
    """Return the terms that stay the same in all iterations of `loops`, and the others."""
    return form.parted(lambda term, _: not any(_varies(atom, loops) for atom in term))


def _span(form: Polynomial) -> Span | None:
    """Return the range of a sum of numbers of iterations, where it is known how many there are."""
    low = high = 0
    for monomial, factor in form.terms.items():
        match monomial:
            case (Iteration(loop=loop),) if count := trip_count(loop):
                last = factor * (count - 1)
            case _:
                return None
        low, high = low + min(0, last), high + max(0, last)
    return low, high


def difference(a: Polynomial, b: Polynomial, loops: Collection[Operation]) -> Span | None:
    """Return the range of `a - b` where the two stand in any iterations of the common `loops`.

    Terms that do not change in those loops cancel; the others stand for two unrelated values.
    """
    (steady, first), (still, second) = _parts(a, loops), _parts(b, loops)
    gap, one, two = (steady - still).as_constant, _span(first), _span(second)
    if gap is None or one is None or two is None:
        return None
    return gap + one[0] - two[1], gap + one[1] - two[0]


def disjoint(a: Box, b: Box, loops: Collection[Operation]) -> bool:
    """Tell whether two blocks of one tensor never share an element, in any iterations of
    `loops`.
    """
    for mine, theirs, width_a, width_b in zip(a.offsets, b.offsets, a.extents, b.extents):
        span = difference(mine, theirs, loops)
        if span is not None and (span[0] >= width_b or span[1] <= -width_a):
            return True
    return False


def disjoint_in_other_iterations(a: Box, b: Box, loops: Sequence[Operation]) -> bool:
    """Tell whether two blocks of one tensor never share an element where the two stand in unlike
    iterations of at least one of `loops`, innermost first.
    """
    return disjoint(a, b, loops) or all(
        _parted_by(a, b, loop, loops[:place]) for place, loop in enumerate(loops)
    )


def _parted_by(a: Box, b: Box, loop: Operation, inside: Sequence[Operation]) -> bool:
    """Tell whether blocks in unlike iterations of a loop, in any of those `inside`, are disjoint:
    where an iteration moves both by as much as they are wide.
    """
    if not isinstance(loop, scf.ForOp):
        return False
    for mine, theirs, width_a, width_b in zip(a.offsets, b.offsets, a.extents, b.extents):
        (by, rest), (same, other) = (form.divide((Iteration(loop),)) for form in (mine, theirs))
        if by != same:
            continue
        span, least = difference(rest, other, (loop, *inside)), _least(by, loop)
        if span is not None and span[0] + least >= width_b and span[1] - least <= -width_a:
            return True
    return False


def _least(by: Polynomial, loop: scf.ForOp) -> int:
    """Return how far an iteration moves at least that moves by `by`: a number, or that many steps,
    which are positive.
    """
    if (number := by.as_constant) is not None:
        return abs(number)
    step = polynomial(loop.step)
    monomial, factor = next(iter(step.terms.items()))
    times = by.terms.get(monomial, 0) // factor
    return abs(times) if step.scaled(times) == by else 0
