"""Purpose: lower aref IR (or the tile IR of an ordinary kernel) to hopper IR.

Before -> after: ``tests/data/gemm.aref.mlir`` -> ``tests/data/gemm.hopper.mlir``: arefs become
rings of shared memory and mbarriers, dots become wgmma (or mma.sync, or fma), tensors get register
layouts, descriptor accesses become TMA, and every wait, arrive, fence and election stands in the
text.
Requires: a valid kernel and its plan. Ensures: hopper IR with offsets and launch attributes.
Declines when: an instruction or a wish of the plan does not fit; each case is returned by name.
Raises `OverBudget`, `PlanError`, `DescriptorError`, `ShapeUnsupported`.
"""

from __future__ import annotations

from tawa.ir import tile
from tawa.passes.lower.agree import agree_on_control
from tawa.passes.lower.atomics import broadcast_atomics, share_atomics
from tawa.passes.lower.borrowed import carry_slots
from tawa.passes.lower.carried import split_carried
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.convert import Converter
from tawa.passes.lower.dots import lower_dots, widest_run
from tawa.passes.lower.early import wait_for_kernels
from tawa.passes.lower.finish import (
    count_arrivals,
    drop_unneeded,
    elect_threads,
    initialise_barriers,
    set_launch,
    settle_moves,
    tidy,
)
from tawa.passes.lower.gathers import expand_gathers
from tawa.passes.lower.histograms import spread_histograms
from tawa.passes.lower.kept import keep_accumulators, pin_computed
from tawa.passes.lower.layouts import assign_layouts, cheap_values
from tawa.passes.lower.loads import lower_loads
from tawa.passes.lower.multicast import share_loads
from tawa.passes.lower.order import order_accesses
from tawa.passes.lower.parked import park_carried
from tawa.passes.lower.pingpong import take_turns
from tawa.passes.lower.pointers import expand_accesses
from tawa.passes.lower.reduces import expand_reductions
from tawa.passes.lower.rings import lower_rings
from tawa.passes.lower.roles import erase_setup, form_roles
from tawa.passes.lower.rotate import rotate_waits
from tawa.passes.lower.scans import spread_scans
from tawa.passes.lower.separate import separate_accesses
from tawa.passes.lower.settle import settle_addresses
from tawa.passes.lower.sink import sink_into_branches, sink_scalars
from tawa.passes.lower.spare import drop_spare_barriers
from tawa.passes.lower.stores import lower_stores
from tawa.passes.lower.swap import swap_operands
from tawa.passes.lower.untouched import leave_untouched
from tawa.passes.lower.waits import place_waits
from tawa.passes.lower.zeros import drop_zero_fills
from tawa.plan.plan import Declined, Plan
from tawa.target import Target


def lower(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Lower `kernel` in place to hopper IR; return what was done otherwise than wished."""
    lowering = Lowering(kernel, plan, target.shared_by(plan.blocks))
    lowering.widest_run = widest_run(kernel)
    form_roles(lowering)
    for role in lowering.roles:
        split_carried(role)
        settle_addresses(role)
        expand_accesses(lowering, role)  # before rings: such a load is a computed tensor
    lower_rings(lowering)
    for role in lowering.roles:
        carry_slots(role)
        rotate_waits(lowering, role)
        order_accesses(lowering, role)
        lower_loads(lowering, role)
        broadcast_atomics(lowering, role)
        swap_operands(lowering, role)
    lower_dots(lowering)  # after loads: operands are views by now
    park_carried(lowering)  # after products: they find none of it as a view
    for role in lowering.roles:
        spread_scans(role)
        spread_histograms(role)
        drop_unneeded(role)  # loads that became views must not ask for layouts
        Converter(lowering, role, assign_layouts(lowering, role)).run()
        sink_into_branches(role, set(cheap_values(role)))
        expand_reductions(lowering, role)
        expand_gathers(lowering, role)
        share_atomics(lowering, role)
        drop_spare_barriers(lowering, role)  # before those of global memory count on them
        separate_accesses(lowering, role)  # with layouts: a thread's own elements need no barrier
        agree_on_control(lowering, role)  # when it is known where threads meet
        lower_stores(lowering, role)
        tidy(role)
        keep_accumulators(role)
        pin_computed(role)
        place_waits(lowering, role)  # after all else that reads, writes or moves accumulators
        drop_zero_fills(lowering, role)
        sink_scalars(role)  # after waits: to between a loop and the wait for its last products
    count_arrivals(lowering)
    share_loads(lowering)  # after counting: only slots that wgmma alone reads are shared
    for role in lowering.roles:
        settle_moves(role)
        tidy(role)
        leave_untouched(role)
    take_turns(lowering)  # late: in the order in which products are issued
    elect_threads(lowering)
    wait_for_kernels(lowering)  # when it is known what a role does first, and who does it
    erase_setup(lowering)
    initialise_barriers(lowering)
    set_launch(lowering)
    return tuple(lowering.notes)


__all__ = ["lower"]
