"""Loops at a standstill: what an iteration would do again, as long as no one else writes memory.

A loop such as ``while tl.load(flag, volatile=True) == 0`` is run on only while it gets on. Where a
iteration ends with the values it began with, and nobody has changed memory meanwhile, every further
iteration is that iteration. The program then waits for a change of memory, like one at a barrier:
nothing is lost, others run, and when nobody is left to change memory the launch is known to hang.

That holds for loops of which all effects are seen in memory and in what the loop carries. Others
are run as they stand: such with copies or products in flight, or that meet other roles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.analysis.statements import ATOMICS, CONTROL, READS, name_of
from tawa.errors import LaunchError
from tawa.ir import hopper, tile
from tawa.ir.walk import is_terminator, marked_pure, walk
from tawa.simulator.memory import GlobalMemory
from tawa.simulator.scheduler import Blocked, Need
from tawa.simulator.values import is_array, place_of

_SEEN = (
    *(*CONTROL, *READS, *ATOMICS, tile.Store, tile.Assume, tile.Assert, tile.Reduce, tile.Scan),
    *(hopper.OneThread, hopper.Slot, hopper.SharedLoad, hopper.SharedStore, hopper.ConvertLayout),
    *(hopper.Pick, hopper.CarryIn),
)
"""What has no effect but on memory, or on shared memory that the role keeps to itself: nobody is
told of a write there by what may stand in the loop."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A loop that may come to a standstill, and the names of what it reads of memory."""

    loop: scf.WhileOp
    reads: tuple[str, ...]

    def wait(self, memory: GlobalMemory | None) -> Blocked:
        """Return the wait for a change of memory; raises LaunchError where none would help: the
        loop reads nothing that others could change.
        """
        if memory is None:
            raise LaunchError(
                "a while loop never ends",
                place=place_of(self.loop),
                why="an iteration has changed nothing, and the loop reads no memory that others "
                "write",
                remedy="change in the loop what its condition tests",
            )
        seen, names = memory.changes, ", ".join(self.reads)

        def need() -> Need:
            sentence = f"for a change of the memory that its loop reads again and again ({names})"
            return Need(f"memory ({names})", sentence=sentence, of_kernel=True)

        return Blocked(lambda: memory.changes != seen, memory.waiting, need, self.loop)


def find(loop: scf.WhileOp) -> Standstill | None:
    """Return how a loop stands still; None where an iteration has effects that are not seen
    here.
    """
    inside = walk(loop)
    if not all(_is_seen(operation) for operation in inside):
        return None
    read = (name_of(op) for op in inside if isinstance(op, (*READS, *ATOMICS)))
    return Standstill(loop, tuple(dict.fromkeys(read)))


def _is_seen(operation: Operation) -> bool:
    if isinstance(operation, hopper.NamedBarrier):
        return operation.scope.data != "roles"
    return isinstance(operation, _SEEN) or marked_pure(operation) or is_terminator(operation)


def equal(one: list[Any], other: list[Any]) -> bool:
    """Tell whether a loop carries the same values as before, bit for bit."""
    return all(a is b or _same_bits(a, b) for a, b in zip(one, other))


def _same_bits(a: Any, b: Any) -> bool:
    if is_array(a) and is_array(b):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return isinstance(a, np.generic) and isinstance(b, np.generic) and a.tobytes() == b.tobytes()
