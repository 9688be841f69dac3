"""What lies past the ends of tensors, and that no result depends on it.

Blocks are whole: what a tensor of the program lacks reads as zero. Along each dimension of a value
its elements past the end are one number, or "unknown"; "inside" says that no element is past the
end along it, "along" that all elements along it are one. Unknown numbers are taken to be finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import Any

from tawa.cypress.event import Call, CopyIn, CopyOut, Event, Events, For, Iota
from tawa.cypress.leaf import LeafFacts, along
from tawa.cypress.size import Int, key
from tawa.cypress.tensor import Tensor
from tawa.errors import MappingError
from tawa.integers.expressions import Expr, Quotient, Symbol, of_atom, remainders, symbol
from tawa.integers.facts import NATURAL, range_of
from tawa.ir.build import FUNCTIONS


class Past(Enum):
    """What is past the end along a dimension, where it is not one known number."""

    UNKNOWN = "unknown"
    INSIDE = "inside"
    ALONG = "along"


UNKNOWN, INSIDE, ALONG = Past
End = float | Past
_NEUTRAL = {
    "add": 0.0,
    "mul": 1.0,
    "max": float("-inf"),
    "min": float("inf"),
    "or": 0.0,
    "and": 1.0,
}


Edge = tuple[End, str]
"""What is past the end along a dimension, and which end it is: "" where the value has none. Two
values end together where the end is that of one extent, at one offset.
"""


@dataclass(frozen=True, slots=True)
class Ends:
    """The number that every element is, if there is one, and the edge of each dimension."""

    whole: float | None
    dims: tuple[Edge, ...]

    @property
    def new(self) -> Edge:
        """The edge of a dimension along which the value is repeated."""
        return (ALONG if self.whole is None else self.whole), ""


_NOTHING: Edge = UNKNOWN, ""


def check_ends(events: Events, equal: Iterable[tuple[Int, Int]]) -> None:
    """Refuse a leaf that lets elements past the end of a tensor show; raises MappingError.

    `equal` are extents that are the same in every call.
    """
    alike: dict[Symbol, Expr] = {}
    for one, other in equal:
        gap = (key(one) - key(other)).substitute(alike)
        found = {s: e for s in gap.symbols if (e := gap.solved(s)) is not None}
        for dividend, _, by, rest in remainders(gap):
            if not rest.terms and len(dividend.symbols) == 1:  # a multiple of a number
                found = {s: symbol(f"{s}/{by}", (s, by)) * by for s in dividend.symbols}
        found = dict([*found.items()][:1])
        alike = {s: e.substitute(found) for s, e in alike.items()} | found
    most = {i.symbol: n for i, n in zip(events.indices, events.grid, strict=True)}
    _body(events.body, {}, most, alike)


def _body(
    body: tuple[Event, ...],
    state: dict[int, Ends],
    most: dict[Symbol, Int],
    alike: dict[Symbol, Expr],
) -> None:
    for event in body:
        match event:
            case CopyIn(slot, source):
                state[id(slot)] = Ends(None, tuple(_edges(source, most, alike)))
            case Iota(slot, start, extent):
                edge = _NOTHING if extent is None else (0.0, _end_of(extent, start, alike))
                state[id(slot)] = Ends(None, (edge,))
            case Call():
                given = [
                    state.get(id(slot), Ends(None, (_NOTHING,) * len(slot.shape)))
                    for slot in event.slots
                ]
                made = _leaf(event.spread.leaf.name, event.facts, given)
                state.update(zip(map(id, event.outputs), made, strict=True))
            case For():
                within = {**most, event.index.symbol: event.extent}
                while True:
                    after = dict(state)
                    _body(event.body, after, within, alike)
                    met = {at: _met(ends, after[at]) for at, ends in state.items()}
                    if met == state:
                        break
                    state.update(met)
            case CopyOut():
                pass


def _end_of(extent: Int, start: Int, alike: dict[Symbol, Expr]) -> str:
    return f"{key(extent).substitute(alike)} from {key(start).substitute(alike)}"


def _met(one: Ends, other: Ends) -> Ends:
    """Return what holds of a value that is one or the other."""
    dims: list[Edge] = []
    for (a, first), (b, second) in zip(one.dims, other.dims, strict=True):
        together = a == b and (first == second or not first or not second)
        dims.append((a, first or second) if together else _NOTHING)
    return Ends(one.whole if one.whole == other.whole else None, tuple(dims))


def _edges(tensor: Tensor, most: dict[Symbol, Int], alike: dict[Symbol, Expr]) -> Iterator[Edge]:
    """Return for each dimension of a part whether it may pass the end of the program's tensor."""
    for dim, count in zip(tensor.dims, tensor.shape, strict=True):
        start, extent = tensor.offsets[dim], tensor.root.shape[dim]
        inside = _below(start + count, extent, most, alike)
        yield INSIDE if inside else 0.0, _end_of(extent, start, alike)


