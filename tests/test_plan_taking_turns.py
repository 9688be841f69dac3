"""Consumers that share a tile take turns where the model of time says that they gain."""

import pytest
from xdsl.dialects import scf

import tawa
import tawa.language as tl
from lower_kernels import CASES
from tawa.frontend import build
from tawa.passes import pipeline
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
from tawa.plan.time import trip_cycles
from tawa.target import H200


def plans(name, **pins):
    case = CASES[name]
    kernel = build(case.function, case.signature, case.options)
    notes = pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    return rank_plans(kernel, H200, Pins(**pins), notes)


def test_attention_takes_turns_unless_it_is_pinned():
    first, second, *_ = plans("attention")
    assert (first.arrangement, second.arrangement) == ("pingpong", "cooperative")
    assert first.roles == second.roles
    assert plans("attention", arrangement="cooperative")[0].arrangement == "cooperative"
    assert plans("attention", consumers=1)[0].arrangement == "cooperative"


@pytest.mark.parametrize("name", ["matmul 128x256", "computed operands", "no loop"])
def test_nothing_to_gain_by_turns(name):
    """Bare products; operands all warpgroups exchange in each iteration; no loop."""
    assert plans(name)[0].arrangement == "cooperative"


@tawa.jit
def scaled(A, B, C, s_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        s = tl.load(s_ptr + k // BK)
        acc += tl.dot(A.load([0, k]), B.load([k, 0])) * s
    C.store([0, 0], acc)


@pytest.mark.parametrize(
    ("columns", "depth", "turns"),
    [(128, 64, "pingpong"), (64, 512, "cooperative"), (64, 64, "cooperative")],
)
def test_turns_where_work_stands_beside_products(columns, depth, turns):
    """By the model an iteration is 512 cycles of products and 256 of work, 2048 and 128; in the
    last it is the loads that set the pace.
    """
    shapes = ((128, depth), (depth, columns), (128, columns))
    kinds = ("f16", "f16", "f32")
    descs = [
        tawa.TensorDescriptor.from_tensor(tawa.array(shape, kind), [*shape])
        for shape, kind in zip(shapes, kinds)
    ]
    kernel = scaled.compile(
        *descs, tawa.array((8,), "f32"), depth, grid=(1,), BM=128, BN=columns, BK=depth
    )
    assert kernel.plan.arrangement == turns


def test_the_cycles_of_a_trip():
    case = CASES["matmul 128x256"]
    kernel = build(case.function, case.signature, case.options)
    (loop,) = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    products, work, loads = trip_cycles(loop.body.block)
    assert (products, work) == (128 * 256 * 64 / 2048, 0)
    assert loads == (128 + 256) * 64 * 2 / 64
