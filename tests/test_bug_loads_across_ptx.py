"""Inline PTX may write what a descriptor reads: no load is merged or hoisted across it."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.ir import hopper, parse, tile
from tawa.ir.walk import all_of, walk

WRITE = tl.constexpr("st.global.f32 [$1], 0f40000000; mov.u32 $0, 0;")


@tawa.jit
def read_again(A, a_ptr, c_ptr):
    rows = tl.arange(0, 64)
    before = A.load([0, 0])
    tl.inline_asm_elementwise(WRITE, "=r,l,~{memory}", [a_ptr], tl.int32, False, 1)
    tl.store(c_ptr + rows[:, None] * 64 + rows[None, :], before + A.load([0, 0]))


def test_a_block_is_read_again_after_ptx() -> None:
    """And by threads: TMA would not see what they wrote."""
    a, c = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    made = read_again.compile(tawa.TensorDescriptor.from_tensor(a, [64, 64]), a, c)
    final = parse(made.asm["hopper"])
    assert len(all_of(final, hopper.TmaLoad)) == 1
    assert len(all_of(final, tile.Load)) == 1


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


@tawa.jit
def written_then_read(x_ptr, out_ptr, PTX: tl.constexpr, CLOBBERS: tl.constexpr):
    at = tl.arange(0, 256)
    tl.inline_asm_elementwise(PTX, CLOBBERS, [x_ptr + at], tl.int32, False, 1)
    tl.store(out_ptr + at, tl.load(x_ptr + 255 - at))


@pytest.mark.parametrize("clobbers", ["=r,l", "=r,l,~{memory}"])
def test_threads_meet_between_ptx_and_what_it_wrote(clobbers):
    x, out = np.zeros(256, np.float32), np.zeros(256, np.float32)
    made = written_then_read.compile(x, out, WRITE.value, clobbers)
    assert len(all_of(parse(made.asm["hopper"]), hopper.NamedBarrier)) >= 1


@tawa.jit
def stored_then_told(A, c_ptr, flag_ptr, value, PTX: tl.constexpr):
    A.store([0, 0], tl.zeros((64, 64), tl.float32) + value)
    tl.inline_asm_elementwise(PTX, "=r,l,~{memory}", [flag_ptr], tl.int32, False, 1)


def test_ptx_that_may_publish_waits_for_bulk_stores():
    a, c = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    desc = tawa.TensorDescriptor.from_tensor(a, [64, 64])
    made = stored_then_told.compile(desc, c, np.zeros(1, np.float32), 1.0, WRITE.value)
    order = [
        type(op)
        for op in walk(parse(made.asm["hopper"]))
        if isinstance(op, (hopper.BulkWait, tile.AsmEffect))
    ]
    assert order.index(hopper.BulkWait) < order.index(tile.AsmEffect)
