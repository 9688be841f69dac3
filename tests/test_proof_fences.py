"""The fence of wgmma stands on every path: a rule of the text, that no choice of inputs escapes."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, StringAttr, i1
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import InsertPoint, Rewriter

from mutants import mutants
from proof_kernels import KERNELS
from tawa.errors import ProtocolError
from tawa.ir import hopper, tile
from tawa.ir.types import i32
from tawa.simulator.proof import prove
from tawa.target import H200


def refusal(kernel: tile.Kernel) -> str:
    with pytest.raises(ProtocolError) as caught:
        prove(kernel, H200)
    return str(caught.value)


def sample() -> tuple[tile.Kernel, hopper.WgmmaFence]:
    kernel = KERNELS["sample gemm"]()
    return kernel, next(op for op in kernel.walk() if isinstance(op, hopper.WgmmaFence))


def branch(before: Operation, *sides: Operation) -> None:
    """Put a condition before an operation of a loop, with these sides: true in its second trip."""
    loop = before.parent_op()
    assert isinstance(loop, scf.ForOp)
    second = tile.Constant(attributes={"value": IntAttr(64)}, result_types=[i32])
    condition = tile.Elementwise(
        operands=[[loop.body.block.args[0], second.result]],
        attributes={"function": StringAttr("eq")},
        result_types=[i1],
    )
    regions = [Region([Block([side, scf.YieldOp()])]) for side in sides]
    made = scf.IfOp(condition.result, [], *regions)
    for operation in (second, condition, made):
        Rewriter.insert_op(operation, InsertPoint.before(before))


def test_a_fence_on_one_side_of_a_condition_is_none() -> None:
    kernel, fence = sample()
    branch(fence, hopper.WgmmaFence())
    Rewriter.erase_op(fence)
    text = refusal(kernel)
    assert 'rule "wgmma fence"' in text
    assert "before any role runs" in text


def test_fences_on_both_sides_are_one() -> None:
    kernel, fence = sample()
    branch(fence, hopper.WgmmaFence(), hopper.WgmmaFence())
    Rewriter.erase_op(fence)
    assert prove(kernel, H200).ok


def test_a_role_starts_with_no_fence() -> None:
    """A fence at the end of a trip covers the next one only."""
    kernel, fence = sample()
    fence.detach()
    loop = next(op for op in kernel.walk() if isinstance(op, hopper.Wgmma)).parent_op()
    assert isinstance(loop, scf.ForOp)
    end = loop.body.block.last_op
    assert end is not None
    Rewriter.insert_op(fence, InsertPoint.before(end))
    assert 'rule "wgmma fence"' in refusal(kernel)


def test_an_access_at_the_end_of_a_trip_is_one_before_the_next() -> None:
    """The first trip is fenced before the loop; a later one is not, after a read of the sum."""
    kernel = KERNELS["flash 128 causal split"]()
    fences = [op for op in kernel.walk() if isinstance(op, hopper.WgmmaFence)]
    inside = next(op for op in fences if isinstance(op.parent_op(), scf.ForOp))
    loop = inside.parent_op()
    assert loop is not None
    inside.detach()
    Rewriter.insert_op(inside, InsertPoint.before(loop))
    assert 'rule "wgmma fence"' in refusal(kernel)


@pytest.mark.parametrize(
    "name",
    [
        "flash 128 causal split",
        "flash 128 causal split in turns",
        "flash 64 causal split coarse",
        "flash 64 causal split fine",
    ],
)
def test_fences_of_the_second_loop_of_attention(name: str) -> None:
    """What only a first tile shows that makes no trip of its first loop and some of the second:
    the proof need not have a run with such a tile.
    """
    kernel = KERNELS[name]()
    broken = [
        mutant
        for mutant in mutants(kernel)
        if mutant.kind in ("drop", "swap") and isinstance(mutant.operation, hopper.WgmmaFence)
    ]
    assert sum(not mutant.harmless for mutant in broken) >= 8
    for mutant in broken:
        if mutant.harmless:
            assert prove(mutant.make(), H200).ok
        else:
            assert 'rule "wgmma fence"' in refusal(mutant.make())
