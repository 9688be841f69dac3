"""The pipeline, in one place: which pass follows which, and why where the order matters.

tile IR -> (plan) -> aref IR -> hopper IR. Each pass has the signature
``pass(kernel, plan, target) -> tuple[Declined, ...]`` and changes the kernel in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from tawa.ir import tile
from tawa.passes.accumulate import accumulate
from tawa.passes.ahead import load_ahead
from tawa.passes.arefs import insert_arefs
from tawa.passes.ask_alignment import ask_alignment
from tawa.passes.ask_bounds import ask_bounds
from tawa.passes.ask_masks import ask_masks
from tawa.passes.breakpoints import drop_breakpoints
from tawa.passes.coarse import overlap_products
from tawa.passes.copy_ahead import copy_ahead
from tawa.passes.counts import count_loops, count_loops_plain
from tawa.passes.defer import defer_sums
from tawa.passes.descriptors import promote, promote_always
from tawa.passes.distribute import distribute
from tawa.passes.early import free_early
from tawa.passes.instances import split_instances
from tawa.passes.lag import lag_maxima
from tawa.passes.lower import lower
from tawa.passes.open_descriptors import open_descriptors
from tawa.passes.persist import persist
from tawa.passes.prefetch import prefetch
from tawa.passes.row_ends import end_rows, end_rows_plain
from tawa.passes.simplify import simplify
from tawa.passes.split_products import split_products
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

Pass: TypeAlias = Callable[[tile.Kernel, Plan, Target], tuple[Declined, ...]]

# What does not depend on a plan; the planner reads the result.
TILE: tuple[Pass, ...] = (
    drop_breakpoints,  # before all others: it reads every variable
    open_descriptors,
    simplify,
    count_loops,  # before all that takes loops to count upwards
    end_rows,  # before promotion, which makes no such store
    promote,  # after simplify: equal strides must be one value for a stride of 1 to show
    ask_masks,
    ask_alignment,  # after promotion: what goes by TMA asks nothing
    simplify,  # the address arithmetic of promoted accesses is dead now
    ask_bounds,  # last: for what is left a launch is asked
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
    ask_masks,
    ask_alignment,
    simplify,
)

# What changes the order of sums; not run under `strict`.
REASSOCIATE: tuple[Pass, ...] = (
    accumulate,
    lag_maxima,  # before sums are deferred: it knows them as rows
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

# The last word on concurrency.
HOPPER: tuple[Pass, ...] = (lower,)

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        one.__name__: one
        for one in (*TILE, *TILE_BY_TMA, *TILE_PLAIN, *REASSOCIATE, *EXPAND, *AREF, *HOPPER)
    }
)
"""Every pass by its name."""


# The same without promotion alone: of a kernel that gets no roles and has no products.
TILE_BY_THREADS: tuple[Pass, ...] = tuple(each for each in TILE if each is not promote)


def before_plan(
    *, descriptors: bool, by_tma: bool, strict: bool, roles: bool = True
) -> tuple[Pass, ...]:
    """Return the passes that run before there is a plan.

    `descriptors` False keeps pointer accesses as they are, `by_tma` stores by TMA at any cost,
    `strict` forbids re-association; `roles` False: threads load for themselves.
    """
    passes = TILE_PLAIN
    if descriptors:
        passes = TILE_BY_TMA if by_tma else TILE if roles else TILE_BY_THREADS
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
    for one in passes:
        if begin is not None:
            begin(one.__name__, kernel, plan)
        notes += one(kernel, plan, target)
    return tuple(notes)
