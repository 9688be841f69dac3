"""Who computes: how many warpgroups share a tile, from the products' rows and registers."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.analysis.naming import name_of
from tawa.analysis.turns import takes_turns, trip
from tawa.errors import OverBudget, PlanError
from tawa.ir import tile
from tawa.plan.problem import Problem
from tawa.plan.resources import carried_need, register_need, split_registers


def choose_consumers(problem: Problem) -> list[tuple[int, int]]:
    """Return the numbers of consumer warpgroups that fit, each with the registers a thread needs.

    A product of M rows is shared by warpgroups of 64 rows each time. In order of preference: more
    than one warpgroup lets one issue while the other waits, three are for rows that two cannot
    share.
    """
    rows = problem.rows
    choices = [n for n in (3, 2, 1) if all(m % (64 * n) == 0 for m in rows)] or [1]
    if not rows:
        choices = [1, 2]
    elif 2 in choices and 3 in choices and all(m // 64 % 2 == 0 for m in rows):
        choices = [2, 3, 1]
    check_turns(problem, problem.pins.arrangement)
    if problem.pins.arrangement == "pingpong" and problem.pins.consumers is None:
        if not any(n > 1 for n in choices):
            raise PlanError(
                "arrangement='pingpong'",
                why=f"turns need two warpgroups of 64 rows each; the products have {rows} rows",
                remedy="use a block of 128 rows, or leave arrangement out",
            )
        choices = [n for n in choices if n > 1]
    pinned = problem.pins.consumers
    if pinned is not None:
        _check_consumers(pinned, choices, rows)
        choices = [pinned]
    loads = [load for payload in problem.partition.payloads for load in payload.loads]
    needs = {n: register_need(problem.kernel, 4 * n, loads) for n in choices}
    budgets = {n: split_registers(n, needs[n], problem.target)[1] for n in choices}
    if fitting := [(n, needs[n]) for n in choices if needs[n] <= budgets[n]]:
        return fitting
    best = min(choices, key=lambda n: needs[n] / budgets[n])
    held, listed = carried_need(problem.kernel, 4 * best)
    if held + 24 > budgets[best]:
        raise OverBudget(
            f"the consumer needs more than {held} registers a thread",
            why=f"{best} warpgroups have {budgets[best]} each; held through the loop: "
            + ", ".join(listed),
            remedy="use smaller blocks",
        )
    return [(best, needs[best])]


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
    what = "arrangement='pingpong'"
    if 1 in (consumers, problem.pins.consumers):
        raise PlanError(
            what,
            why="one consumer warpgroup has nobody to take turns with",
            remedy="leave consumers out, or arrangement",
        )
    loops = [op for op in problem.statements.values() if isinstance(op, scf.ForOp)]
    if any(takes_turns(loop, _is_dot) for loop in loops):
        return
    bare = [name_of(loop) for loop in loops if trip(loop.body.block, _is_dot) is not None]
    why = "the kernel has no loop of products"
    if bare:
        why = (
            f"the products of {', '.join(bare)} follow one another with no other work in between, "
            "so warpgroups that share a tile have nothing to do while another issues; turns of "
            "warpgroups on tiles of their own, where one stores while another multiplies, are not "
            "built yet"
        )
    raise PlanError(what, why=why, remedy="leave arrangement out")


def _is_dot(operation: Operation) -> bool:
    return isinstance(operation, tile.Dot)


def ordinary_warps(problem: Problem) -> int:
    """Return the warps of an ordinary kernel: as wished, or as many as its products need."""
    wish = problem.wishes.get("num_warps", 4)
    warps = wish if wish in (1, 2, 4, 8, 16) else 4
    if not problem.dots:
        return warps
    loads = [op for op in problem.statements.values() if isinstance(op, tile.DescLoad)]
    warps = max(4, warps)
    while warps < 16 and register_need(problem.kernel, warps, loads) > 240:
        warps *= 2
    return warps
