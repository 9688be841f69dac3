"""Registers shared out otherwise, once it is known what ptxas makes of them.

Where loops of the roles that serve consumers access local memory, these roles are tried with some
of the consumers' registers.

Kernels that the memory bounds are tried with more blocks at once. Such a kernel is as fast as the
bytes that it keeps on their way. What bounds these is how many blocks run on a multiprocessor at
once, and that is mostly decided by registers, of which ptxas takes as many as it likes: it reads
all of a row's weights before it uses the first. Told for how many blocks they must do, it reads
them in parts. The most blocks are wanted that it needs no memory for: who does with few registers
does with more, so that most numbers need not be built to be known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tawa.codegen import CudaSource
from tawa.ir import tile
from tawa.ir.walk import has
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.resources import moved_to_helpers, register_need
from tawa.runtime import sass
from tawa.runtime.compiled import CompiledKernel
from tawa.target import Target

ENOUGH = 1024
"""Threads of a multiprocessor that keep enough on its way: half of those it can have."""
LEAST = 0.5
"""The part of its registers with which ptxas may get on; of less it would spill."""

Share = Callable[[Plan], Callable[[], CompiledKernel | None]]
"""Begins to build a kernel by a plan that shares registers out otherwise; what it returns waits for
that, and gives None where it cannot be done.
"""


def less_local(made: CompiledKernel, target: Target, pins: Pins, share: Share) -> CompiledKernel:
    """Return a kernel in which loops of a role that serves consumers access local memory, or the
    same with a few of the consumers' registers in its hands, if its loops do so less.
    """
    if not made.resources.local_in_loops or pins.registers or pins.plan is not None:
        return made
    plan = moved_to_helpers(made.plan, target)
    if plan is None or not _local_of_helpers(made):
        return made
    other = share(plan)()
    if other is None:
        return made
    return min(made, other, key=lambda kernel: kernel.resources.local_in_loops)


def _local_of_helpers(made: CompiledKernel) -> int:
    """Return how often loops of roles without products access local memory."""
    cubin = made.asm["cubin"]
    return sass.inspect(cubin).local_of_helpers if isinstance(cubin, bytes) else 0


def crowded_ahead(
    kernel: tile.Kernel, plan: Plan, source: CudaSource, target: Target, pins: Pins
) -> Plan | None:
    """Return the plan for as many blocks as are worth anything, where a kernel is likely to be
    wanted by it: it is built beside the kernel itself.
    """
    if not _is_shared(kernel, plan, pins):
        return None
    blocks = _most_blocks(target, source.threads, source.shared_bytes)
    # What is made of ranges alone is made where it is used: by this count no kernel was seen to
    # take more registers than these of which it says less.
    need = register_need(kernel, source.threads // 32, (), indices=False)
    if blocks == 1 or need <= target.shared_by(blocks).registers_at_launch(source.threads):
        return None
    return replace(plan, blocks=blocks)


def more_resident(
    made: CompiledKernel, kernel: tile.Kernel, target: Target, pins: Pins, share: Share
) -> CompiledKernel:
    """Return an ordinary kernel without products, made for as many blocks as fit without a spill.

    Most kernels do with what the most blocks leave them, so these are tried first, then the middle
    of those that are left; while one is waited for, that is built which follows if it fails. Any
    other kernel is returned as it is.
    """
    if not _is_shared(kernel, made.plan, pins):
        return made
    threads, shared = made.launch.threads, made.launch.shared
    most = _most_blocks(target, threads, shared)
    plan, failed = made.plan, most + 1
    resident = partial(target.blocks_resident, threads, shared=shared)
    while (used := made.resources.roles[0].used) is not None:
        numbers = [
            blocks
            for blocks in range(max(made.plan.blocks, resident(used)) + 1, failed)
            if target.shared_by(blocks).registers_at_launch(threads) >= LEAST * used
        ]
        if not numbers:
            break
        blocks = numbers[-1] if failed > most else _middle(numbers)
        wanted = share(replace(plan, blocks=blocks))
        if fewer := [number for number in numbers if number < blocks]:
            share(replace(plan, blocks=_middle(fewer)))
        tighter = wanted()
        if tighter is None or (tighter.resources.spills or 0) > (made.resources.spills or 0):
            failed = blocks
        else:
            made = tighter
    return made


def _is_shared(kernel: tile.Kernel, plan: Plan, pins: Pins) -> bool:
    """Tell whether the number of blocks of a kernel is for what ptxas makes of it to decide."""
    told = pins.plan is not None or pins.blocks is not None
    return not (plan.specialized or told or has(kernel, tile.Dot))


def _middle(numbers: list[int]) -> int:
    return numbers[(len(numbers) - 1) // 2]


def _most_blocks(target: Target, threads: int, shared: int) -> int:
    """Return the most blocks of a multiprocessor of which each has room, and adds to what the
    others keep on its way.
    """
    blocks = 1
    while blocks * threads < ENOUGH:
        left = target.shared_by(blocks + 1).registers_at_launch(threads)
        if target.blocks_resident(threads, left, shared) <= blocks:
            break
        blocks += 1
    return blocks
