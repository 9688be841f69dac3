"""What comes before the roles: barriers are initialised, fenced, and all meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.rules import Unproved, Violation

if TYPE_CHECKING:
    from tawa.simulator.proof.run import Run


SetUp: TypeAlias = "Callable[[Run], None]"
"""What an operation of the set-up does to a run."""


def set_up(operation: Operation, arrays: Mapping[SSAValue, int]) -> SetUp:
    """Return what an operation of the set-up does. Raises Unproved where the proof does not know
    it.
    """
    match operation:
        case hopper.InitBarriers():
            return partial(_initialise, arrays[operation.barriers], operation)
        case hopper.FenceBarrierInit():
            return _fence
        case hopper.BlockSync():
            return _meet_in_blocks
        case hopper.ClusterSync():
            return partial(_meet_in_cluster, operation.relaxed is not None)
        case _:
            raise Unproved(f"the proof does not know {operation.name} in the set-up", operation)


def _initialise(array: int, operation: hopper.InitBarriers, run: Run) -> None:
    for agent in run.origins():
        for barrier in run.blocks[agent.block].arrays[array]:
            if barrier.init:
                sentence = f"{barrier.name} is initialised twice."
                raise Violation("barrier initialised", sentence, operation)
            barrier.init, barrier.pending = run.event(), barrier.arrivals
            agent.known |= barrier.init


def _fence(run: Run) -> None:
    for agent in run.origins():
        event = run.event()
        agent.known |= event
        for barriers in run.blocks[agent.block].arrays:
            for barrier in barriers:
                if barrier.init:
                    barrier.ready, barrier.usable = event, barrier.init | event


def _fenced(run: Run) -> int:
    """Return the events that a relaxed meeting publishes: of barriers that were fenced."""
    found = 0
    for block in run.blocks:
        for barriers in block.arrays:
            for barrier in barriers:
                found |= (barrier.init | barrier.ready) if barrier.ready else 0
    return found


def _meet_in_blocks(run: Run) -> None:
    for block in range(len(run.blocks)):
        _meet([agent for agent in run.agents if agent.block == block])


def _meet_in_cluster(relaxed: bool, run: Run) -> None:
    _meet(run.agents, _fenced(run) if relaxed else ~0)


def _meet(agents: list[Agent], published: int = ~0) -> None:
    known = 0
    for agent in agents:
        known |= agent.known & published
    for agent in agents:
        agent.known |= known
