"""What threads compute for a product to add to is in its registers before the fence.

The C++ compiler left copies of one value (a bias), and choices between two, to where the product
is: ptxas serialised it in every plan, down to the ordinary kernel.
"""

from collections.abc import Callable

import pytest

import tawa.language as tl
from fuzz_kernels import Array, Case, written
from fuzz_run import assert_not_serialised, compile_case, run_case
from tawa.runtime import nvrtc


def of_rows(a_desc, b_desc, bias_ptr, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32) + tl.load(bias_ptr + tl.arange(0, BM))[:, None]
    c_desc.store([0, 0], tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc))


def of_columns(a_desc, b_desc, bias_ptr, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32) + tl.load(bias_ptr + tl.arange(0, BN))[None, :]
    c_desc.store([0, 0], tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc))


def of_indices(a_desc, b_desc, bias_ptr, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    acc = (tl.arange(0, BM)[:, None] + tl.arange(0, BN)[None, :]).to(tl.float32)
    c_desc.store([0, 0], tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc))


def chosen(a_desc, b_desc, bias_ptr, c_desc, BM: tl.constexpr, BN: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    acc = acc if tl.load(bias_ptr) > 0 else acc + 2
    c_desc.store([0, 0], tl.dot(a_desc.load([0, 0]), b_desc.load([0, 0]), acc))


def case_of(function: Callable[..., None]) -> Case:
    return written(
        function,
        {
            "a_desc": Array((128, 64), "bf16", (128, 64)),
            "b_desc": Array((64, 64), "bf16", (64, 64)),
            "bias_ptr": Array((128,), "f32"),
            "c_desc": Array((128, 64), "f32", (128, 64), 0, 0),
        },
        constants={"BM": 128, "BN": 64},
        grid=(1, 1, 1),
    )


@pytest.mark.parametrize("function", [of_rows, of_columns, of_indices, chosen])
def test_it_is_pinned_before_the_fence(function: Callable[..., None]) -> None:
    case = case_of(function)
    assert run_case(case, seeds=1).specialized
    made = compile_case(case)
    text = made.asm["cuda"]
    role = text.index("role_mma(")
    assert text.index("pin(acc", role) < text.index("wgmma_fence();", role)
    if nvrtc.is_available():
        assert_not_serialised(made)
