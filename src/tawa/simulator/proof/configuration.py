"""Which trip counts and conditions the proof runs.

A *site* is a loop or condition whose outcome depends on unknowns. Each configuration gives each
site a sequence of wishes, used in turn: an inner loop under a loop over tiles meets different trip
counts from one tile to the next.

Trips of a loop that turns rings of D slots itself are 0, 1, D-1, D, D+1 and 2D+2: what a ring does
repeats after 2D trips. A loop around such loops (over tiles) makes 0 to 3 trips and, where its
inner loops make none or one, D+1, D the deepest ring it turns with them: only then does the
producer come round to a slot while the consumer is still in the first tile. Roles that take tiles
in turn go round twice at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.ir import Operation

Count = tuple[int, int]
"""A number of trips a*D + b as (a, b), D the depth of the rings the site turns."""

Wishes = tuple[Count, ...]

INNER: Wishes = ((0, 0), (0, 1), (1, -1), (1, 0), (1, 1), (2, 2))
DEEP: Count = (1, 1)
_IF: dict[str, Wishes] = {
    "no": ((0, 0),),
    "yes": ((0, 1),),
    "no, yes": ((0, 0), (0, 1)),
    "yes, no": ((0, 1), (0, 0)),
}


def _times(count: int) -> Wishes:
    """Return the outcomes of a condition of a while loop that makes `count` trips."""
    return ((0, 1),) * count + ((0, 0),)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a choice is made: `kind` is "inner", "outer", "around", "pure", "while" or "if"."""

    operation: Operation
    kind: str
    depth: int


@dataclass(eq=False, slots=True)
class Configuration:
    """Wishes by site, else by kind; what was reached. `ragged` asks for the smallest number that
    gives a trip count, so that the last trip is a partial one. `block` and `blocks` are the block's
    number and the size of the grid, where no choice depends on them: in causal attention the number
    of a tile is also the trip count of its loop. `turn` says which of several unknowns is chosen
    to reach a wish.
    """

    kinds: Mapping[str, Wishes]
    sites: Mapping[Operation, Wishes] = field(default_factory=dict[Operation, Wishes])
    ragged: bool = False
    block: int = 0
    blocks: int = 1
    turn: int = 0
    outcomes: dict[Site, list[int]] = field(default_factory=dict[Site, list[int]])

    def wish(self, site: Site) -> int:
        """Return the outcome wanted now at a site."""
        turn = len(self.outcomes.setdefault(site, []))
        wishes = self.sites.get(site.operation) or self.kinds[site.kind]
        factor, more = wishes[turn % len(wishes)]
        count = max(0, factor * site.depth + more)
        if site.kind == "outer" and factor:
            return max(3, count)
        return count

    def reached(self, site: Site, outcome: int) -> None:
        """Note the outcome reached at a site."""
        self.outcomes[site].append(outcome)

    def describe(self) -> str:
        """Return the outcomes, for the report."""
        parts = [
            f"{site.operation.name.removeprefix('scf.')} {','.join(map(str, outcomes))}"
            for site, outcomes in self.outcomes.items()
            if outcomes
        ]
        return "; ".join(parts) or "no choice"


def _uniform(
    outer: Count, inner: Count, choice: str, around: int = 1, long: int = 0, turn: int = 0
) -> Configuration:
    tiles = 3 if outer == DEEP else outer[1]
    return Configuration(
        {
            "around": ((0, around),),
            "outer": (outer,),
            "inner": (inner,),
            "pure": (inner if not inner[0] else (0, 2),),
            "while": _times(tiles),
            "if": _IF[choice],
        },
        ragged=bool(inner[1] & 1),
        block=2 * long + 1 if long else 0,
        blocks=max(1, long),
        turn=turn or int(long == 2),
    )


def configurations(seen: list[Configuration]) -> Iterator[Configuration]:
    """Yield configurations, small ones first; `seen` gathers those that were run, with their sites.

    Kernels without choices have one, those with one loop six.
    """
    yield _uniform((0, 1), (0, 0), "no", 0)
    if not seen[0].outcomes:
        return
    yield _uniform((0, 1), (0, 1), "yes")
    for step, count in enumerate(INNER):
        if step < 3:
            yield _uniform(DEEP if step < 2 else (0, 3), count, "yes", 2)
        else:
            yield _uniform((0, 2), count, "yes", 1, step - 2)
    sites = {site for one in seen for site in one.outcomes}
    if any(site.kind == "outer" for site in sites):
        yield _uniform(DEEP, (0, 1), "yes", 1, 0, 1)  # tiles that differ in another axis only
    if len(sites) == 1 and not any(site.kind == "if" for site in sites):
        return
    yield _uniform((0, 0), (0, 1), "yes")
    yield from _one_by_one(sites)
    if any(site.kind in ("outer", "while") for site in sites):
        yield from _mixed()


def _one_by_one(sites: set[Site]) -> Iterator[Configuration]:
    """Vary each site while the others stay: loops of unlike trip counts, conditions both ways."""
    inner = [site for site in sites if site.kind == "inner"]
    around = _uniform(DEEP, (0, 1), "yes").kinds
    if len(inner) > 1:
        for site in inner:
            for count in INNER:
                yield Configuration(around, {site.operation: (count,)})
    for site in sites:
        if site.kind == "if":
            for wishes in _IF.values():
                yield Configuration(around, {site.operation: wishes}, ragged=True)
        elif site.kind == "pure":
            for trips in (0, 1, 3):
                yield Configuration(around, {site.operation: ((0, trips),)})


def _mixed() -> Iterator[Configuration]:
    """Tiles of unlike trip counts: a long one before an empty one, and the other way round."""
    around = _uniform(DEEP, (0, 1), "yes").kinds
    for inner in (((1, 1), (0, 0), (0, 1)), ((0, 0), (1, 1), (1, -1), (0, 0))):
        yield Configuration({**around, "inner": inner})
