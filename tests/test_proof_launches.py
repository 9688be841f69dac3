"""Runs are of a launch: blocks below zero convict nobody, and wishes are taken in their order."""

from __future__ import annotations

import pytest

from ring_text import following, kernel, loop, of, refused, start, turn
from tawa.ir import parse
from tawa.simulator.proof import explore, prove
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.probing import Formula, Question, Wanted
from tawa.target import H200


@pytest.mark.parametrize("launched", [False, True])
def test_a_block_is_below_zero_only_where_no_other_number_does_it(launched: bool) -> None:
    # Is 64 * (block + 1) above 0? Not for some number below zero alone.
    more = Formula(((lambda a, b: a + b, 2, 0, 1, ()),), (1, 0), (2,))
    above = Question(more, lambda number: int(64 * number > 0))
    wanted = Wanted(0, False, 1, (1, 64), (1,), ((0,),), (0,), launched)
    reached, (block,) = above.answer(wanted)
    assert (reached, block >= 0) == ((1, True) if launched else (0, False))
    assert above.answer(Wanted(1, True, 1, (1, 64), (1,), ((0,),), (0,), launched))[1] >= (0,)


def long_while(role: str, ring: str, number: int, first: str = "%c1") -> str:
    """A loop of so many trips at most (a power of 2), which nothing says but to make them."""
    k, s, p = (f"%{ring}_{name}" for name in "ksp")
    return (
        f"%mod = tile.constant {{value = #builtin.int<{number}>}} : i32\n"
        f"%{ring}_e:3 = scf.while ({k} = {first}, {s} = %c0, {p} = {start(role)}) "
        ": (i32, i32, i32) -> (i32, i32, i32) {\n"
        + of(f"{k}_more", "ne", k, "%c0", result="i1")
        + f"scf.condition({k}_more) {k}, {s}, {p} : i32, i32, i32\n}} do {{\n"
        + f"^bb0({k}2 : i32, {s}2 : i32, {p}2 : i32):\n"
        + turn(role, ring, f"{s}2", f"{p}2", 2)
        + following(f"{s}2", f"{p}2", 2, (f"{s}3", f"{p}3"))
        + of(f"{k}5", "mul", f"{k}2", "%c5")
        + of(f"{k}6", "add", f"{k}5", "%c3")
        + of(f"{k}7", "irem", f"{k}6", "%mod")
        + f"scf.yield {k}7, {s}3, {p}3 : i32, i32, i32\n}}\n"
    )


def test_long_loops_that_no_input_decides_are_waited_for() -> None:
    roles = [long_while(role, "r", 512) + loop(role, "z", 2, "%K") for role in ("load", "mma")]
    assert prove(parse(kernel({"r": 2, "z": 2}, *roles)), H200).states < 40_000


def test_every_attempt_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes of an attempt that was given up would let the next begin amid its wishes."""
    made = explore.Exploration._attempt
    begun: list[tuple[bool, int]] = []

    def attempt(
        self: explore.Exploration, configuration: Configuration, steps: int, fresh: bool
    ) -> None:
        begun.append((configuration.hasty, len(configuration.outcomes)))
        made(self, configuration, steps, fresh)

    monkeypatch.setattr(explore.Exploration, "_attempt", attempt)
    roles = [
        loop(role, "z", 2, "%K") + long_while(role, "r", 1 << 9, "%F") for role in ("load", "mma")
    ]
    assert not refused(kernel({"r": 2, "z": 2}, *roles, arguments=("K", "F")))
    # No number ends the loop within the trips of a hasty run: those that were given are waited for.
    assert {hasty for hasty, _ in begun} == {True, False}
    assert sum(hasty for hasty, _ in begun) < 10
    assert not any(outcomes for _, outcomes in begun)
