"""Kernels that begin while the one before them in the stream ends: where each role waits for it.

Purpose: what touches no global memory is done meanwhile.
Before -> after, in a kernel with Triton's option `launch_pdl`:
    hopper.one_thread {                 hopper.one_thread {
      %m = ...                            %m = ...
                                ->        hopper.grid_wait
                                          hopper.launch_dependents
      scf.for %k { .. tma_load .. }       scf.for %k { .. tma_load .. }
Requires: roles complete, threads elected. Ensures: in every role a wait stands above all that reads
or writes global memory; the first role lets the next kernel begin.
Declines when: never.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block

from tawa.ir import hopper, tile
from tawa.ir.walk import is_terminator, marked_pure
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter


def starts_early(kernel: tile.Kernel) -> bool:
    """Tell whether a kernel begins while those before it in the stream end: Triton's option."""
    wish = kernel.options.data.get("launch_pdl")
    return isinstance(wish, IntegerAttr) and bool(wish.value.data)


def wait_for_kernels(lowering: Lowering) -> None:
    """Let each role of an early kernel wait before its first effect."""
    if not starts_early(lowering.kernel):
        return
    for index, role in enumerate(lowering.roles):
        emitter = _above_effects(role.body.block)
        emitter.put(hopper.GridWait())
        if index == 0:
            emitter.put(hopper.LaunchDependents())


def _above_effects(block: Block) -> Emitter:
    """Return a place above all that is not pure in a role, or in the program of its one thread."""
    found = [
        op
        for op in block.ops
        if not (marked_pure(op) or is_terminator(op) or isinstance(op, hopper.SetRegisters))
    ]
    match found:
        case [hopper.OneThread() as one]:
            return _above_effects(one.body.block)
        case [first, *_]:
            return Emitter.before(first)
        case _:
            return Emitter.at_end(block)
