"""Programs that wait in a loop for what later ones write hung the simulator.

A loop that has come to a standstill waits until memory changes. Where nobody is left to change it,
the launch hangs on the GPU too, and the error tells who waits for what.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import LaunchError, ProtocolError
from tawa.simulator import simulate

LEVELS = ("tile", "aref", "hopper")
every_level = pytest.mark.parametrize("level", LEVELS)


@tawa.jit
def backwards(flag, x, N: tl.constexpr):
    """Each program waits for the one after it."""
    pid = tl.program_id(0)
    while tl.load(flag + pid + 1, volatile=True) == 0:
        pass
    i = tl.arange(0, N)
    tl.store(x + pid * N + i, tl.load(x + pid * N + i) * 2)
    tl.atomic_xchg(flag + pid, 1)


def _flags(programs: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    flag = np.zeros(programs + 1, np.int32)
    flag[-1] = last
    return flag, np.arange(programs * 64, dtype=np.float32)


@every_level
def test_programs_wait_for_later_ones(level):
    flag, x = _flags(8, 1)
    tawa.simulate(backwards, flag, x, 64, grid=(8,), level=level)
    np.testing.assert_array_equal(x, 2 * np.arange(512))
    assert flag.all()


@every_level
def test_what_nobody_writes_is_told(level):
    flag, x = _flags(8, 0)
    with pytest.raises(LaunchError) as caught:
        tawa.simulate(backwards, flag, x, 64, grid=(8,), level=level)
    message = str(caught.value)
    line = backwards.fn.__code__.co_firstlineno + 4
    assert message.startswith("the launch hangs: nobody writes what a loop waits for\n")
    assert f"at {__file__}:{line}\n        while tl.load(flag + pid + 1" in message
    assert "(and 7 more) waits for a change of the memory that its loop reads" in message
    assert f"(flag@{line}); nobody is left to do it" in message
    assert "do:  let a program write it that does not wait itself" in message


@tawa.jit
def meet(count, out, n):
    """All programs meet, which needs all of them to run at once."""
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < n:
        pass
    tl.store(out + tl.program_id(0), tl.load(count, volatile=True))


@every_level
def test_all_programs_of_a_grid_meet(level):
    count, out = np.zeros(1, np.int32), np.zeros(20, np.int32)
    tawa.simulate(meet, count, out, 20, grid=(20,), level=level)
    assert (out == 20).all()


def test_a_grid_larger_than_what_runs_at_once_hangs():
    count, out = np.zeros(1, np.int32), np.zeros(20, np.int32)
    program = meet.compile(count, out, 20).asm.program("hopper")
    arguments = {"count": count, "out": out, "n": 20}
    with pytest.raises(LaunchError) as caught:
        simulate(program, (20,), arguments, multiprocessors=16)
    assert "4 blocks begin only when some of the 16 that run end" in str(caught.value)
    assert "do:  let programs wait for those before them only, or launch as" in str(caught.value)


@tawa.jit
def in_turns(turn, trace, ROUNDS: tl.constexpr):
    """Two programs take turns: neither can end before the other goes on."""
    me = tl.program_id(0)
    for k in range(ROUNDS):
        while tl.atomic_add(turn, 0) != 2 * k + me:
            pass
        tl.store(trace + 2 * k + me, me + 1)
        tl.atomic_add(turn, 1)


@every_level
def test_programs_wait_for_one_another_in_turn(level):
    turn, trace = np.zeros(1, np.int32), np.zeros(10, np.int32)
    tawa.simulate(in_turns, turn, trace, 5, grid=(2,), level=level)
    np.testing.assert_array_equal(trace, [1, 2] * 5)


@tawa.jit
def guarded(lock, x, N: tl.constexpr):
    i = tl.arange(0, N)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(x + i, tl.load(x + i) + 1)
    tl.atomic_xchg(lock, 0)


@pytest.mark.parametrize("seed", range(3))
@every_level
def test_a_lock(level, seed):
    lock, x = np.zeros(1, np.int32), np.zeros(64, np.float32)
    tawa.simulate(guarded, lock, x, 64, grid=(12,), level=level, seed=seed)
    assert (x == 12).all()


def test_a_lock_that_is_never_given_back():
    lock, x = np.ones(1, np.int32), np.zeros(64, np.float32)
    with pytest.raises(LaunchError, match="the launch hangs"):
        tawa.simulate(guarded, lock, x, 64, grid=(2,))


@tawa.jit
def patient(flag, out, tries):
    n = 0
    while (tl.load(flag, volatile=True) == 0) & (n < tries):
        n += 1
    tl.store(out, n)


@every_level
def test_a_loop_that_counts_its_tries_is_no_standstill(level):
    out = np.zeros(1, np.int32)
    tawa.simulate(patient, np.zeros(1, np.int32), out, 300, grid=(1,), level=level)
    assert out == 300


@tawa.jit
def forgetful(x, n):
    i = tl.load(x)
    j = i
    while i < n:
        j = i * 2
    tl.store(x, j)


@every_level
def test_a_loop_that_changes_nothing_never_ends(level):
    with pytest.raises(LaunchError, match="a while loop never ends") as caught:
        tawa.simulate(forgetful, np.zeros(1, np.int32), 5, grid=(1,), level=level)
    assert "while i < n:" in str(caught.value)
    x = np.full(1, 7, np.int32)
    tawa.simulate(forgetful, x, 5, grid=(1,), level=level)
    assert x == 7


@tawa.jit
def told_plainly(flag, out):
    if tl.program_id(0) == 0:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.store(out, 1)
    else:
        tl.store(flag, 1)


def test_a_plain_store_to_what_others_poll_is_a_race():
    arrays = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with pytest.raises(ProtocolError, match="race on global memory of flag"):
        tawa.simulate(told_plainly, *arrays, grid=(2,))


@tawa.jit
def passed_on(flag, data, out):
    """A volatile load is relaxed: it does not order what is read after it."""
    if tl.program_id(0) == 0:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.store(out, tl.load(data))
    else:
        tl.store(data, 3)
        tl.atomic_xchg(flag, 1)


def test_a_poll_orders_nothing_else():
    arrays = [np.zeros(1, np.int32) for _ in range(3)]
    with pytest.raises(ProtocolError, match="race on global memory of data"):
        tawa.simulate(passed_on, *arrays, grid=(2,))
