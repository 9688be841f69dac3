"""Purpose: a kernel with `breakpoint()` compiles as if that were not there, and says so.

Before -> after::

    tile.breakpoint "f" ["x"] (%x) : i32      ->      (nothing)

The oracle (`tawa.simulate(..., level="tile")`) runs the tile IR from before this pass: it stops.
A launch of what was compiled warns. Requires: tile IR. Ensures: no breakpoint. Declines: to stop
what is compiled.
"""

from __future__ import annotations

from tawa.ir import line_of, tile
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import erase
from tawa.plan.plan import BREAKPOINT, Declined, Plan
from tawa.target import Target

_ORACLE = 'it stops the oracle alone, tawa.simulate(kernel, ..., level="tile")'


def drop_breakpoints(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Remove each `breakpoint()`."""
    points = tuple(all_of(kernel, tile.Breakpoint))
    for point in points:
        erase(point)
    return tuple(Declined(BREAKPOINT, f"line {line_of(point)}: {_ORACLE}") for point in points)
