"""`tawa.simulate`: run a kernel at any stage of the compiler, on arrays of the CPU.

Operations of tile IR that only compute, run on arrays as the simulator runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tawa.errors import ArgumentError
from tawa.plan.plan import Schedule as PinnedSchedule
from tawa.runtime.decorators import wrap
from tawa.runtime.dispatch import common_device, guards_hold, simulate_stage, warn_of
from tawa.runtime.grid import launches, resolve_grid
from tawa.runtime.jit import JitFunction, Launchable

if TYPE_CHECKING:
    from tawa.simulator import Level
    from tawa.simulator.trace import Trace
from collections.abc import Sequence

SIMULATED = ("tile", "aref", "hopper")


def simulate(
    kernel: Any,
    *args: Any,
    grid: Any,
    level: Level = "hopper",
    seed: int = 0,
    schedule: str = "random",
    timeline: str | Path | None = None,
    **meta: Any,
) -> Trace:
    """Compile `kernel` and run it in the simulator; arrays are changed in place.

    `level` "tile" runs the sequential program (the oracle), "aref" and "hopper" the concurrent one
    under the scheduler's `seed` and `schedule`; races and deadlocks raise ProtocolError. The oracle
    stops in the debugger at each `breakpoint()` of the kernel.

    Schedules are "random"; "late" and "early", when asynchronous work completes as late or as early
    as legal; "starve=ROLE", when a role runs only when nothing else can; two are joined by "+", as
    "starve=mma+late". The pin `schedule` of loops has other words ("none", "fine", "coarse"), which
    are passed on to the compiler. With `timeline` the run is also written there as Chrome trace
    JSON, for ui.perfetto.dev: a process for each block, a track for each warpgroup of each role,
    for TMA and for the tensor cores; times are those of a simple machine.

    Where a guard of the kernel fails the ordinary kernel runs, as in a launch.
    Arrays are NumPy's or CPU tensors. Returns the trace of what happened when.

    >>> @tawa.jit
    ... def square(x, B: tl.constexpr):
    ...     at = tl.arange(0, B)
    ...     tl.store(x + at, tl.load(x + at) * tl.load(x + at))
    >>> x = np.arange(64, dtype=np.float32)
    >>> trace = tawa.simulate(square, x, grid=(1,), level="tile", B=64)
    >>> x[:4].tolist()
    [0.0, 1.0, 4.0, 9.0]
    """
    if level not in SIMULATED:
        raise ArgumentError(
            f"level={level!r} is not a stage that can run",
            why=f"the stages are {', '.join(SIMULATED)}",
        )
    if schedule in get_args(PinnedSchedule):
        meta, schedule = {**meta, "schedule": schedule}, "random"
    launchable: Launchable = wrap(kernel)
    compiled = launchable.compile(*args, grid=grid, **meta)
    names = launchable.arg_names
    values = {**dict(zip(names, args)), **meta}
    arguments: Mapping[str, Any] = {name: values[name] for name in names if name in values}
    if isinstance(launchable, JitFunction):
        _, arguments = launchable.spread(arguments)
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
        guards_hold(compiled, arguments, extents)  # refuses a launch that it cannot run
    if level != "tile":
        launches(compiled, extents)  # raises for a grid that no launch takes
        warn_of(compiled)
    program = compiled.asm.program(level)
    cluster = compiled.plan.cluster if level == "aref" else None
    trace = simulate_stage(
        program, arguments, extents, level, seed=seed, schedule=schedule, cluster=cluster
    )
    if timeline is not None:
        trace.write_chrome(timeline)
    return trace


# --- operations by themselves ---------------------------------------------------------------------


def computed(
    operations: Sequence[Any], given: Mapping[Any, Any], results: Sequence[Any]
) -> list[Any]:
    """Return the arrays that `results` are where the values of `given` have theirs.

    `operations` stand in order, touch no memory and read nothing but these values and one another.
    """
    import numpy as np

    from tawa.simulator.decode import Decoder
    from tawa.simulator.rules import RULES

    decoder = Decoder(RULES)
    for value, array in given.items():
        decoder.constant(value, array[()].copy())
    step, numbers = decoder.steps(operations), decoder.numbered(results)
    frame = decoder.frame(None)
    with np.errstate(all="ignore"):
        step.run(frame)
    return [frame.values[number] for number in numbers]
