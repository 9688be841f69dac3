"""Rings that do the same from each position: no run need begin at all of them. What tells one
position from another is seen, and left to the runs.
"""

from __future__ import annotations

from itertools import product

import pytest

from proof_kernels import KERNELS
from ring_text import following, kernel, loop, of, refused, start, turn
from tawa.ir import parse
from tawa.simulator.proof import prove
from tawa.simulator.proof.read import read_kernel
from tawa.target import H200

ROLES = ("load", "mma")
DEPTH = 3


def everywhere(text: str) -> bool:
    return read_kernel(parse(text), H200).decoder.uniform.everywhere


def must_recur(text: str) -> int:
    """Return how many groups of scalars runs must show to recur."""
    orbits = read_kernel(parse(text), H200).decoder.uniform.orbits
    return sum(map(len, orbits.values()))


def rings(load: str, mma: str, depth: int = DEPTH, arguments: tuple[str, ...] = ("K",)) -> str:
    return kernel({"r": depth}, load, mma, arguments)


def carried(role: str, body: str, slot: str = "%t", phase: str = "%q", begin: str = "%c0") -> str:
    """A loop that hands a slot and a phase of the ring to its next trip."""
    return (
        f"%e:2 = scf.for %k = %c0 to %K step %c1 iter_args(%s = {begin}, %p = {start(role)})"
        f" -> (i32, i32) : i32 {{\n{body}scf.yield {slot}, {phase} : i32, i32\n}}\n"
    )


def turned(role: str, depth: int = DEPTH) -> str:
    return turn(role, "r", "%s", "%p", depth) + following("%s", "%p", depth, ("%t", "%q"))


def there(slot: int, phase: int) -> str:
    """Whether the ring is at a slot and phase."""
    return (
        of("%at_s", "eq", "%s", f"%c{slot}", result="i1")
        + of("%at_p", "eq", "%p", f"%c{phase}", result="i1")
        + of("%at", "and", "%at_s", "%at_p", kind="i1", result="i1")
    )


