"""Scans of lines that are fewer than the warps: every warp takes a part, the results are right."""

from __future__ import annotations

import numpy as np
import pytest

import fuzz_library as lib
import tawa
import tawa.language as tl
from codegen_emulator import COMPILER
from fuzz_kernels import Array, written
from fuzz_run import run_case
from tawa.ir import parse, tile
from tawa.ir.types import shape_of
from tawa.passes.lower.anchors import scan_layout


@tawa.jit
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


@tawa.jit
def after(a, b, c, d):
    return a * c, b * c + d


@tawa.jit
def recurrence(a_ptr, b_ptr, o_ptr, N: tl.constexpr, BACK: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    _, state = tl.associative_scan((tl.load(a_ptr + at), tl.load(b_ptr + at)), 0, after, BACK)
    tl.store(o_ptr + at, state)


MEANING = {
    "sum": np.cumsum,
    "reverse": lambda x, axis: np.flip(np.cumsum(np.flip(x, axis), axis), axis),
    "product": np.cumprod,
}


def parts_of(kernel) -> list[int]:
    """Return along how many elements each scan of a compiled kernel runs."""
    lowered = parse(kernel.asm.text("hopper"))
    found = [op for op in lowered.walk() if isinstance(op, tile.Scan)]
    return [shape_of(op.inputs[0].type)[op.axis.data] for op in found]


@pytest.mark.parametrize("kind", MEANING)
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        *(((2, 256), 1, dtype) for dtype in (np.int32, np.float32, np.int64)),
        ((1, 512), 1, np.float32),
        ((1024, 2), 0, np.int64),
    ],
)
def test_parts_give_the_same(kind, shape, axis, dtype):
    x = np.random.default_rng(1).integers(-3, 4, shape).astype(dtype)
    if kind == "product":
        x = np.where(np.arange(x.size).reshape(shape) % 97, np.sign(2 * x + 1), 2).astype(dtype)
    out = np.zeros_like(x)
    values = {"M": shape[0], "N": shape[1], "AXIS": axis, "KIND": kind}
    scans[1,](x, out, **values, num_warps=8)
    np.testing.assert_array_equal(out, MEANING[kind](x, axis).astype(dtype))
    lines = min(8, shape[1 - axis])
    kernel = scans.compile(x, out, **values, num_warps=8, grid=(1,))
    assert shape[axis] // (8 // lines) in parts_of(kernel)


@pytest.mark.parametrize("back", [False, True])
def test_a_recurrence_keeps_its_order(back):
    """The combination is not commutative and has no neutral element that the compiler knows."""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, (2, 3, 512)).astype(np.float32)
    out = np.full_like(b, np.nan)
    recurrence[3,](a, b, out, N=512, BACK=back, num_warps=4)
    state, want = np.zeros(3), np.zeros((3, 512))
    for at in reversed(range(512)) if back else range(512):
        state = state * a[:, at] + b[:, at]
        want[:, at] = state
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def both(x_ptr, y_ptr, o_ptr, p_ptr, M: tl.constexpr, N: tl.constexpr, BACK: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at).to(tl.int64)
    scaled, moved = tl.associative_scan((x, y), 1, lib.after, BACK)
    tl.store(o_ptr + at, scaled)
    tl.store(p_ptr + at, moved)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(("rows", "back"), [(1, False), (2, True)])
def test_ends_of_parts_as_cuda_tells_them(rows: int, back: bool):
    """Two words of different widths, no commutation; twice as many elements as a lane moves."""
    case = written(
        both,
        {
            "x_ptr": Array((rows, 512), "i32", low=1, limit=6),
            "y_ptr": Array((rows, 512), "i32", low=0, limit=6),
            "o_ptr": Array((rows, 512), "i32", low=0, limit=0),
            "p_ptr": Array((rows, 512), "i64", low=0, limit=0),
        },
        constants={"M": rows, "N": 512, "BACK": back},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=1, emulated=True).verdict == "equal"


def test_a_part_tells_its_end_by_one_exchange():
    """Per word: five steps of lanes, one place on; the end; two steps over four parts; what came
    before. All words of a scan go through memory at once.
    """
    x = np.zeros((1, 512), np.float32)
    kernel = scans.compile(x, x, M=1, N=512, AXIS=1, KIND="sum", num_warps=4, grid=(1,))
    body = kernel.asm.text("cuda").split("role_main(")[1]
    assert body.count("shuffle_from(") == 5 + 1 + 1 + 2 + 1
    assert body.count("named_sync") == 1


def test_a_line_over_as_many_warps_as_a_block_has():
    x = np.random.default_rng(5).integers(-3, 4, (1, 2048)).astype(np.int32)
    out = np.zeros_like(x)
    scans[1,](x, out, M=1, N=2048, AXIS=1, KIND="sum", num_warps=32)
    np.testing.assert_array_equal(out, np.cumsum(x, 1))
    kernel = scans.compile(x, out, M=1, N=2048, AXIS=1, KIND="sum", num_warps=32, grid=(1,))
    assert kernel.launch.threads == 1024


def test_enough_lines_or_short_ones_stay_whole():
    for shape in ((8, 256), (1, 96)):
        x = np.zeros(shape, np.float32)
        values = {"M": shape[0], "N": shape[1], "AXIS": 1, "KIND": "sum"}
        kernel = scans.compile(x, x.copy(), **values, num_warps=4, grid=(1,))
        assert parts_of(kernel) == [shape[1]]


@tawa.jit
def row_sums(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + at, mask=at < N, other=0)
    tl.store(o_ptr + tl.program_id(0) * N + at, tl.cumsum(x, 0), mask=at < N)


def test_a_masked_line_that_is_no_power_of_two():
    x = np.random.default_rng(2).integers(-5, 6, (2, 3000)).astype(np.float32)
    out = np.zeros_like(x)
    row_sums[2,](x, out, 3000, BLOCK=4096, num_warps=8)
    np.testing.assert_array_equal(out, np.cumsum(x, 1))
    compiled = row_sums.compile(x, out, 3000, grid=(2,), BLOCK=4096, num_warps=8)
    assert not compiled.resources.spills


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


@pytest.mark.parametrize(
    ("shape", "axis", "held"), [((8, 64), 0, 4), ((64, 8), 1, 4), ((4, 4, 4), 1, 1), ((64,), 0, 2)]
)
def test_lanes_beyond_a_short_axis_hold_other_rows(shape, axis, held):
    layout = scan_layout(shape, axis, 4, spread=True)
    assert layout.register_count == held
    along = [place[axis] for place in layout.warp_table]
    assert set(along) == {0}, "one warp holds the axis"
