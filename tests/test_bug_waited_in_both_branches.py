"""A product in flight that both sides of a branch had waited for was read under its old name."""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr):
    a, b = a_desc.load([0, 0]), b_desc.load([0, 0])
    acc = tl.dot(a, b)
    more = tl.zeros((BM, BN), dtype=tl.float32)
    if K > 2:
        more = tl.dot(tl.dot(a, a).to(tl.float16), b, more)
    c_desc.store([0, 0], tl.minimum(acc, more))


@pytest.mark.parametrize("k", [2, 3])
def test_what_follows_the_branch_has_a_name_of_its_own(k: int) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 64), "f16", (64, 64)),
            "b_desc": Array((64, 64), "f16", (64, 64)),
            "c_desc": Array((64, 64), "f32", (64, 64), 0, 0),
            "K": k,
        },
        constants={"BM": 64, "BN": 64},
        grid=(1, 1, 1),
    )
    assert run_case(case).specialized
