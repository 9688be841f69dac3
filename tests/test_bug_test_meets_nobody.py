"""A while loop ends behind its test: what the test reads in scratch memory is read when it ends.

Barriers between two uses of scratch memory were dropped as if each loop ended behind its body,
where all threads had met; the proof refused what came of it.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    counts_ptr, a_desc, b_desc, c_desc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for j in range(0, tl.load(counts_ptr)):
        w = 0
        while (w < 3) & (tl.max(acc) < 2 * j + 2):
            acc = tl.dot(a_desc.load([0, w * BK]), b_desc.load([w * BK, 0]), acc)
            w += 1
    c_desc.store([0, 0], acc)


def test_it_is_proved() -> None:
    case = written(
        kernel,
        {
            "counts_ptr": Array((1,), "i32", (), 3, 3),
            "a_desc": Array((128, 256), "f16", (128, 64)),
            "b_desc": Array((256, 96), "f16", (64, 96)),
            "c_desc": Array((128, 96), "f32", (128, 96), 0, 0),
        },
        constants={"BM": 128, "BN": 96, "BK": 64},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=2).verdict == "equal"
