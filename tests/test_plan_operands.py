"""`operand NAME a=registers|shared` of a plan, on kernels without a mapping."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import PlanError


@tawa.jit
def multiply(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a * 2.0, b)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


def compiled(m: int, n: int, place: str = ""):
    arrays = [np.zeros(s, np.float16) for s in ((m, 64), (64, n))]
    arrays.append(np.zeros((m, n), np.float32))
    pins = {}
    if place:
        plan = str(multiply.compile(*arrays, m, n, 64, grid=(1,)).plan)
        pins = {"plan": f"{plan}operand c@18 a={place}\n"}
    return multiply.compile(*arrays, m, n, 64, grid=(1,), **pins)


def test_a_computed_operand_is_taken_from_where_the_plan_says():
    assert "_registers_" in compiled(64, 64).asm["cuda"]
    assert "_registers_" not in compiled(64, 64, "shared").asm["cuda"]
    assert "_registers_" in compiled(64, 64, "registers").asm["cuda"]


def test_a_product_that_wgmma_does_not_take_has_no_choice():
    with pytest.raises(PlanError, match="operand c@18 a=shared") as error:
        compiled(16, 16, "shared")
    assert "M = 16 is not a multiple of 64" in str(error.value)
