"""Consumers with tiles of their own were refused under a branch by an internal error.

The refusal names what may load another number of times in another tile: a loop had a name in it, a
branch had none.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    a_desc, b_desc, c_desc, counts_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM
    if tl.load(counts_ptr + tl.program_id(0)) == 0:
        return
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, 3):
        acc = tl.dot(a_desc.load([row, k * BK]), b_desc.load([k * BK, 0]), acc)
    c_desc.store([row, 0], acc)


def test_the_refusal_names_the_branch() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((256, 96), "f16", (64, 32)),
            "b_desc": Array((96, 64), "f16", (32, 64)),
            "c_desc": Array((256, 64), "f32", (64, 64), 0, 0),
            "counts_ptr": Array((4,), "i32", (), 0, 1),
        },
        constants={"BM": 64, "BN": 64, "BK": 32},
        grid=(4, 1, 1),
        options={"arrangement": "pingpong"},
    )
    outcome = run_case(case)
    assert outcome.verdict == "equal"
    assert "if@N may load" in outcome.refused
