"""The proof against brute force: on small rings, right or broken, both say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proof_oracle import Action, Program, bad, ring, text
from tawa.errors import ProtocolError
from tawa.ir import parse
from tawa.simulator.proof import prove
from tawa.target import H200


def refused(program: Program) -> str:
    try:
        prove(parse(text(program)), H200)
    except ProtocolError as error:
        return error.what
    return ""


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("pending", [0, 1])
def test_right_rings_are_right_for_both(depth: int, trips: int, pending: int) -> None:
    if pending >= depth:
        pytest.skip("a ring of D slots turns only if fewer than D stay in flight")
    program = ring(depth, trips, pending)
    assert bad(program) == ""
    assert refused(program) == ""


@st.composite
def broken(draw: st.DrawFn) -> Program:
    """A right ring with up to two faults: an action lost, moved, doubled or changed."""
    depth = draw(st.integers(1, 3))
    pending = draw(st.integers(0, depth - 1))
    program = ring(depth, draw(st.integers(1, 4)), pending)
    for _ in range(draw(st.integers(1, 2))):
        program = draw(fault(program))
    return program


@st.composite
def fault(draw: st.DrawFn, program: Program) -> Program:
    if draw(st.integers(0, 9)) == 0:
        return replace(program, freed_arrivals=draw(st.integers(1, 2)))
    role = draw(st.sampled_from(["load", "mma"]))
    actions: list[Action] = list(getattr(program, role))
    assume(actions)
    place = draw(st.integers(0, len(actions) - 1))
    what, slot, number = actions[place]
    match draw(st.sampled_from(["lose", "move", "double", "slot", "number"])):
        case "lose":
            del actions[place]
        case "move":
            actions.insert(draw(st.integers(0, len(actions) - 1)), actions.pop(place))
        case "double":
            actions.insert(place, actions[place])
        case "slot":
            actions[place] = (what, (slot + 1) % program.depth, number)
        case _:
            actions[place] = (what, slot, number ^ 1)
    return replace(program, **{role: tuple(actions)})


@settings(max_examples=4 * settings.default.max_examples)
@given(broken())
def test_broken_rings_are_judged_alike(program: Program) -> None:
    try:
        found = bad(program)
    except OverflowError:
        assume(False)
    verdict = refused(program)
    assert bool(found) == bool(verdict), (
        f"brute force: {found or 'fine'}; proof: {verdict or 'fine'}"
    )
