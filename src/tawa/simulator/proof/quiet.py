"""Conditions under which registers are computed, and nothing else is done: masks of the last tile.

    scores = scf.if %masked { where(mask, %scores, -inf) } else { %scores }

What such a condition is asked decides nothing of synchronization. So it is no choice: wherever one
is met, both sides are looked at, each from what was before, in every run. What they read or pass on
of the registers of products is at rest there, surely: a wait beside the condition names it, and no
product is started between them. The result is taken to be in the registers of what is passed on,
and so is what the other side computes anew: whoever reads or owns them afterwards does so on either
side. Where both sides pass on tensors, and not the same, the condition is a choice.
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
from tawa.simulator.proof.steps import Step, silent

_OTHER = (hopper.Wgmma, scf.ForOp, scf.WhileOp)


def is_quiet(branch: Operation, decoder: Decoder) -> bool:
    """Tell whether only registers are computed on either side of a condition."""
    if not isinstance(branch, scf.IfOp):
        return False
    found = decoder.quiet.get(branch)
    if found is None:
        found = decoder.quiet[branch] = _is_quiet(branch, decoder)
    return found


def _is_quiet(branch: scf.IfOp, decoder: Decoder) -> bool:
    blocks = [region.block for region in branch.regions if region.blocks]
    for block in blocks:
        for inner in decoder.census.inside(block):
            if isinstance(inner, scf.IfOp):
                if not is_quiet(inner, decoder):
                    return False
            elif type(inner) in decoder.rules:
                return False
    passed = _passed_on(branch, blocks)
    return passed is not None and all(
        _is_at_rest(value, branch, decoder)
        for block in blocks
        for inner in decoder.census.inside(block)
        for value in inner.operands
        if value in decoder.tracked and not _stands_in(value, blocks)
    )


def _stands_in(value: SSAValue, blocks: list[Block]) -> bool:
    """Tell whether a value is computed under a condition."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while block is not None and block not in blocks:
        around = block.parent_op()
        block = around.parent if around is not None else None
    return block is not None


def _is_at_rest(value: SSAValue, branch: scf.IfOp, decoder: Decoder) -> bool:
    """Tell whether registers surely hold numbers, and no product has them, where a condition is
    met: threads computed them beside it, or a wait there has named them.
    """
    owner = value.owner
    while isinstance(owner, hopper.Pin) and owner.parent is branch.parent:
        value = owner.operands[list(owner.results).index(value)]  # pyright: ignore
        owner = value.owner
    if isinstance(owner, tile.Constant):
        return True
    beside = branch.parent
    if beside is None or not isinstance(owner, Operation) or owner.parent is not beside:
        return False
    if isinstance(owner, hopper.WgmmaWait):
        places = decoder.census.places
        between = range(places[owner], places[branch])
        return not any(places[each] in between for each in decoder.census.of(hopper.Wgmma))
    return _is_new(value, beside) and not isinstance(owner, _OTHER)


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

        steps.append(silent(run))
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
