"""Vectors that a consumer reads in a loop of products are read an iteration ahead
(`passes.ahead`).
"""

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa
import tawa.language as tl
from tawa.ir import parse, tile


@tawa.jit
def scaled_rows(A, B, s_ptr, t_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr,
                BK: tl.constexpr):  # fmt: skip
    """One vector by the iteration's number under a mask, one by a pointer that is moved on."""
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    at = 0
    for k in range(0, K, BK):
        a, b = A.load([0, k]), B.load([k, 0])
        s = tl.load(s_ptr + k // BK + rm, mask=rm < K - k, other=2.0)
        t = tl.load(t_ptr + at + rn)
        acc += tl.dot(a, b) * s[:, None] * t[None, :]
        at += 3
    tl.store(c_ptr + rm[:, None] * BN + rn[None, :], acc)


@tawa.jit
def scaled_by_a_number(A, B, s_ptr, n_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr,
                       BK: tl.constexpr):  # fmt: skip
    """One number that scales what is carried; another decides, and stays where it is."""
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a, b = A.load([0, k]), B.load([k, 0])
        acc = tl.dot(a, b, acc * tl.load(s_ptr + tl.minimum(k + BK, K) // BK))
        if tl.load(n_ptr + k // BK) > 0:
            acc += 1
    tl.store(c_ptr + rm[:, None] * BN + rn[None, :], acc)


@tawa.jit
def written_beside(A, B, s_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each iteration writes what the next one reads."""
    rn = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a, b = A.load([0, k]), B.load([k, 0])
        s = tl.load(s_ptr + rn)
        acc = tl.dot(a, b) * s[None, :] + acc
        tl.store(s_ptr + rn, s + tl.sum(acc, 0))


@tawa.jit
def written_by_ptx(A, B, s_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Inline PTX of each iteration may write the number that the next one reads."""
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a, b = A.load([0, k]), B.load([k, 0])
        acc = tl.dot(a, b, acc * tl.load(s_ptr))
        tl.inline_asm_elementwise(
            "st.global.f32 [$1], 0f40000000; mov.u32 $0, 0;", "=r,l,~{memory}", [s_ptr],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.store(c_ptr + rm[:, None] * BN + rn[None, :], acc)


def arguments(rng, iterations):
    depth = max(64, 64 * iterations)
    a = rng.integers(-2, 3, (64, depth)).astype(np.float16)
    b = rng.integers(-2, 3, (depth, 64)).astype(np.float16)
    return a, b, [tawa.TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b)]


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
def test_the_same_values_for_any_number_of_trips(iterations):
    rng = np.random.default_rng(iterations)
    a, b, descs = arguments(rng, iterations)
    s, t = (rng.integers(1, 4, 64 + 3 * iterations).astype(np.float32) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    given = (*descs, s, t, c, 64 * iterations)
    tawa.simulate(scaled_rows, *given, grid=(1,), BM=64, BN=64, BK=64)
    expected = np.zeros((64, 64), np.float32)
    for iteration in range(iterations):
        of = slice(64 * iteration, 64 * iteration + 64)
        row = np.where(
            np.arange(64) < 64 * (iterations - iteration), s[iteration : iteration + 64], 2
        )
        part = a[:, of].astype(np.float32) @ b[of].astype(np.float32)
        expected += part * row[:, None] * t[3 * iteration : 3 * iteration + 64]
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_a_number_is_read_ahead_and_a_decision_is_not(iterations):
    rng = np.random.default_rng(iterations)
    a, b, descs = arguments(rng, iterations)
    s = rng.integers(1, 3, 1 + iterations).astype(np.float32)
    n = rng.integers(0, 2, max(iterations, 1)).astype(np.int32)
    c = np.zeros((64, 64), np.float32)
    given = (*descs, s, n, c, 64 * iterations)
    tawa.simulate(scaled_by_a_number, *given, grid=(1,), BM=64, BN=64, BK=64)
    expected = np.zeros((64, 64), np.float32)
    for iteration in range(iterations):
        of = slice(64 * iteration, 64 * iteration + 64)
        expected = expected * s[iteration + 1] + a[:, of].astype(np.float32) @ b[of].astype(
            np.float32
        )
        expected += n[iteration] > 0
    np.testing.assert_array_equal(c, expected)
    if iterations == 3:
        (loop,) = loops_of(scaled_by_a_number, *given)
        handed = {value.owner for value in loop.body.block.last_op.operands}
        ahead = [op in handed for op in loop.body.block.ops if isinstance(op, tile.Load)]
        assert sorted(ahead) == [False, True]


def loops_of(kernel, *args):
    compiled = kernel.compile(*args, grid=(1,), BM=64, BN=64, BK=64)
    assert compiled.plan.specialized
    module = parse(compiled.asm["aref"])
    return [op for op in module.walk() if isinstance(op, scf.ForOp) and _has_dot(op)]


def _has_dot(loop):
    return any(isinstance(op, tile.Dot) for op in loop.body.block.ops)


def test_what_is_read_is_carried_to_the_next_trip():
    _, _, descs = arguments(np.random.default_rng(0), 2)
    vectors = [tawa.array((128,), "f32")] * 2
    (loop,) = loops_of(scaled_rows, *descs, *vectors, tawa.array((64, 64), "f32"), 128)
    end = loop.body.block.last_op
    loads = [op for op in loop.body.block.ops if isinstance(op, tile.Load)]
    assert len(loads) == 2
    assert all(load.result in end.operands for load in loads)


def test_a_loop_that_writes_reads_in_its_own_trip():
    _, _, descs = arguments(np.random.default_rng(0), 2)
    (loop,) = loops_of(written_beside, *descs, tawa.array((64,), "f32"), 128)
    end = loop.body.block.last_op
    loads = [op for op in loop.body.block.ops if isinstance(op, tile.Load)]
    assert len(loads) == 1
    assert loads[0].result not in end.operands


def test_no_number_is_read_before_inline_ptx_that_may_write_it():
    _, _, descs = arguments(np.random.default_rng(0), 3)
    s, c = np.ones(4, np.float32), np.zeros((64, 64), np.float32)
    made = written_by_ptx.compile(*descs, s, c, 192, BM=64, BN=64, BK=64)
    kernel = parse(made.asm["hopper"])
    (load,) = (op for op in kernel.walk() if isinstance(op, tile.Load))
    assert isinstance(load.parent_op(), scf.ForOp)
    assert not load.operands[1:]
