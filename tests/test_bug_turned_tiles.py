"""8-bit tiles that lie the wrong way round: two products of one tile, and a sum of it beside."""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           SUMS: tl.constexpr):  # fmt: skip
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        b = b_desc.load([k, 0])
        one = tl.dot(a_desc.load([0, k]), b, one)
        two = tl.dot(a_desc.load([BM, k]), b, two)
        if SUMS:
            one += tl.sum(b.to(tl.float32), 0)[None, :]
    c_desc.store([0, 0], one - two)


@pytest.mark.parametrize("sums", [False, True])
def test_both_uses_get_the_turned_tile(sums) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((128, 128), "f8e4m3", (64, 64)),
            "b_desc": Array((128, 64), "f8e4m3", (64, 64)),
            "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
            "K": 128,
        },
        constants={"BM": 64, "BN": 64, "BK": 64, "SUMS": sums},
        grid=(1, 1, 1),
    )
    assert run_case(case).specialized
