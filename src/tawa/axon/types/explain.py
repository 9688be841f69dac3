"""Errors of shapes: the smallest set of constraints that still conflicts, as two places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tawa.axon.shapes.constraints import Base, SameWord
from tawa.axon.shapes.presburger import implied, is_possible
from tawa.axon.shapes.solver import Conflict, Fact, Solver
from tawa.axon.shapes.words import Fresh, Row, Source, Span, is_known
from tawa.axon.syntax.parser import quoted
from tawa.axon.types.show import Names
from tawa.errors import AxonError
from tawa.integers import Condition, Expr, Symbol, at_least
from tawa.integers.conditions import symbols_of
from tawa.integers.expressions import of_atom


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be explained: constraints in the order in which they were posted."""

    file: str
    lines: Sequence[str]
    fresh: Fresh
    posted: Sequence[Base]
    promised: frozenset[Symbol] = frozenset()
    assumed: tuple[Base, ...] = ()

    def solve(self, constraints: Sequence[Base]) -> Solver:
        """Solve some of the constraints; raises Conflict."""
        solver = Solver(self.fresh, self.promised)
        for constraint in constraints:
            solver.post(constraint)
        solver.settle()
        return solver

    def conflict(self, constraints: Sequence[Base]) -> Conflict | None:
        """Return what conflicts in some of the constraints, None where nothing does."""
        try:
            solver = self.solve(constraints)
        except Conflict as found:
            return found
        return unkept(solver, self.promised, self.assumed) or impossible(solver.facts)


def impossible(facts: Sequence[Fact]) -> Conflict | None:
    """Return the conflict of conditions that no sizes satisfy together."""
    if not facts or is_possible([fact.condition for fact in facts]):
        return None
    return Conflict(facts[-1].asked, "no sizes satisfy it", facts[-1])


def unkept(solver: Solver, promised: frozenset[Symbol], assumed: Sequence[Base]) -> Conflict | None:
    """Return the first condition on promised sizes that does not follow from what is assumed."""
    if not promised:
        return None
    asked = set(map(id, assumed))
    known: list[Condition] = [at_least(of_atom(symbol), 1) for symbol in promised]
    known += [fact.condition for fact in solver.facts if id(fact.asked) in asked]
    for fact in solver.facts:
        if symbols_of(fact.condition) & promised and not implied(fact.condition, known):
            return Conflict(fact.asked, "not all sizes satisfy it", fact)
    return None


def shrink(items: Sequence[Base], keeps: Callable[[Sequence[Base]], bool]) -> list[Base]:
    """Return a part of the items that `keeps` accepts, and none of whose items can go.

    Ever smaller runs are left out as long as what remains is accepted (Zeller, "Yesterday, my
    program worked. Today, it does not. Why?", 1999).
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    while True:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if keeps(fewer):
                kept = fewer
            else:
                at += size
        if size == 1:
            return kept
        size = max(1, size // 2)


def explain(case: Case, names: Names) -> AxonError:
    """Return the error of a case that conflicts."""
    low, high = 0, len(case.posted)  # the shortest beginning that conflicts
    while low < high:
        middle = (low + high) // 2
        if case.conflict(case.posted[:middle]):
            high = middle
        else:
            low = middle + 1
    prefix = case.posted[:low]
    conflict = case.conflict(prefix)
    assert conflict is not None
    asked, fact, source = conflict.asked, conflict.fact, conflict.asked.source
    guard = names.condition(fact.condition) if fact is not None else ""
    promise = fact is not None and conflict.why.startswith("not all")
    do = f"write `requires {guard}`" if promise else ""
    if isinstance(asked, SameWord) and fact is not None and source.word is not None:
        sides = _two_places(case, prefix, asked, fact, names)
        if sides is not None:
            last = ""
            if promise:
                last = f"they are equal only where {_english(guard)}"
                do += f", or pad {sides[-1].name or 'one of them'}"
            what = f"the shapes of `{source.operator}` differ on axis {sides[0].axis}"
            notes = [(side.place, side.note) for side in sides]
            return _error(case, source.place, what, notes, last, do)
    verb = "does not fit all sizes" if promise else "cannot fit"
    what = f"what `{source.operator}` is given {verb}"
    why = f"needs {guard}" if fact is not None and guard not in ("False", "") else conflict.why
    notes = [(source.place, why)]
    try:
        before = case.solve([c for c in prefix if c.source.call != source.call])
    except Conflict:  # fewer constraints may make another rank known
        return _error(case, source.place, what, notes, "", do)
    for constraint in prefix:
        own = constraint.source
        if own.call == source.call and own.word is not None and own.at != source.place:
            word = names.word(before.word(own.word), brackets=False)
            kept = shrink(prefix, lambda part: case.conflict(part) is not None)
            notes.append((own.at, f"has shape {word}{_chain(kept, source.call)}"))
    return _error(case, source.place, what, list(dict.fromkeys(notes)), "", do)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two places: an argument, the axis that matters, and what its size is."""

    place: Span
    name: str
    axis: int
    note: str


