"""Numbers that a launch can list: what loops count whose bounds the launch knows.

A kernel that walks over its tiles itself (``for tile in range(program, tiles, programs)``) computes
where a tile lies from the loop's number. No local analysis shows that such a number is not
negative, say; a launch knows every program and every trip, and evaluates it for all of them
(`tawa.runtime.guards`).
"""

from __future__ import annotations

from xdsl.dialects import scf

from tawa.analysis.polynomial import Leaf, Polynomial, Trip, is_argument, place_of, polynomial
from tawa.ir import tile


def bounds_of(loop: scf.ForOp) -> tuple[Polynomial, Polynomial, Polynomial]:
    """Return start, end and step of a loop."""
    return polynomial(loop.lb), polynomial(loop.ub), polynomial(loop.step)


def loops_of(*polys: Polynomial) -> tuple[scf.ForOp, ...]:
    """Return the loops whose trips numbers depend on, also through their bounds, outer first."""
    found: dict[Trip, None] = {}
    pending = [*polys]
    while pending:
        for leaf in pending.pop().leaves:
            if isinstance(leaf, Trip) and leaf not in found:
                found[leaf] = None
                pending += bounds_of(leaf.loop)
    return tuple(trip.loop for trip in sorted(found, key=place_of))


def leaves_of(poly: Polynomial) -> frozenset[Leaf | Trip]:
    """Return all that a number depends on, also through the bounds of loops."""
    parts = [poly, *(bound for loop in loops_of(poly) for bound in bounds_of(loop))]
    return frozenset(leaf for part in parts for leaf in part.leaves)


def is_listed(poly: Polynomial) -> bool:
    """Tell whether a launch can list the numbers: arguments, programs and their trips make them."""
    return all(map(_is_known, leaves_of(poly)))


def _is_known(leaf: Leaf | Trip) -> bool:
    if isinstance(leaf, Trip) or is_argument(leaf.value):
        return True
    return isinstance(leaf.value.owner, tile.ProgramId | tile.NumPrograms)
