"""Tiles in two halves: the same values, by rows or by columns, and what needs a tile whole."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.ir import tile, verify
from tawa.ir.types import shape_of
from tawa.ir.walk import all_of
from tawa.passes import pipeline
from tawa.passes.halve import in_halves
from tawa.plan.plan import FULL_SPEED, Plan
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.tile import run_tile
from tawa.target import H200

SIZE, DEPTH = 96, 48


def products(x_desc, y_desc, z_desc, o_desc, o_ptr, K, FORM: tl.constexpr):
    row = tl.program_id(0) * 32
    column = tl.program_id(1) * 32
    first = tl.zeros((32, 32), dtype=tl.float32)
    second = tl.zeros((32, 32), dtype=tl.float32)
    for k in range(0, K, 16):
        x = x_desc.load([row, k])
        y = y_desc.load([column, k])
        first = tl.dot(x, y.T, first)
        if FORM == "one source":
            second = tl.dot(x, x.T, second)
        else:
            second = tl.dot(x, z_desc.load([column, k]).T, second)
    rows = row + tl.arange(0, 32)
    if FORM == "row sums":
        first = first + tl.sum(first * second, 1)[:, None]
    elif FORM == "indices":
        first = first * rows[:, None] + second * tl.arange(0, 32)[None, :]
    else:
        first = first + second
    result = first.to(tl.float16)
    if FORM == "pointers":
        at = rows[:, None] * 96 + (column + tl.arange(0, 32))[None, :]
        tl.store(o_ptr + at, result, mask=(rows < 80)[:, None])
    elif FORM == "turned":
        o_desc.store([column, row], result.T)
    elif FORM == "looped":
        for again in range(0, K, 16):
            o_desc.store([row, column], (first + again).to(tl.float16))
    elif FORM == "in place":
        x_desc.store([row, 0], tl.dot(result, y_desc.load([column, 0])).to(tl.float16))
    elif FORM == "reshaped":
        x_desc.store([row, 0], tl.sum(first.reshape(32, 2, 16), 1).to(tl.float16))
    else:
        o_desc.store([row, column], result)


def kernel_of(form: str) -> tile.Kernel:
    signature = {name: DescriptorArg("f16", (32, 16)) for name in ("x_desc", "y_desc", "z_desc")}
    signature |= {"o_desc": DescriptorArg("f16", (32, 32)), "o_ptr": PointerArg("f16", True)}
    signature |= {"K": ScalarArg("i32"), "FORM": ConstantArg(form)}
    kernel = build(products, signature, {})
    passes = pipeline.before_plan(descriptors=True, by_tma=False, strict=False)
    pipeline.run(passes, kernel, Plan(), H200)
    return kernel


def run(kernel: tile.Kernel) -> np.ndarray:
    rng = np.random.default_rng(3)
    out = np.zeros((SIZE, SIZE), np.float16)
    arguments: dict[str, object] = {"K": DEPTH, "o_ptr": out}
    blocks = {arg.name_hint: arg.type for arg in kernel.body.block.args}
    for name in ("x_desc", "y_desc", "z_desc", "o_desc"):
        base = out
        if name != "o_desc":
            base = rng.integers(-1, 2, (SIZE, DEPTH)).astype(np.float16)
        strides = (base.shape[1], 1)
        arguments[name] = HostDescriptor(base, base.shape, strides, blocks[name].block_shape)
    run_tile(kernel, (3, 3, 1), arguments)
    return out


@pytest.mark.parametrize(
    ("form", "halves", "reason"),
    [
        ("plain", [(16, 32), (32, 16)], ""),
        ("indices", [(16, 32), (32, 16)], ""),
        ("pointers", [(16, 32), (32, 16)], ""),
        ("turned", [(16, 32), (32, 16)], ""),
        ("row sums", [(16, 32)], "columns: .* is along it"),
        ("one source", [], "rows: a tensor has the dimension twice; columns: .*"),
        ("looped", [], "rows: .* stands in a loop.*; columns: .* stands in a loop.*"),
        ("reshaped", [], "rows: .* needs it whole; columns: .* needs it whole"),
        ("in place", [], "rows: x@.* may meet what x_desc@.* stores; columns: .* sums over it"),
    ],
)
def test_halves_are_the_same_or_there_are_none(form, halves, reason):
    kernel = kernel_of(form)
    before = str(kernel)
    made, reasons = in_halves(kernel)
    assert str(kernel) == before
    sums = [all_of(each, tile.Dot)[0].result.type for each in made]
    assert [shape_of(kind) for kind in sums] == halves
    if reason:
        assert re.fullmatch(reason, reasons), reasons
    want = run(kernel) if made else None
    for each in made:
        verify(each)
        np.testing.assert_array_equal(run(each), want)


@tawa.jit
def twice(a_desc, b_desc, c_desc, o_desc, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    first = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    second = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(0, K, 16):
        a = a_desc.load([row, k])
        first = tl.dot(a, b_desc.load([column, k]).T, first)
        second = tl.dot(a, c_desc.load([column, k]).T, second)
    o_desc.store([row, column], (first * second).to(o_desc.dtype))


def test_sums_that_find_no_room_are_computed_in_halves():
    """Two sums of 256 x 128 are all registers of a block; of 128 x 128 they leave room."""
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-1, 2, (n, 16)).astype(np.float16) for n in (256, 128, 128))
    out = np.zeros((256, 128), np.float16)
    describe = tawa.TensorDescriptor.from_tensor
    arguments = (*(describe(x, x.shape) for x in (a, b, c)), describe(out, [256, 128]), 16)
    made = twice.compile(*arguments, ROWS=256, COLUMNS=128, grid=(1, 1))
    assert made.plan.specialized
    assert FULL_SPEED not in [note.feature for note in (*made.declined, *made.plan.declined)]
    twice[1, 1](*arguments, ROWS=256, COLUMNS=128)
    np.testing.assert_array_equal(out, (a @ b.T) * (a @ c.T))
