"""Configurations that are searched for what no other has reached, and which of them were run.

Some numbers in them are drawn at random, and loops may be made to end as if nothing were known of
their ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

from tawa.simulator.proof.configuration import Configuration, Shape, alike, kinds_of, paired, times

SEARCHES = ((0, 4_000), (32, 4_000), (32, 30_000))
"""Drawings of numbers at random, and the steps of a run: some of them are very long."""

_ALL = 1 << 10  # more trips than any loop over a part of a tile makes
_NESTED = ("outer", "around")
# What arguments are multiples of, where they are: loops make no trips or so many each.
_UNIT = 16


@dataclass(eq=False, slots=True)
class Searches:
    """The configurations that were searched, with the steps that they had if that was too few."""

    shape: Shape
    _done: dict[Hashable, int | None] = field(default_factory=lambda: {})

    def fresh(self, seen: list[Configuration], tries: int, steps: int) -> Iterator[Configuration]:
        """Yield what is to be run in so many steps, and did neither end before nor take more."""
        for configuration in searching(seen, tries, self.shape):
            key = configuration.wanted
            had = self._done.get(key, 0)
            if had is not None and had < steps:
                self._done[key] = None
                yield configuration

    def give_up(self, configuration: Configuration, steps: int) -> None:
        """Note that a configuration takes more steps than it had."""
        self._done[configuration.wanted] = steps


def full(shape: Shape, draws: int) -> Iterator[Configuration]:
    """Yield configurations with numbers drawn at random of those that give loops all the trips they
    can make: what follows a loop over the rows of a block (`min(16, T - row)`) may ask for all.
    """
    for seed in range(1, draws + 1):
        kinds = kinds_of(shape.instances, _ALL, "yes")
        yield Configuration(kinds, seed=seed, blocks=1 + seed % 3, block=seed % 3, turn=seed % 2)


def searching(seen: list[Configuration], tries: int, shape: Shape) -> Iterator[Configuration]:
    """Yield configurations for what no other has reached: loops that end as if nothing were known
    of their ends, others with more trips, and so many with numbers drawn at random.
    """
    kinds = {site.kind for one in seen for site in one.outcomes}
    if shape.varying and not kinds.isdisjoint(("outer", "while")):
        yield replace(paired(), free=True)
    many = {"around": (shape.tiles(1),), "while around": times(shape.tiles(1))}
    around = {site: None for one in seen for site in one.outcomes if site.kind in many}
    for site in around:
        for free in (False, True):
            wishes = {site.operation: many[site.kind]}
            yield Configuration(kinds_of(1, 1, "yes"), wishes, free=free)
        # What the first program leaves out, or does alone.
        yield Configuration(kinds_of(1, 1, "yes"), wishes, block=1, blocks=2)
        # A bound that is a multiple of 16 gives no trips or many.
        if site.kind == "around":
            wishes = {site.operation: (shape.tiles(0),)}
            yield Configuration(kinds_of(1, shape.long, "yes"), wishes)
    # A long loop of the first program: those of others may end early, as the parts of a split one.
    long = alike(shape.instances, shape.long, "yes")
    yield from (replace(long, free=True, outcomes={}), long)
    for site in {site: None for one in seen for site in one.outcomes if site.kind in _NESTED}:
        yield Configuration(kinds_of(1, _UNIT, "yes"), {site.operation: (_UNIT,)})
    # Tiles of two trips, which may turn a ring by an odd number where those of one do not.
    yield alike(shape.instances * (shape.depth + 2), 2, "yes")
    # Loops that share a ring may turn it by an even number in each tile: one of them, less or more.
    inner = {site: None for one in seen for site in one.outcomes if site.kind == "inner"}
    if len(inner) > 1:
        for site in inner:
            for count in (0, 2):
                wishes = {site.operation: (count,)}
                yield Configuration(kinds_of(shape.tiles(1), 1, "yes"), wishes, free=True)
    for site in around:
        for other in inner:
            for count in (0, 2):
                wishes = {site.operation: many[site.kind], other.operation: (count,)}
                yield Configuration(kinds_of(1, 1, "yes"), wishes)
    # Tiles of one trip at every position of a ring, where the conditions that hold would skip them.
    if any(site.kind == "if" for one in seen for site in one.outcomes):
        yield Configuration(kinds_of(shape.tiles(1), 1, "no"))
    trips = (3, 4, 2, shape.depth + 1, 1)
    for seed in range(1, tries + 1):
        tiles = (shape.tiles(1), 2, 1, shape.tiles(2))[seed % 4]
        kinds = kinds_of(tiles, trips[seed % len(trips)], ("yes", "no, yes")[seed // 2 % 2])
        yield Configuration(kinds, free=True)
        yield Configuration(kinds, seed=seed, blocks=1 + seed % 3, block=seed % 4, turn=seed % 3)
        yield Configuration(kinds_of(1, 2, ("no", "yes")[seed % 2]), seed=seed, anywhere=True)
