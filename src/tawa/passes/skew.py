"""Producers fill slots in the order in which a pipelined consumer empties them.

Before -> after, for a consumer whose trip j takes K of j and V of j - 1 (`passes.coarse`)::

    scf.for .. {                       K of the first trip
      put K of j                       scf.for .. {
      put V of j             ->          put K of j
    }                                    put V of j - 1
                                       }
                                       V of the last trip

In the order of the text K of the next trip waits behind V, whose slot is freed late: the products
of that trip would begin with the latency of a load. (H200, attention at head dim 256, where two
slots of each fit: +1 to 4 percent.) Rings of more slots than that have one to load into meanwhile;
those that several loops turn keep the order of the text, which is proved faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, OpResult, SSAValue

from tawa.analysis.effects import is_pure
from tawa.analysis.naming import name_of
from tawa.analysis.stages import Stages, statements
from tawa.ir import aref, tile
from tawa.ir.walk import all_of
from tawa.passes.parting import part_stages
from tawa.passes.software_pipeline import Schedule, pipeline_loop

_FEW_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Taken:
    """The stage in which a pipelined loop takes the tiles of each ring."""

    loop: str
    stages: Mapping[SSAValue, int]


def skew_puts(roles: Sequence[aref.Role], taken: Sequence[Taken]) -> None:
    """Pipeline the loops that fill rings for a pipelined loop, if that is all they do."""
    turned = Counter(ring for each in taken for ring in each.stages)
    for each in taken:
        if all(turned[ring] == 1 and _depth(ring) <= _FEW_SLOTS for ring in each.stages):
            for role in roles:
                _skew(role, each)


def _depth(ring: SSAValue) -> int:
    assert isinstance(ring.owner, aref.Create), "a ring is created before the roles"
    return ring.owner.depth.data


def _skew(role: aref.Role, taken: Taken) -> None:
    for loop in all_of(role, scf.ForOp):
        if name_of(loop) != taken.loop:
            continue
        stage = _stages(loop, taken.stages)
        if stage is None or len(set(stage.values())) < 2:
            continue
        part_stages(loop, Stages(stage, {}, frozenset(op for op in stage if is_pure(op))))
        parted = _stages(loop, taken.stages)
        assert parted is not None, "copies of pure statements"
        order = sorted(parted, key=parted.__getitem__)  # stable: the program's order in a stage
        pipeline_loop(loop, Schedule(tuple(order), parted))


def _stages(loop: scf.ForOp, taken: Mapping[SSAValue, int]) -> dict[Operation, int] | None:
    """Return the stage of each statement, None where some are no puts of rings that are taken."""
    if len(loop.body.block.args) > 1:
        return None
    found: dict[Operation, int] = {}
    ops = statements(loop.body.block)
    for operation in ops:
        match operation:
            case aref.PutEnter() if operation.aref in taken:
                found[operation] = taken[operation.aref]
            case aref.PutExit(slot=OpResult(owner=owner)) if owner in found:
                found[operation] = found[owner]
            case tile.DescLoad():
                pass
            case _ if is_pure(operation) and not operation.regions:
                pass
            case _:
                return None
    for operation in reversed(ops):
        if operation in found:
            continue
        users = [use.operation for value in operation.results for use in value.uses]
        at = [found.get(user) for user in users]
        if not at or None in at:
            return None
        found[operation] = min(stage for stage in at if stage is not None)
    return {operation: found[operation] for operation in ops}
