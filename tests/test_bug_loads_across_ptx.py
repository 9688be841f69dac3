"""Inline PTX may write what a descriptor reads: no load is merged or hoisted across it."""

import numpy as np

import tawa
import tawa.language as tl
from tawa.ir import hopper, parse
from tawa.ir.walk import all_of


@tawa.jit
def read_again(A, a_ptr, c_ptr):
    rows = tl.arange(0, 64)
    before = A.load([0, 0])
    tl.inline_asm_elementwise(
        "st.global.f32 [$1], 0f40000000; mov.u32 $0, 0;", "=r,l,~{memory}", [a_ptr],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.store(c_ptr + rows[:, None] * 64 + rows[None, :], before + A.load([0, 0]))


def test_a_block_is_read_again_after_ptx() -> None:
    a, c = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    made = read_again.compile(tawa.TensorDescriptor.from_tensor(a, [64, 64]), a, c)
    assert len(all_of(parse(made.asm["hopper"]), hopper.TmaLoad)) == 2
