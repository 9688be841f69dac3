"""The regularity of values along a dimension, and what functions make of it.

For each dimension three numbers (after the axis analysis of Triton): within aligned blocks of
`contiguity` elements values rise by one; the first of each such block is a multiple of
`divisibility`; within aligned blocks of `constancy` elements values are equal. A scalar has
`divisibility` alone. Numbers may wrap: blocks that begin at multiples of their size do so between
blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

UNBOUNDED = 1 << 30
"""The divisibility of zero."""


@dataclass(frozen=True, slots=True)
class Run:
    """The regularity along one dimension."""

    contiguity: int
    divisibility: int
    constancy: int

    def every(self) -> int:
        """Return what divides every value, not only the first of each block."""
        return self.divisibility if self.contiguity == 1 else 1

    def starts(self, block: int) -> int:
        """Return what divides the first value of every aligned block of `block` elements."""
        return self.divisibility if block >= self.contiguity else gcd(self.divisibility, block)


Regularity = tuple[Run, ...]
"""One `Run` for each dimension; a scalar has one, as if it had a dimension of extent 1."""


def nothing(rank: int) -> Regularity:
    """Return what holds of any tensor."""
    return (Run(1, 1, 1),) * max(1, rank)


def uniform(divisibility: int, shape: tuple[int, ...]) -> Regularity:
    """Return what holds of a tensor of equal numbers."""
    return tuple(Run(1, divisibility, extent) for extent in shape) or (Run(1, divisibility, 1),)


def meet(one: Regularity, other: Regularity) -> Regularity:
    """Return what holds of both."""
    return tuple(
        Run(
            block := gcd(a.contiguity, b.contiguity),
            gcd(a.starts(block), b.starts(block)),
            gcd(a.constancy, b.constancy),
        )
        for a, b in zip(one, other)
    )


def of_any_function(*parts: Regularity) -> Regularity:
    """Return what holds of any function of some values: equal where all of them are."""
    return tuple(Run(1, 1, gcd(*(run.constancy for run in runs))) for runs in zip(*parts))


def broadcast(inner: Regularity, source: tuple[int, ...], target: tuple[int, ...]) -> Regularity:
    """Return what holds where dimensions of extent 1 are repeated."""
    return tuple(
        Run(1, run.divisibility, new) if old != new else run
        for run, old, new in zip(inner, source, target)
    )


def total(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of sums."""
    runs: list[Run] = []
    for a, b in zip(left, right):
        block = max(gcd(a.contiguity, b.constancy), gcd(a.constancy, b.contiguity))
        divides = gcd(a.starts(block), b.starts(block))
        runs.append(Run(block, divides, gcd(a.constancy, b.constancy)))
    return tuple(runs)


def difference(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of left - right."""
    runs: list[Run] = []
    for a, b in zip(left, right):
        block = gcd(a.contiguity, b.constancy)
        runs.append(Run(block, gcd(a.starts(block), b.every()), gcd(a.constancy, b.constancy)))
    return tuple(runs)


def product(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of products."""
    return tuple(
        Run(1, _capped(a.every() * b.every()), gcd(a.constancy, b.constancy))
        for a, b in zip(left, right)
    )


def _capped(divisor: int) -> int:
    """Return the largest divisor known of what `divisor` divides, also where numbers wrap."""
    return gcd(divisor, UNBOUNDED) if divisor > UNBOUNDED else divisor


def extremum(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of the smaller, or the larger, of two values."""
    return tuple(
        Run(1, gcd(a.every(), b.every()), gcd(a.constancy, b.constancy))
        for a, b in zip(left, right)
    )


def remainder(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of left % right, not negative: blocks that start at a multiple of their
    size do not wrap at a multiple of it.
    """
    runs: list[Run] = []
    for a, b in zip(left, right):
        block = _inside(a, b)
        divides = gcd(a.starts(block), b.every())
        runs.append(Run(block, divides, gcd(a.constancy, b.constancy)))
    return tuple(runs)


def told_by_blocks(left: Regularity, right: Regularity) -> Regularity:
    """Return what holds of left // right, not negative, and of left < right: a block of left that
    starts at a multiple of its size has one answer, where right is such a multiple too.
    """
    return tuple(
        Run(1, 1, max(_inside(a, b), gcd(a.constancy, b.constancy))) for a, b in zip(left, right)
    )


def _inside(a: Run, b: Run) -> int:
    """Return the size of blocks that rise in `a`, between two multiples of their size, over one
    value of `b` that is such a multiple.
    """
    return gcd(a.contiguity, b.constancy, a.divisibility, b.every())


def chosen(condition: Regularity, both: Regularity) -> Regularity:
    """Return what holds where conditions choose between values of which `both` holds."""
    runs: list[Run] = []
    for c, b in zip(condition, both):
        block = gcd(b.contiguity, c.constancy)
        runs.append(Run(block, b.starts(block), gcd(b.constancy, c.constancy)))
    return tuple(runs)
