"""Lemma 2 against runs of random pipelined roles, and as queries to a solver."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import z3

from proof_kernels import KERNELS, text
from tawa import ir
from tawa.verify.control import cluster_of
from tawa.verify.counts import Counts
from tawa.verify.order import Shifted, Site, edges, tight_cycle
from tawa.verify.regions import Region, regions
from tawa.verify.values import Values

Role = list[Shifted]


def hangs(roles: Sequence[Role], depths: Sequence[int], trips: int) -> bool:
    """Run the roles step by step, each as far as it can go; any order gives the same."""
    programs: list[list[tuple[str, int, tuple[int, int]]]] = []
    for body in roles:
        steps = trips + max((each.shift for each in body), default=0)
        programs.append(
            [
                (each.site.kind, each.site.ring, (step - each.shift, each.site.place))
                for step in range(steps)
                for each in body
                if 0 <= step - each.shift < trips
            ]
        )
    at = [0] * len(programs)
    filled: list[list[tuple[int, int]]] = [[] for _ in depths]
    held: list[list[tuple[int, int]]] = [[] for _ in depths]
    used = [0] * len(depths)
    apart = {each.site.ring for body in roles for each in body if each.site.kind == "fill"}
    moved = True
    while moved:
        moved = False
        for who, program in enumerate(programs):
            while at[who] < len(program):
                kind, ring, number = program[at[who]]
                if kind == "put":
                    if used[ring] == depths[ring]:
                        break
                    used[ring] += 1
                    if ring not in apart:
                        filled[ring].append(number)
                elif kind == "fill":
                    filled[ring].append(number)
                elif kind == "get":
                    if not filled[ring]:
                        break
                    if filled[ring].pop(0) != number:
                        return True
                    held[ring].append(number)
                else:
                    if not held[ring] or held[ring].pop(0) != number:
                        return True
                    used[ring] -= 1
                at[who] += 1
                moved = True
    return any(place < len(program) for place, program in zip(at, programs, strict=True))


def drawn(rng: random.Random, most: int) -> tuple[list[Role], list[int]]:
    """Roles with up to `most` puts of a ring in an iteration, in any order."""
    count = rng.choice((2, 2, 3))
    depths = [rng.choice((1, 1, 2, 2, 3)) for _ in range(rng.choice((1, 2, 3)))]
    roles: list[Role] = [[] for _ in range(count)]
    for ring in range(len(depths)):
        giver, taker = rng.sample(range(count), 2)
        for place in range(rng.randint(1, most)):
            put, get = rng.choice((0, 0, 1)), rng.choice((0, 0, 1, 2))
            free = get + rng.choice((0, 0, 1))
            roles[giver].append(Shifted(Site("put", ring, place), put))
            roles[taker] += [
                Shifted(Site("get", ring, place), get),
                Shifted(Site("free", ring, place), free),
            ]
    for body in roles:
        if rng.random() < 0.7:
            rng.shuffle(body)
    return roles, depths


def compared(seed: int, systems: int) -> tuple[int, int, int]:
    """(accepted, accepted though they hang, refused though none of 30 trip counts hangs), the last
    for systems of one put an iteration."""
    rng = random.Random(seed)
    accepted = wrong = missed = 0
    for number in range(systems):
        most = 1 + number % 2
        roles, depths = drawn(rng, most)
        right = not tight_cycle(edges(roles, depths))
        hanging = any(hangs(roles, depths, trips) for trips in range(31))
        accepted += right
        wrong += right and hanging
        missed += most == 1 and not right and not hanging
    return accepted, wrong, missed


def test_no_system_that_hangs_is_accepted() -> None:
    accepted, wrong, missed = compared(1, 600)
    assert accepted > 100
    assert (wrong, missed) == (0, 0)


@pytest.mark.long
def test_no_system_of_many_that_hangs_is_accepted() -> None:
    accepted, wrong, missed = compared(2, 32_000)
    assert accepted > 5_000
    assert (wrong, missed) == (0, 0)


def test_roles_are_judged_together() -> None:
    """A skewed producer and a late free: each is right with two slots, both together hang."""
    put, get, free = (
        [Site(kind, ring) for ring in (0, 1)]  # type: ignore[arg-type]
        for kind in ("put", "get", "free")
    )

    def systems(skew: int, late: int) -> list[Role]:
        producer = [Shifted(put[0]), Shifted(put[1], skew)]
        consumer = [Shifted(get[0]), Shifted(get[1]), Shifted(free[1]), Shifted(free[0], late)]
        return [producer, consumer]

    for skew, late, right in ((0, 0, True), (1, 0, True), (0, 1, True), (1, 1, False)):
        found = tight_cycle(edges(systems(skew, late), [2, 2]))
        assert (not found) == right
        assert any(hangs(systems(skew, late), [2, 2], trips) for trips in range(9)) != right


def test_unlike_many_puts_and_gets_are_no_system() -> None:
    with pytest.raises(ValueError, match="unlike often"):
        edges([[Shifted(Site("put", 0))], [Shifted(Site("get", 0))]], [1])


# --- the loops of kernels ---------------------------------------------------------------------


def regions_of(name: str) -> list[Region]:
    kernel = ir.parse(text(name))
    values = Values(kernel, cluster_of(kernel))
    return regions(kernel, values, Counts(values.terms))


def test_loops_of_kernels_have_no_tight_cycle() -> None:
    """Every twentieth kernel here, all of them behind `long`."""
    assert followed(list(KERNELS)[::20]) >= 4


@pytest.mark.long
def test_all_loops_of_kernels_have_no_tight_cycle() -> None:
    assert followed(list(KERNELS)) >= 110


def followed(names: list[str]) -> int:
    count = 0
    for name in names:
        for region in regions_of(name):
            if region.followed:
                count += 1
                assert not tight_cycle(edges(region.roles, region.depths)), name
    return count


@pytest.mark.parametrize("name", ["turns attention coarse", "flash 64", "many tiles split"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_loops_of_kernels_with_other_depths_are_judged_as_they_run(name: str, depth: int) -> None:
    (region,) = regions_of(name)
    lowest = min(each.shift for body in region.roles for each in body)
    roles = [[Shifted(each.site, each.shift - lowest) for each in body] for body in region.roles]
    depths = [depth] * len(region.depths)
    found = tight_cycle(edges(region.roles, depths))
    assert bool(found) == any(hangs(roles, depths, trips) for trips in range(12))
    if name == "many tiles split":  # frees are an iteration late
        assert bool(found) == (depth == 1)


# --- lemmas as queries ----------------------------------------------------------------------------


def holds(claim: z3.BoolRef) -> bool:
    solver = z3.Solver()
    solver.add(z3.Not(claim))
    return solver.check() == z3.unsat


def test_a_wait_by_parity_is_exact() -> None:
    """Lemma 3b: phase k - 1 is complete, and k + 1 needs who waits: the parity tells k."""
    k, done = z3.Ints("k done")  # phases that are complete when the wait looks: done
    looks = z3.And(k >= 0, done >= k, done <= k + 1)
    over = (done - 1) % 2 == k % 2  # the last complete phase has the parity that is waited for
    assert holds(z3.Implies(looks, over == (done == k + 1)))
    assert not holds(z3.Implies(z3.And(k >= 0, done >= k), over == (done == k + 1)))


def test_a_cursor_steps_by_comparison() -> None:
    """Lemma 3a: +1, wrap and flip name slot n mod D and phase n div D mod 2."""
    n, depth = z3.Ints("n depth")
    slot, phase = n % depth, (n / depth) % 2
    wraps = slot + 1 == depth
    for size in range(1, 9):  # products of unknowns are left to the solver of numbers
        step = z3.And(
            z3.If(wraps, 0, slot + 1) == (n + 1) % depth,
            z3.If(wraps, 1 - phase, phase) == ((n + 1) / depth) % 2,
        )
        assert holds(z3.Implies(z3.And(n >= 0, depth == size), step))


def test_ramps_of_unlike_beginnings_are_unlike() -> None:
    """What makes counts comparable: max(0, T - j) = max(0, T - k) for all T only where j = k."""
    j, k, trips = z3.Ints("j k trips")

    def ramp(late: z3.ArithRef) -> z3.ArithRef:
        return z3.If(trips > late, trips - late, 0)

    same = z3.ForAll([trips], ramp(j) == ramp(k))
    assert holds(z3.Implies(same, j == k))


def test_trips_of_instances_make_the_trips_of_the_loop() -> None:
    """Each of g instances takes the iterations i with i mod g = e, and together they take all."""
    length = z3.Int("length")

    def trips(size: z3.ArithRef, unit: z3.ArithRef) -> z3.ArithRef:
        return z3.If(size > 0, (size + unit - 1) / unit, 0)

    for share in (2, 3):
        for unit in (1, 5, 64):
            parts = [trips(length - e * unit, z3.IntVal(share * unit)) for e in range(share)]
            assert holds(trips(length, z3.IntVal(unit)) == z3.Sum(parts))
