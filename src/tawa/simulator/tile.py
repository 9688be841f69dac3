"""The sequential oracle: tile IR, one program after the other, one statement after the other.

This run defines what a kernel means. Every later level is compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.errors import ArgumentError
from tawa.ir import tile
from tawa.simulator.arguments import bind_arguments
from tawa.simulator.decode import Decoder, decode_for
from tawa.simulator.memory import GlobalMemory, Watch
from tawa.simulator.rules import RULES
from tawa.simulator.scheduler import Scheduler, Task
from tawa.target import PROGRAMS

_RULES = {**RULES, scf.ForOp: partial(decode_for, as_written=True)}


@dataclass(slots=True)
class _Program:
    """The world of one program of a sequential run."""

    memory: GlobalMemory
    program: tuple[int, int, int]
    grid: tuple[int, int, int]
    watch: Watch | None = None


def checked_grid(grid: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a grid as three extents; raises ArgumentError for one that no launch takes."""
    if not 1 <= len(grid) <= 3 or any(extent < 0 for extent in grid):
        raise ArgumentError(f"grid {grid}", why="a grid has one to three extents, none negative")
    for axis, (extent, limit) in enumerate(zip(grid, PROGRAMS)):
        if extent > limit:
            raise ArgumentError(f"grid {grid}", why=f"extent {axis} may be 0 to {limit}")
    x, y, z = (*grid, 1, 1)[:3]
    return int(x), int(y), int(z)


def run_tile(
    kernel: tile.Kernel,
    grid: tuple[int, ...],
    arguments: Mapping[str, object],
    *,
    defined: frozenset[Operation] = frozenset(),
) -> None:
    """Run every program of tile IR in order, in place on the argument arrays.

    Arguments by name: a NumPy array for a pointer, a `HostDescriptor` for a descriptor, a number
    for a scalar. The loads of `defined` give zero where others have no value. Raises ArgumentError
    before anything runs, LaunchError (with the Python line) for an access out of bounds, a failed
    device_assert, a false tl.assume or a loop without an end.

    A program whose loop waits for memory lets the next ones run meanwhile, and goes on when one of
    them has written memory.
    """
    shape = checked_grid(grid)
    scheduler = Scheduler()
    memory = GlobalMemory(scheduler.wake, defined)
    decoder = Decoder(_RULES)
    parameters = decoder.numbered(kernel.body.block.args)
    for number, value in zip(parameters, bind_arguments(kernel, arguments, memory)):
        decoder.template[number] = value
    step = decoder.steps(kernel.body.block.ops)
    x, y, z = shape
    with np.errstate(all="ignore"):
        for k, j, i in product(range(z), range(y), range(x)):
            program = _Program(memory, (i, j, k), shape)
            running = step.run(decoder.frame(program))
            if step.blocking:
                scheduler.start(Task("program", f"program {program.program}", running, _nothing))
                scheduler.drain()
        scheduler.run()


def _nothing() -> None:
    """What is to be done at the end of a program."""
