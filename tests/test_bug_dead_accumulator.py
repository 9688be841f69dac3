"""In a cluster the last blocks may have no tile: their product is waited for and never read.

The proof refused the next product, as no wait had named the result of the one before.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, 0]))
    c_desc.store([row, 0], acc)


def test_it_is_proved() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((5 * 128, 64), "f16", (128, 64)),
            "b_desc": Array((64, 64), "f16", (64, 64)),
            "c_desc": Array((5 * 128, 64), "f32", (128, 64), 0, 0),
        },
        constants={"BM": 128, "BN": 64},
        grid=(5, 1, 1),
        options={"cluster": 2},
    )
    assert run_case(case, seeds=3).specialized
