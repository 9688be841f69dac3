"""Long lines are scanned by all warps: the same results, and no more registers than elements."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from frontend_kernels import of
from tawa.frontend import build
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.passes.scans import split_scans
from tawa.plan.plan import Plan
from tawa.simulator.tile import run_tile
from tawa.target import Target


def scans(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    if KIND == "sum":
        y = tl.cumsum(x, AXIS)
    elif KIND == "reverse":
        y = tl.cumsum(x, AXIS, reverse=True)
    else:
        y = tl.cumprod(x, AXIS)
    tl.store(o_ptr + at, y)


MEANING = {
    "sum": np.cumsum,
    "reverse": lambda x, axis: np.flip(np.cumsum(np.flip(x, axis), axis), axis),
    "product": np.cumprod,
}


@pytest.mark.parametrize("kind", MEANING)
@pytest.mark.parametrize(("shape", "axis"), [((1, 512), 1), ((1024, 2), 0), ((2, 384), 1)])
@pytest.mark.parametrize("dtype", ["i32", "f32"])
def test_split_lines_give_the_same(kind, shape, axis, dtype):
    kind_of = {"i32": np.int32, "f32": np.float32}[dtype]
    x = np.random.default_rng(1).integers(-3, 4, shape).astype(kind_of)
    if kind == "product":
        x = np.where(np.arange(x.size).reshape(shape) % 97, np.sign(2 * x + 1), 2).astype(kind_of)
    signature = of(
        x_ptr=f"{dtype}*", o_ptr=f"{dtype}*", M=shape[0], N=shape[1], AXIS=axis, KIND=f"={kind}"
    )
    kernel = build(scans, signature, {})
    split_scans(kernel, Plan(), Target())
    left = [op for op in kernel.walk() if isinstance(op, tile.Scan)]
    assert [shape_of(op.inputs[0].type)[op.axis.data] for op in left] == [128]
    out = np.zeros_like(x)
    run_tile(kernel, (1, 1, 1), {"x_ptr": x, "o_ptr": out})
    np.testing.assert_array_equal(out, MEANING[kind](x, axis).astype(kind_of))


def test_short_lines_and_combinations_without_a_neutral_element_stay_whole():
    for shape, kind in (((64, 256), "sum"), ((1, 96), "sum")):
        signature = of(x_ptr="f32*", o_ptr="f32*", M=shape[0], N=shape[1], AXIS=1, KIND=f"={kind}")
        kernel = build(scans, signature, {})
        before = str(kernel)
        split_scans(kernel, Plan(), Target())
        assert str(kernel) == before


@tawa.jit
def row_sums(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + at, mask=at < N, other=0)
    tl.store(o_ptr + tl.program_id(0) * N + at, tl.cumsum(x, 0), mask=at < N)


def test_a_long_line_is_shared_by_the_warps():
    x = np.random.default_rng(2).integers(-5, 6, (2, 3000)).astype(np.float32)
    out = np.zeros_like(x)
    tawa.simulate(row_sums, x, out, grid=(2,), N=3000, BLOCK=4096, num_warps=8)
    np.testing.assert_array_equal(out, np.cumsum(x, 1))
    compiled = row_sums.compile(x, out, 3000, grid=(2,), BLOCK=4096, num_warps=8)
    assert not compiled.resources.spills
    whole = row_sums.compile(x, out, 3000, grid=(2,), BLOCK=4096, num_warps=8, strict=True)
    assert "tile.scan" in str(whole.asm.text("hopper"))


@tawa.jit
def odd_rows(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + at, mask=at < N, other=0.0)
    tl.store(o_ptr + tl.program_id(0) * N + at, x * 2, mask=at < N)


@pytest.mark.parametrize(("columns", "run"), [(3001, 1), (3008, 4)])
def test_neighbouring_lanes_take_neighbours_where_accesses_are_narrow(columns, run):
    x = np.zeros((2, columns), np.float32)
    compiled = odd_rows.compile(x, x.copy(), columns, grid=(2,), BLOCK=4096)
    text = compiled.asm.text("hopper")
    assert ("l[32:(1)]" in text) == (run == 1)
    assert ("r[4:(1)" in text) == (run == 4)