def _two_places(
    case: Case, prefix: Sequence[Base], asked: SameWord, fact: Fact, names: Names
) -> list[Side] | None:
    """Return the argument whose size does not fit, and the one that it does not fit to."""
    if fact.axis is None or fact.left is None or asked.source.word is None:
        return None
    call = asked.source.call
    others = [c for c in prefix if not _is_part(c, asked)]
    solver = case.solve(others)
    given = solver.word(asked.source.word)
    if not is_known(given):
        return None
    axis = fact.axis % len(given)
    wanted = solver.expr(fact.left)
    partner = _partner(prefix, solver, asked, wanted)
    outside = [c for c in others if c.source.call != call]
    chosen = [(asked.source, axis)]
    if partner is not None:
        chosen.append(partner)
        if asked.source.bound is not None and partner[0].bound is None:
            chosen.reverse()
    sides: list[Side] = []
    for index, (source, at) in enumerate(chosen):
        assert source.word is not None
        size = solver.word(source.word)[at]
        assert isinstance(size, Expr)
        note = f"axis {at} is {names.dim(size)}"
        if index == 0:
            note += _chain(_determining(case, outside, source, at), call)
        if partner is None:
            note += f", {names.dim(wanted)} is wanted"
        place = source.bound if source.bound is not None and index else source.at
        sides.append(Side(place, source.name, at, note))
    return sides


def _determining(case: Case, constraints: Sequence[Base], source: Source, axis: int) -> list[Base]:
    """Return constraints that make the size of an argument what it is, and no fewer do."""
    word = source.word
    assert word is not None

    def size(part: Sequence[Base]) -> Expr | Row | None:
        found = case.solve(part).word(word)
        return found[axis] if is_known(found) and axis < len(found) else None

    whole = size(constraints)
    return shrink(constraints, lambda part: size(part) == whole)


def _is_part(constraint: Base, asked: SameWord) -> bool:
    """Tell whether a constraint is the one that asked, or what it was made from."""
    return constraint is asked or (
        constraint.source.call == asked.source.call and constraint.source.at == asked.source.at
    )


def _partner(
    prefix: Sequence[Base], solver: Solver, asked: SameWord, wanted: Expr
) -> tuple[Source, int] | None:
    """Return another argument of the call that has the wanted size, and on which axis."""
    for constraint in prefix:
        source = constraint.source
        if source.call != asked.source.call or source.word is None:
            continue
        if source.at == asked.source.at:
            continue
        word = solver.word(source.word)
        for axis, size in enumerate(word):
            if size == wanted:
                return source, axis
    return None


def _chain(kept: Sequence[Base], call: int) -> str:
    """Return the operations, but for the last call, that a conflict is made of."""
    found: dict[tuple[Span, str], None] = {}
    for constraint in kept:
        source = constraint.source
        if source.call not in (0, call) and source.operator != "the annotation":
            found[source.place, source.operator] = None
    if not found:
        return ""
    ordered = sorted(found, key=lambda item: (item[0].line, item[0].column))
    texts = [f"{operator} at {place}" for place, operator in ordered]
    head = ", ".join(texts[:-1])
    return f", from {head} and {texts[-1]}" if head else f", from {texts[-1]}"


def _english(guard: str) -> str:
    left, _, right = guard.partition(" % 2 = ")
    if right in ("0", "1"):
        return f"{left} is {'odd' if right == '1' else 'even'}"
    return guard


def _error(
    case: Case, place: Span, what: str, notes: Sequence[tuple[Span, str]], last: str, do: str
) -> AxonError:
    lines = [f"{case.file}:{place}: error: {what}"]
    lines.extend(quoted(case.lines, at, note) for at, note in notes)
    end = "  ".join(
        part for part in (f"{last}." if last else "", f"do: {do}" if do else "") if part
    )
    if end:
        lines.append(f"  {end}")
    return AxonError("\n".join(lines))
