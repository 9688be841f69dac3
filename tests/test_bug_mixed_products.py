"""Products that share an accumulator and want it in different registers: each leaves its result
where its accumulator lay, and what others asked for is converted.

The multiply-adds of an "ieee" product began with an accumulator in one layout and went on in the
layout of the tensor cores around them (wrong results on an H200: `case_of(1050236)` of the fuzz
tests); in the other order, and for accumulators that began turned, code generation failed.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from fuzz_case import Array, written
from fuzz_run import run_case


def between(a_desc, b_desc, c_desc, M: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    acc = tl.zeros((M, M), dtype=tl.float32)
    for _ in range(3):
        acc = tl.dot(a, b, acc)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_desc.store([0, 0], acc)


def first(a_desc, b_desc, c_desc, M: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    acc = tl.zeros((M, M), dtype=tl.float32)
    for _ in range(3):
        acc = tl.dot(a, b, acc, input_precision="ieee")
        acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc)


def turned(a_desc, b_desc, c_desc, M: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    acc = tl.dot(a, b).T
    for _ in range(3):
        acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc)


def turned_ieee(a_desc, b_desc, c_desc, M: tl.constexpr):
    a = a_desc.load([0, 0])
    b = b_desc.load([0, 0])
    acc = tl.dot(a, b).T
    for _ in range(3):
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize("extent", [128, 32])  # wgmma, mma.sync
@pytest.mark.parametrize("kernel", [between, first, turned, turned_ieee])
@pytest.mark.short("turned-128", "first-32", "between-128", "turned_ieee-32")
def test_each_product_finds_its_accumulator(kernel, extent: int) -> None:
    arguments = {
        "a_desc": Array((extent, 16), "f32", (extent, 16)),
        "b_desc": Array((16, extent), "f32", (16, extent)),
        "c_desc": Array((extent, extent), "f32", (extent, extent), low=0, limit=0),
    }
    case = written(kernel, arguments, constants={"M": extent}, grid=(1, 1, 1))
    assert run_case(case, seeds=1, emulated=True).verdict == "equal"


def test_products_in_one_accumulator_move_nothing() -> None:
    """Multiply-adds work where tensor cores left their sums: nothing goes through memory."""
    a, c = np.zeros((128, 16), np.float32), np.zeros((128, 128), np.float32)
    given = [tawa.TensorDescriptor.from_tensor(x, list(x.shape)) for x in (a, a.T.copy(), c)]
    for kernel in (between, first):
        made = tawa.jit(kernel).compile(*given, M=128, grid=(1,))
        assert "scratch" not in made.asm.text("hopper")
