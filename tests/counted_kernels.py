"""Kernels whose loops count by while."""

from __future__ import annotations

from xdsl.dialects import scf

import tawa.language as tl
from frontend_kernels import of
from tawa.frontend import build
from tawa.frontend.signature import DescriptorArg
from tawa.passes import pipeline
from tawa.plan.plan import Plan
from tawa.plan.planner import rank_plans
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