def spoiled(what: str, turns: int) -> str:
    """The next slot or phase, one further where the ring is at `%at`."""
    return (
        of("%m", "add", what, "%c1")
        + of("%o", "irem", "%m", f"%c{turns}")
        + f'%x = tile.elementwise "select"(%at, %o, {what}) : (i1, i32, i32) -> i32\n'
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_a_loop_around_a_ring_is_alike(depth: int) -> None:
    text = rings(*(carried(role, turned(role, depth)) for role in ROLES), depth=depth)
    assert everywhere(text)
    assert not refused(text)


@pytest.mark.long
def test_most_kernels_of_the_tests_are_alike() -> None:
    found = [name for name in KERNELS if not everywhere(str(KERNELS[name]()))]
    assert len(KERNELS) - len(found) >= 150
    # Instances jump over the tiles of others; what is aliased is told apart by where it lies.
    assert any("instances" in name for name in found)


@pytest.mark.parametrize(("slot", "phase"), [*product(range(DEPTH), (0, 1))])
@pytest.mark.parametrize("what", ["slot", "phase"])
def test_what_is_wrong_at_one_position_is_told_apart(what: str, slot: int, phase: int) -> None:
    right = carried("load", turned("load"))
    value, turns = ("%t", DEPTH) if what == "slot" else ("%q", 2)
    body = turned("mma") + there(slot, phase) + spoiled(value, turns)
    wrong = carried("mma", body, **{what: "%x"})
    text = rings(right, wrong)
    assert must_recur(text)
    assert refused(text)


@pytest.mark.parametrize("what", ["slot", "phase"])
def test_a_wait_that_is_wrong_at_one_position_is_told_apart(what: str) -> None:
    value, turns = ("%s", DEPTH) if what == "slot" else ("%p", 2)
    slot, phase = ("%x", "%p") if what == "slot" else ("%s", "%x")
    body = there(1, 1) + spoiled(value, turns) + turn("mma", "r", slot, phase, DEPTH)
    body += following("%s", "%p", DEPTH, ("%t", "%q"))
    text = rings(carried("load", turned("load")), carried("mma", body))
    assert must_recur(text)
    assert refused(text)


def test_a_condition_on_a_slot_tells_positions_apart() -> None:
    body = of("%at", "eq", "%s", "%c1", result="i1") + turned("mma")
    body += f"scf.if %at {{\n{turn('mma', 'z', '%c0', '%c0', 1)}}}\n"
    load = carried("load", turned("load"))
    text = kernel({"r": DEPTH, "z": 1}, load, carried("mma", body))
    assert must_recur(text)
    assert refused(text)


def test_a_slot_that_is_always_one_of_several_tells_positions_apart() -> None:
    both = [
        turn(role, "r", "%c0", start(role), DEPTH) + carried(role, turned(role), begin="%c1")
        for role in ROLES
    ]
    text = rings(*both)
    assert must_recur(text)
    assert not refused(text)  # all positions are run


def test_one_ring_of_two_is_alike() -> None:
    one = loop("load", "r", 2, "%K") + loop("load", "z", 3, "%K")
    other = loop("mma", "r", 2, "%K") + turn("mma", "z", "%c0", "%c0", 3)
    text = kernel({"r": 2, "z": 3}, one, other)
    assert not everywhere(text)
    assert must_recur(text) == 1  # that of the ring in which one slot has a name


def test_results_of_conditions_are_alike_where_both_sides_are() -> None:
    def role(name: str) -> str:
        taken = turned(name) + "scf.yield %t, %q : i32, i32\n"
        return (
            f"%e:2 = scf.for %k = %c0 to %K step %c1 iter_args(%s = %c0, %p = {start(name)})"
            " -> (i32, i32) : i32 {\n"
            + of("%go", "lt", "%k", "%L", result="i1")
            + f"%i:2 = scf.if %go -> (i32, i32) {{\n{taken}}} else {{\n"
            "scf.yield %s, %p : i32, i32\n}\nscf.yield %i#0, %i#1 : i32, i32\n}\n"
        )

    text = rings(role("load"), role("mma"), arguments=("K", "L"))
    assert everywhere(text)
    assert not refused(text)
    skewed = role("mma").replace("scf.yield %s, %p", "scf.yield %s, %c0")
    assert must_recur(rings(role("load"), skewed, arguments=("K", "L")))


def test_a_ring_that_some_trips_of_a_period_turn_is_left_to_the_runs() -> None:
    """Nothing is given back: K = 7 fills a slot twice, and fewer trips none."""

    def role(name: str, which: int, body: str) -> str:
        at = of("%h", "irem", "%k", "%c2") + of("%go", "eq", "%h", f"%c{which}", result="i1")
        return carried(
            name,
            at
            + body
            + following("%s", "%p", DEPTH, ("%t", "%q"))
            + "%i:2 = scf.if %go -> (i32, i32) {\nscf.yield %t, %q : i32, i32\n} else {\n"
            "scf.yield %s, %p : i32, i32\n}\n",
            "%i#0",
            "%i#1",
        )

    kind = f"!hopper.barriers<#builtin.int<{DEPTH}>>"
    put = f'scf.if %go {{\nhopper.arrive %r_filled[%s] {{by = "all"}} : {kind}, i32\n}}\n'
    load = role("load", 0, put).replace("%p = %c1", "%p = %c0")
    text = rings(load, role("mma", 1, f"hopper.wait %r_filled[%s], %p : {kind}, i32, i32\n"))
    assert must_recur(text)
    assert refused(text)


@pytest.mark.parametrize("depth", [5, 7])
def test_the_phase_of_another_counter_is_not_that_of_a_slot(depth: int) -> None:
    """One goes on by one each trip, the other by two in the first ones."""
    load = carried("load", turned("load", depth))
    twice = following("%s2", "%p2", depth, ("%ta", "%qa"))
    twice += following("%ta", "%qa", depth, ("%tb", "%qb"))
    mma = (
        "%e:4 = scf.for %k = %c0 to %K step %c1 iter_args(%s = %c0, %p = %c0, %s2 = %c0, "
        "%p2 = %c0) -> (i32, i32, i32, i32) : i32 {\n"
        + turn("mma", "r", "%s", "%p2", depth)
        + following("%s", "%p", depth, ("%t", "%q"))
        + twice
        + of("%go", "lt", "%k", "%L", result="i1")
        + "%n:2 = scf.if %go -> (i32, i32) {\nscf.yield %tb, %qb : i32, i32\n} else {\n"
        "scf.yield %s2, %p2 : i32, i32\n}\n"
        + "scf.yield %t, %q, %n#0, %n#1 : i32, i32, i32, i32\n}\n"
    )
    text = rings(load, mma, depth, ("K", "L"))
    assert must_recur(text)
    assert refused(text)


def test_the_phase_of_a_tile_is_not_that_of_a_trip() -> None:
    def role(name: str, phase: str) -> str:
        return (
            f"%e:2 = scf.for %j = %c0 to %K step %c1 iter_args(%S = %c0, %P = {start(name)})"
            " -> (i32, i32) : i32 {\n"
            "%f:2 = scf.for %k = %c0 to %c2 step %c1 iter_args(%s = %S, %p = %P)"
            " -> (i32, i32) : i32 {\n"
            + turn(name, "r", "%s", phase, DEPTH)
            + following("%s", "%p", DEPTH, ("%t", "%q"))
            + "scf.yield %t, %q : i32, i32\n}\nscf.yield %f#0, %f#1 : i32, i32\n}\n"
        )

    assert everywhere(rings(role("load", "%p"), role("mma", "%p")))
    text = rings(role("load", "%p"), role("mma", "%P"))
    assert must_recur(text)
    assert refused(text)


def test_tiles_need_not_take_every_position() -> None:
    made = KERNELS["sample gemm_persistent"]()
    model = read_kernel(made, H200)
    shape = model.shape
    assert shape.everywhere
    assert shape.tiles(1) == shape.depth + 2
    assert prove(made, H200).ok


def lagging(role: str, begin: str, guard: str) -> str:
    """Two loops in which a ring is turned, and the slot of the trip before is given back late."""
    arrive = "freed" if role == "mma" else "filled"
    wait = "filled" if role == "mma" else "freed"
    kind = f"!hopper.barriers<#builtin.int<{DEPTH}>>"

    def arrives(slot: str, condition: str) -> str:
        given = f'hopper.arrive %r_{arrive}[{slot}] {{by = "all"}} : {kind}, i32\n'
        return f"scf.if {condition} {{\n{given}}}\n" if condition else given

    text = ""
    slot, phase = "%c0", start(role)
    for name in ("a", "b"):
        s, p, o, k, e = (f"%{name}_{each}" for each in "spoke")
        t, q, m = (f"%{name}_{each}" for each in "tqm")
        text += (
            f"{e}:3 = scf.for {k} = %c0 to %K step %c1 iter_args({s} = {slot}, {p} = {phase}, "
            f"{o} = {begin or slot}) -> (i32, i32, i32) : i32 {{\n"
            f"hopper.wait %r_{wait}[{s}], {p} : {kind}, i32, i32\n"
            + of(m, "gt", k, "%c0", result="i1")
            + arrives(o, m if guard else "")
            + following(s, p, DEPTH, (t, q))
            + f"scf.yield {t}, {q}, {s} : i32, i32, i32\n}}\n"
            + of(f"{m}_e", "gt", "%K", "%c0", result="i1")
            + arrives(f"{e}#2", f"{m}_e")
        )
        slot, phase = f"{e}#0", f"{e}#1"
    return text


@pytest.mark.parametrize("begin", ["", "%c0", "%c2"])
def test_what_a_first_trip_does_not_ask_for_may_be_anything(begin: str) -> None:
    text = rings(lagging("load", "", "%m"), lagging("mma", begin, "%m"))
    assert everywhere(text)
    assert not refused(text)


def test_what_a_first_trip_asks_for_must_be_the_position() -> None:
    text = rings(lagging("load", "", "%m"), lagging("mma", "%c0", ""))
    assert refused(text)


@pytest.mark.parametrize("depth", [2, 3])
def test_a_first_trip_may_ask_for_what_is_right_at_each_beginning(depth: int) -> None:
    """Whole turns of a ring in each tile: the slot begins anew, the phase goes on."""

    def role(name: str) -> str:
        return (
            f"%e = scf.for %j = %c0 to %K step %c1 iter_args(%P = {start(name)}) -> (i32)"
            " : i32 {\n"
            f"%f:2 = scf.for %k = %c0 to %c{depth} step %c1 iter_args(%s = %c0, %p = %P)"
            " -> (i32, i32) : i32 {\n"
            + turned(name, depth)
            + "scf.yield %t, %q : i32, i32\n}\nscf.yield %f#1 : i32\n}\n"
        )

    assert not refused(rings(role("load"), role("mma"), depth))
