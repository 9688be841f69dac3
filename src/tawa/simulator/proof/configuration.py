"""Which trip counts and conditions the proof runs.

A *site* is a loop or condition whose outcome depends on unknowns. Each configuration gives each
site a sequence of wishes, used in turn: an inner loop under a loop over tiles meets different trip
counts from one tile to the next. Trips are 0, 1, D-1, D, D+1, 2D+2 for loops that turn a ring of D
slots, since what a ring does repeats after 2D trips, and 0..3 for loops around such loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation

Wishes = tuple[int, ...]

_OUTER = (0, 1, 2, 3)
_DEFAULT: dict[str, Wishes] = {
    "outer": (2,),
    "inner": (2,),
    "pure": (2,),
    "if": (1,),
    "while": (1, 1, 0),
}


@dataclass(eq=False, slots=True)
class Configuration:
    """Wishes by site, and what was reached. `ragged` asks for the smallest number of a trip count."""

    wishes: dict[Operation, Wishes]
    defaults: dict[str, Wishes]
    ragged: bool = False
    kinds: dict[Operation, str] = field(default_factory=dict[Operation, str])
    outcomes: dict[Operation, list[int]] = field(default_factory=dict[Operation, list[int]])

    def wish(self, site: Operation, kind: str) -> int:
        """Return the outcome wanted now at a site."""
        self.kinds[site] = kind
        turn = len(self.outcomes.setdefault(site, []))
        wishes = self.wishes.get(site) or self.defaults[kind]
        return wishes[turn % len(wishes)]

    def reached(self, site: Operation, outcome: int) -> None:
        """Note the outcome reached at a site."""
        self.outcomes[site].append(outcome)

    def describe(self) -> str:
        """Return the outcomes, for the report."""
        parts = [
            f"{site.name.removeprefix('scf.')} {','.join(map(str, outcomes))}"
            for site, outcomes in self.outcomes.items()
            if outcomes
        ]
        return "; ".join(parts) or "no choice"


def inner_trips(depth: int) -> Wishes:
    """Return the trip counts tried for a loop over a ring of `depth` slots, smallest first."""
    return tuple(sorted({0, 1, max(0, depth - 1), depth, depth + 1, 2 * depth + 2}))


def configurations(depth: int, seen: list[Configuration]) -> Iterator[Configuration]:
    """Yield configurations, small ones first; `seen` holds those that were run, with their sites."""
    trips = inner_trips(depth)
    for step, trip in enumerate(trips):
        yield Configuration(
            {},
            {
                "outer": (_OUTER[min(step, 3)],),
                "inner": (trip,),
                "pure": (trip,),
                "if": (step & 1,),
                "while": (1,) * min(step, 3) + (0,),
            },
            ragged=bool(step & 1),
        )
    sites: dict[Operation, str] = {}
    for one in seen:
        sites.update(one.kinds)
    if len(sites) == 1 and "if" not in sites.values():
        return
    for site, kind in sites.items():
        for wishes in _variations(kind, trips):
            yield Configuration({site: wishes}, dict(_DEFAULT), ragged=kind == "if")
    if "outer" in sites.values() or "while" in sites.values():
        for wishes in ((depth + 1, 0, 1), (0, 2 * depth + 2, max(0, depth - 1))):
            around = {**_DEFAULT, "outer": (3,), "while": (1, 1, 1, 0), "inner": wishes}
            yield Configuration({}, around)


def _variations(kind: str, trips: Wishes) -> tuple[Wishes, ...]:
    match kind:
        case "outer":
            return tuple((count,) for count in _OUTER)
        case "inner":
            return tuple((count,) for count in trips)
        case "pure":
            return ((0,), (1,), (3,))
        case "while":
            return tuple((1,) * count + (0,) for count in _OUTER)
        case _:
            return ((0,), (1,), (0, 1), (1, 0))


__all__ = ["Configuration", "IntAttr", "Wishes", "configurations", "inner_trips"]
