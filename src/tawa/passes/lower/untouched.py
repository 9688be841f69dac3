"""Accumulators that are multiplied by ones are left alone: a warp asks whether all its factors are.

Before -> after, where no product is in flight:
    %acc2 = "mul"(%acc, %rows)      ->      %acc2 = "mul"(%acc, %rows) {skip_ones}
with %rows one factor a row (a rescaling that an online softmax seldom needs, `passes.lag`). It is
the same value, x * 1 = x for every x; what is saved are passes over registers that the tensor
cores use as well. Between issue and wait a branch would make ptxas serialise the products.
Requires: waits placed. Ensures: the same values.
Declines when: a thread holds fewer than `LEAST` elements, or a product may be in flight.
"""

from __future__ import annotations

from itertools import permutations

from xdsl.dialects.builtin import Float32Type, UnitAttr
from xdsl.ir import Operation, SSAValue

from tawa.analysis.effects import VIEWS
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, layout_of, shape_of
from tawa.ir.walk import has, walk

LEAST = 64
"""Elements a thread from which asking pays: 32 lost 1.5 percent of attention at head dim 64, 64 and
128 gained 2 and 10 at 128 and 256 (H200).
"""


def leave_untouched(role: hopper.Role) -> None:
    """Mark the multiplications of accumulators by rows of factors."""
    for operation in walk(role):
        if isinstance(operation, tile.Elementwise) and _rescales(operation) and _drained(operation):
            operation.attributes["skip_ones"] = UnitAttr()


def _rescales(op: tile.Elementwise) -> bool:
    kind = op.result.type
    if op.function.data != "mul" or len(shape_of(kind)) < 2:
        return False
    if not isinstance(element_type(kind), Float32Type) or layout_of(kind).register_count < LEAST:
        return False
    return any(
        isinstance(scaled.owner, hopper.WgmmaWait) and _is_row(factor)
        for scaled, factor in permutations(op.inputs)
    )


def _is_row(value: SSAValue) -> bool:
    """Tell whether a tensor has one element a row."""
    while isinstance(value.owner, (tile.Broadcast, *VIEWS)):
        value = value.owner.operands[0]
    return sum(extent > 1 for extent in shape_of(value.type)) == 1


def _drained(op: Operation) -> bool:
    """Tell whether a wait for all products stands before an operation, and none is issued since."""
    before = op.prev_op
    while before is not None:
        if isinstance(before, hopper.WgmmaWait) and before.pending.data == 0:
            return True
        if has(before, hopper.Wgmma):
            return False
        before = before.prev_op
    return False
