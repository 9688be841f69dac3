"""A counter that the test of a while loop passes on to its body counts there as well.

The proof saw it count in the test alone: a condition on it inside the body was refused, as one that
might change at any later iteration.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    counts_ptr, a_desc, b_desc, c_desc, more_desc, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    w = 0
    while (w < 4) & (tl.load(counts_ptr + w) > 0):
        acc = tl.dot(a_desc.load([0, w * BK]), b_desc.load([w * BK, 0]), acc)
        if w < 2:
            more_desc.store([w * BM, 0], acc)
        w += 1
    c_desc.store([0, 0], acc)


def test_it_is_proved() -> None:
    case = written(
        kernel,
        {
            "counts_ptr": Array((8,), "i32", (), 1, 3),
            "a_desc": Array((64, 128), "bf16", (64, 32)),
            "b_desc": Array((128, 32), "bf16", (32, 32)),
            "c_desc": Array((64, 32), "f32", (64, 32), 0, 0),
            "more_desc": Array((128, 32), "f32", (64, 32), 0, 0),
        },
        constants={"BM": 64, "BN": 32, "BK": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=2).verdict == "equal"
