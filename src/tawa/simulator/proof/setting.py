"""What comes before the roles: barriers are initialised, fenced, and all meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.proof.rules import Unproved, Violation

if TYPE_CHECKING:
    from tawa.simulator.proof.run import Run


def set_up(run: Run, operation: Operation) -> None:
    """Run one operation of the set-up."""
    match operation:
        case hopper.InitBarriers():
            _initialise(run, operation)
        case hopper.FenceBarrierInit():
            _fence(run)
        case hopper.BlockSync():
            _meet(run, False)
        case hopper.ClusterSync():
            _meet(run, True, _fenced(run) if operation.relaxed is not None else ~0)
        case _:
            raise Unproved(f"the proof does not know {operation.name} in the set-up", operation)


def _initialise(run: Run, operation: hopper.InitBarriers) -> None:
    array = run.model.decoder.arrays[operation.barriers]
    for agent in run.agents:
        for barrier in run.blocks[agent.block].arrays[array] if agent.origin else ():
            if barrier.init:
                sentence = f"{barrier.name} is initialised twice."
                raise Violation("barrier initialised", sentence, operation)
            barrier.init, barrier.pending = run.event(), barrier.arrivals
            agent.known |= barrier.init


def _fence(run: Run) -> None:
    for agent in run.agents:
        if not agent.origin:
            continue
        event = run.event()
        agent.known |= event
        for barriers in run.blocks[agent.block].arrays:
            for barrier in barriers:
                barrier.ready = event if barrier.init else 0


def _fenced(run: Run) -> int:
    """Return the events that a relaxed meeting publishes: of barriers that were fenced."""
    found = 0
    for block in run.blocks:
        for barriers in block.arrays:
            for barrier in barriers:
                found |= (barrier.init | barrier.ready) if barrier.ready else 0
    return found


def _meet(run: Run, everybody: bool, published: int = ~0) -> None:
    for block in range(len(run.blocks)):
        inside = [agent for agent in run.agents if everybody or agent.block == block]
        known = 0
        for agent in inside:
            known |= agent.known & published
        for agent in inside:
            agent.known |= known
