"""Which loaded tiles a role of its own transposes, and how payloads part for that.

A tile that is transposed has two rings, one as loaded and one transposed; what the consumers read
as it was loaded stays in a payload of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from xdsl.ir import Operation

from tawa.analysis.roles import Partition, Payload
from tawa.analysis.statements import name_of
from tawa.analysis.transposed import TRANSPOSERS, Transposed, transposed
from tawa.errors import PlanError
from tawa.plan.plan import Declined, Plan
from tawa.plan.problem import Problem

ROLE = "transpose"
"""The label of the role."""


def find_transposed(problem: Problem) -> tuple[Problem, list[Declined]]:
    """Return the problem with the loads that are transposed, and why others are not."""
    found: dict[Operation, Transposed] = {}
    declined: list[Declined] = []
    for payload in problem.partition.payloads:
        for load in payload.loads:
            match transposed(load):
                case Transposed() as how:
                    found[load] = how
                case "":
                    pass
                case reason:
                    declined.append(Declined(f"transposing {name_of(load)} on the way", reason))
    parted = replace(problem.partition, payloads=tuple(_part(problem.partition, found)))
    return replace(problem, partition=parted, transposed=found), declined


def _part(partition: Partition, found: Mapping[Operation, Transposed]) -> Iterator[Payload]:
    """Give the loads of a payload that go different ways payloads of their own."""
    for payload in partition.payloads:
        ways: dict[tuple[bool, bool], list[Operation]] = {}
        for load in payload.loads:
            how = found.get(load)
            way = (how is not None, how is not None and how.interleaved)
            ways.setdefault(way, []).append(load)
        yield from (Payload(tuple(loads)) for loads in ways.values())


def notes(problem: Problem) -> Iterator[Declined]:
    """Yield a line for each tile that is transposed instead of being read in place."""
    for load, how in problem.transposed.items():
        order = ", its rows in the order of register fragments" if how.interleaved else ""
        yield Declined(
            f"{name_of(load)} in place",
            f"wgmma takes 8-bit operands with K contiguous only; {TRANSPOSERS} warps transpose it "
            f"in shared memory{order}",
        )


def check_transposed(problem: Problem, plan: Plan) -> None:
    """Raise PlanError where a plan's transposed rings, or its role for them, do not fit."""
    rings = [ring for ring in plan.arefs if ring.via == ROLE]
    roles = [role for role in plan.roles if role.label == ROLE]
    if not rings and not roles:
        return
    who = roles or list(plan.roles[:1])
    if len(who) != 1 or who[0].warps != TRANSPOSERS or who[0].instances != 1 or not rings:
        raise PlanError(
            f"the plan has {len(rings)} rings via={ROLE} and {len(roles)} roles {ROLE}",
            why=f"one role of {TRANSPOSERS} warps takes the tiles of all such rings, {ROLE} or the "
            "one that loads",
            remedy=f"write role {ROLE} warps={TRANSPOSERS} registers=32 after the role that loads",
        )
    if roles and plan.roles[1] is not roles[0]:
        raise PlanError(f"role {ROLE} stands elsewhere than second", why="it follows the producer")
    sources = {(ring.payload, ring.also) for ring in plan.arefs if ring.via != ROLE}
    for ring in rings:
        if (ring.payload, ring.also) not in sources:
            raise PlanError(
                f"ring {ring.label} via={ROLE}",
                why="no ring of the same payload loads its tiles",
                remedy=f"write a second line aref {ring.label} for the ring that loads them",
            )
        for name in (name for names in (ring.payload, *ring.also) for name in names):
            how = transposed(problem.statements[name])
            if isinstance(how, str):
                why = how or "wgmma reads it as it lies"
                raise PlanError(f"the plan transposes {name}", why=why)
            if ring.interleaved and not how.interleaved:
                raise PlanError(
                    f"the plan interleaves {name}",
                    why="the other operand of its product is not computed in registers",
                )
