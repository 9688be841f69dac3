"""Warps that share 96 columns in runs of 24 had no access to panels of 32, nor had multiply-adds of
which each thread reads one and a half panels.
"""

import pytest

import tawa.language as tl
from codegen_emulator import COMPILER
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, d_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    acc = d_desc.load([0, 0]).to(tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc.to(c_desc.dtype))


@pytest.mark.parametrize(("rows", "columns"), [(16, 96), (32, 96)])
def test_columns_carry_from_panel_to_panel(rows: int, columns: int) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((rows, 64), "bf16", (rows, 32)),
            "b_desc": Array((64, columns), "bf16", (32, columns)),
            "d_desc": Array((rows, columns), "bf16", (rows, columns)),
            "c_desc": Array((rows, columns), "bf16", (rows, columns), 0, 0),
            "K": 64,
        },
        constants={"BM": rows, "BN": columns, "BK": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case, emulated=COMPILER is not None).verdict == "equal"


def copied(a_desc, b_ptr, c_desc, stride, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):  # fmt: skip
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, 2 * BK, BK):
        rows = k + tl.arange(0, BK)
        b = tl.load(b_ptr + rows[:, None] * stride + tl.arange(0, BN)[None, :] + k // BK)
        acc = tl.dot(a_desc.load([0, k]), b, acc)
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize("columns", [96, 192])
def test_columns_that_threads_copy(columns: int) -> None:
    case = written(
        copied,
        {
            "a_desc": Array((64, 64), "f32", (64, 32)),
            "b_ptr": Array((64, columns + 8), "f32"),
            "c_desc": Array((64, columns), "f32", (64, columns), 0, 0),
            "stride": columns + 8,
        },
        constants={"BM": 64, "BN": columns, "BK": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case, emulated=COMPILER is not None).verdict == "equal"


def by_threads(a_desc, b_desc, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr,
               BK: tl.constexpr):  # fmt: skip
    acc = tl.cumsum(tl.zeros((BM, BN), dtype=tl.float32), 0)
    acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc, input_precision="tf32x3")
    acc = tl.dot(a_desc.load([0, K]), b_desc.load([K, 0]), acc, input_precision="ieee")
    tl.store(c_ptr + tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :], tl.trans(acc))


@pytest.mark.parametrize(("rows", "columns"), [(192, 96), (64, 160)])
def test_one_and_a_half_panels_of_a_thread(rows: int, columns: int) -> None:
    case = written(
        by_threads,
        {
            "a_desc": Array((rows, 64), "f32", (rows, 32)),
            "b_desc": Array((64, columns), "f32", (32, columns)),
            "c_ptr": Array((rows * columns,), "f32", (), 0, 0),
            "K": 32,
        },
        constants={"BM": rows, "BN": columns, "BK": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case, emulated=COMPILER is not None).verdict == "equal"


def now_and_then(a_desc, c_desc, more_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    """What is stored in the first iterations, and what is added in every third one."""
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BN):
        if k // BN < 2:
            more_desc.store([k // BN * BM, 0], acc)
        if k // BN % 3 == 1:
            acc += a_desc.load([0, k])
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_quotients_of_the_index_guard_what_synchronizes(iterations: int) -> None:
    case = written(
        now_and_then,
        {
            "a_desc": Array((64, 160), "f32", (64, 32)),
            "c_desc": Array((64, 32), "f32", (64, 32), 0, 0),
            "more_desc": Array((128, 32), "f32", (64, 32), 0, 0),
            "K": 32 * iterations,
        },
        constants={"BM": 64, "BN": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case).specialized
