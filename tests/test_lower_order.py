"""The order of the program between the threads of a role, and past asynchronous stores."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from proof_kernels import KERNELS
from tawa.ir import hopper
from tawa.ir.walk import all_of

SEEDS = range(3)


@tawa.jit
def reverse(a, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(a + i, tl.load(a + i) * 2)
    tl.store(o + i, tl.load(a + (B - 1 - i)))


@tawa.jit
def count(a, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(a + i, 1.0)
    tl.store(o + i, tl.load(a + (B - 1 - i)))


@tawa.jit
def swap(a, b, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(a + i)
    y = tl.load(b + i)
    tl.store(a + (B - 1 - i), y)
    tl.store(b + i, x)


@tawa.jit
def rows(a, n, s, B: tl.constexpr):
    i = tl.arange(0, B)
    for row in range(1, n):
        before = tl.load(a + (row - 1) * s + (B - 1 - i))
        tl.store(a + row * s + i, tl.load(a + row * s + i) + before)


@tawa.jit
def branches(a, o, flag, B: tl.constexpr):
    i = tl.arange(0, B)
    if flag > 0:
        tl.store(a + i, i.to(tl.float32))
    else:
        tl.store(a + (B - 1 - i), i.to(tl.float32))
    tl.store(o + i, tl.load(a + (B - 1 - i)))


@tawa.jit
def increment(a, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(a + i, tl.load(a + i, mask=i < n) + 1, mask=i < n)


@tawa.jit
def halves(a, B: tl.constexpr):
    i = tl.arange(0, B) // 2
    tl.store(a + i, tl.load(a + i) + 1)


@tawa.jit
def two_names(a, b, B: tl.constexpr):
    r = tl.arange(0, B)
    v = r[:, None] + r[None, :] * 0
    a.store([0, 0], v.to(tl.float16))
    b.store([8, 0], (v + 100).to(tl.float16))


@tawa.jit
def two_outputs(a, b, c, d, K, T: tl.constexpr):
    acc = tl.zeros((T, T), tl.float32)
    for k in range(0, K, T):
        acc = tl.dot(a.load([0, k]), b.load([k, 0]), acc)
    c.store([0, 0], acc.to(tl.float16))
    d.store([0, 0], (acc + 1).to(tl.float16))


@tawa.jit
def fix_up(a, part, lock, o, s, T: tl.constexpr):
    p = tl.program_id(0)
    r = tl.arange(0, T)
    x = tl.load(a + (p * T + r)[:, None] * s + r[None, :])
    y = tl.dot(x, x)
    if p == 0:
        tl.store(part + r[:, None] * T + r[None, :], y.to(tl.float16))
        tl.atomic_xchg(lock, 1, sem="release")
    else:
        while tl.atomic_cas(lock, 1, 1, sem="acquire") != 1:
            pass
        z = tl.load(part + r[:, None] * T + r[None, :])
        tl.store(o + r[:, None] * T + r[None, :], tl.dot(z, x).to(tl.float32))


@tawa.jit
def hand_over(a, part, lock, s, T: tl.constexpr):
    """What other kernels read once they see the lock: nothing here keeps the store from TMA."""
    r = tl.arange(0, T)
    x = tl.load(a + r[:, None] * s + r[None, :])
    tl.store(part + r[:, None] * T + r[None, :], tl.dot(x, x).to(tl.float16))
    tl.atomic_xchg(lock, 1, sem="release")


@tawa.jit
def last_sums(a, part, counter, o, s, n, T: tl.constexpr):
    p = tl.program_id(0)
    r = tl.arange(0, T)
    x = tl.load(a + (p * T + r)[:, None] * s + r[None, :])
    tl.store(part + p * T * T + r[:, None] * T + r[None, :], tl.dot(x, x))
    if tl.atomic_add(counter, 1) == n - 1:
        acc = tl.zeros((T, T), tl.float32)
        for q in range(n):
            acc += tl.load(part + q * T * T + r[:, None] * T + r[None, :])
        tl.store(o + r[:, None] * T + r[None, :], acc)


def run(kernel, *arguments, grid=(1,), seed=0, **options):
    tawa.simulate(kernel, *arguments, grid=grid, seed=seed, level="hopper", **options)


def lines(kernel, *arguments, grid=(1,), **options) -> list[str]:
    return kernel.compile(*arguments, grid=grid, **options).asm["hopper"].splitlines()


def barriers(*given, **options) -> int:
    return sum("hopper.named_barrier" in line for line in lines(*given, **options))


def ramp(count: int = 512) -> np.ndarray:
    return np.arange(count, dtype=np.float32) % 17


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_sees_the_stores_of_other_threads(seed: int) -> None:
    a, o = ramp(), np.zeros(512, np.float32)
    run(reverse, a, o, seed=seed, B=512)
    assert np.array_equal(o, 2 * ramp()[::-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_sees_the_atomics_of_other_threads(seed: int) -> None:
    a, o = ramp(), np.zeros(512, np.float32)
    run(count, a, o, seed=seed, B=512)
    assert np.array_equal(o, ramp()[::-1] + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_waits_for_the_loads_of_other_threads(seed: int) -> None:
    a, b = ramp(), ramp() + 100
    run(swap, a, b, seed=seed, B=512)
    assert np.array_equal(a, ramp()[::-1] + 100)
    assert np.array_equal(b, ramp())


@pytest.mark.parametrize("seed", SEEDS)
def test_trips_see_what_earlier_trips_stored(seed: int) -> None:
    a = ramp(2048).reshape(8, 256)
    want = a.copy()
    for row in range(1, 8):
        want[row] += want[row - 1][::-1]
    run(rows, a, 8, 256, seed=seed, B=256)
    assert np.array_equal(a, want)


@pytest.mark.parametrize("flag", [0, 1])
def test_stores_of_branches_are_seen_after_them(flag: int) -> None:
    a, o = ramp(), np.zeros(512, np.float32)
    run(branches, a, o, flag, B=512)
    assert np.array_equal(o, np.arange(512)[:: -1 if flag else 1])


def test_one_array_under_two_names_keeps_the_order() -> None:
    a = ramp()
    run(swap, a, a, B=512)  # the last store is the one that stays
    assert np.array_equal(a, ramp())


def test_threads_that_meet_their_own_elements_need_no_barrier() -> None:
    assert barriers(increment, ramp(), 500, B=512) == 0


def test_threads_that_share_elements_meet() -> None:
    assert barriers(halves, ramp(), B=512) == 1


def descriptor(array: np.ndarray, rows: int, columns: int) -> tawa.TensorDescriptor:
    return tawa.TensorDescriptor.from_tensor(array, [rows, columns])


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_stores_through_two_names_keep_the_order(seed: int) -> None:
    z = np.zeros((128, 64), np.float16)
    want = z.copy()
    want[:64] = np.arange(64)[:, None]
    want[8:72] = np.arange(64)[:, None] + 100
    run(two_names, descriptor(z, 64, 64), descriptor(z, 64, 64), seed=seed, B=64)
    assert np.array_equal(z, want)


def test_two_outputs_are_guarded_not_waited_for() -> None:
    a, b = np.ones((64, 256), np.float16), np.ones((256, 64), np.float16)
    outputs = [np.zeros((64, 64), np.float16) for _ in range(2)]
    given = [descriptor(each, 64, 64) for each in (a, b, *outputs)]
    kernel = two_outputs.compile(*given, 256, grid=(1,), T=64)
    assert kernel.plan.specialized
    assert "disjoint(c, d)" in [guard.condition for guard in kernel.guards]
    waits = [line for line in kernel.asm["hopper"].splitlines() if "hopper.bulk_wait" in line]
    assert sum("read = false" in line for line in waits) == 1  # at the end of the role


def test_two_outputs_in_one_tensor_keep_the_order() -> None:
    a, b = np.ones((64, 256), np.float16), np.ones((256, 64), np.float16)
    out = np.zeros((64, 64), np.float16)
    given = [descriptor(each, 64, 64) for each in (a, b, out, out)]
    two_outputs[(1,)](*given, 256, T=64)
    assert np.all(out == 257)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_release_publishes_bulk_stores(seed: int) -> None:
    a = (np.arange(128 * 64).reshape(128, 64) % 3 - 1).astype(np.float16)
    part, o = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float32)
    run(fix_up, a, part, np.zeros(1, np.int32), o, 64, grid=(2,), seed=seed, T=64)
    first, second = a[:64].astype(np.float32), a[64:].astype(np.float32)
    assert np.array_equal(o, (first @ first).astype(np.float16).astype(np.float32) @ second)


def test_a_release_waits_for_bulk_stores_to_complete() -> None:
    a, part = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16)
    text = lines(hand_over, a, part, np.zeros(1, np.int32), 64, grid=(1,), T=64)
    atomic = next(n for n, line in enumerate(text) if "tile.atomic" in line)
    assert any("tma_store" in line for line in text[:atomic])
    before = [line for line in text[:atomic] if "bulk_wait" in line]
    assert "read = false" in before[-1]
    assert "named_barrier" in text[atomic - 1] or "one_thread" in text[atomic - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_program_sums_what_the_others_stored(seed: int) -> None:
    a = (np.arange(256 * 64).reshape(256, 64) % 3 - 1).astype(np.float16)
    part, o = np.zeros((256, 64), np.float32), np.zeros((64, 64), np.float32)
    run(last_sums, a, part, np.zeros(1, np.int32), o, 64, 4, grid=(4,), seed=seed, T=64)
    tiles = a.astype(np.float32).reshape(4, 64, 64)
    assert np.array_equal(o, sum(tile @ tile for tile in tiles))


@pytest.mark.parametrize(
    "name", ["conv merged", "conv last wave", "told chooses", "attention sink"]
)
def test_no_two_meetings_without_an_access_between_them(name: str) -> None:
    """Threads that load before a store by TMA meet where the store does."""
    kernel = KERNELS[name]()
    assert all_of(kernel, hopper.TmaStore)
    for meeting in all_of(kernel, hopper.NamedBarrier):
        following = meeting.next_op
        while isinstance(following, hopper.BulkWait):
            following = following.next_op
        alike = isinstance(following, hopper.NamedBarrier) and following.kind == meeting.kind
        assert not alike or following.scope != meeting.scope
