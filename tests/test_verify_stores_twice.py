"""A tile that each iteration stores by TMA to one place: an iteration waits for the one before."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.ir import parse
from tawa.target import H200
from tawa.verify import Refused, check

WRITTEN = "hopper.bulk_wait {pending = #builtin.int<0>, read = false"


@tawa.jit
def overwritten(d_desc, N, STEP: tl.constexpr):
    for n in range(0, N):
        d_desc.store([0, n * STEP], tl.zeros((64, 64), tl.float16) + n)


def made(step):
    d = np.zeros((64, 64 * 8), np.float16)
    desc = tawa.TensorDescriptor(d, d.shape, (d.shape[1], 1), [64, 64])
    return overwritten.compile(desc, 8, STEP=step, grid=(1,), num_warps=4).asm.text("hopper")


@pytest.mark.parametrize("step", [0, 32])
def test_iterations_that_meet_wait(step):
    text = made(step)
    check(parse(text), H200)
    assert WRITTEN in text
    with pytest.raises(Refused) as refused:
        check(parse(text.replace(WRITTEN, WRITTEN.replace("false", "true"))), H200)
    assert refused.value.rule.name == "global order"


def test_iterations_that_move_on_by_a_tile_need_not():
    assert made(64).count(WRITTEN) == 1  # behind the loop
    assert made(32).count(WRITTEN) == 2
