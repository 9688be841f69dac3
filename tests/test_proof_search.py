"""The search of what is not conflict-free, against brute force over all interleavings."""

from __future__ import annotations

import pytest

from proof_orders import Explorer, Program, draw, loop, text
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.ir import parse
from tawa.simulator.proof import leftovers, prove, search
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.rules import Unproved, Violation
from tawa.target import H200

# Role 0 comes twice without waiting: its second arrival may be the other one of the first phase.
AHEAD = Program(
    (2,),
    1,
    (
        (("write", 0, 0), ("arrive", 0, 0), ("arrive", 0, 0)),
        (("arrive", 0, 0), ("wait", 0, 0), ("arrive", 0, 0), ("wait", 0, 1), ("read", 0, 0)),
    ),
)
# As above, but what is read after the first phase was written before the second arrival only.
TOO_EARLY = Program(
    (2,),
    1,
    (
        (("arrive", 0, 0), ("write", 0, 0), ("arrive", 0, 0)),
        (("arrive", 0, 0), ("wait", 0, 0), ("read", 0, 0), ("arrive", 0, 0), ("wait", 0, 1)),
    ),
)
# Two writers, one after the other in either order: what is read is that of one or the other.
EITHER = Program(
    (1, 1, 1),
    1,
    (
        (("wait", 0, 0), ("write", 0, 0), ("arrive", 2, 0)),
        (("wait", 0, 1), ("write", 0, 0), ("arrive", 1, 0)),
        (("arrive", 0, 0), ("wait", 2, 0), ("read", 0, 0)),
    ),
)


@pytest.fixture(autouse=True)
def without_what_brute_force_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots that are not given back are a rule of rings; these programs have none."""
    monkeypatch.setattr(leftovers, "_finish_rings", lambda run: None)
    monkeypatch.setattr(leftovers, "_finish_slot", lambda *what: None)


def verdict(program: Program) -> tuple[str, int]:
    """Return what the proof says, and how many orders it looked at."""
    exploration = Exploration(read_kernel(parse(text(program)), H200))
    try:
        exploration.explore()
    except Violation as found:
        return str(found), exploration.search.ends
    return "", exploration.search.ends


def agree(seed: int) -> bool:
    """Compare the two on a random program. Returns whether orders were searched and all right."""
    program = draw(seed)
    found = Explorer(program).explore()
    said, orders = verdict(program)
    if "is never waited for" not in said:  # what the proof refuses though it may work
        assert bool(found) == bool(said), f"{seed}: {found or 'fine'}; proof: {said or 'fine'}"
    return orders > 0 and not said


def test_random_programs_are_judged_as_by_brute_force() -> None:
    assert sum(agree(seed) for seed in range(160)) > 3


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_more_random_programs(first: int) -> None:
    assert sum(agree(seed) for seed in range(first, first + 250)) > 0


def test_an_order_that_does_not_matter_is_proved() -> None:
    proof = prove(parse(text(AHEAD)), H200)
    assert proof.ok
    assert "orders at 1 contested barrier" in proof.verdict


def test_a_race_in_one_order_is_reported_with_its_steps() -> None:
    with pytest.raises(ProtocolError) as caught:
        prove(parse(text(TOO_EARLY)), H200)
    message = str(caught.value)
    assert "it may count for that phase. In one order of the roles" in message
    assert "no barrier orders them" in message
    assert "arrives at b0[0]" in message


def test_what_is_read_does_not_depend_on_the_order() -> None:
    assert Explorer(EITHER).explore() != ""
    assert verdict(EITHER)[0] != ""


def test_too_many_states_are_unproved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STATES", 3)
    with pytest.raises(UnprovedProtocol, match="but there are more than are searched") as caught:
        prove(parse(text(AHEAD)), H200)
    assert "4 states" in str(caught.value)


def test_loops_of_any_number_of_trips_are_unproved() -> None:
    meet = ("meet", 0, 2)
    program = Program((2,), 1, tuple((*role, meet) for role in AHEAD.roles))
    assert prove(parse(loop(program, 3)), H200).ok
    with pytest.raises(UnprovedProtocol, match=r"None of \d+ orders .* depends on the input"):
        prove(parse(loop(program, None)), H200)


def test_a_fault_of_later_trips_is_found() -> None:
    # Nothing orders the trips: role 0 may be ahead by more than one phase.
    with pytest.raises(ProtocolError) as caught:
        prove(parse(loop(AHEAD, None)), H200)
    assert not isinstance(caught.value, UnprovedProtocol)


def test_what_is_not_contested_is_not_searched() -> None:
    program = Program(
        (1, 1),
        1,
        (
            (("write", 0, 0), ("arrive", 0, 0), ("wait", 1, 0), ("write", 0, 0)),
            (("wait", 0, 0), ("read", 0, 0), ("arrive", 1, 0)),
        ),
    )
    exploration = Exploration(read_kernel(parse(text(program)), H200))
    exploration.explore()
    assert exploration.search.run is None


def test_unproved_is_no_violation() -> None:
    assert not issubclass(Unproved, Violation)
