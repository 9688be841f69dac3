"""Rows that are read from memory and repeated along a tile: which loads, and what they cost."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.analysis.effects import is_volatile
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.layouts.register import RegisterLayout
from tawa.passes.lower.relate import ELEMENTWISE, is_tensor, ties


def spread_loads(operations: list[Operation]) -> list[tile.Load]:
    """Return the loads of rows that, as they are or after functions of them, are broadcast."""
    return [
        operation
        for operation in operations
        if isinstance(operation, tile.Load)
        and is_tensor(operation.result)
        and not is_volatile(operation)
        and sum(extent > 1 for extent in shape_of(operation.result.type)) < 2
        and _is_broadcast(operation.result)
    ]


def _is_broadcast(row: SSAValue) -> bool:
    seen: set[SSAValue] = set()
    pending = [row]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        pending.extend(ties(value))
        for use in value.uses:
            match use.operation:
                case tile.Broadcast():
                    return True
                case tile.ExpandDims() as view:
                    pending.append(view.result)
                case user if isinstance(user, ELEMENTWISE) and not isinstance(user, tile.Load):
                    pending.extend(user.results)
                case _:
                    pass
    return False


def accesses(load: tile.Load, layout: RegisterLayout) -> int:
    """Return by how many instructions a thread reads its part of a row held in `layout`."""
    each = max(8, bit_width(element_type(load.result.type))) // 8
    width = Contiguity().width(load.pointer, load.mask, layout, each)
    return layout.register_count // width
