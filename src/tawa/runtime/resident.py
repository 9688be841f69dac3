"""Registers shared out otherwise, once it is known what ptxas makes of them.

Consumers whose loops access local memory are tried with fewer registers in the hands of others.

Kernels that the memory bounds are tried with more blocks at once. Such a kernel is as fast as the
bytes that it keeps on their way. What bounds these is how many blocks run on a multiprocessor at
once, and that is mostly decided by registers, of which ptxas takes as many as it likes: it reads
all of a row's weights before it uses the first. Told for how many blocks they must do, it reads
them in parts. It is asked for one block more as long as it needs no memory for that.
"""

from __future__ import annotations

from collections.abc import Callable

from tawa.ir import tile
from tawa.ir.walk import has
from tawa.plan.budgets import moved_to_helpers
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.runtime.compiled import CompiledKernel
from tawa.target import Target

ENOUGH = 1024
"""Threads of a multiprocessor that keep enough on its way: half of those it can have."""
LEAST = 0.55
"""The part of its registers with which ptxas may get on; of less it would spill."""


def less_local(
    made: CompiledKernel,
    target: Target,
    pins: Pins,
    attempt: Callable[[Plan], CompiledKernel | None],
) -> CompiledKernel:
    """Return a kernel whose loops access local memory, or the same with a few of the consumers'
    registers in the hands of the role that serves them, if that does so less.
    """
    if not made.resources.local_in_loops or pins.registers or pins.plan is not None:
        return made
    plan = moved_to_helpers(made.plan, target)
    other = attempt(plan) if plan is not None else None
    if other is None:
        return made
    return min(made, other, key=lambda kernel: kernel.resources.local_in_loops)


def more_resident(
    made: CompiledKernel,
    kernel: tile.Kernel,
    target: Target,
    pins: Pins,
    share: Callable[[int], Callable[[], CompiledKernel | None]],
) -> CompiledKernel:
    """Return an ordinary kernel without products, made for as many blocks as fit without a spill.

    `share` begins to build it for a number of blocks; what it returns waits for that, and gives
    None where it cannot be done. While one is waited for the next is built: of those that are
    asked for, most are followed by another. Any other kernel is returned as it is.
    """
    if made.plan.specialized or pins.plan is not None or pins.blocks is not None:
        return made
    if has(kernel, tile.Dot):
        return made
    threads, shared = made.launch.threads, made.launch.shared

    def left(blocks: int) -> int:
        return target.shared_by(blocks).registers_at_launch(threads)

    def is_worth(blocks: int, used: int) -> bool:
        """Tell whether a kernel of so many registers a thread is to be built for `blocks`."""
        roomy = target.blocks_resident(threads, left(blocks), shared) >= blocks
        return (blocks - 1) * threads < ENOUGH and roomy and left(blocks) >= LEAST * used

    begun: dict[int, Callable[[], CompiledKernel | None]] = {}
    while (used := made.resources.roles[0].used) is not None:
        blocks = target.blocks_resident(threads, used, shared) + 1
        if not is_worth(blocks, used):
            break
        for each in (blocks, blocks + 1):
            if each not in begun and (each == blocks or is_worth(each, left(blocks))):
                begun[each] = share(each)
        tighter = begun[blocks]()
        if tighter is None or (tighter.resources.spills or 0) > (made.resources.spills or 0):
            break
        made = tighter
    return made
