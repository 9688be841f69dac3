"""Four warpgroups that share 96 columns crossed the panels in which B lies."""

import pytest

import tawa.language as tl
from codegen_emulator import COMPILER
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize(("rows", "columns", "warps"), [(192, 96, 16), (64, 96, 16), (64, 128, 16)])
def test_each_takes_columns_it_can_read(rows: int, columns: int, warps: int) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((rows, 64), "bf16", (rows, 32)),
            "b_desc": Array((64, columns), "bf16", (32, columns)),
            "c_desc": Array((rows, columns), "f32", (rows, columns), 0, 0),
            "K": 64,
        },
        constants={"BM": rows, "BN": columns, "BK": 32},
        grid=(1, 1, 1),
        options={"specialize": False, "num_warps": warps},
    )
    assert run_case(case, emulated=COMPILER is not None).verdict == "equal"
