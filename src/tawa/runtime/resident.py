"""Registers shared out otherwise, once it is known what ptxas makes of them.

Where loops of the roles that serve consumers access local memory, these roles are tried with some
of the consumers' registers.

Kernels that the memory bounds are tried with more blocks at once. Such a kernel is as fast as the
bytes that it keeps on their way. What bounds these is how many blocks run on a multiprocessor at
once, and that is mostly decided by registers, of which ptxas takes as many as it likes: it reads
all of a row's weights before it uses the first. Told for how many blocks they must do, it reads
them in parts. The most blocks are wanted that it needs no memory for, in few builds: where it does
with some more blocks than it fits by itself, no further numbers are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from xdsl.ir import Block

from tawa.analysis.statements import enclosing_loops
from tawa.codegen import CudaSource
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import all_of, has
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.resources import moved_to_helpers, register_need
from tawa.runtime import sass
from tawa.runtime.compiled import CompiledKernel
from tawa.target import Target

ENOUGH = 1024
"""Threads of a multiprocessor that keep enough on its way: half of those it can have."""
ENOUGH_BYTES = 65536
"""Bytes that do, in a loop, where loads follow one another: three times what a multiprocessor of an
H100 needs (25 bytes a nanosecond, for 0.8 us).
"""
LEAST = 0.57
"""The part of its registers with which ptxas may get on; with less most kernels spill."""

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
    """Return the plan for the most blocks, where `more_resident` is likely to try it: it is built
    beside the kernel itself.
    """
    if not _is_shared(kernel, plan, pins):
        return None
    threads, shared = source.threads, source.shared_bytes
    most = _most_blocks(target, threads, shared, _read_at_once(kernel))
    fewest = max(1, target.blocks_resident(threads, target.registers_max, shared)) + 1
    # What is made of ranges alone is made where it is used: by this count no kernel was seen to
    # take more registers than these of which it says less.
    need = register_need(kernel, threads // 32, (), indices=False)
    if fewest > most or need <= target.shared_by(most).registers_at_launch(threads):
        return None
    return replace(plan, blocks=most)


def more_resident(
    made: CompiledKernel, kernel: tile.Kernel, target: Target, pins: Pins, share: Share
) -> CompiledKernel:
    """Return an ordinary kernel without products, made for more blocks where they fit without a
    spill: the most, or else the middle of those that are left. Any other kernel is returned as it
    is.
    """
    used = made.resources.roles[0].used
    if used is None or not _is_shared(kernel, made.plan, pins):
        return made
    threads, shared = made.launch.threads, made.launch.shared
    fewest = max(made.plan.blocks, target.blocks_resident(threads, used, shared)) + 1
    numbers = [
        blocks
        for blocks in range(
            fewest, _most_blocks(target, threads, shared, _read_at_once(kernel)) + 1
        )
        if target.shared_by(blocks).registers_at_launch(threads) >= LEAST * used
    ]
    blocks = max(numbers, default=0)
    while numbers:
        tighter = share(replace(made.plan, blocks=blocks))()
        if tighter is not None and (tighter.resources.spills or 0) <= (made.resources.spills or 0):
            return tighter
        numbers = numbers[: numbers.index(blocks)]
        blocks = numbers[(len(numbers) - 1) // 2] if numbers else 0
    return made


def _is_shared(kernel: tile.Kernel, plan: Plan, pins: Pins) -> bool:
    """Tell whether the number of blocks of a kernel is for what ptxas makes of it to decide."""
    told = pins.plan is not None or pins.blocks is not None
    return not (plan.specialized or told or has(kernel, tile.Dot))


def _read_at_once(kernel: tile.Kernel) -> int:
    """Return the bytes that a block has on their way in an iteration of a loop, at most."""
    read: dict[Block, int] = {}
    for load in all_of(kernel, tile.Load):
        if enclosing_loops(load) and (block := load.parent) is not None:
            kind = load.result.type
            size = prod(shape_of(kind)) * max(8, bit_width(element_type(kind))) // 8
            read[block] = read.get(block, 0) + size
    return max(read.values(), default=0)


def _most_blocks(target: Target, threads: int, shared: int, read: int) -> int:
    """Return the most blocks of a multiprocessor of which each has room, and adds to what the
    others keep on its way: `read` bytes each, in a loop.
    """
    blocks = 1
    while blocks * threads < ENOUGH and blocks * read < ENOUGH_BYTES:
        left = target.shared_by(blocks + 1).registers_at_launch(threads)
        if target.blocks_resident(threads, left, shared) <= blocks:
            break
        blocks += 1
    return blocks
