"""What each event waits for: those it shares slots and tensors with, where one of them writes.

Only direct waits are kept: what follows from others is left out, so that each one is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tawa.cypress.event import Call, CopyIn, CopyOut, Event, Events, For, Iota, told


@dataclass(frozen=True, slots=True)
class Wait:
    """An event's waits: for events of its own iteration, and of the one before, by number."""

    same: tuple[int, ...]
    before: tuple[int, ...]

    def __str__(self) -> str:
        """Return the waits in words, or nothing."""
        each = [
            *(f"{n}" for n in self.same),
            *(f"{n} of the iteration before" for n in self.before),
        ]
        return f"  after {', '.join(each)}" if each else ""


def _uses(event: Event) -> tuple[set[object], set[object]]:
    """Return what an event reads, and what it writes: slots, and tensors of the program by name."""
    match event:
        case CopyIn():
            return {event.source.root.name}, {id(event.slot)}
        case Iota():
            return set(), {id(event.slot)}
        case CopyOut():
            return {id(event.slot)}, {event.target.root.name}
        case Call():
            reads = event.spread.leaf.variant.reads
            named = zip(event.spread.leaf.variant.parameters, event.slots, strict=True)
            return (
                {id(slot) for name, slot in named if name in reads},
                {id(slot) for slot in event.outputs},
            )
        case For():
            each = [_uses(inner) for inner in event.body]
            return {r for reads, _ in each for r in reads}, {w for _, ws in each for w in ws}


def waits(body: tuple[Event, ...], looped: bool) -> tuple[Wait, ...]:
    """Return the waits of each event of a body; `looped`: it runs again and again."""
    uses = [_uses(event) for event in body]
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
        lines.append(f"{pad}{number}: {told(event)}{wait}")
        if isinstance(event, For):
            lines += _lines(event.body, True, pad + "  ")
    return lines
