"""Two loops that share a ring turn it by an even number in each tile: half its positions were never
seen to begin one, and the kernel was not proved.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, J, K, L, BM: tl.constexpr, BN: tl.constexpr):
    b = b_desc.load([0, 0])
    acc = tl.zeros((BM, BN), tl.float32)
    for j in range(0, J):
        for k in range(0, K):
            acc = tl.dot(a_desc.load([0, k * 64]), b, acc)
        for k in range(0, L):
            acc = tl.dot(a_desc.load([0, (k + j) * 64]), b, acc)
    c_desc.store([tl.program_id(0) * BM, 0], acc)


def test_it_is_proved_specialized() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 192), "f16", (64, 64)),
            "b_desc": Array((64, 64), "f16", (64, 64)),
            "c_desc": Array((192, 64), "f32", (64, 64), 0, 0),
            "J": 2,
            "K": 1,
            "L": 2,
        },
        constants={"BM": 64, "BN": 64},
        grid=(3, 1, 1),
    )
    assert run_case(case).specialized
