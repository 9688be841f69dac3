"""Who computes: how many warpgroups share a tile, from the products' rows and registers.

Whether the warpgroups that share a tile gain by turns at the tensor cores.

Left to themselves they wait for the same tiles, issue their products at the same time and then all
do their other work: an iteration takes the products of all plus that work. In turns one works while
another's products run. Turns cost a named barrier each, and give nothing where the warpgroups meet
in every iteration anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from xdsl.dialects import scf
from xdsl.ir import SSAValue

from tawa.analysis.cluster import influenced
from tawa.analysis.hardware import by_multiply_adds
from tawa.analysis.stages import iteration, takes_turns
from tawa.analysis.statements import enclosing, name_of
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, shape_of
from tawa.ir.walk import decisive, walk
from tawa.layouts.fragments import share_out
from tawa.plan.plan import Plan
from tawa.plan.problem import Problem
from tawa.plan.resources import (
    LEAST_SLACK,
    carried_need,
    producer_need,
    register_need,
    split_registers,
)
from tawa.plan.rings import tiles_of
from tawa.plan.time import trip_cycles

FEW = 144
"""Registers a thread of a kernel that the memory bounds, by the model, which counts high: of 128
threads with these a multiprocessor has four blocks. With more warps than need be they wait for one
another, with fewer threads too little is on its way.
"""
ELEMENTS = 32
"""Elements of a tile that a thread of such a kernel has at most."""
_PINGPONG = "arrangement='pingpong'"


def choose_consumers(problem: Problem) -> list[tuple[int, int]]:
    """Return the numbers of consumer warpgroups that fit, each with the registers a thread needs.

    A product of M rows is shared by warpgroups of 64 rows each time. In order of preference: more
    than one warpgroup lets one issue while the other waits, three are for rows that two cannot
    share. Where no such number has the registers, warpgroups share columns too: rows of a product
    meet in shared memory then, which costs less than registers that are spilled there.
    """
    rows = problem.rows
    choices = [n for n in (3, 2, 1) if all(m % (64 * n) == 0 for m in rows)] or [1]
    if not rows:
        choices = [1, 2]
    elif 2 in choices and 3 in choices and all(m // 64 % 2 == 0 for m in rows):
        choices = [2, 3, 1]
    elif problem.hints.get("num_warps", 0) >= 8 and all(map(_shared_evenly, problem.dots)):
        choices = [2] if problem.pins.consumers is None else [2, 1]
    if problem.pins.split == "columns":
        choices = _by_columns(problem)
    if problem.pins.arrangement == "pingpong":
        if computes_apart(problem):
            return _apart(problem)
        choices = _sharing(problem, choices)
    pinned = problem.pins.consumers
    if pinned is not None:
        _check_consumers(pinned, choices, rows)
        choices = [pinned]
    needs, budgets = _registers(problem, choices)
    if fitting := [(n, needs[n]) for n in choices if needs[n] <= budgets[n]]:
        return fitting
    free = pinned is None and problem.pins.split is None
    if free and (wider := _side_by_side(problem, max(choices))):
        more, room = _registers(problem, wider)
        if fitting := [(n, more[n]) for n in wider if more[n] <= room[n]]:
            return fitting
        needs, budgets, choices = needs | more, budgets | room, [*choices, *wider]
    best = min(choices, key=lambda n: needs[n] / budgets[n])
    held, listed = carried_need(problem.kernel, 4 * best, problem.kept)
    if held + LEAST_SLACK > budgets[best]:
        raise OverBudget(
            f"the consumer needs more than {held} registers a thread",
            why=f"{best} warpgroups have {budgets[best]} each; held through the loop: "
            + ", ".join(listed),
            remedy="use smaller block sizes",
        )
    # None has what it needs by a count that holds the addresses of stores all at once: for them a
    # producer whose threads copy is not starved.
    loads = problem.partition.loads
    indices = not producer_need(loads)
    return [(best, register_need(problem.kernel, 4 * best, loads, indices))]


def _shared_evenly(dot: tile.Dot) -> bool:
    """Tell whether threads of two warpgroups make a product by multiply-adds as well as one's: each
    has a square of whole vectors still. One warp does not feed a scheduler: of the multiply-adds of
    an H100 four warps did 0.45 and eight 0.75.
    """
    vector = 128 // bit_width(element_type(dot.result.type))
    return by_multiply_adds(dot) and prod(shape_of(dot.result.type)) >= 256 * vector**2


def _registers(problem: Problem, choices: list[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return what a thread needs, and what it gets, for each number of consumer warpgroups."""
    loads = problem.partition.loads
    needs = {n: register_need(problem.kernel, 4 * n, loads) for n in choices}
    copying, transposed = producer_need(loads), bool(problem.transposed)
    budgets = {
        n: split_registers(n, needs[n], problem.target, copying, transposer=transposed).consumer
        for n in choices
    }
    return needs, budgets


