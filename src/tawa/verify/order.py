"""Lemma 2, the order of pipelined roles: nobody waits for ever, for every trip count.

In a loop of T iterations event e of iteration i runs in step i + shift(e) of its role. Dependences
between events are edges with a weight, the number of iterations from one to the other: the order
of a role (0; from its last event to its first 1), a put to its get, a free to the put that takes
its slot. If no cycle has a weight of 0 or less, there is an order of all events of all iterations
that keeps every dependence, and any run ends (R. Karp, R. Miller and S. Winograd, "The organization
of computations for uniform recurrence equations", JACM 14, 1967).

All roles at once: each of two roles may be right with every right partner, and both hang together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["put", "fill", "get", "free"]


_TAKEN: tuple[Kind, ...] = ("get", "free")
_FILLED: tuple[Kind, ...] = ("put", "fill")


@dataclass(frozen=True, slots=True)
class Site:
    """One operation on a ring in the body of a loop: the `place`-th of its kind in an iteration.

    A "put" takes a slot, and fills it as well where no "fill" of its ring does so later on.
    """

    kind: Kind
    ring: int
    place: int = 0
    consumer: int = 0


@dataclass(frozen=True, slots=True)
class Shifted:
    """A site, and how many steps after its iteration begins it runs."""

    site: Site
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """`after` in iteration i + weight needs `before` in iteration i."""

    before: Site
    after: Site
    weight: int


def edges(roles: Sequence[Sequence[Shifted]], depths: Sequence[int]) -> list[Edge]:
    """Return what depends on what between the events of all roles, in steps of the roles.

    `depths` are the slots of each ring. Raises ValueError where a ring's puts, gets and frees are
    not as many in an iteration, or a site stands twice.
    """
    shifts: dict[Site, int] = {}
    for body in roles:
        for item in body:
            if item.site in shifts:
                raise ValueError(f"{item.site} stands twice")
            shifts[item.site] = item.shift
    found: list[Edge] = []
    for body in roles:
        found += [Edge(one.site, other.site, 0) for one, other in pairwise(body)]
        if body:
            found.append(Edge(body[-1].site, body[0].site, 1))
    for ring, depth in enumerate(depths):
        if sites := [site for site in shifts if site.ring == ring]:
            found += _of_ring(sites, depth, shifts)
    return found


def _of_ring(sites: Sequence[Site], depth: int, shifts: Mapping[Site, int]) -> Iterable[Edge]:
    puts = sum(site.kind == "put" for site in sites)
    consumers = {site.consumer for site in sites if site.kind in ("get", "free")}
    filled: Kind = "fill" if any(site.kind == "fill" for site in sites) else "put"
    wanted = {
        Site(kind, sites[0].ring, place)
        for kind in (_FILLED if filled == "fill" else _FILLED[:1])
        for place in range(puts)
    }
    for consumer in consumers:
        wanted |= {
            Site(kind, sites[0].ring, place, consumer) for kind in _TAKEN for place in range(puts)
        }
    if wanted != set(sites):
        raise ValueError("a ring is put, got and freed unlike often in an iteration")

    def edge(before: Site, after: Site, iterations: int) -> Edge:
        return Edge(before, after, iterations + shifts[after] - shifts[before])

    for site in sites:
        # Numbers are kept: operations of one kind run in the order of their numbers.
        follows = Site(site.kind, site.ring, (site.place + 1) % puts, site.consumer)
        if follows != site:
            yield edge(site, follows, int(site.place + 1 == puts))
        match site.kind:
            case "put" if filled == "fill":
                yield edge(site, Site("fill", site.ring, site.place), 0)
            case "put" | "fill":
                for consumer in consumers:
                    yield edge(site, Site("get", site.ring, site.place, consumer), 0)
            case "get":
                yield edge(site, Site("free", site.ring, site.place, site.consumer), 0)
            case "free":
                later, place = divmod(site.place + depth, puts)
                yield edge(site, Site("put", site.ring, place), later)


def tight_cycle(found: Sequence[Edge]) -> list[Site]:
    """Return the sites of a cycle of weight 0 or less, or nothing where there is none.

    Longest paths by Bellman and Ford: each edge asks for one more than nothing, so that a cycle of
    weight 0 rises as well.
    """
    sites = {site for edge in found for site in (edge.before, edge.after)}
    scale = len(sites) + 1
    height = dict.fromkeys(sites, 0)
    through: dict[Site, Site] = {}
    last: Site | None = None
    for _ in range(len(sites) + 1):
        last = None
        for edge in found:
            low = height[edge.before] - scale * edge.weight + 1
            if low > height[edge.after]:
                height[edge.after], through[edge.after], last = low, edge.before, edge.after
        if last is None:
            return []
    assert last is not None
    for _ in sites:  # onto the cycle
        last = through[last]
    cycle = [last]
    while (last := through[last]) != cycle[0]:
        cycle.append(last)
    return cycle[::-1]


__all__ = ["Edge", "Shifted", "Site", "edges", "tight_cycle"]
