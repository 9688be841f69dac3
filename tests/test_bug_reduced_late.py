"""A pipelined loop gave back a tile that a later stage alone reduces an iteration before it was
read.
"""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, v_desc, r_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    a = a_desc.load([0, 0])
    for k in range(0, K):
        r = r_desc.load([k * BM, 0])
        p = tl.clamp(tl.dot(a, b_desc.load([k * BN, 0]).T), -2.0, 2.0).to(tl.float16)
        acc = tl.dot(p, v_desc.load([k * BN, 0]), acc)
        acc += tl.max(r.to(tl.float32), 0)[None, :]
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_the_slot_is_kept_until_it_is_read(iterations: int) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 64), "f16", (64, 64)),
            "b_desc": Array((256, 64), "f16", (64, 64)),
            "v_desc": Array((256, 64), "f16", (64, 64)),
            "r_desc": Array((256, 64), "f16", (64, 64)),
            "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
            "K": iterations,
        },
        constants={"BM": 64, "BN": 64},
        grid=(1, 1, 1),
    )
    assert run_case(case).specialized
