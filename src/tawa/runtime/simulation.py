"""`tawa.simulate`: run a kernel at any stage of the compiler, on arrays of the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tawa.errors import ArgumentError
from tawa.runtime.dispatch import common_device, guards_hold, parse_stage, simulate_stage
from tawa.runtime.grid import resolve_grid
from tawa.runtime.jit import Launchable, wrap

if TYPE_CHECKING:
    from tawa.simulator import Level
    from tawa.simulator.trace import Trace

SIMULATED = ("tile", "aref", "hopper")


def simulate(
    kernel: Any,
    *args: Any,
    grid: Any,
    level: Level = "hopper",
    seed: int = 0,
    schedule: str = "random",
    **meta: Any,
) -> Trace:
    """Compile `kernel` and run it in the simulator; arrays are changed in place.

    `level` "tile" runs the sequential program (the oracle), "aref" and "hopper" the concurrent one
    under the scheduler's `seed` and `schedule` ("random", or "starve=ROLE"); races and deadlocks
    raise ProtocolError. Where a guard of the kernel fails the ordinary kernel runs, as in a launch.
    Arrays are NumPy's or CPU tensors. Returns the trace of what happened when.
    """
    if level not in SIMULATED:
        raise ArgumentError(
            f"level={level!r} is not a stage that can run",
            why=f"the stages are {', '.join(SIMULATED)}",
        )
    launchable: Launchable = wrap(kernel)
    compiled = launchable.compile(*args, grid=grid, **meta)
    names = launchable.arg_names
    values = {**dict(zip(names, args)), **meta}
    arguments = {name: values[name] for name in names if name in values}
    device = common_device(compiled.name, arguments)
    if device.kind != "cpu":
        raise ArgumentError(
            f"the arrays of {compiled.name} are on {device}",
            why="the simulator works on memory of the CPU",
            remedy="pass .cpu() tensors or NumPy arrays",
        )
    extents = resolve_grid(compiled.name, grid, values)
    # The tile stage is the program as it was written: it relies on nothing.
    if level != "tile" and not guards_hold(compiled, arguments, extents):
        compiled = launchable.compile_plain(*args, grid=grid, **meta)
    program = parse_stage(compiled, level)
    cluster = compiled.plan.cluster if level == "aref" else None
    return simulate_stage(
        program, arguments, extents, level, seed=seed, schedule=schedule, cluster=cluster
    )
