"""Inline PTX may write what a descriptor reads: no load is merged or hoisted across it."""

import numpy as np

import tawa
import tawa.language as tl
from tawa.ir import hopper, parse
from tawa.ir.walk import all_of

WRITE = tl.constexpr("st.global.f32 [$1], 0f40000000; mov.u32 $0, 0;")


@tawa.jit
def read_again(A, a_ptr, c_ptr):
    rows = tl.arange(0, 64)
    before = A.load([0, 0])
    tl.inline_asm_elementwise(WRITE, "=r,l,~{memory}", [a_ptr], tl.int32, False, 1)
    tl.store(c_ptr + rows[:, None] * 64 + rows[None, :], before + A.load([0, 0]))


def test_a_block_is_read_again_after_ptx() -> None:
    a, c = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    made = read_again.compile(tawa.TensorDescriptor.from_tensor(a, [64, 64]), a, c)
    assert len(all_of(parse(made.asm["hopper"]), hopper.TmaLoad)) == 2


@tawa.jit
def rewritten_in_a_loop(A, a_ptr, c_ptr, n):
    at = tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for _ in range(0, n):
        acc += A.load([0, 0])
        tl.inline_asm_elementwise(WRITE, "=r,l,~{memory}", [a_ptr], tl.int32, False, 1)
    tl.store(c_ptr + at[:, None] * 64 + at[None, :], acc)


def test_no_role_loads_ahead_of_ptx_that_may_write():
    """The launch asks whether the arrays are apart, or all stays in one role."""
    a, c = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    desc = tawa.TensorDescriptor.from_tensor(a, [64, 64])
    made = rewritten_in_a_loop.compile(desc, a, c, 4)
    assert not made.plan.specialized or ("A", "a_ptr") in made.plan.guards