def _side_by_side(problem: Problem, most: int) -> list[int]:
    """Return the numbers of warpgroups above `most` that can share each product of the kernel, by
    runs of columns where its rows are too few: wgmma takes multiples of 64 rows and 8 columns.
    """
    shapes = [shape_of(dot.result.type) for dot in problem.dots]
    across = {n: [share_out(rows, 4 * n)[1] for *_, rows, _ in shapes] for n in (2, 3)}
    return [
        n
        for n, parts in across.items()
        if n > most
        and all(
            rows % 64 == 0 and columns % (8 * part) == 0
            for (*_, rows, columns), part in zip(shapes, parts)
        )
    ]


def _by_columns(problem: Problem) -> list[int]:
    """Return the numbers of warpgroups that can share each product by columns alone, or the pin."""
    across = [shape_of(dot.result.type)[-1] for dot in problem.dots]
    pinned = problem.pins.consumers
    choices = [
        n
        for n in ((2, 3) if pinned is None else (pinned,))
        if across
        and all(rows % 64 == 0 for rows in problem.rows)
        and all(columns % (8 * n) == 0 for columns in across)
    ]
    if not choices or computes_apart(problem):
        raise PlanError(
            "split='columns'",
            why="warpgroups that share columns have all rows, a multiple of 64, and a multiple of "
            f"8 columns each; consumers={pinned}, arrangement={problem.pins.arrangement!r}, the "
            f"products have {problem.rows} rows and {across} columns",
            remedy="change the block size, or the pins",
        )
    return choices


def share_columns(problem: Problem, consumers: int) -> bool:
    """Tell whether so many warpgroups have too few rows of a product for each of them."""
    return any(share_out(rows, 4 * consumers)[1] > 1 for rows in problem.rows)


def _sharing(problem: Problem, choices: list[int]) -> list[int]:
    """Return the numbers of warpgroups that can take turns on a tile they share."""
    check_turns(problem, "pingpong")
    if problem.pins.consumers is None and max(choices) == 1:
        raise PlanError(
            _PINGPONG,
            why=f"turns need two warpgroups of 64 rows each; the products have {problem.rows} rows",
            remedy="use a block of 128 rows, or leave arrangement out",
        )
    return [n for n in choices if n > 1]


def computes_apart(problem: Problem) -> bool:
    """Tell whether consumers that take turns compute tiles of their own.

    They do where warpgroups on a shared tile would gain nothing: no other work stands between the
    products of its loops.
    """
    if problem.pins.arrangement != "pingpong" or not _loops_of_products(problem):
        return False
    return not any(takes_turns(loop) for loop in problem.loops)


def _apart(problem: Problem) -> list[tuple[int, int]]:
    """Return how many consumers of one warpgroup each, and the registers a thread needs."""
    count = problem.pins.consumers or 2
    if count not in (2, 3) or any(rows % 64 for rows in problem.rows):
        raise PlanError(
            _PINGPONG,
            why=f"two or three warpgroups compute tiles of their own, of a multiple of 64 rows "
            f"each; consumers={count}, and the products have {problem.rows} rows",
            remedy="change the block size, or the pin",
        )
    loads = problem.partition.loads
    needed = register_need(problem.kernel, 4, loads)
    budget = split_registers(
        count, needed, problem.target, producer_need(loads), transposer=bool(problem.transposed)
    ).consumer
    held, listed = carried_need(problem.kernel, 4, problem.kept)
    if held + LEAST_SLACK > budget:
        raise OverBudget(
            f"a consumer needs more than {held} registers a thread",
            why=f"{count} consumers have {budget} each; held through the loop by one warpgroup: "
            + ", ".join(listed),
            remedy="use smaller block sizes",
        )
    return [(count, needed)]


def check_apart(problem: Problem, plan: Plan) -> None:
    """Raise PlanError where instances of a role could not find the slots of their own tiles."""
    if all(role.instances == 1 for role in plan.roles):
        return
    why = ""
    if not plan.persistent:
        why = "consumers take tiles in turn, and a plan that is not persistent has one a block"
    ids = [op.result for op in walk(problem.kernel) if isinstance(op, tile.ProgramId)]
    memory = (tile.Load, tile.DescLoad, tile.Atomic, tile.CompareExchange)
    read = [v for op in walk(problem.kernel) if isinstance(op, memory) for v in op.results]
    varying = influenced([*ids, *read])
    for payload in problem.partition.payloads:
        for control in enclosing(payload.loads[0]):
            fixed = isinstance(control, scf.ForOp) and not any(
                bound in varying for bound in decisive(control)
            )
            if not fixed:
                loads = "+".join(payload.names)
                why = why or (
                    f"{name_of(control)} may load {loads} another number of times in another tile, "
                    "so a consumer cannot tell how many slots belong to the others"
                )
    if why:
        raise PlanError(_PINGPONG, why=why, remedy="leave arrangement out")


