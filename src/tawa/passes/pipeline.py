"""The pipeline, in one place: which pass follows which, and why where the order matters.

tile IR -> (plan) -> aref IR -> hopper IR. Each pass has the signature
``pass(kernel, plan, target) -> tuple[Declined, ...]`` and changes the kernel in place. The last,
`lower`, is a list of steps that share a `Lowering`: rings, buffers, numbers of barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from types import MappingProxyType
from typing import TypeAlias

from tawa.ir import hopper, tile
from tawa.passes.ahead import load_ahead
from tawa.passes.arefs import insert_arefs
from tawa.passes.coarse import overlap_products
from tawa.passes.descriptors import end_rows, end_rows_plain, promote, promote_always
from tawa.passes.distribute import distribute, free_early, split_instances
from tawa.passes.guard_bounds import count_loops, count_loops_plain, guard_bounds
from tawa.passes.lazy_rescaling import rescale_lazily
from tawa.passes.lower.accumulators import (
    drop_zero_fills,
    keep_accumulators,
    pin_computed,
    skip_rescaling,
)
from tawa.passes.lower.addresses import reduce_addresses, sink_into_branches, sink_scalars
from tawa.passes.lower.barriers import drop_redundant_barriers, separate_accesses
from tawa.passes.lower.carried import carry_slots, spill_carried, split_carried
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.convert import convert_layouts
from tawa.passes.lower.dots import lower_dots, narrow_panels
from tawa.passes.lower.exchange import broadcast_atomics, expand_gathers, share_atomics
from tawa.passes.lower.finish import (
    count_arrivals,
    drop_unneeded,
    elect_threads,
    initialise_barriers,
    set_launch,
    settle_moves,
    tidy,
    wait_for_kernels,
)
from tawa.passes.lower.layouts import check_placed
from tawa.passes.lower.order import order_accesses
from tawa.passes.lower.pingpong import take_turns
from tawa.passes.lower.pointers import expand_accesses
from tawa.passes.lower.puts import share_loads
from tawa.passes.lower.reduces import expand_reductions, expand_scans, spread_histograms
from tawa.passes.lower.rings import lower_rings, rotate_waits
from tawa.passes.lower.roles import erase_setup, form_roles
from tawa.passes.lower.stores import lower_loads, lower_stores
from tawa.passes.lower.swap import swap_operands
from tawa.passes.lower.uniform_control import broadcast_control
from tawa.passes.lower.waits import place_waits
from tawa.passes.open_descriptors import open_descriptors
from tawa.passes.persist import persist
from tawa.passes.prefetch import copy_ahead, prefetch
from tawa.passes.reassociate import accumulate, defer_sums
from tawa.passes.simplify import drop_breakpoints, simplify
from tawa.passes.split_products import split_products
from tawa.passes.version import version_alignment, version_masks
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

Pass: TypeAlias = Callable[[tile.Kernel, Plan, Target], tuple[Declined, ...]]
Step: TypeAlias = Callable[[Lowering], None]


def _each(step: Callable[[Lowering, hopper.Role], None]) -> Step:
    """Return the step that takes one role after the other."""

    @wraps(step)
    def steps(lowering: Lowering) -> None:
        for role in lowering.roles:
            step(lowering, role)

    return steps


def _alone(step: Callable[[hopper.Role], None]) -> Step:
    """Return the step that changes each role by itself, by its text alone."""

    @wraps(step)
    def steps(lowering: Lowering) -> None:
        for role in lowering.roles:
            step(role)

    return steps


# What does not depend on a plan; the planner reads the result.
TILE: tuple[Pass, ...] = (
    drop_breakpoints,  # before all others: it reads every variable
    open_descriptors,
    simplify,
    count_loops,  # before all that takes loops to count upwards
    end_rows,  # before promotion, which makes no such store
    promote,  # after simplify: equal strides must be one value for a stride of 1 to show
    version_masks,
    version_alignment,  # after promotion: what goes by TMA asks nothing
    simplify,  # the address arithmetic of promoted accesses is dead now
    guard_bounds,  # last: for what is left a launch is asked
)

# The same where stores by TMA are asked for.
TILE_BY_TMA: tuple[Pass, ...] = tuple(promote_always if each is promote else each for each in TILE)

# The same without promotion and bounds: what runs where a guard does not hold.
TILE_PLAIN: tuple[Pass, ...] = (
    drop_breakpoints,
    open_descriptors,
    simplify,
    count_loops_plain,
    end_rows_plain,
    version_masks,
    version_alignment,
    simplify,
)

# What changes the order of sums; not run under `strict`.
REASSOCIATE: tuple[Pass, ...] = (
    accumulate,
    rescale_lazily,  # before sums are deferred: it knows them as rows
    defer_sums,
)

# After sums were re-associated: `accumulate` looks for single products.
EXPAND: tuple[Pass, ...] = (split_products,)

# Still one sequence, in which each slot is put, got and freed: what the last kernel is checked
# against (`tawa.verify.coordinates`).
SEQUENCE: tuple[Pass, ...] = (
    persist,  # before arefs: slots count on through the loop over tiles
    simplify,  # what does not change from tile to tile leaves the loop
    insert_arefs,
)

# One region for each role, arefs between them.
ROLES: tuple[Pass, ...] = (
    distribute,  # every role gets its own copy of what remains
    split_instances,  # the consumer's copy alone goes to tiles of its own
    overlap_products,  # the consumer's loops only: the producer runs ahead by itself
    load_ahead,  # what is left to the consumer, in the order that its loops have now
    free_early,  # after it: what follows a pipelined loop reads less than the loop
    copy_ahead,  # in kernels without roles, what they copy for their products
    prefetch,  # in kernels without roles, and what a producer reads to copy
)

AREF: tuple[Pass, ...] = (*SEQUENCE, *ROLES)

# From arefs to rings and barriers, from tensors to registers. The last word on concurrency.
LOWER: tuple[Step, ...] = (
    narrow_panels,
    form_roles,
    _alone(split_carried),
    _alone(reduce_addresses),
    _each(expand_accesses),  # before rings: such a load is a computed tensor
    lower_rings,
    _alone(carry_slots),
    _each(rotate_waits),
    _each(order_accesses),
    _each(lower_loads),
    _each(broadcast_atomics),
    _each(swap_operands),
    lower_dots,  # after loads: operands are views by now
    spill_carried,  # after products: they find none of it as a view
    _alone(spread_histograms),
    _alone(drop_unneeded),  # loads that became views must not ask for layouts
    _each(convert_layouts),
    check_placed,
    _alone(sink_into_branches),
    _each(expand_reductions),
    _each(expand_scans),
    _each(expand_gathers),
    _each(share_atomics),
    _each(drop_redundant_barriers),  # before those of global memory count on them
    _each(separate_accesses),  # with layouts: a thread's own elements need no barrier
    _each(broadcast_control),  # when it is known where threads meet
    _each(lower_stores),
    _alone(tidy),
    _alone(keep_accumulators),
    _alone(pin_computed),
    _each(place_waits),  # after all else that reads, writes or moves accumulators
    _each(drop_zero_fills),
    _alone(sink_scalars),  # after waits: to between a loop and the wait for its last products
    count_arrivals,
    share_loads,  # after counting: only slots that wgmma alone reads are shared
    _alone(settle_moves),
    _alone(tidy),
    _alone(skip_rescaling),
    take_turns,  # late: in the order in which products are issued
    elect_threads,
    wait_for_kernels,  # when it is known what a role does first, and who does it
    erase_setup,
    initialise_barriers,
    set_launch,
)


def lower(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Lower aref IR (or the tile IR of an ordinary kernel) to hopper IR."""
    return run((lower,), kernel, plan, target)


