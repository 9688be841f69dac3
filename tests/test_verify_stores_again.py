"""Tiles that one loop stores by TMA and a later loop reads and stores again."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.ir import parse
from tawa.target import H200
from tawa.verify import Refused, check

WRITTEN = 'hopper.bulk_wait {pending = #builtin.int<0>, read = false, by = "warpgroup"}\n'


@tawa.jit
def twice(a_desc, b_desc, d_desc, N, B: tl.constexpr):
    m = tl.program_id(0) * B
    a = a_desc.load([m, 0])
    for n in range(0, N, B):
        d_desc.store([m, n], tl.dot(a, b_desc.load([0, n])).to(tl.float16))
    for n in range(0, N, B):
        more = tl.dot(a, b_desc.load([B, n])) + d_desc.load([m, n])
        d_desc.store([m, n], more.to(tl.float16))


def described(array):
    return tawa.TensorDescriptor(array, array.shape, (array.shape[1], 1), [64, 64])


def test_stores_of_two_loops_are_proved_and_need_their_wait():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 64), (128, 128)))
    d = np.zeros((64, 128), np.float16)
    given = tuple(map(described, (a, b, d)))
    made = twice.compile(*given, 128, B=64, num_warps=4)
    assert made.plan.specialized
    tawa.simulate(twice, *given, 128, grid=(1,), B=64, num_warps=4)
    np.testing.assert_array_equal(d, a @ b[:64] + a @ b[64:])
    text = made.asm.text("hopper")
    check(parse(text), H200)
    assert WRITTEN in text
    with pytest.raises(Refused) as refused:
        check(parse(text.replace(WRITTEN, WRITTEN.replace("false", "true"))), H200)
    assert refused.value.rule.name == "global order"
