"""Of a loop over tiles nothing but the step may be open: a condition before it has said the rest.

The proof then looked for the input that gives its iterations among no inputs at all.
"""

import fuzz_library as lib
import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    a_desc, rows_ptr, b_ptr, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM
    extra = tl.zeros((BM, BN), dtype=tl.float32)
    if tl.program_id(0) == 0:
        extra = lib.clamped(tl.associative_scan(extra + 1, 1, lib.larger), -2.0, 2.0)
    rows = tl.load(rows_ptr + tl.arange(0, BN))
    b = tl.load(b_ptr + rows[None, :] * K + tl.arange(0, BK)[:, None])
    c_desc.store([row, 0], tl.dot(a_desc.load([row, 0]), b, extra))


def test_it_is_proved() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((256, 64), "f16", (128, 64)),
            "rows_ptr": Array((64,), "i32", (), 0, 63),
            "b_ptr": Array((64, 64), "f16"),
            "c_desc": Array((256, 64), "f32", (128, 64), 0, 0),
            "K": 64,
        },
        constants={"BM": 128, "BN": 64, "BK": 64},
        grid=(2, 1, 1),
        options={"persistent": True},
    )
    done = run_case(case, seeds=1)
    assert (done.verdict, done.refused, done.specialized) == ("equal", "", True)
