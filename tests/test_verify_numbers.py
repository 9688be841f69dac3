"""Slots and phases that are not those of the numbers of a ring, in one role or in all of them."""

from __future__ import annotations

import pytest

from proof_kernels import KERNELS
from tawa.ir import hopper, parse
from tawa.ir.walk import all_of
from tawa.target import H200
from tawa.verify import Refused, check
from test_verify_attacks import GETS, GIVES, arrive, in_turn, refuses, replaced, signals, wait


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("(%more, %c2)", "(%more, %c1)", "cursor"),  # slot 0 again and again
        ("(%more, %c2)", "(%more, %c3)", "cursor"),  # slot 2 of 0 and 1
        ("(%s, %c1)", "(%s, %c2)", "cursor"),
        ("(%wraps, %c0, %more)", "(%wraps, %c1, %more)", "cursor"),
        ("(%wraps, %flip, %p)", "(%wraps, %p, %flip)", "cursor"),
        ("(%wraps, %flip, %p)", "(%wraps, %flip, %flip)", "cursor"),
        ("(%wraps, %flip, %p)", "(%wraps, %p, %p)", "cursor"),
        ("(%p, %c1)", "(%p, %c2)", "cursor"),
        ("(%s = %c0", "(%s = %c1", "cursor"),
        ("(%s = %c0", "(%s = %c2", "cursor"),
        ("yield %next, %then", "yield %then, %then", "cursor"),
        ("yield %next, %then", "yield %next, %next", "cursor"),
        ("yield %next, %then", "yield %s, %then", "cursor"),
    ],
)
def test_both_roles_go_round_a_ring_in_the_same_wrong_way(old: str, new: str, rule: str) -> None:
    """They agree with one another, and not with the barriers of the ring."""
    roles = [GIVES, in_turn(GETS, arrive("freed", 2, "%s"), "%c0")]
    rings = {"filled": (2, 1), "freed": (2, 1)}
    check(parse(signals(rings, roles)), H200)
    refuses(signals(rings, [replaced(role, (old, new)) for role in roles]), rule)


@pytest.mark.parametrize("more", ["%n", "%c2"])
def test_a_step_over_numbers_that_nobody_takes(more: str) -> None:
    """Both roles step over as many: the barriers in between are not waited for; of n that is less
    than 0 there is no such slot."""
    stepped = (
        ('%more = tile.elementwise "add"(%s, %c1)', f'%more = tile.elementwise "add"(%s, {more})'),
        (
            '%wraps = tile.elementwise "eq"(%more, %c2) : (i32, i32) -> i1',
            '%turns = tile.elementwise "idiv"(%more, %c2) : (i32, i32) -> i32',
        ),
        (
            '%next = tile.elementwise "select"(%wraps, %c0, %more) : (i1, i32, i32) -> i32',
            '%next = tile.elementwise "irem"(%more, %c2) : (i32, i32) -> i32',
        ),
        ('"xor"(%p, %c1)', '"and"(%turns, %c1)'),
        (
            '%then = tile.elementwise "select"(%wraps, %flip, %p) : (i1, i32, i32) -> i32',
            '%then = tile.elementwise "xor"(%p, %flip) : (i32, i32) -> i32',
        ),
    )
    roles = [GIVES, in_turn(GETS, arrive("freed", 2, "%s"), "%c0")]
    rings = {"filled": (2, 1), "freed": (2, 1)}
    by_one = [replaced(role, *stepped).replace(f"(%s, {more})", "(%s, %c1)") for role in roles]
    check(parse(signals(rings, by_one)), H200)
    refuses(signals(rings, [replaced(role, *stepped) for role in roles]), "cursor")


def test_slots_are_given_back_in_the_order_in_which_they_were_taken() -> None:
    """The last two arrivals of a role in the other order: the run counts arrivals, and knows no
    slot."""
    kernel = KERNELS["matmul depth 3"]()
    check(kernel, H200)
    first, second = all_of(kernel, hopper.Arrive)[-2:]
    first.operands[1], second.operands[1] = second.slot, first.slot
    with pytest.raises(Refused, match="cursor"):
        check(kernel, H200)


