"""fp32 products out of several narrow ones: tf32x3, bf16x3, bf16x6."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.analysis.hardware import is_zero
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
from tawa.ir import tile
from tawa.ir.precision import SPLITS
from tawa.passes import pipeline
from tawa.passes.split_products import split_products
from tawa.plan.plan import Plan
from tawa.target import H200

# Relative errors of a sum of 256 normal products, against float64.
ERROR = {"tf32": 2e-3, "bf16x3": 5e-5, "tf32x3": 2e-6, "bf16x6": 1e-6}


def product(
    a_desc, b_desc, c_desc, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc += tl.dot(a, b, input_precision=PRECISION)
    c_desc.store([row, column], acc)


matmul = tawa.jit(product)


def run(precision, tile_shape, specialize=None):
    bm, bn, bk = tile_shape
    rng = np.random.default_rng(11)
    a = rng.standard_normal((2 * bm, 256)).astype(np.float32)
    b = rng.standard_normal((256, bn)).astype(np.float32)
    c = np.full((2 * bm, bn), np.nan, np.float32)
    describe = tawa.TensorDescriptor.from_tensor
    arguments = (describe(a, [bm, bk]), describe(b, [bk, bn]), describe(c, [bm, bn]), 256)
    values = {"BM": bm, "BN": bn, "BK": bk, "PRECISION": precision, "specialize": specialize}
    matmul[2, 1](*arguments, **values)
    exact = a.astype(np.float64) @ b
    error = np.linalg.norm(c - exact) / np.linalg.norm(exact)
    return error, matmul.compile(*arguments, grid=(2, 1), **values)


@pytest.mark.parametrize("precision", SPLITS)
@pytest.mark.parametrize("tile_shape", [(64, 64, 32), (16, 32, 32)])
def test_errors_are_those_of_the_precision(precision, tile_shape):
    error, kernel = run(precision, tile_shape)
    assert ERROR[precision] / 50 < error < ERROR[precision]
    instruction = "wgmma.mma_async" if tile_shape[0] == 64 else "mma.sync"
    assert instruction in kernel.asm["cuda"]
    assert kernel.plan.roles  # it is specialized as any other product


def test_one_narrow_product_is_worse():
    error, _ = run("tf32", (64, 64, 32))
    assert 10 * ERROR["tf32x3"] < error < ERROR["tf32"]


def test_a_shape_that_no_instruction_takes_is_multiplied_exactly():
    error, kernel = run("tf32x3", (8, 32, 32))
    assert error < 1e-6
    assert any("tf32x3" in note.feature for note in kernel.declined)


def tile_of(precision) -> tile.Kernel:
    signature = {
        "a_desc": DescriptorArg("f32", (64, 32)),
        "b_desc": DescriptorArg("f32", (32, 64)),
        "c_desc": DescriptorArg("f32", (64, 64)),
        "K": ScalarArg("i32"),
    }
    values = {"BM": 64, "BN": 64, "BK": 32, "PRECISION": precision}
    constants = {name: ConstantArg(value) for name, value in values.items()}
    return build(product, signature | constants, {})


@pytest.mark.parametrize(("precision", "products"), [("tf32", 1), ("tf32x3", 3), ("bf16x6", 6)])
def test_products_after_the_pass(precision, products):
    kernel = tile_of(precision)
    assert split_products(kernel, Plan(), H200) == ()
    dots = [op for op in kernel.walk() if isinstance(op, tile.Dot)]
    assert len(dots) == products
    assert {op.precision.data for op in dots} == {"tf32"}
    for one, following in pairwise(dots):
        assert following.acc is one.result


@pytest.mark.parametrize("precision", SPLITS)
def test_no_sum_of_the_loop_is_made_by_the_tensor_cores(precision):
    """They cut sums off: over K / 8 steps of one chain float32 lost eight times what it has."""
    kernel = tile_of(precision)
    pipeline.run(pipeline.REASSOCIATE, kernel, Plan(), H200)
    split_products(kernel, Plan(), H200)
    dots = [op for op in kernel.walk() if isinstance(op, tile.Dot)]
    assert is_zero(dots[0].acc)
    (use,) = dots[-1].result.uses
    assert isinstance(use.operation, tile.Elementwise)
    assert use.operation.function.data == "add"


def test_products_share_what_is_stored_for_them():
    _, kernel = run("bf16x6", (64, 64, 32))
    labels = [buffer.label for buffer in kernel.resources.buffers if "operand" in buffer.label]
    assert len(labels) == 3  # the three parts of b
