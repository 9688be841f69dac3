"""A tile leaves through the slot of a loaded one only where both have one element type.

A slot of f16 was lent to a store of bf16, which the proof refused: a view that is none of its map.
"""

import pytest

import tawa.language as tl
from fuzz_kernels import Array, Case, written
from fuzz_run import run_case


def kernel(a_desc, b_desc, d_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = d_desc.load([0, 0]).to(tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc.to(c_desc.dtype))


def case_of(dtype: str) -> Case:
    return written(
        kernel,
        {
            "a_desc": Array((128, 64), "f16", (128, 32)),
            "b_desc": Array((64, 64), "f16", (32, 64)),
            "d_desc": Array((128, 64), "f16", (128, 64)),
            "c_desc": Array((128, 64), dtype, (128, 64), 0, 0),
            "K": 64,
        },
        constants={"BM": 128, "BN": 64, "BK": 32},
        grid=(1, 1, 1),
        options={"store": "slot"},
    )


@pytest.mark.parametrize(("dtype", "refused"), [("f16", False), ("bf16", True)])
def test_the_slot_of_the_same_type(dtype, refused) -> None:
    done = run_case(case_of(dtype), seeds=2)
    assert done.verdict == "equal"
    assert ("loaded alone by TMA" in done.refused) == refused
