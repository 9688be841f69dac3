"""Exponentials by multiply-adds: as exact as the special function unit's; who shares them."""

import re

import numpy as np
import pytest

from codegen_emulator import emulate, needs_compiler
from lower_kernels import CASES, fresh, tile_kernel
from tawa.codegen import generate
from tawa.codegen.wrappers import arithmetic
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.simulator import simulate
from tawa.target import H200

F = np.float32


def exp2_fma(x: np.ndarray) -> np.ndarray:
    """The wrapper's body, read from its text and executed in fp32."""
    body = arithmetic.EXP2_FMA.body
    low, high = (
        np.frombuffer(bytes.fromhex(c)[::-1], F)[0] for c in re.findall(r"0f(\w{8})", body)
    )
    magic = F(re.search(r"y \+ ([\d.]+)f", body)[1])
    factors = [F(c) for c in re.findall(r"([\d.]+)f\);", body)[1:]]
    first = F(re.search(r"float p = ([\d.]+)f", body)[1])
    y = np.minimum(np.maximum(x, low), high)
    n = y + magic
    f = y - (n - magic)
    p = np.full_like(f, first)
    for factor in factors:
        p = F(np.float64(p) * f + factor)
    return p * (n.view(np.uint32) << np.uint32(23)).view(F)


def test_the_polynomial_is_as_exact_as_the_instruction() -> None:
    rng = np.random.default_rng(0)
    x = F(np.concatenate([rng.uniform(-125, 128, 200_000), rng.uniform(-12, 9, 200_000)]))
    with np.errstate(all="ignore"):
        assert np.max(np.abs(exp2_fma(x) / np.exp2(x.astype(np.float64)) - 1)) < 2.0**-22


def test_the_ends_come_out() -> None:
    x = F([0, 1, -1, 127, 128, 200, np.inf, -126.6, -200, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        got = exp2_fma(x)
    want = F([1, 2, 0.5, 2.0**127, np.inf, np.inf, np.inf, 0, 0, 0, np.nan])
    assert np.array_equal(got, want, equal_nan=True)


def lower(every: int) -> tuple[tile.Kernel, Plan]:
    case = CASES["attention"]
    kernel = tile_kernel(case)
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    text = re.sub(r" fma_exp2=\d+", "", str(plan_for(kernel, H200)))
    text = text.replace("schedule=coarse", f"schedule=coarse fma_exp2={every}" if every else "")
    plan = plan_for(kernel, H200, Pins(plan=text))
    pipeline.run(pipeline.AREF, kernel, plan, H200)
    pipeline.run(pipeline.HOPPER, kernel, plan, H200)
    return kernel, plan


def test_a_plan_says_which_loops_share() -> None:
    kernel, plan = lower(4)
    assert [loop.fma_exp2 for loop in plan.loops] == [4]
    marked = [
        op for op in kernel.walk() if isinstance(op, tile.Elementwise) and op.fma_every is not None
    ]
    assert marked
    assert all(len(shape_of(op.result.type)) == 2 for op in marked)
    assert "r % 4 == 3 ? exp2_fma(" in generate(kernel).text


@needs_compiler
@pytest.mark.parametrize("every", [3, 4])
def test_shared_exponentials_on_the_host(every: int) -> None:
    case = CASES["attention"]
    kernel, _ = lower(every)
    expected, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    actual, arguments = fresh(case)
    emulate(kernel, arguments | actual, case.grid, blocks=2)
    want, got = (np.asarray(x["o_desc"], np.float64) for x in (expected, actual))
    assert np.allclose(want, got, rtol=2e-3, atol=1e-5)
