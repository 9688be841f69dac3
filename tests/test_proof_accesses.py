"""Accesses to shared memory: what is seen at one look is what all accesses one by one say."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tawa.ir import hopper
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.memory import Access, Bucket
from tawa.simulator.proof.rules import Violation

EVERYTHING = ~0
_MOST = 8


class Touch(NamedTuple):
    """An access of an agent to some words, and which of the accesses before it is ordered after."""

    agent: int
    mask: int
    write: bool
    asynchronous: bool
    known: int
    fenced: int


touches = st.lists(
    st.builds(
        Touch,
        st.integers(0, 2),
        st.sampled_from((0b0011, 0b1100, 0b0110, 0b0001, 0b1111)),
        st.booleans(),
        st.booleans(),
        st.one_of(st.just(EVERYTHING), st.integers(0, _MOST - 1).map(lambda one: ~(1 << one))),
        st.one_of(st.just(EVERYTHING), st.integers(0, _MOST - 1).map(lambda one: ~(1 << one))),
    ),
    min_size=4,
    max_size=_MOST,
)


def ordered(kept: Access, touch: Touch) -> bool:
    """Whether an earlier access is known: one by threads to an asynchronous one by a fence."""
    by_fence = touch.asynchronous and not kept.asynchronous
    return bool(kept.event & (touch.fenced & touch.known if by_fence else touch.known))


def one_by_one(before: Sequence[Access], touch: Touch, written: int) -> bool:
    """Whether an access is right, by all those before it that no later write covers."""
    meet = (kept for kept in before if kept.mask & touch.mask and (kept.write or touch.write))
    return all(ordered(kept, touch) for kept in meet) and (
        touch.write or written & touch.mask == touch.mask
    )


@settings(max_examples=600)
@given(touches)
def test_an_access_is_right_where_all_before_it_say_so(touches: list[Touch]) -> None:
    agents: list[Any] = [
        SimpleNamespace(number=number, role=number, label=f"role {number}", single=False)
        for number in range(3)
    ]
    bucket, left, written = Bucket("slot 0 of ring"), list[Access](), 0
    for place, touch in enumerate(touches):
        agent = agents[touch.agent]
        agent.known, agent.fenced = touch.known, touch.fenced & touch.known
        operation = hopper.WgmmaCommit()
        access = Access(
            touch.mask, 1 << place, touch.write, touch.asynchronous, agent, "it", operation, place
        )
        right = one_by_one(left, touch, written)
        try:
            bucket.check(access, agent)
        except Violation:
            assert not right
            continue  # it does not happen
        assert right
        bucket.record(access)
        if touch.write:
            left = [kept for kept in left if kept.mask & ~touch.mask]
            written |= touch.mask
        left = [kept for kept in left if not same(kept, access)] + [access]


def same(one: Access, other: Access) -> bool:
    """Whether a later access stands for an earlier one: of the same agent, by the same way."""
    alike = one.agent is other.agent and one.asynchronous == other.asynchronous
    return alike and one.mask == other.mask and one.write == other.write


@pytest.mark.parametrize("later", [False, True])
def test_warps_that_execute_a_store_together_do_not_race(later: bool) -> None:
    """One execution of a store by two warps is one; the next one of another warp is not."""
    bucket, store = Bucket("slot 0 of ring"), hopper.WgmmaCommit()
    agents = [agent("one"), agent("other")]
    if later:
        agents[1].turn(store)
    for place, each in enumerate(agents):
        turn = each.turn(store)
        access = Access(1, 1 << place, True, False, each, "shared_store", store, place, turn)
        if each is agents[1] and later:
            with pytest.raises(Violation, match="no barrier orders them"):
                bucket.check(access, each)
        else:
            bucket.check(access, each)
            bucket.record(access)


def agent(label: str) -> Agent:
    world: Any = None
    return Agent(label, 0, 0, 0, (0,), True, True, True, world, world, world)