HOPPER: tuple[Pass, ...] = (lower,)

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        one.__name__: one
        for one in (*TILE, *TILE_BY_TMA, *TILE_PLAIN, *REASSOCIATE, *EXPAND, *AREF, *HOPPER)
    }
)
"""Every pass by its name."""

FORMER: Mapping[str, str] = MappingProxyType(
    {
        "ask_alignment": "version_alignment",
        "ask_bounds": "guard_bounds",
        "ask_masks": "version_masks",
        "lag_maxima": "rescale_lazily",
    }
)
"""Names that passes had in 0.2, taken until the release after 0.3."""


def before_plan(*, descriptors: bool, by_tma: bool, strict: bool) -> tuple[Pass, ...]:
    """Return the passes that run before there is a plan.

    `descriptors` False keeps pointer accesses as they are, `by_tma` moves tiles by TMA at any cost,
    `strict` forbids re-association.
    """
    passes = TILE_PLAIN
    if descriptors:
        passes = TILE_BY_TMA if by_tma else TILE
    return (*passes, *(() if strict else REASSOCIATE), *EXPAND)


def run(
    passes: tuple[Pass, ...],
    kernel: tile.Kernel,
    plan: Plan,
    target: Target,
    begin: Callable[[str, tile.Kernel, Plan], object] | None = None,
) -> tuple[Declined, ...]:
    """Run `passes` in order; return what they declined. `begin` is told of each before it runs."""
    notes: list[Declined] = []
    for name, one in bound(passes, kernel, plan, target):
        if begin is not None:
            begin(name, kernel, plan)
        notes += one()
    return tuple(notes)


def bound(
    passes: tuple[Pass, ...], kernel: tile.Kernel, plan: Plan, target: Target
) -> Iterator[tuple[str, Callable[[], tuple[Declined, ...]]]]:
    """Yield the name of each pass, in order, and what runs it; in place of `lower` its steps."""
    for one in passes:
        if one is not lower:
            yield one.__name__, partial(one, kernel, plan, target)
            continue
        lowering = Lowering(kernel, plan, target.shared_by(plan.blocks))
        for step in LOWER:
            yield step.__name__, partial(_declined, step, lowering)


def _declined(step: Step, lowering: Lowering) -> tuple[Declined, ...]:
    known = len(lowering.notes)
    step(lowering)
    return tuple(lowering.notes[known:])
