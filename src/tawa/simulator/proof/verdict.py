"""The proof of one kernel: all its configurations, and what was shown."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tawa.collector import at_rest
from tawa.ir import tile
from tawa.simulator.proof.explore import Exploration
from tawa.simulator.proof.read import read_kernel
from tawa.simulator.proof.report import render, unproved, violated
from tawa.simulator.proof.rules import Idle, Unproved, Violation
from tawa.target import Target


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown: steps over all configurations, and the time it took.

    `unreached` are the operations that no input can reach, by their place in `kernel.walk()`: what
    stands under a condition on constants, or in the rest of a loop of one constant trip.
    """

    ok: bool
    states: int
    seconds: float
    configurations: int
    verdict: str
    unreached: tuple[int, ...] = ()


def prove(kernel: tile.Kernel, target: Target) -> Proof:
    """Prove that a kernel in hopper IR cannot hang or race.

    Raises `ProtocolError` with a trace for a hang, a race, an early release or a leftover, and
    `UnprovedProtocol` where the kernel has an operation the proof does not know, synchronizes by
    what it cannot follow, or exceeds its budget. Both are the last word: such a kernel is not run.
    """
    began = time.perf_counter()
    exploration: Exploration | None = None
    try:
        with at_rest():
            for idle in (True, False):
                exploration = Exploration(read_kernel(kernel, target, idle))
                try:
                    exploration.explore()
                except Idle:
                    if not idle:
                        raise
                else:
                    break
            assert exploration is not None
            states, count = exploration.states, len(exploration.seen)
            told = exploration.search.describe() + exploration.counts.describe()
            unreached = exploration.reach.dead()
            # Before the collector may start: it would look through all of it, and find it in use.
            exploration = None
    except Violation as found:
        run = exploration.run if exploration is not None else None
        raise violated(kernel, found, run) from None
    except Unproved as found:
        raise unproved(kernel, found) from None
    seconds = time.perf_counter() - began
    verdict = (
        f"no hang, race, early release or leftover in {count} configuration{'s' * (count > 1)} "
        f"({1000 * seconds:.0f} ms)"
    )
    verdict += told
    if unreached:
        verdict += f"; {len(unreached)} operations are reached by no input"
    return Proof(True, states, seconds, count, verdict, unreached)


__all__ = ["Proof", "prove", "render"]
