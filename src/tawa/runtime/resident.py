"""More blocks at once, of kernels that the memory bounds.

Such a kernel is as fast as the bytes that it keeps on their way. What bounds these is how many
blocks run on a multiprocessor at once, and that is mostly decided by registers, of which ptxas
takes as many as it likes: it reads all of a row's weights before it uses the first. Told for how
many blocks they must do, it reads them in parts. It is asked for one block more as long as it needs
no memory for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tawa.ir import tile
from tawa.ir.walk import has
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.runtime.compiled import CompiledKernel
from tawa.target import Target

ENOUGH = 1024
"""Threads of a multiprocessor that keep enough on its way: half of those it can have."""
LEAST = 0.55
"""The part of its registers with which ptxas may get on; of less it would spill."""


def more_resident(
    made: CompiledKernel,
    kernel: tile.Kernel,
    target: Target,
    pins: Pins,
    attempt: Callable[[Plan], CompiledKernel | None],
) -> CompiledKernel:
    """Return an ordinary kernel without products, made for as many blocks as fit without a spill.

    `attempt` compiles it by another plan, or gives None where that cannot be done. Any other kernel
    is returned as it is.
    """
    if made.plan.specialized or pins.plan is not None or pins.blocks is not None:
        return made
    if has(kernel, tile.Dot):
        return made
    threads = made.launch.threads
    while (used := made.resources.roles[0].used) is not None:
        blocks = target.blocks_resident(threads, used, made.launch.shared) + 1
        fewer = target.shared_by(blocks).registers_at_launch(threads)
        roomy = target.blocks_resident(threads, fewer, made.launch.shared) >= blocks
        if (blocks - 1) * threads >= ENOUGH or not roomy or fewer < LEAST * used:
            break
        tighter = attempt(replace(made.plan, blocks=blocks))
        if tighter is None or (tighter.resources.spills or 0) > (made.resources.spills or 0):
            break
        made = tighter
    return made
