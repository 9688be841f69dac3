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
    except (Violation, Unproved) as found:
        return str(found), exploration.search.ends
    return "", exploration.search.ends


def agree(seed: int) -> bool:
    """Compare the two on a random program. Returns whether orders were searched and all right."""
    program = draw(seed)
    found = Explorer(program).explore()
    said, orders = verdict(program)
    may_work = "is never waited for" in said or "more than are searched" in said
    if not may_work:
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


def registers(first: int, second: int) -> str:
    """Three roles of 64 registers a thread: one takes `first` and signals, one takes `second`; one
    gives 24 at once, waits for the signal and gives 16."""
    barriers = "!hopper.barriers<#builtin.int<1>>"

    def change(way: str, count: int) -> str:
        return f'hopper.set_registers "{way}" {{count = #builtin.int<{count}>}}\n'

    def role(number: int, count: int, body: str) -> str:
        place = f"first_warp = #builtin.int<{4 * number}>, warps = #builtin.int<4>"
        zero = "%n0 = tile.constant {value = #builtin.int<0>} : i32\n"
        return f"""
  "hopper.role"() ({{
    {zero}{body}
  }}) {{label = "role{number}", {place}, registers = #builtin.int<{count}>}} : () -> ()"""

    signal = f'hopper.arrive %b[%n0] {{by = "role"}} : {barriers}, i32'
    wait = f"hopper.wait %b[%n0], %n0 : {barriers}, i32, i32\n"
    roles = (
        role(0, 64 + first, change("inc", 64 + first) + signal)
        + role(1, 24, change("dec", 40) + wait + change("dec", 24))
        + role(2, 64 + second, change("inc", 64 + second))
    )
    launch = "{threads = #builtin.int<384>, registers = #builtin.int<64>, shared = #builtin.int<8>}"
    offset = "{offset = #builtin.int<0>, arrivals = #builtin.int<1>}"
    return f"""
"tile.kernel"() ({{
  %b = hopper.barriers "b" {offset} : {barriers}
  hopper.init_barriers %b : {barriers}
  hopper.fence_barrier_init
  hopper.block_sync
  {roles}
}}) {{sym_name = "registers", arguments = [], options = {{}}, launch = {launch}}} : () -> ()
"""


def test_registers_that_are_given_late_are_taken_in_any_order() -> None:
    proof = prove(parse(registers(16, 8)), H200)  # the 24 that are given at once are enough
    assert "contested" in proof.verdict
    with pytest.raises(ProtocolError) as caught:  # who takes 16 first leaves 8
        prove(parse(registers(24, 16)), H200)
    message = str(caught.value)
    assert "gives registers back after it has waited" in message
    assert "nobody can go on" in message