def _below(value: Int, extent: Int, most: dict[Symbol, Int], alike: dict[Symbol, Expr]) -> bool:
    """Tell whether a value is at most an extent, whatever the indices of loops (each below `most`).

    An index with a positive factor is replaced by its last value, and c * (e // d) by c / d * e,
    which is no less, until only extents are left.
    """
    gap, changed = (key(extent) - key(value)).substitute(alike), True
    while changed:
        changed = False
        # Innermost first: what a loop counts up to may hold the indices of those around it.
        for index, count in reversed(most.items()):
            alone = [m for m in gap.terms if any(index in of_atom(a).symbols for a in m)]
            if alone == [(index,)] and gap.coefficient(index) < 0:
                gap, changed = gap.substitute({index: key(count).substitute(alike) - 1}), True
        for (atom, *more), factor in [(m, c) for m, c in gap.terms.items() if m and c < 0]:
            by = atom.divisor.value if isinstance(atom, Quotient) and not more else None
            if isinstance(atom, Quotient) and by:
                scale = by // gcd(factor, by)  # of a gap its sign counts alone
                gap = gap * scale + (atom.dividend - of_atom(atom) * by) * (factor * scale // by)
                changed = True
                break
    return range_of(gap, {}, NATURAL).is_natural


def _leaf(name: str, facts: LeafFacts, given: Sequence[Ends]) -> list[Ends]:
    """Return the ends of a leaf's results; raises MappingError where elements past an end show."""
    state: dict[Any, Ends] = dict(zip(facts.arguments, given, strict=True))
    for operation in facts.operations:
        operands = [state[value] for value in operation.operands]
        made = _operation(name, facts, operation, operands)
        state.update(dict.fromkeys(operation.results, made))
    return [state[result] for result in facts.results]


def _operation(name: str, facts: LeafFacts, operation: Any, operands: list[Ends]) -> Ends:
    rank = len(getattr(operation.results[0].type, "get_shape", tuple)())
    match operation.name:
        case "tile.constant":
            value = getattr(operation.value, "data", None)
            whole = None if value is None else float(value)
            return Ends(whole, (_NOTHING if whole is None else (whole, ""),) * rank)
        case "tile.elementwise":
            function: str = operation.function.data
            whole = _folded(function, [ends.whole for ends in operands])
            return Ends(whole, tuple(_fold(function, operands, d) for d in range(rank)))
        case "tile.cast" | "tile.splat" | "tile.expand_dims" | "tile.broadcast" | "tile.transpose":
            (given,), (to,) = operands, along(operation) or [()]
            moved = dict(zip(to, given.dims, strict=True))
            return Ends(given.whole, tuple(moved.get(d, given.new) for d in range(rank)))
        case "tile.dot":
            a, b, c = operands
            if a.dims[1][0] not in (0, INSIDE) and b.dims[0][0] not in (0, INSIDE):
                _shows(name, facts, operation, "product")
            return Ends(None, (_only(a, c, 0), _only(b, c, 1)))
        case "tile.reduce" | "tile.scan":
            axis: int = operation.axis.data
            body = [each for each in operation.body.block.ops if each.name == "tile.elementwise"]
            function = body[0].function.data if len(body) == 1 else "reduction"
            # A prefix has nothing of what comes after it.
            ahead = operation.name == "tile.scan" and not operation.reverse
            ok = all(ends.dims[axis][0] in (_NEUTRAL.get(function), INSIDE) for ends in operands)
            if not ahead and not ok:
                _shows(name, facts, operation, function)
            alone = len(operands) == 1
            kept = [
                (_reduced(function, end) if alone else UNKNOWN, of) for end, of in operands[0].dims
            ]
            kept[axis : axis + 1] = [(UNKNOWN, kept[axis][1])] * (operation.name == "tile.scan")
            return Ends(None, tuple(kept))
        case "tile.program_id" | "tile.num_programs" | "tile.desc_extent":
            return Ends(None, ())
        case _:
            if any(end != INSIDE for ends in operands for end, _ in ends.dims):
                _shows(name, facts, operation, operation.name.removeprefix("tile."))
            return Ends(None, (_NOTHING,) * rank)


def _only(operand: Ends, acc: Ends, dim: int) -> Edge:
    """Return the edge of a product along a dimension of one operand, added to `acc`."""
    (end, of), (other, place) = operand.dims[dim], acc.dims[dim]
    if end == 0 and other == 0 and (acc.whole is not None or place == of):
        return 0.0, of
    alike = end == INSIDE and (acc.whole is not None or other == INSIDE)
    return (INSIDE, of) if alike else _NOTHING


def _reduced(function: str, end: End) -> End:
    """Return what a reduction along another dimension makes of the elements past an end: of equal
    ones such an element, where it is idempotent.
    """
    alike = function in ("max", "min", "and", "or") or (function == "add" and end == 0)
    return end if alike or end in (INSIDE, ALONG) else UNKNOWN


def _fold(function: str, operands: list[Ends], dim: int) -> Edge:
    """Return an element function past the ends of its operands along one dimension, and which end
    that is. Numbers past different ends make none, but that zero times anything is zero.
    """
    edges = [each.dims[dim] if each.dims else each.new for each in operands]
    ends = [end for end, _ in edges]
    of = [
        "" if each.whole is not None else at for each, (_, at) in zip(operands, edges, strict=True)
    ]
    told = {at for at, end in zip(of, ends, strict=True) if at and isinstance(end, float)}
    if function == "mul" and 0.0 in ends:
        return 0.0, of[ends.index(0.0)]
    if len(told) > 1:
        return _NOTHING
    where = next(iter(told), "")
    if function == "select":
        condition, one, other = ends
        if isinstance(condition, float):
            return (one if condition else other), where
        if one == other and isinstance(one, float):
            return one, where
    if (
        known := _folded(function, [e if isinstance(e, float) else None for e in ends])
    ) is not None:
        return known, where
    both = zip(ends, operands, strict=True)
    if all(end in (INSIDE, ALONG) or each.whole is not None for end, each in both):
        return (INSIDE if INSIDE in ends else ALONG), next(filter(None, of), "")
    return _NOTHING


def _folded(function: str, numbers: list[float | None]) -> float | None:
    """Return a function of numbers, where those that are known decide it."""
    if function in ("mul", "and") and 0.0 in numbers:
        return 0.0
    if function in ("add", "sub") and None in numbers:
        first, second = numbers
        if first is not None and abs(first) == float("inf"):
            return first
        if second is not None and abs(second) == float("inf"):
            return second if function == "add" else -second
    if any(number is None for number in numbers) or function not in FUNCTIONS:
        return None
    import numpy as np

    logic = function in ("and", "or", "xor", "not", "select")
    given = [np.asarray(number, np.float64) for number in numbers]
    if logic:
        given = [
            each.astype(bool) if function != "select" or not n else each
            for n, each in enumerate(given)
        ]
    with np.errstate(all="ignore"):
        made = float(FUNCTIONS[function].numpy(np, *given))
    return None if made != made else made


def _shows(name: str, facts: LeafFacts, operation: Any, function: str) -> None:
    named = ", ".join(facts.named(operation))
    if named:
        raise MappingError(
            f'"{name}": the {function} of {named} depends on elements past the end',
            place=facts.place,
            why="blocks are whole: what a tensor lacks reads as zero, and adds nothing to sums and "
            "products of what was read, but shows in the rest",
            remedy="mask it by what cy.inside says of the part: tl.where(inside, x, ...)",
        )