def test_two_arrivals_for_one_number() -> None:
    """One thread arrives twice where two threads are counted, in a ring of one slot: as many as a
    phase takes, of which the run does not know that they are of one number."""

    def role(first: str, second: list[str], start: str) -> str:
        operations = "\n".join([first, *second])
        return f"""
    %q = scf.for %i = %c0 to %n step %c1 iter_args(%p = {start}) -> (i32) : i32 {{
      {operations}
      %flip = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
      scf.yield %flip : i32
    }}"""

    def kernel(times: int, arrivals: int) -> str:
        return signals(
            {"filled": (1, arrivals), "freed": (1, 1)},
            [
                role(wait("freed", 1, "%c0", "%p"), [arrive("filled", 1, "%c0")] * times, "%c1"),
                role(wait("filled", 1, "%c0", "%p"), [arrive("freed", 1, "%c0")], "%c0"),
            ],
        )

    check(parse(kernel(1, 1)), H200)
    refuses(kernel(2, 1))
    refuses(kernel(2, 2), "arrivals")


@pytest.mark.parametrize(("falls", "is_right"), [("%c1", True), ("%less", False)])
def test_a_step_that_falls_only_in_late_iterations(falls: str, is_right: bool) -> None:
    """`x` does not fall in the first iterations, which say nothing of later ones: of 0 - 1 times 2
    slot 1 comes to slot -1, where a run says "barrier -1 of 2"."""
    before = """
      %twice = tile.elementwise "mul"(%x, %c2) : (i32, i32) -> i32
      %far = tile.elementwise "add"(%s, %twice) : (i32, i32) -> i32
      %w = tile.elementwise "irem"(%far, %c2) : (i32, i32) -> i32
"""
    after = f"""
      %at = tile.ptr_add %ptr, %i : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
      %word = "tile.load"(%at) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (!tile.ptr<i32>) -> i32
      %asked = tile.elementwise "gt"(%word, %c0) : (i32, i32) -> i1
      %late = tile.elementwise "gt"(%i, %c1) : (i32, i32) -> i1
      %less = tile.constant {{value = #builtin.int<-1>}} : i32
      %y = scf.if %asked -> (i32) {{
        %y1 = scf.if %late -> (i32) {{
          %y2 = tile.elementwise "add"(%x, {falls}) : (i32, i32) -> i32
          scf.yield %y2 : i32
        }} else {{
          scf.yield %x : i32
        }}
        scf.yield %y1 : i32
      }} else {{
        %y3 = tile.elementwise "add"(%x, %c1) : (i32, i32) -> i32
        scf.yield %y3 : i32
      }}
      scf.yield %next, %then, %y : i32, i32, i32
"""  # noqa: E501

    def role(first: str, second: str, start: str) -> str:
        loop = in_turn(wait(first, 2, "%w", "%p"), arrive(second, 2, "%w"), start)
        return replaced(
            loop,
            ("%end, %last =", "%end, %last, %most ="),
            (
                f"%p = {start}) -> (i32, i32) : i32 {{",
                f"%p = {start}, %x = %c0) -> (i32, i32, i32) : i32 {{{before}",
            ),
            ("scf.yield %next, %then : i32, i32", after),
        )

    kernel = signals(
        {"filled": (2, 1), "freed": (2, 1)},
        [role("freed", "filled", "%c1"), role("filled", "freed", "%c0")],
    )
    if is_right:
        check(parse(kernel), H200)
    else:
        refuses(kernel, "cursor")


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(("start", "is_right"), [("%c1", True), ("%less", False)])
def test_a_step_from_what_is_no_slot(start: str, is_right: bool, asked: bool) -> None:
    """The rest of -1 + 0 by 2 is -1, where a run says "barrier -1 of 2"; it is the number of slot 1
    as well."""

    def role(first: str, second: str, phase: str) -> str:
        return f"""
    %less = tile.constant {{value = #builtin.int<-1>}} : i32
    %nothing = tile.elementwise "mul"(%n, %c0) : (i32, i32) -> i32
    %q = scf.for %i = %c0 to %n step %c1 iter_args(%p = {phase}) -> (i32) : i32 {{
      {wait(first, 2, "%c0", "%p")}
      {arrive(second, 2, "%c0")}
      %far = tile.elementwise "add"({start}, %nothing) : (i32, i32) -> i32
      %w = tile.elementwise "irem"(%far, %c2) : (i32, i32) -> i32
      {wait(first, 2, "%w", "%p")}
      {arrive(second, 2, "%w")}
      %pos = tile.elementwise "gt"(%w, %c3) : (i32, i32) -> i1
      {"scf.if %pos { hopper.proxy_fence }" * asked}
      %flip = tile.elementwise "xor"(%p, %c1) : (i32, i32) -> i32
      scf.yield %flip : i32
    }}"""

    kernel = signals(
        {"filled": (2, 1), "freed": (2, 1)},
        [role("freed", "filled", "%c1"), role("filled", "freed", "%c0")],
    )
    if is_right:
        check(parse(kernel), H200)
    else:
        refuses(kernel, "cursor")
