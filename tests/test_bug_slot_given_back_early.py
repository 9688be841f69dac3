"""A tile that two iterations use, read into registers before its slot was given back, was read anew
from the slot in the second: too late.
"""

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, v_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    b = b_desc.load([0, 0])
    v = v_desc.load([0, 0])
    for k in range(0, K, BK):
        acc = tl.minimum(tl.maximum(acc - tl.min(acc, 1)[:, None], -2.0), 2.0)
        a = a_desc.load([0, k])
        p = tl.minimum(tl.maximum(tl.dot(a, b), -2.0), 2.0).to(tl.bfloat16)
        acc = tl.dot(p, v, acc)
        acc += tl.sum(a.to(tl.float32), 1)[:, None]
    c_desc.store([0, 0], acc)


def test_the_tile_is_kept() -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((128, 384), "bf16", (128, 128)),
            "b_desc": Array((128, 16), "bf16", (128, 16)),
            "v_desc": Array((16, 16), "bf16", (16, 16)),
            "c_desc": Array((128, 16), "f32", (128, 16), 0, 0),
            "K": 384,
        },
        constants={"BM": 128, "BN": 16, "BK": 128},
        grid=(1, 1, 1),
    )
    assert run_case(case).verdict == "equal"
