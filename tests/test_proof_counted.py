"""Loops that count by while: proved for the trips at which their rings turn, as for loops are."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf

import tawa.language as tl
from frontend_kernels import of
from mutants import drops
from tawa.errors import ProtocolError, UnprovedProtocol
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg
from tawa.ir import hopper
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.simulator.proof import prove
from tawa.target import H200


def up_to(a_desc, b_desc, c_desc, K, B: tl.constexpr):
    acc = tl.zeros((B, B), tl.float32)
    k = 0
    while k < K:
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
        k += B
    c_desc.store([0, 0], acc)


def up_to_and_with(a_desc, b_desc, c_desc, K, B: tl.constexpr):
    acc = tl.zeros((B, B), tl.float32)
    k = B
    while K >= k:  # noqa: SIM300 (the comparison the other way round)
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
        k = B + k
    c_desc.store([0, 0], acc)


def signature():
    block = (64, 64)
    return of(
        a_desc=DescriptorArg("f16", block),
        b_desc=DescriptorArg("f16", block),
        c_desc=DescriptorArg("f32", block),
        K="i32/16",
        B=64,
    )


def lowered(function):
    kernel = build(function, signature(), {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200)[0]
    assert plan.specialized
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    assert any(isinstance(op, scf.WhileOp) for op in kernel.walk())
    return kernel


@pytest.mark.parametrize("function", [up_to, up_to_and_with])
def test_a_counted_loop_is_proved(function):
    assert prove(lowered(function), H200).ok


def test_a_slot_that_is_not_released_is_found():
    """It takes more trips than the ring has slots."""
    kernel = lowered(up_to)
    release = [op for op in kernel.walk() if isinstance(op, hopper.Arrive)][-1]
    release.detach()
    release.erase()
    with pytest.raises(ProtocolError) as caught:
        prove(kernel, H200)
    assert not isinstance(caught.value, UnprovedProtocol)


def part(a_desc, b_desc, c_desc, K, B: tl.constexpr, TRIPS: tl.constexpr):
    """A program's part of a longer sum: at most so many trips, whatever K is."""
    first = tl.program_id(0) * TRIPS * B
    acc = tl.zeros((B, B), tl.float32)
    for k in range(first, min(first + TRIPS * B, K), B):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    c_desc.store([tl.program_id(0) * B, 0], acc)


@pytest.mark.parametrize("trips", [1, 2, 7])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_of_few_trips_is_run_to_its_last(trips, persistent):
    """Its ring has more slots than it makes trips, and need not turn."""
    kernel = build(part, signature() | of(TRIPS=trips), {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = rank_plans(kernel, H200, Pins(depth=4, persistent=persistent))[0]
    assert plan.specialized
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    assert prove(kernel, H200).ok
    releases = [op for op in kernel.walk() if isinstance(op, hopper.Arrive)]
    for mutant in drops(kernel):
        needed = isinstance(mutant.operation, (hopper.Expect, hopper.InitBarriers))
        # Over several tiles the ring turns; a loop of one trip releases after it alone.
        needed |= persistent and trips > 1 and mutant.operation in releases[1:]
        if needed:
            with pytest.raises(ProtocolError) as caught:
                prove(mutant.make(), H200)
            assert not isinstance(caught.value, UnprovedProtocol)
