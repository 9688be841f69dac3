"""Two accumulators that enter a while loop as the same zeros are two sets of registers.

The proof took them for one there, and so where a branch gives both the same constant.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, K, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    if flag > 0:
        k = 0
        while k < K:
            a = a_desc.load([0, k])
            one = tl.dot(a, b_desc.load([k, 0]), one)
            one = tl.minimum(one - tl.max(one, 1)[:, None], 2.0)
            two = tl.dot(a, b_desc.load([0, 0]), two)
            k += BK
    b = b_desc.load([BK, 0])
    one = tl.dot(a_desc.load([0, 0]), b, one)
    two = tl.dot(a_desc.load([0, BK]), b, two)
    c_desc.store([0, 0], one + two)


def test_it_is_proved() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 96), "bf16", (64, 32)),
            "b_desc": Array((96, 16), "bf16", (32, 16)),
            "c_desc": Array((64, 16), "f32", (64, 16), 0, 0),
            "K": 96,
            "flag": 1,
        },
        constants={"BM": 64, "BN": 16, "BK": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=2).specialized
