"""Purpose: keep stores by TMA inside their tensors' rows.

Before -> after, where the rows of `%d` end inside 16 bytes::

    tile.desc_store %d[%m, %n], %v    ->    %p = base + (m + i) * stride0 + (n + j) * stride1
                                            tile.store %p, %v, (0 <= m + i < extent0) & ...

TMA leaves out what lies outside of a tensor, but in pieces of 16 bytes: where a row of the tensor
ends inside such a piece, a store, or a reduction, changes what follows the row. Threads store such
tensors. Whether rows end so is known of a descriptor argument, and of numbers that are multiples;
else a launch is asked (attribute `row_ends`: conditions for `tawa.runtime.guards`).
Requires: tile IR. Ensures: the descriptors of all stores left, as far as the host makes them, have
rows of whole pieces. Declines: each store that threads make, with the reason.
"""

from __future__ import annotations

from xdsl.ir import BlockArgument

from tawa.analysis.blocks import columns_of_piece
from tawa.analysis.coordinates import is_multiple
from tawa.analysis.hardware import is_host_made
from tawa.analysis.polynomial import asked, is_host_value, polynomial
from tawa.analysis.statements import name_of
from tawa.ir import tile
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import ask_launch
from tawa.passes.lower.pointers import expand_write
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_REASON = "its rows are not known to end at a multiple of 16 bytes, which TMA writes whole"


def end_rows(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Let threads store where rows end inside 16 bytes; ask a launch where that is open."""
    return _end_each(kernel, ask=True)


def end_rows_plain(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Let threads store where rows are not known to end at a multiple of 16 bytes."""
    return _end_each(kernel, ask=False)


def _end_each(kernel: tile.Kernel, *, ask: bool) -> tuple[Declined, ...]:
    declined: list[Declined] = []
    conditions: list[str] = []
    for store in all_of(kernel, tile.DescStore, tile.DescAtomic):
        unit, made = columns_of_piece(store.desc.type), store.desc.owner
        if isinstance(store.desc, BlockArgument):
            if "ragged" not in kernel.arguments.data[store.desc.index].data:
                continue
        elif not isinstance(made, tile.MakeDesc) or not is_host_made(store.desc):
            continue  # threads store anyway
        elif is_multiple(extent := polynomial(made.extents[-1]), unit):
            continue
        elif ask and is_host_value(extent) and extent.leaves:
            conditions.append(asked(kernel, "always_multiple", extent, unit))
            continue
        declined.append(Declined(f"TMA for {name_of(store)}", _REASON))
        expand_write(store)
    ask_launch(kernel, "row_ends", conditions)
    return tuple(declined)
