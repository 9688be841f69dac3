"""A product that an iteration of a loop may throw away is waited for on that path too.

Another product was started in its registers, which the proof refused.
"""

from collections.abc import Callable

import pytest

import tawa.language as tl
from fuzz_kernels import Array, written
from fuzz_run import run_case


def put_back(a_desc, b_desc, c_desc, K, keep, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc += tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]))
        if k // BK >= keep:
            acc = tl.zeros((BM, BN), dtype=tl.float32)
    c_desc.store([0, 0], acc)


def stored(a_desc, b_desc, c_desc, K, keep, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    start = tl.zeros((BM, BN), dtype=tl.float32)
    a, b = a_desc.load([0, 0]), b_desc.load([0, 0])
    for k in range(0, K, BK):
        other = tl.dot(a, b, start)
        if k // BK < keep:
            c_desc.store([0, 0], other)
        start += 1.0


def nested(a_desc, b_desc, c_desc, K, keep, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    start = tl.zeros((BM, BN), dtype=tl.float32)
    a, b = a_desc.load([0, 0]), b_desc.load([0, 0])
    for k in range(0, K, BK):
        if k > 0:
            other = tl.dot(a, b, start)
            if k // BK < keep:
                c_desc.store([0, 0], other)
        start += 1.0


@pytest.mark.parametrize("keep", [0, 2])
@pytest.mark.parametrize("mma_depth", [1, 2])
@pytest.mark.parametrize("function", [put_back, stored, nested])
def test_it_is_waited_for(function: Callable[..., None], mma_depth: int, keep: int) -> None:
    case = written(
        function,
        {
            "a_desc": Array((64, 256), "f16", (64, 64)),
            "b_desc": Array((256, 32), "f16", (64, 32)),
            "c_desc": Array((256, 32), "f32", (64, 32), 0, 0),
            "K": 256,
            "keep": keep,
        },
        constants={"BM": 64, "BN": 32, "BK": 64},
        grid=(1, 1, 1),
        options={"mma_depth": mma_depth, "specialize": True},
    )
    assert run_case(case, seeds=1).verdict == "equal"
