"""Two accumulators that start as the same zeros are two sets of registers.

The proof took them for one and refused to let threads add to the one while wgmma fills the other.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    a_desc, b_desc, d_desc, c_desc, K, T, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for j in range(0, T):
        a = a_desc.load([0, j * BK])
        b = b_desc.load([j * BK, 0])
        two = tl.dot(a, b, two)
        d = d_desc.load([j * BK, 0])
        one += tl.max(d.to(tl.float32), 0)[None, :]
        for k in range(0, K, BK):
            one += tl.dot(a, b_desc.load([k, 0]))
    c_desc.store([0, 0], one + two)


def test_it_is_proved() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 128), "bf16", (64, 32)),
            "b_desc": Array((128, 16), "bf16", (32, 16)),
            "d_desc": Array((128, 16), "bf16", (32, 16)),
            "c_desc": Array((64, 16), "f32", (64, 16), 0, 0),
            "K": 64,
            "T": 3,
        },
        constants={"BM": 64, "BN": 16, "BK": 32},
        grid=(1, 1, 1),
    )
    assert run_case(case, seeds=2).specialized
