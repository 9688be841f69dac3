"""What computes scalars from numbers for their open unknowns, as a formula of places."""

from __future__ import annotations

from collections.abc import Sequence

from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.functions import FUNCTIONS
from tawa.simulator.proof.probing import Formula, Operation
from tawa.simulator.proof.words import Value

_DIVISIONS = ("idiv", "irem")


def formula_of(scalars: tuple[Scalar, ...], unknowns: Sequence[Expr], value: Value) -> Formula:
    """Return what computes scalars from numbers for their open unknowns, without recursion: a
    while loop's are thousands deep.
    """
    places: dict[Expr, int] = {item: place for place, item in enumerate(unknowns)}
    start = [0] * len(places)
    operations: list[Operation] = []
    divisors: list[int] = []

    def place_of(item: object) -> int | None:
        """Return where an expression, or a number, stands; None before it has a place."""
        if isinstance(item, Expr):
            if (known := value(item)) is None:
                return places.get(item)
            item = known
        assert isinstance(item, int)
        start.append(item)
        return len(start) - 1

    work = [item for item in scalars if isinstance(item, Expr)]
    while work:
        item = work[-1]
        if item in places or value(item) is not None:
            work.pop()
            continue
        missing = [part for part in item.parts if part not in places and value(part) is None]
        if missing:
            work += missing
            continue
        found = [place_of(part) for part in item.args]
        places[item] = len(start)
        start.append(0)
        parts = tuple([place for place in found if place is not None])
        one, two, several = (*parts, ()) if len(parts) == 2 else (0, 0, parts)
        operations.append((FUNCTIONS[item.function], places[item], one, two, several))
        if item.function.startswith(_DIVISIONS):
            divisors.append(two)
    wanted = [place for item in scalars if (place := place_of(item)) is not None]
    rest = tuple(start[len(unknowns) :])
    return Formula(tuple(operations), rest, tuple(wanted), tuple(divisors))