def _check_consumers(pinned: int, choices: list[int], rows: list[int]) -> None:
    if pinned in choices:
        return
    raise PlanError(
        f"consumers={pinned}",
        why=f"a warpgroup takes a multiple of 64 rows of a product; the products have {rows} rows, "
        f"so {sorted(choices)} warpgroups can share them",
        remedy="change the block size, or the pin",
    )


def check_turns(problem: Problem, arrangement: str | None, consumers: int | None = None) -> None:
    """Raise PlanError where the warpgroups of a tile would gain nothing by taking turns."""
    if arrangement != "pingpong":
        return
    if 1 in (consumers, problem.pins.consumers):
        raise PlanError(
            _PINGPONG,
            why="one consumer warpgroup has nobody to take turns with",
            remedy="leave consumers out, or arrangement",
        )
    if any(takes_turns(loop) for loop in problem.loops):
        return
    why = "the kernel has no loop of products"
    if bare := _loops_of_products(problem):
        why = (
            f"the products of {', '.join(bare)} follow one another with no other work in between, "
            "so warpgroups that share a tile have nothing to do while another issues"
        )
    raise PlanError(_PINGPONG, why=why, remedy="leave arrangement out")


def _loops_of_products(problem: Problem) -> list[str]:
    return [name_of(loop) for loop in problem.loops if iteration(loop.body.block) is not None]


def ordinary_warps(problem: Problem) -> int:
    """Return the warps of an ordinary kernel: as hinted (num_warps), or as its tensors need.

    A hint for fewer warps than products need is not met: the others would compile badly.
    """
    hint = problem.hints.get("num_warps")
    if hint in (1, 2, 4, 8, 16, 32) and not problem.dots:
        return hint
    warps = hint if hint in (4, 8, 16) else 4
    while warps < 16 and _needs_more(problem, warps):
        warps *= 2
    return warps


def _needs_more(problem: Problem, warps: int) -> bool:
    """Tell whether `warps` warps of an ordinary kernel are too few for its tensors."""
    loads = [op for op in problem.statements.values() if isinstance(op, tile.DescLoad)]
    if problem.dots:
        return register_need(problem.kernel, warps, loads) > 240
    values = (value.type for op in walk(problem.kernel) for value in op.results)
    most = max((prod(shape_of(kind)) for kind in values), default=1)
    return most > ELEMENTS * 32 * warps or register_need(problem.kernel, warps, loads, False) > FEW


# --- turns at the tensor cores --------------------------------------------------------------------


BARRIERS = 100
"""Cycles of a turn's two named barriers, with what is issued between them."""
ENOUGH = 0.9
"""The share of the time that must be left, for the model to be trusted."""


def gains_by_turns(problem: Problem, plan: Plan) -> bool:
    """Tell whether the consumers of a cooperative plan should take turns, by the model of time."""
    groups = max((role.warps // 4 for role in plan.consumers), default=1)
    apart = any(role.instances > 1 for role in plan.roles)
    if problem.pins.arrangement is not None or groups == 1 or apart:
        return False
    loops = problem.loops
    loops = [loop for loop in loops if takes_turns(loop) is not None]
    tiles = tiles_of(problem.partition)
    if not loops or any(_meet_anyway(loop, tiles, groups) for loop in loops):
        return False
    return all(_share_left(loop, groups) <= ENOUGH for loop in loops)


def _share_left(loop: scf.ForOp, groups: int) -> float:
    """Return the time of an iteration in turns over that without: one warp a scheduler issues at
    half of the rate of two.
    """
    products, work, loads = trip_cycles(loop.body.block)
    together = max(products + work, loads)
    return max(products, loads, (products + 2 * work) / groups + BARRIERS) / together


def _meet_anyway(loop: scf.ForOp, tiles: Collection[SSAValue], groups: int) -> bool:
    """Tell whether all warpgroups exchange tiles in every iteration: operands that are computed,
    tiles they load for themselves, sums over rows, and rows of which each has some columns.
    """
    for operation in walk(loop):
        match operation:
            case tile.Dot() if operation.b not in tiles:
                return True
            case tile.Dot() if share_out(shape_of(operation.result.type)[-2], 4 * groups)[1] > 1:
                return True
            case tile.Reduce() | tile.Scan() if operation.axis.data == 0:
                if len(shape_of(operation.operands[0].type)) > 1:
                    return True
            case tile.Load() | tile.DescLoad():
                shape = shape_of(operation.result.type)
                if len(shape) > 1 and operation.result not in tiles:
                    return True
            case _:
                continue
    return False
