"""Loads that leave elements undefined: with a mask, and nothing given for what it leaves out."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.ir import tile
from tawa.ir.walk import all_of, reach


def open_loads(kernel: tile.Kernel) -> list[tile.Load]:
    """Return the loads that have a mask and no `other`."""
    return [load for load in all_of(kernel, tile.Load) if _is_open(load)]


def _is_open(load: tile.Load) -> bool:
    return load.mask is not None and load.other is None


def undefined_sources(value: SSAValue) -> list[tile.Load]:
    """Return the loads without `other` that a value is computed from, within its block."""

    def makers(made: object) -> list[object]:
        if not isinstance(made, Operation) or (isinstance(made, tile.Load) and _is_open(made)):
            return []
        return [operand.owner for operand in made.operands]

    found = reach([value.owner], makers)
    return [load for load in found if isinstance(load, tile.Load) and _is_open(load)]
