"""Conditions under which registers are computed, and nothing else is done: masks of the last tile.

    scores = scf.if %masked { where(mask, %scores, -inf) } else { %scores }

What such a condition is asked decides nothing of synchronization. So it is no choice: wherever one
is met, both sides are looked at, each from what was before, in every run. What it results in has
the registers of a tensor that stands outside, where a side passes one on: products and waits may
find it there, and all that is right then is right for a tensor that the other side computes anew.
This one is taken to be in the same registers from then on, so that a product that reads them is
seen when it is computed again. Where both sides pass on tensors, and not the same, the condition is
a choice.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.registers import renames
from tawa.ir import hopper, tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import carries_scalar
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.machine import Script
from tawa.simulator.proof.moves import moves
from tawa.simulator.proof.steps import Step


def is_quiet(branch: Operation, decoder: Decoder) -> bool:
    """Tell whether only registers are computed on either side of a condition."""
    if not isinstance(branch, scf.IfOp):
        return False
    blocks = [region.block for region in branch.regions if region.blocks]
    for block in blocks:
        for inner in decoder.census.inside(block):
            if isinstance(inner, scf.IfOp):
                if not is_quiet(inner, decoder):
                    return False
            elif type(inner) in decoder.rules:
                return False
    return _passed_on(branch, blocks) is not None


def quiet_steps(decoder: Decoder, branch: scf.IfOp) -> list[Step]:
    """Return the steps of both sides of a quiet condition, and what passes on its results."""
    blocks = [region.block for region in branch.regions if region.blocks]
    steps = [step for block in blocks for step in decoder.block(block)]
    passed = _passed_on(branch, blocks)
    assert passed is not None, "asked of quiet conditions alone"
    end = moves(decoder, tuple(passed), tuple(passed.values()))
    if end is not None:
        move = end

        def run(script: Script) -> None:
            move(script.env)

        steps.append(Step(run))
    return steps


def _passed_on(branch: scf.IfOp, blocks: list[Block]) -> dict[SSAValue, SSAValue] | None:
    """Return what the results of a condition are taken to be, and what sides compute for them; None
    where one of them may be either of two tensors that stand outside, or decides something.
    """
    found: dict[SSAValue, SSAValue] = {}
    for result, *ends in zip(branch.results, *(terminator(block).operands for block in blocks)):
        if not isinstance(result.type, TensorType) or carries_scalar(result):
            return None
        new = [end for end, block in zip(ends, blocks, strict=True) if _is_new(end, block)]
        outside = [end for end in ends if end not in new]
        if len(dict.fromkeys(outside)) > 1:
            return None
        computed = [end for end in new if not isinstance(end.owner, tile.Constant)]
        passed = [*outside, *computed, *ends][0]
        found |= dict.fromkeys([result, *(each for each in computed if each is not passed)], passed)
    return found


def _is_new(value: SSAValue, block: Block) -> bool:
    """Tell whether threads fill registers with a tensor in a block."""
    owner = value.owner
    if isinstance(owner, tile.Constant):
        return True
    if not isinstance(owner, Operation) or owner.parent is not block:
        return False
    return not (renames(owner) or isinstance(owner, (hopper.Pin, hopper.Uninitialized, scf.IfOp)))
