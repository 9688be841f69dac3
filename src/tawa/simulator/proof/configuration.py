"""Which trip counts and conditions the proof runs.

A *site* is a loop or condition whose outcome depends on unknowns. Each configuration gives each
site a sequence of wishes, used in turn: an inner loop under a loop over tiles meets different trip
counts from one tile to the next. docs/design/proof.md has the theorem: which counts are enough, and
why. Here is what follows from it.

D is the deepest ring, c the trip from which on conditions on the number of a trip are steady (and
their period). A loop that turns rings itself makes 0, 1, ... D+c+1 trips, and 2D+2+c: in these a
ring takes every position. A loop around such loops (over tiles) makes, for T trips of them, so many
turns that D+2 trips lie side by side from any of the first on, and one more than a ring is deep
that it turns itself; for one trip 2D+1, so that a tile begins at every position; and more by a c of
its own. The c of the loop inside is nothing to it: a tile begins anew. A ring counts as turned by
the loop inside only where each trip of it waits for the ring or arrives on it (not under a
condition, not in a loop of so many trips). Each loop around tiles makes D+1 trips, of one tile
of two trips and of three.
Where all rings do the same from each position (`positions`), a tile need not begin at every one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from xdsl.ir import Operation

from tawa.ir import line_of

Wishes = tuple[int, ...]

_IF: dict[str, Wishes] = {"no": (0,), "yes": (1,), "no, yes": (0, 1), "yes, no": (1, 0)}
_UNLIKE = (_IF["no"], _IF["no, yes"], _IF["yes, no"])
"""What conditions are varied to while the others, as in all runs of tiles alike, hold."""
_LOOPS = ("inner", "outer", "around", "while", "while around")
PURE = 3
"""Trips of loops without synchronization."""
_MANY = 24  # more steady trips than this are not all run: those between are like their neighbours


@dataclass(frozen=True, slots=True)
class Site:
    """Where a choice is made: `kind` is "inner", "outer", "around" or "pure" for loops, "while" or
    "while around" for conditions of while loops, "once" for conditions that nothing changes while
    a block runs, "if" for others.
    """

    operation: Operation
    kind: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how many trips are enough: the deepest ring; over how many trips of loops around
    others (rounds, of instances) those rings go that these loops alone turn; the trips before loops
    are steady, those that turn rings and those around them; how many roles, its instances, share
    out the tiles, and the deepest ring that not all of them turn; `varying` tells whether tiles
    make unlike trips. `seldom` is the depth of a ring that only some trips of a period turn, in
    trips. `everywhere` all rings do the same, so that no run need take every position.
    """

    depth: int
    outer: int
    settle: int
    around: int
    instances: int
    own: int
    varying: bool
    seldom: int = 0
    everywhere: bool = False

    @property
    def reach(self) -> int:
        """Trips that an edge goes over at most."""
        return max(self.depth, self.seldom)

    @property
    def long(self) -> int:
        """Trips in which every ring takes every position after all conditions are steady."""
        return 2 * self.reach + 2 + self.settle

    def counts(self) -> Iterator[int]:
        """Yield the trip counts of a loop that turns rings."""
        near = self.depth + self.settle + 2
        far = self.reach + self.settle + 2
        for count in range(far):
            few = count < near and (self.settle <= _MANY or count < self.depth + 2)
            if few or far <= _MANY or self.settle - 1 <= count < near or count >= far - 2:
                yield count

    def tiles(self, count: int) -> int:
        """Return the trips of a loop over tiles, each of `count` trips: whole rounds of one tile
        for each instance, in which the rings of all of them are turned by each.
        """
        each = self.instances
        match count:
            case 0:
                rounds = max(3, -(-self.depth // each) + 1, self.own + 1, self.outer + 1)
            case 1 if (
                not self.everywhere
            ):  # a tile begins at every position, and what instances carry moves alike
                along = -(-(self.depth + 1) // each), 2 * self.own, 2 * self.outer
                rounds = max(-(-(2 * self.depth + 1) // each), 1 + max(along))
            case _:  # an edge goes over D trips at most, or over so many tiles
                along = -(-(self.depth + 1) // (each * count)), -(-(self.own + 1) // count)
                rounds = 1 + max(*along, self.outer)
        return each * (rounds + self.around)


@dataclass(eq=False, slots=True)
class Configuration:
    """Wishes by site, else by kind; what was reached. `ragged` asks for the smallest number that
    gives a trip count, so that the last trip is a partial one. `block` and `blocks` are the block's
    number and the size of the grid, where no choice depends on them: in causal attention the number
    of a tile is also the trip count of its loop. `turn` says which of several unknowns is chosen
    to reach a wish, `late` how many trips a condition on the trip keeps its first outcome, `seed`
    (if not 0) has the other unknowns drawn at random, `anywhere` the block's number as well; `free`
    has the ends of loops chosen as if nothing were known of them: more than any input can do.
    `equal` are numbers that a scalar is rather to be than any other, where it is to be unlike one;
    `given` the numbers of unknowns that are to be those of another run; in a `survey` the questions
    are kept (see `cells`), only for who asks them where it `listens` alone (see `common`).
    In a `large` one, as in a survey, numbers beside the one that is chosen are large.
    In a `launched` one blocks and extents are those of a launch even where that gives no wish.
    A `hasty` one has no patience with loops that go on for many more trips than are wanted.
    Outcomes that keep a loop turning for ever are no run: `restless` counts the trips since that
    was seen, in which all combinations of outcomes are tried.
    """

    kinds: Mapping[str, Wishes]
    sites: Mapping[Operation, Wishes] = field(default_factory=lambda: {})
    ragged: bool = False
    block: int = 0
    blocks: int = 1
    turn: int = 0
    late: int = 1
    seed: int = 0
    anywhere: bool = False
    free: bool = False
    equal: tuple[int, ...] = ()
    given: Mapping[tuple[object, ...], int] = field(default_factory=lambda: {})
    restless: int = 0
    survey: bool = False
    listens: bool = False
    large: bool = False
    launched: bool = False
    hasty: bool = False
    outcomes: dict[Site, list[int]] = field(default_factory=lambda: {})

    @property
    def wanted(self) -> Hashable:
        """What tells a configuration from others of a search: what it wants and draws."""
        kinds, sites = tuple(self.kinds.items()), tuple(self.sites.items())
        where = self.block, self.blocks, self.turn, self.anywhere
        return kinds, sites, where, self.seed, self.free

    @property
    def is_held(self) -> bool:
        """Whether all conditions are to hold: more trips ask no more than one trip in a survey."""
        return not self.sites and not self.seed and self.kinds.get("if") == _IF["yes"]

    def wish(self, site: Site) -> int:
        """Return the outcome wanted now at a site."""
        turn = len(self.outcomes.setdefault(site, []))
        if self.restless and site.kind == "if":
            return self.restless >> list(self.outcomes).index(site) % 8 & 1
        wishes = self.sites.get(site.operation) or self.kinds[site.kind]
        return wishes[turn % len(wishes)]

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


def kinds_of(tiles: int, trips: int, choice: str, around: int = 1) -> dict[str, Wishes]:
    """Return what is wanted of each kind of site, where all of a kind are alike."""
    return {
        "around": (around,),
        "outer": (tiles,),
        "inner": (trips,),
        "pure": (min(trips, 2),),
        "while": times(tiles),
        "while around": times(around),
        "if": _IF[choice],
        "once": _IF[choice][:1],
    }


def times(count: int) -> Wishes:
    """Return the outcomes of the condition of a while loop that makes `count` trips."""
    return (1,) * count + (0,)


def alike(
    tiles: int, trips: int, choice: str, around: int = 1, long: int = 0, turn: int = 0
) -> Configuration:
    """Return a configuration in which all tiles make so many trips."""
    return Configuration(
        kinds_of(tiles, trips, choice, around),
        ragged=bool(trips & 1),
        block=trips - 1 if long else 0,
        blocks=max(1, long),
        turn=turn or int(long == 2),
    )


def uniform(shape: Shape) -> Iterator[Configuration]:
    """Yield every trip count, of all loops and tiles alike, with all conditions held."""
    for count in shape.counts():
        long = max(0, min(3, count - shape.depth + 2)) if count > 1 else 0
        yield alike(shape.tiles(count), count, "yes", 2 if count < 2 else 1, long)
    yield replace(alike(shape.instances, shape.long, "yes", 1, 3), large=True)


def listening(shape: Shape) -> Iterator[Configuration]:
    """Yield runs whose questions are to be known, with as many trips as change what is asked:
    conditions that go by an input and by the number of a trip ask something else in each.
    """
    yield replace(alike(shape.instances, shape.settle + 2, "yes"), survey=True, listens=True)
    if shape.around:
        tiles = shape.instances * (shape.around + 2)
        yield replace(alike(tiles, 1, "yes"), survey=True, listens=True)


def shortly(configuration: Configuration, shape: Shape) -> Configuration:
    """Return a configuration of as few tiles as there are instances, and all else as in one."""
    tiles = kinds_of(shape.instances, 1, "yes")
    around = {kind: tiles[kind] for kind in ("around", "outer", "while", "while around")}
    return replace(configuration, kinds={**configuration.kinds, **around}, outcomes={})


def longer(
    ended: Configuration, loop: Operation, sites: Collection[Site], shape: Shape
) -> Iterator[Configuration]:
    """Yield runs that go on from one that ended a loop in a new way, with so many more trips of it
    that they come, if trips stay alike, to where it began: on the same grid, and on longer ones,
    since programs may be what the loop counts. Where all its numbers were given, it chose none of
    the `sites`: then on longer grids alone. Loops that made no trip make whole turns of all rings:
    what comes after them, and may have the same end, begins where it ended.
    """
    for site in sites:
        outcomes = ended.outcomes.get(site, ()) or (() if ended.outcomes else (1,))
        if site.kind not in _LOOPS or not outcomes:
            continue
        more: list[int] = []
        if site.kind == "inner" and not any(outcomes):
            more.append(2 * shape.reach)
        if line_of(site.operation) == line_of(loop):
            more.append(shape.long if site.kind == "inner" else shape.tiles(1))
        for count, axes in product(more, (3, 1, 0)):
            if site.kind in ("inner", "outer", "around"):
                wishes: Wishes = (max(outcomes) + count,)
            else:
                wishes = times(sum(outcomes) + count)
            given = {
                name: number
                for name, number in ended.given.items()
                if name[0] != "grid_extent" or name[1] < axes  # pyright: ignore[reportOperatorIssue]
            }
            if given != ended.given or (axes == 3 and ended.outcomes):
                wanted = {**ended.sites, site.operation: wishes}
                yield replace(ended, sites=wanted, given=given, outcomes={})


def configurations(seen: list[Configuration], shape: Shape) -> Iterator[Configuration]:
    """Yield configurations, small ones first; `seen` gathers those that were run, with their sites.

    Kernels without choices have one.
    """
    yield replace(alike(1, 0, "no", 0), survey=True)
    if not seen[0].outcomes:
        return
    yield replace(alike(1, 1, "yes"), survey=True)
    yield from uniform(shape)
    sites = dict.fromkeys(site for one in seen for site in one.outcomes)
    if any(site.kind == "outer" for site in sites):
        yield alike(shape.tiles(0), 1, "yes", 1, 0, 1)  # tiles that differ in another axis only
    for site in [site for site in sites if site.kind in ("around", "while around")]:
        trips = shape.depth + 1 + shape.around  # of rings that this loop alone turns
        wishes = (trips,) if site.kind == "around" else times(trips)
        for count in (2, 3):
            twin = alike(shape.instances, count, "yes")
            yield replace(twin, sites={site.operation: wishes})
    if len(sites) == 1 and not any(site.kind in ("if", "once") for site in sites):
        return
    yield alike(0, 1, "yes")
    yield from _one_by_one(sites, shape)
    yield from _conditions(sites, shape)
    if shape.varying and any(site.kind in ("outer", "while") for site in sites):
        yield from _mixed(shape)


def _one_by_one(sites: Collection[Site], shape: Shape) -> Iterator[Configuration]:
    """Vary each site while the others stay: loops of unlike trip counts, conditions both ways."""
    inner = [site for site in sites if site.kind == "inner"]
    around = kinds_of(shape.tiles(0), 1, "yes")
    if len(inner) > 1:
        for site in inner:
            for count in sorted({0, 1, 2, shape.depth, shape.depth + shape.settle}):
                yield Configuration(around, {site.operation: (count,)})
            if not shape.everywhere:
                yield Configuration(around, {site.operation: (shape.long,)})
    for site in sites:
        if site.kind in ("if", "once"):
            for wishes in _UNLIKE if site.kind == "if" else (_IF["no"],):
                yield Configuration(around, {site.operation: wishes}, ragged=True)
        elif site.kind == "pure":
            for trips in (0, 1, PURE):
                yield Configuration(around, {site.operation: (trips,)})


def _conditions(sites: Collection[Site], shape: Shape) -> Iterator[Configuration]:
    """Conditions in a loop: every sequence of outcomes of a few trips, and late changes."""
    choices = [site for site in sites if site.kind == "if"]
    if not choices:
        return
    word = sequence_of(min(4, shape.depth + 1))
    kinds = kinds_of(2 * shape.instances, len(word), "yes")
    yield Configuration({**kinds, "if": word})
    for choice in ("no", "yes"):
        for late in sorted({2, shape.depth, shape.depth + 1}):
            yield Configuration(kinds_of(2, late + 2, choice), late=late)


def sequence_of(order: int) -> Wishes:
    """Return a sequence of 0 and 1 that holds every sequence of length `order` (de Bruijn)."""
    word = [0] * order
    seen = {tuple(word)}
    while True:
        for bit in (1, 0):
            following = (*word[len(word) - order + 1 :], bit)
            if following not in seen:
                seen.add(following)
                word.append(bit)
                break
        else:
            return tuple(word)


def _mixed(shape: Shape) -> Iterator[Configuration]:
    """Tiles of unlike trip counts: a long one before an empty one, and every pair of short ones."""
    depth = shape.depth
    for inner in ((depth + 1, 0, 1), (0, depth + 1, max(0, depth - 1), 0)):
        around = kinds_of(shape.instances * (len(inner) + 1), 1, "yes")
        yield Configuration({**around, "inner": inner})
    yield paired()


def paired() -> Configuration:
    """Return a configuration whose tiles make every pair of few trips, one after the other."""
    pairs = tuple(number for a in range(3) for b in range(a, 3) for number in (a, b))
    return Configuration({**kinds_of(len(pairs), 1, "yes"), "inner": pairs})
