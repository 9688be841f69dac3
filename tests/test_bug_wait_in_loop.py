"""A loop without products that reads a product in flight waited for it in every iteration and
after.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a, b = a_desc.load([0, 0]), b_desc.load([0, 0])
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    acc = tl.dot(a, b)
    for _ in range(0, K):
        sums = sums - acc
    c_desc.store([0, 0], sums + acc)


def test_it_waits_once_before() -> None:
    for iterations in (0, 1, 3):
        case = written(
            kernel,
            {
                "a_desc": Array((64, 32), "f16", (64, 32)),
                "b_desc": Array((32, 64), "f16", (32, 64)),
                "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
                "K": iterations,
            },
            constants={"BM": 64, "BN": 64},
            grid=(1, 1, 1),
        )
        assert run_case(case).specialized
