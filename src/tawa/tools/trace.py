"""The timeline of a kernel's run in the simulator: who waited for what, and what overlapped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tawa.runtime.jit import wrap

if TYPE_CHECKING:
    from tawa.simulator.trace import Trace


def record(
    kernel: Any,
    *arguments: Any,
    grid: tuple[int, ...],
    seed: int = 0,
    path: str | Path | None = None,
    **meta: Any,
) -> Trace:
    """Run a kernel's hopper program in the simulator and return its timeline.

    Arrays are NumPy's or CPU tensors, and are changed in place. With `path` the timeline is also
    written as Chrome trace JSON, for ui.perfetto.dev: a process for each role, a track for each
    engine. Times are those of a simple machine; they show order and overlap, not a GPU's speed.
    """
    from tawa import ir
    from tawa.runtime.dispatch import host_argument
    from tawa.simulator import simulate

    launchable = wrap(kernel)
    compiled = launchable.compile(*arguments, grid=grid, **meta)
    given = dict(zip(launchable.arg_names, arguments)) | meta
    program = ir.parse(compiled.asm.text("hopper"))
    values = {name: host_argument(given[name]) for name in program.argument_names}
    timeline = simulate(program, grid, values, level="hopper", seed=seed)
    if path is not None:
        timeline.write_chrome(path)
    return timeline
