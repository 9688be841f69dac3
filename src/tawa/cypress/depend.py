"""What each event waits for: those it shares slots and tensors with, where one of them writes.

Only direct waits are kept: what follows from others is left out, so that each one is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tawa.cypress.event import Call, CopyIn, CopyOut, Event, Events, For, Iota, told
from tawa.cypress.tree import Part


@dataclass(frozen=True, slots=True)
class Wait:
    """An event's waits: for events of its own iteration, and of the one before, by number."""

    same: tuple[int, ...]
    before: tuple[int, ...]


_Parts = tuple[Part, ...]
_Used = dict[object, _Parts]


def _uses(event: Event) -> tuple[_Used, _Used]:
    """Return what an event reads, and what it writes: slots, and tensors of the program by name,
    each with how its processors part it.
    """
    match event:
        case CopyIn():
            return {event.source.root.name: ()}, {id(event.slot): ()}
        case Iota():
            return {}, {id(event.slot): ()}
        case CopyOut():
            return {id(event.slot): ()}, {event.target.root.name: ()}
        case Call():
            variant = event.spread.leaf.variant
            given = list(zip(event.slots, event.spread.operands, strict=True))
            reads: _Used = {id(s): each.parts for s, each in given if each.name in variant.reads}
            return reads, {id(s): each.parts for s, each in given if each.name in variant.writes}
        case For():
            each = [_uses(inner) for inner in event.body]
            return _joined(reads for reads, _ in each), _joined(writes for _, writes in each)


def _joined(several: Iterable[_Used]) -> _Used:
    """Return what some events use, parted as far as they part it alike."""
    found: _Used = {}
    for at, parts in (pair for used in several for pair in used.items()):
        found[at] = parts[: _alike(parts, found.get(at, parts))]
    return found


def dimensions(early: Event, late: Event) -> tuple[tuple[Part, bool], ...]:
    """Return how the processors of an event that another one waits for part what both use, from
    the outermost level in, each with whether one of them waits for its own part alone, or for all.
    """
    (read, written), (reads, writes) = _uses(early), _uses(late)
    met = [
        (first[at], second[at])
        for first, second in ((written, reads), (written, writes), (read, writes))
        for at in first.keys() & second.keys()
    ]
    longest = max((parts for parts, _ in met), key=len, default=())
    alike = min((_alike(one, other) for one, other in met), default=0)
    if isinstance(late, CopyOut) and not late.staged:  # each thread stores what it has
        alike = len(longest)
    return tuple((part, n < alike) for n, part in enumerate(longest))


def _alike(one: _Parts, other: _Parts) -> int:
    """Return how many levels part a tensor alike, from the outermost in."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def waits(body: tuple[Event, ...], looped: bool) -> tuple[Wait, ...]:
    """Return the waits of each event of a body; `looped`: it runs again and again."""
    uses = [tuple(map(set, _uses(event))) for event in body]
    count = len(body)
    iterations = 2 if looped else 1
    # Two iterations are enough: what meets further away meets one iteration away too, and follows.
    before: list[set[int]] = []
    for late in range(count * iterations):
        reads, writes = uses[late % count]
        before.append(
            {
                early
                for early in range(late)
                if writes & (uses[early % count][0] | uses[early % count][1])
                or reads & uses[early % count][1]
            }
        )
    reached: list[set[int]] = []
    for direct in before:
        reached.append(direct.union(*(reached[early] for early in direct)))
    kept = [
        {e for e in direct if not any(e in reached[other] for other in direct)} for direct in before
    ]
    last = kept[-count:] if count else []
    first = count * (iterations - 1)
    # The first iteration has no other before it: what follows only by that one is told for it.
    own = kept[:count]
    return tuple(
        Wait(
            tuple(sorted({e - first for e in each if e >= first} | alone)),
            tuple(sorted(e for e in each if e < first)),
        )
        for each, alone in zip(last, own, strict=True)
    )


def text(events: Events) -> str:
    """Return events as text, numbered within their body, with what each waits for."""
    grid = ", ".join(f"{i} in {n}" for i, n in zip(events.indices, events.grid, strict=True))
    return "\n".join([f"pfor {grid} over BLOCK", *_lines(events.body, False, "  ")]) + "\n"


def _lines(body: tuple[Event, ...], looped: bool, pad: str) -> list[str]:
    lines: list[str] = []
    for number, (event, wait) in enumerate(zip(body, waits(body, looped), strict=True)):
        after = [f"{n}{_marks(body[n], event)}" for n in wait.same]
        after += [f"{n}{_marks(body[n], event)} of the iteration before" for n in wait.before]
        lines.append(f"{pad}{number}: {told(event)}" + f"  after {', '.join(after)}" * bool(after))
        if isinstance(event, For):
            lines += _lines(event.body, True, pad + "  ")
    return lines


def _marks(early: Event, late: Event) -> str:
    """Return the dimensions of a wait as text: an index for its own part, a colon for all."""
    marks = [f"{'i' if own else ':'} {part.level}" for part, own in dimensions(early, late)]
    return f"[{', '.join(marks)}]" if marks else ""
