"""Purpose: share the exponentials of a loop between the special function units and multiply-adds.

Before -> after, in a loop whose plan says ``fma_exp2=4``::

    %p = tile.elementwise "exp2"(%x)    ->    %p = tile.elementwise "exp2"(%x) {fma_every = 4}

A multiprocessor makes 16 exponentials a cycle; where products take no longer than that, they wait
for them, while the units for multiply-adds are idle: those then make each fourth.
Requires: tile IR. Ensures: the same values to the same exactness.
Declines: never.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr

from tawa.analysis.naming import name_of
from tawa.ir import tile
from tawa.plan.plan import Declined, Plan
from tawa.plan.time import is_exponential
from tawa.target import Target


def share_exponentials(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Mark the exponentials of matrices in the loops whose plan shares them."""
    shares = {loop.loop: loop.fma_exp2 for loop in plan.loops if loop.fma_exp2}
    for loop in [op for op in kernel.walk() if isinstance(op, scf.ForOp)]:
        every = shares.get(name_of(loop)) if shares else None
        if every is None:
            continue
        for operation in loop.body.block.walk():
            if is_exponential(operation):
                operation.attributes["fma_every"] = IntAttr(every)
    return ()
