"""Cheap statements that several stages use are made once in each of them."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.effects import VIEWS
from tawa.analysis.stages import Stages, statements
from tawa.ir import tile
from tawa.ir.types import shape_of

_REMADE = (tile.Constant, tile.Splat, tile.Arange, tile.ExpandDims, tile.Broadcast, *VIEWS)


def part_stages(loop: scf.ForOp, stages: Stages) -> None:
    """Make what is cheap and used in several stages once for each of them, not carry it along."""
    block = loop.body.block
    users_stage = dict(stages.of)
    for operation in reversed(statements(block)):
        cheap = operation in stages.free and (
            isinstance(operation, _REMADE) or not any(shape_of(v.type) for v in operation.results)
        )
        if not cheap:
            continue
        uses = [use for value in operation.results for use in value.uses]
        at: dict[int, set[Operation]] = {}
        for use in uses:
            user = block.find_ancestor_op_in_block(use.operation)
            if user is not None and user in users_stage:
                at.setdefault(users_stage[user], set()).add(user)
        for number in sorted(at)[1:]:
            copy = operation.clone()
            block.insert_op_before(copy, operation)
            users_stage[copy] = number
            for old, new in zip(operation.results, copy.results):
                _use_instead(old, new, at[number], block)


def _use_instead(old: SSAValue, new: SSAValue, users: set[Operation], block: Block) -> None:
    old.replace_uses_with_if(
        new, lambda use: block.find_ancestor_op_in_block(use.operation) in users
    )
