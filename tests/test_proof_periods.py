"""Rings that are turned every so many trips: each must be seen to come round. Found by a review.

A phase that never flips shows when the ring is turned once more than it is deep: after D periods of
the condition on the trip, of what the loop carries, or on the tile.
"""

import pytest

from ring_text import fails, following, kernel, loop, of, refused, start, turn


def every(number: str, count: int, rest: int) -> str:
    part = of("%r", "irem", number, f"%c{count}")
    return part + of("%is", "eq", "%r", f"%c{rest}", result="i1")


def body(role: str, condition: str, flips: bool) -> str:
    """One trip: ring A each time, ring B where the condition holds."""
    return (
        turn(role, "A", "%s", "%p", 2)
        + following("%s", "%p", 2, ("%t", "%q"))
        + condition
        + "%u, %v = scf.if %is -> (i32, i32) {\n"
        + turn(role, "B", "%s2", "%p2", 2)
        + following("%s2", "%p2", 2, ("%t2", "%q2"))
        + f"scf.yield %t2, {'%q2' if flips else '%p2'} : i32, i32\n"
        + "} else {\nscf.yield %s2, %p2 : i32, i32\n}\n"
    )


def looped(role: str, condition: str, flips: bool) -> str:
    at = start(role)
    return (
        f"%e:4 = scf.for %k = %c0 to %K step %c1 iter_args(%s = %c0, %p = {at}, %s2 = %c0, "
        f"%p2 = {at}) -> (i32, i32, i32, i32) : i32 {{\n"
        + body(role, condition, flips)
        + "scf.yield %t, %q, %u, %v : i32, i32, i32, i32\n}\n"
    )


def both(condition: str, flips: bool, make=looped) -> str:
    rings = {"A": 2, "B": 2}
    return kernel(rings, make("load", condition, True), make("mma", condition, flips))


@pytest.mark.parametrize(("count", "rest"), [(2, 1), (3, 2), (5, 0), (7, 6), (8, 7), (64, 1)])
def test_every_so_many_trips(count: int, rest: int) -> None:
    assert refused(text := both(every("%k", count, rest), False))
    assert fails(text, K=4 * count + 1)
    assert not refused(both(every("%k", count, rest), True))


def carried(role: str, condition: str, flips: bool) -> str:
    """The condition is on a number that the loop carries, the rest of seven."""
    at = start(role)
    return (
        f"%e:5 = scf.for %k = %c0 to %K step %c1 iter_args(%s = %c0, %p = {at}, %s2 = %c0, "
        f"%p2 = {at}, %n = %c0) -> (i32, i32, i32, i32, i32) : i32 {{\n"
        + body(role, condition, flips)
        + of("%m", "add", "%n", "%c1")
        + of("%l", "irem", "%m", "%c7")
        + "scf.yield %t, %q, %u, %v, %l : i32, i32, i32, i32, i32\n}\n"
    )


def test_what_a_loop_carries_repeats() -> None:
    condition = of("%is", "eq", "%n", "%c6", result="i1")
    assert refused(both(condition, False, carried))
    assert not refused(both(condition, True, carried))


def test_what_overflows_on_the_way_is_not_taken_to_repeat() -> None:
    """In whole numbers a rest of seven, in 32 bits 0, 1, -2, -1, 0, ..: never six."""

    def overflowing(role: str, condition: str, flips: bool) -> str:
        more = of("%big", "mul", "%m", "%c1073741824") + of("%less", "idiv", "%big", "%c1073741824")
        text = carried(role, condition, flips)
        return text.replace(of("%l", "irem", "%m", "%c7"), more + of("%l", "irem", "%less", "%c7"))

    condition = of("%is", "eq", "%n", "%c6", result="i1")
    roles = [overflowing(role, condition, True) for role in ("load", "mma")]
    assert refused(kernel({"A": 2, "B": 2}, *roles, constants=(1 << 30,))) == "unproved"


def tiled(role: str, condition: str, flips: bool) -> str:
    """Ring B is turned by every third tile."""
    at = start(role)
    inside = loop(role, "A", 2, "%K").replace("%A_e:2", "%i, %j")
    inside = inside.replace("%A_s = %c0", "%A_s = %s").replace(f"%A_p = {at}", "%A_p = %p")
    rest = body(role, condition, flips).split(condition, 1)[1]
    return (
        f"%e:4 = scf.for %k = %c0 to %N step %c1 iter_args(%s = %c0, %p = {at}, %s2 = %c0, "
        f"%p2 = {at}) -> (i32, i32, i32, i32) : i32 {{\n"
        + inside
        + condition
        + rest
        + "scf.yield %i, %j, %u, %v : i32, i32, i32, i32\n}\n"
    )


@pytest.mark.parametrize("flips", [True, False])
def test_every_third_tile(flips: bool) -> None:
    rings, condition = {"A": 2, "B": 2}, every("%k", 3, 2)
    roles = tiled("load", condition, True), tiled("mma", condition, flips)
    assert bool(refused(kernel(rings, *roles, arguments=("K", "N")))) != flips


def counted(role: str, waits: bool) -> str:
    """A loop of 1,000 trips that carries a number, the rest of seven, asked for after the loop."""
    text = loop(role, "A", 1, "%c1000").replace("%A_e:2", "%i, %j, %n")
    text = text.replace(") -> (i32, i32)", ", %m = %c0) -> (i32, i32, i32)")
    rest = of("%o", "add", "%m", "%c1") + of("%l", "irem", "%o", "%c7")
    text = text.replace(
        "scf.yield %A_t, %A_q : i32, i32", rest + "scf.yield %A_t, %A_q, %l : i32, i32, i32"
    )
    condition = of("%is", "eq", "%n", f"%c{1000 % 7 if waits else 5}", result="i1")
    wait = turn("mma", "B", "%c0", "%c0", 1).splitlines()[0]
    return text + condition + f"scf.if %is {{\n{wait}\n}}\n"


@pytest.mark.parametrize("waits", [True, False])
def test_no_trips_are_left_out_that_do_not_recur(waits: bool) -> None:
    rings = {"A": 1, "B": 1}
    load = loop("load", "A", 1, "%c1000")
    assert bool(refused(kernel(rings, load, counted("mma", waits), constants=(1000,)))) == waits
