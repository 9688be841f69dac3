"""The simulator: kernels at every level, on the CPU, in NumPy.

`simulate` runs a kernel's IR. At level "tile" it is the sequential oracle; at "aref" and "hopper"
roles run concurrently under a seeded scheduler, and races, deadlocks and leftovers raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tawa.ir import tile
    from tawa.simulator.trace import Trace

Level = Literal["tile", "aref", "hopper"]


def simulate(
    kernel: tile.Kernel,
    grid: tuple[int, ...],
    arguments: Mapping[str, object],
    *,
    level: Level = "hopper",
    seed: int = 0,
    schedule: str = "random",
    late: str = "random",
    multiprocessors: int | None = None,
    cluster: int | None = None,
) -> Trace:
    """Run a kernel's IR of a level on CPU arrays, in place, and return what happened when.

    `arguments` by name: NumPy arrays, numbers, `tawa.simulator.memory.HostDescriptor`s. `schedule`
    is a name of `tawa.simulator.scheduler` ("random", "late", "early", "starve=ROLE", two joined by
    "+"); `late` says when asynchronous work completes where the name does not. `multiprocessors`
    bounds the resident blocks (the target's number if None); `cluster` is the plan's cluster, which
    aref IR does not say. Warns where what is stored depends on elements that have no value.
    """
    from tawa.errors import ArgumentError
    from tawa.simulator.aref import run_aref
    from tawa.simulator.hopper import run_hopper
    from tawa.simulator.tile import run_tile
    from tawa.simulator.trace import Trace
    from tawa.simulator.undefined import Defined, run_told
    from tawa.target import H200

    if level not in ("tile", "aref", "hopper"):
        raise ArgumentError(f"level={level!r}", remedy='use "tile", "aref" or "hopper"')

    def run(defined: Defined) -> Trace:
        match level:
            case "tile":
                run_tile(kernel, grid, arguments, defined=defined)
                return Trace()
            case "aref":
                return run_aref(
                    kernel,
                    grid,
                    arguments,
                    seed=seed,
                    schedule=schedule,
                    multiprocessors=multiprocessors or H200.multiprocessors,
                    cluster=cluster,
                    defined=defined,
                )
            case "hopper":
                return run_hopper(
                    kernel,
                    grid,
                    arguments,
                    seed=seed,
                    schedule=schedule,
                    late=late,
                    multiprocessors=multiprocessors or H200.multiprocessors,
                    defined=defined,
                )

    return run_told(kernel, arguments, run)
