"""A coarse loop waited for the next slot of a ring while it held both slots it has: a hang.

The release of `a` stands after the second product, which the schedule puts off by an iteration.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, v_desc, w_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    b = b_desc.load([0, 0])
    for k in range(0, K, BN):
        a = a_desc.load([row, k])
        p = tl.minimum(tl.maximum(tl.dot(a, b), -2.0), 2.0).to(tl.float16)
        v = v_desc.load([k, 0])
        acc = tl.dot(p, v, acc)
        w = w_desc.load([k, 0])
        acc += tl.dot(a, w)
    c_desc.store([row, 0], acc)


def test_it_waits_after_the_release() -> None:
    square = Array((256, 64), "f16", (64, 64))
    case = written(
        kernel,
        {
            "a_desc": Array((64, 256), "f16", (64, 64)),
            "b_desc": square,
            "v_desc": square,
            "w_desc": square,
            "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
            "K": 256,
        },
        constants={"BM": 64, "BN": 64},
        grid=(1, 1, 1),
        options={"depth": 2, "schedule": "coarse"},
    )
    assert run_case(case, seeds=4).specialized
