"""Two tiles that load through one ring were transposed for rings of two kinds: the role had nothing
to do.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, v_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K):
        acc = tl.dot(a_desc.load([0, k * BN]), b_desc.load([k * BN, 0]), acc)
    for k in range(0, K):
        p = tl.minimum(tl.maximum(acc, -2), 2).to(tl.int8)
        acc = tl.dot(p, v_desc.load([k * BN, 0]), acc)
    c_desc.store([0, 0], acc)


def test_each_has_a_ring_that_is_loaded_for_it() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 192), "i8", (64, 64)),
            "b_desc": Array((192, 64), "i8", (64, 64)),
            "v_desc": Array((192, 64), "i8", (64, 64)),
            "c_desc": Array((64, 64), "i32", (64, 64), 0, 0),
            "K": 3,
        },
        constants={"BM": 64, "BN": 64},
        grid=(1, 1, 1),
    )
    assert run_case(case).specialized
