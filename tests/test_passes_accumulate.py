"""A product whose result is only added accumulates in place."""

import pytest

import tawa.language as tl
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import tile
from tawa.passes.reassociate import accumulate
from tawa.plan.plan import Plan
from tawa.target import H200


def added(a_desc, b_desc, c_desc, K, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc += tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]))
    c_desc.store([0, 0], acc)


def added_to(a_desc, b_desc, c_desc, K, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0])) + acc
    c_desc.store([0, 0], acc)


def used_twice(a_desc, b_desc, c_desc, K, BLOCK: tl.constexpr):
    product = tl.dot(a_desc.load([0, K]), b_desc.load([K, 0]))
    c_desc.store([0, 0], product + tl.exp2(product))


def doubled(a_desc, b_desc, c_desc, K, BLOCK: tl.constexpr):
    product = tl.dot(a_desc.load([0, K]), b_desc.load([K, 0]))
    c_desc.store([0, 0], product + product)


def compile_tile(function):
    signature = {
        "a_desc": DescriptorArg("bf16", (64, 64)),
        "b_desc": DescriptorArg("bf16", (64, 64)),
        "c_desc": DescriptorArg("f32", (64, 64)),
        "K": ScalarArg("i32"),
        "BLOCK": ConstantArg(64),
    }
    return build(function, signature, {})


def additions(kernel: tile.Kernel) -> int:
    return sum(
        isinstance(op, tile.Elementwise)
        and op.function.data == "add"
        and "tensor" in str(op.result.type)
        for op in kernel.walk()
    )


@pytest.mark.parametrize("function", [added, added_to])
def test_the_addition_goes(function) -> None:
    kernel = compile_tile(function)
    assert additions(kernel) == 1
    accumulate(kernel, Plan(), H200)
    assert additions(kernel) == 0
    (dot,) = (op for op in kernel.walk() if isinstance(op, tile.Dot))
    assert dot.acc.name_hint == "acc"


@pytest.mark.parametrize("function", [used_twice, doubled])
def test_another_use_keeps_it(function) -> None:
    kernel = compile_tile(function)
    before = str(kernel)
    accumulate(kernel, Plan(), H200)
    assert str(kernel) == before
