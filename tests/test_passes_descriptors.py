"""Pointer accesses become descriptor accesses where that is the same program, and only there."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.runtime.dispatch import guards_hold


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def promoted(compiled) -> int:
    text = compiled.asm.text("hopper")
    return text.count("hopper.tma_load") + text.count("hopper.tma_store")


@tawa.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    in_group = GROUP * tl.cdiv(N, BN)
    first = pid // in_group * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    pm, pn = first + pid % in_group % height, pid % in_group // height
    om, on = (pm * BM + tl.arange(0, BM)) % M, (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    a = a_ptr + om[:, None] * sam + ok[None, :] * sak
    b = b_ptr + ok[:, None] * sbk + on[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=ok[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK * sak
        b += BK * sbk
    rows, columns = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    c = c_ptr + scm * rows[:, None] + scn * columns[None, :]
    tl.store(c, acc.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


# Rows of 72 and 104 elements are multiples of 16 bytes, and no multiples of 16.
@pytest.mark.parametrize(
    ("m", "n", "k"), [(100, 144, 80), (128, 128, 64), (64, 64, 0), (70, 104, 72)]
)
def test_the_tutorial_product_goes_by_tma(m, n, k) -> None:
    a, b = integers(m, k), integers(k, n, seed=1)
    c = np.full((m, n), np.nan, np.float16)
    arguments = (a, b, c, m, n, k, max(k, 1), 1, n, 1, n, 1)
    meta = {"BM": 64, "BN": 64, "BK": 64, "GROUP": 2}
    grid = (-(-m // 64) * -(-n // 64),)
    if k > 1:
        assert promoted(product.compile(*arguments, grid=grid, **meta)) == 3
    product[grid](*arguments, **meta)
    assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def test_rows_of_f32_by_eight_and_of_f8_by_sixteen() -> None:
    """A row of 8 elements is 32 bytes of f32, 16 of f16 and 8 of f8, which TMA cannot step over."""
    for dtype, count in (("f32", 3), ("f16", 3), ("f8e4m3", 0)):
        a, b, c = (
            tawa.array((72, 72), dtype),
            tawa.array((72, 72), dtype),
            tawa.array((72, 72), "f16"),
        )
        sizes = (72, 72, 72, 72, 1, 1, 72, 72, 1)
        kernel = product.compile(a, b, c, *sizes, BM=64, BN=64, BK=64, GROUP=2)
        assert promoted(kernel) >= count
        refused = {note.feature for note in kernel.declined if "multiple of 16" in note.reason}
        assert bool(refused) == (count == 0)


@tawa.jit
def copy(a, out, M, N, s, so, BM: tl.constexpr, BN: tl.constexpr):
    r, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    mask = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(a + r[:, None] * s + c[None, :], mask=mask, other=0.0)
    tl.store(out + r[:, None] * so + c[None, :], x, mask=mask)


def test_a_stride_that_counts_down_takes_the_plain_kernel() -> None:
    a = integers(128, 64)
    out = np.zeros_like(a)
    copy[2,](a[::-1], out, 128, 64, -64, 64, BM=64, BN=64)
    assert np.array_equal(out, a[::-1])


@tawa.jit
def late(a, out, M, s, so, BM: tl.constexpr, BN: tl.constexpr):
    r, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    x = tl.load(a + r[:, None] * s + c[None, :], mask=(r < M - 200)[:, None], other=0.0)
    tl.store(out + r[:, None] * so + c[None, :], x)


def test_a_bound_below_zero_loads_nothing() -> None:
    a = integers(128, 64)
    out = np.ones_like(a)
    late[2,](a, out, 128, 64, 64, BM=64, BN=64)
    assert not out.any()


@tawa.jit
def carried(a, out, M, s, so, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    x = tl.zeros((B, B), tl.float16)
    for again in range(2):
        for t in range(n):
            rows = t * B + tl.arange(0, B)
            at = (again * n + t) * B * so + tl.arange(0, B)[:, None] * so + columns[None, :]
            tl.store(out + at, x, mask=(rows < M)[:, None])
            x = tl.load(a + (rows % M)[:, None] * s + columns[None, :])


def test_wrapped_rows_that_outlive_their_trip_stay_pointer_loads() -> None:
    m, block, n = 100, 64, 2
    a = integers(m, 64)
    wanted, x = np.zeros((4 * block, 64), np.float16), np.zeros((block, block), np.float16)
    for turn in range(2 * n):
        rows = turn % n * block + np.arange(block)
        inside = rows < m
        wanted[turn * block : (turn + 1) * block][inside] = x[inside]
        x = a[rows % m]
    out = np.zeros_like(wanted)
    carried[1,](a, out, m, 64, 64, n, B=block)
    assert np.array_equal(out, wanted)


@tawa.jit
def unsigned(a, out, s, so, BM: tl.constexpr, BN: tl.constexpr):
    r, c = tl.arange(0, BM), tl.arange(0, BN)
    inside = (r - 8).to(tl.uint32) < 40
    x = tl.load(a + r[:, None] * s + c[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + r[:, None] * so + c[None, :], x)


def test_a_number_made_unsigned_is_another_number() -> None:
    a = integers(64, 64)
    out = np.ones_like(a)
    unsigned[1,](a, out, 64, 64, BM=64, BN=64)
    wanted = a.copy()
    wanted[:8] = wanted[48:] = 0
    assert np.array_equal(out, wanted)


@tawa.jit
def batched(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    one, ok = tl.program_id(1), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + (one * M * K + (rows % M)[:, None] * K + (k + ok)[None, :]))
        y = tl.load(b + (one * K * N + (k + ok)[:, None] * N + columns[None, :]))
        acc = tl.dot(x, y, acc)
    at = c + (one * M * N + rows[:, None] * N + columns[None, :])
    tl.store(at, acc.to(tl.float16), mask=rows[:, None] < M)


@pytest.mark.parametrize("m", [128, 104])
def test_wrapped_rows_of_a_batch_go_by_tma(m) -> None:
    a, b = integers(3, m, 64), integers(3, 64, 64, seed=1)
    c = np.full((3, m, 64), np.nan, np.float16)
    meta = {"M": m, "N": 64, "K": 64, "BM": 64, "BN": 64, "BK": 32}
    compiled = batched.compile(a, b, c, **meta, grid=(2, 3))
    assert compiled.asm.text("hopper").count("hopper.tma_load") == 2
    batched[2, 3](a, b, c, **meta)
    assert np.array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


@tawa.jit
def either(a, b, out, n: tl.constexpr, B: tl.constexpr):
    pid, i, j = tl.program_id(0), tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    if pid >= n:
        rows = (pid - n) * B + i
        for k in range(0, 128, B):
            x = tl.load(a + rows * 128 + k + j)
            tl.store(out + (pid * B + i) * 128 + k + j, tl.dot(x, x).to(tl.float16))
    elif pid != 1:
        rows = pid * B + i
        for k in range(0, 128, B):
            x = tl.load(b + rows * 128 + k + j)
            tl.store(out + (pid * B + i) * 128 + k + j, tl.dot(x, x).to(tl.float16))


def test_a_launch_asks_of_an_access_in_a_branch_what_its_programs_do() -> None:
    block, n = 64, 2
    a, b = integers(2 * block, 128), integers(2 * block, 128, seed=1)
    out = np.zeros((4 * block, 128), np.float16)
    compiled = either.compile(a, b, out, n=n, B=block, grid=(4,))
    assert any("where(((program(0)) >= (2))" in guard.condition for guard in compiled.guards)
    assert any("!= (1)" in guard.condition for guard in compiled.guards)
    assert guards_hold(compiled, {"a": a, "b": b, "out": out, "n": n, "B": block}, (4,))
    either[4,](a, b, out, n=n, B=block)
    for pid in (0, 2, 3):
        x = (a if pid >= n else b)[pid % n * block :][:block].astype(np.float32)
        wanted = np.hstack([x[:, k : k + block] @ x[:, k : k + block] for k in (0, block)])
        assert np.array_equal(out[pid * block :][:block], wanted.astype(np.float16))


@tawa.jit
def wrapping(a, out, n, B: tl.constexpr):
    pid, i, j = tl.program_id(0), tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    if n + 1 < pid:
        rows = (pid - 2) * B + i
        for k in range(0, 128, B):
            x = tl.load(a + rows * 128 + k + j)
            tl.store(out + (pid * B + i) * 128 + k + j, tl.dot(x, x).to(tl.float16))


def test_a_branch_on_what_may_wrap_leaves_no_program_out() -> None:
    """Of whole numbers n + 1 is never below; of 32 bits it is, and programs 0 and 1 read a."""
    a, out = tawa.array((256, 128), "f16"), tawa.array((256, 128), "f16")
    compiled = wrapping.compile(a, out, 2**31 - 1, B=64, grid=(4,))
    asked = [guard.condition for guard in compiled.guards if "never_negative" in guard.condition]
    assert asked
    assert not any("where" in condition for condition in asked)


@tawa.jit
def pairs(a, out, n, steps, B: tl.constexpr):
    pid, i, j = tl.program_id(0), tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    one = pid - pid // n * n
    for k in range(0, 128, B):
        x = tl.load(a + one * steps + i * 128 + k + j)
        tl.store(out + pid * B * 128 + i * 128 + k + j, tl.dot(x, x).to(tl.float16))


def test_what_remains_of_a_quotient_is_steps_of_a_stride() -> None:
    """Not steps of the divisor, which is a multiple of 16 too, that count down."""
    a, n, block = integers(16 * 64, 128), 16, 64
    out = np.zeros((18 * block, 128), np.float16)
    arguments = {"a": a, "out": out, "n": n, "steps": block * 128, "B": block}
    compiled = pairs.compile(**arguments, grid=(18,))
    assert promoted(compiled) == 2
    assert guards_hold(compiled, arguments, (18,))
    pairs[18,](**arguments)
    x = a[block : 2 * block].astype(np.float32)
    wanted = np.hstack([x[:, k : k + block] @ x[:, k : k + block] for k in (0, block)])
    assert np.array_equal(out[17 * block :], wanted.astype(np.float16))


@tawa.jit
def lengthy(n, m, a, out, B: tl.constexpr):
    pid, i, j = tl.program_id(0), tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    one = tl.program_id(1).to(tl.int64)
    for s in tl.static_range(17):
        one += tl.program_id(1) // (s + 2)
    if one * one >= m:
        rows = (pid - 2) * B + i
        for k in range(0, 128, B):
            x = tl.load(a + rows * 128 + k + j)
            tl.store(out + (pid * B + i) * 128 + k + j, tl.dot(x, x).to(tl.float16))


def test_a_branch_on_what_is_too_long_to_say_leaves_no_program_out() -> None:
    """It was said as the first argument: a launch by n < m had all programs left out."""
    arguments = {"n": -7, "m": -5, "a": integers(256, 128), "out": integers(256, 128), "B": 64}
    compiled = lengthy.compile(**arguments, grid=(4,))
    assert any("never_negative" in guard.condition for guard in compiled.guards)
    assert not guards_hold(compiled, arguments, (4,))


@tawa.jit
def from_the_last(x, states, C: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    head, rows = tl.program_id(1), tl.program_id(0) * B + tl.arange(0, B)[:, None]
    columns, total = tl.arange(0, D)[None, :], tl.zeros((B, D), tl.float32)
    for k in range(C, 0, -1):
        base = states + (head * (C + 1) + k) * D * D
        tl.store(base + rows * D + columns, total.to(tl.float16), mask=rows < D)
        at = (head * C + k - 1) * D
        one = tl.load(x + (at + rows) * D + columns, mask=rows < D, other=0.0)
        other = tl.load(x + (at + tl.arange(0, D)[:, None]) * D + columns)
        total += tl.dot(one, other)


def test_states_are_stored_from_the_last_to_the_first() -> None:
    """What keeps the number of a state from falling below 0 stands beside the rows of the mask."""
    heads, chunks, d = 2, 2, 64
    x = integers(heads * chunks * d, d)
    states = np.zeros((heads, chunks + 1, d, d), np.float16)
    arguments = {"x": x, "states": states, "C": chunks, "D": d, "B": d}
    compiled = from_the_last.compile(**arguments, grid=(1, heads))
    assert promoted(compiled) == 3
    assert guards_hold(compiled, arguments, (1, heads))
    from_the_last[1, heads](**arguments)
    last = x.reshape(heads, chunks, d, d)[:, 1].astype(np.float32)
    assert np.array_equal(states[:, 1], (last @ last).astype(np.float16))
