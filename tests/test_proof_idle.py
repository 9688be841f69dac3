"""Trips in which a role has nothing to do count: a proof of many of them does not take for ever."""

import time

import pytest

from ring_text import kernel, loop, refused
from tawa.simulator.proof import explore

FENCE, COMMIT = "hopper.wgmma_fence\n", "hopper.wgmma_commit\n"
BARRIER = "!hopper.barriers<#builtin.int<1>>"
ARRIVE = f'hopper.arrive %r_filled[%c0] {{by = "all"}} : {BARRIER}, i32\n'
WAIT = f"hopper.wait %r_filled[%c0], %c0 : {BARRIER}, i32, i32\n"


def many(trips: int, body: str) -> str:
    """A loop of so many trips."""
    return (
        f"%big = tile.constant {{value = #builtin.int<{trips}>}} : i32\n"
        f"scf.for %q = %c0 to %big step %c1 : i32 {{\n{body}scf.yield\n}}\n"
    )


def arrives_twice(trips: int, body: str) -> str:
    """A phase gets more than its arrivals after a loop that only makes steps of its own."""
    return kernel({"r": 1}, many(trips, body) + ARRIVE + ARRIVE, many(trips, body) + WAIT)


@pytest.mark.parametrize("body", [FENCE, COMMIT])
def test_turns_that_cannot_be_left_out(body: str) -> None:
    began = time.process_time()
    # Only a whole run convicts, and a whole run is too long.
    assert refused(arrives_twice(5_000_000, body)) == "unproved"
    assert time.process_time() - began < 20


@pytest.mark.parametrize("body", [FENCE, COMMIT])
def test_turns_that_are_left_out(body: str) -> None:
    ring = (loop("load", "r", 2, "%K"), loop("mma", "r", 2, "%K"))
    assert not refused(kernel({"r": 2}, *(each + many(5_000_000, body) for each in ring)))


def test_a_trace_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fences are steps of a trace alone: it ends before the arrival that the run came to.
    monkeypatch.setattr(explore, "STEPS", 1_000)
    told = refused(arrives_twice(900, 4 * FENCE))
    assert "r filled[0] gets more than its 128 arrivals" in told
    assert "fences" not in told
    assert "fences" in refused(arrives_twice(90, 4 * FENCE))
