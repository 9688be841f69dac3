"""Zeros that a loop of products under a condition starts from are written before the loop.

Left out as the first product overwrites them, they were written on the other path and after a loop
of no iterations, and ptxas serialised the products.
"""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import assert_not_serialised, compile_case, run_case
from tawa.runtime import nvrtc


def kernel(a_desc, b_desc, c_desc, T, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    row = tl.program_id(0) * BM
    a = a_desc.load([row, 0])
    if row == 0:
        for j in range(1, T):
            acc = tl.dot(a, b_desc.load([0, j * BK]).T, acc)
    c_desc.store([row, 0], acc.to(tl.bfloat16))


CASE = written(
    kernel,
    {
        "a_desc": Array((256, 64), "bf16", (128, 64)),
        "b_desc": Array((128, 256), "bf16", (128, 64)),
        "c_desc": Array((256, 128), "bf16", (128, 128), 0, 0),
        "T": 3,
    },
    constants={"BM": 128, "BN": 128, "BK": 64},
    grid=(2, 1, 1),
)


def test_both_paths_give_what_they_should() -> None:
    assert run_case(CASE, seeds=1).specialized


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_it_is_not_serialised() -> None:
    assert_not_serialised(compile_case(CASE))
