"""A product that one side of a branch alone uses is waited for on the other side too.

A role that ended there left it in flight, which the proof refused.
"""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def kernel(
    a_desc, b_desc, c_desc, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    acc = tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]))
    if flag > 2:
        return
    c_desc.store([0, 0], acc)


@pytest.mark.parametrize("flag", [2, 3])
@pytest.mark.parametrize("specialize", [True, False])
def test_nothing_is_left_in_flight(flag: int, specialize: bool) -> None:
    case = written(
        kernel,
        {
            "a_desc": Array((64, 64), "f16", (64, 64)),
            "b_desc": Array((64, 32), "f16", (64, 32)),
            "c_desc": Array((64, 32), "f32", (64, 32), 0, 0),
            "flag": flag,
        },
        constants={"BM": 64, "BN": 32, "BK": 64},
        grid=(1, 1, 1),
        options={"specialize": specialize},
    )
    assert run_case(case, seeds=1).verdict == "equal"
