"""A product that the next iteration asks for at once is waited for at the end of its own.

In flight over the end of an iteration it overlapped with nothing, and ptxas serialised all products
(the registers were written in two ways before the loop).
"""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import assert_not_serialised, compile_case, run_case
from tawa.runtime import nvrtc


def kernel(t_ptr, v_desc, c_desc, K, flag, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K):
        if flag == 0:
            acc = tl.where((tl.arange(0, BM) < 9)[:, None], acc, tl.minimum(acc, 2.0))
        first = tl.load(t_ptr + k)
        for _ in range(first, first + tl.load(t_ptr + k + 1)):
            p = tl.minimum(acc, 2.0).to(tl.bfloat16)
            acc = tl.dot(p, v_desc.load([0, 0]), acc)
    c_desc.store([0, 0], acc)


CASE = written(
    kernel,
    {
        "t_ptr": Array((8,), "i32", (), 0, 3),
        "v_desc": Array((32, 32), "bf16", (32, 32)),
        "c_desc": Array((256, 32), "f32", (256, 32), 0, 0),
        "K": 3,
        "flag": 0,
    },
    constants={"BM": 256, "BN": 32},
    grid=(2, 1, 1),
)


def test_it_is_waited_for() -> None:
    assert run_case(CASE, seeds=1).specialized


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_it_is_not_serialised() -> None:
    assert_not_serialised(compile_case(CASE))
