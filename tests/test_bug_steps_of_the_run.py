"""`range` with a step that only the run knows means what Python's does; a step of zero, and a
counter that passes the end of its type, are refused by the launch. On the GPU a negative step made
no iteration, and the two others never ended.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.errors import LaunchError
from tawa.runtime.dispatch import guards_hold

MOST = (1 << 31) - 1


@tawa.jit
def listed(out, start, end, step):
    at = 0
    for k in range(start, end, step):
        tl.store(out + at, k)
        at += 1
    tl.store(out + 63, at)


@tawa.jit
def listed_of_memory(out, bounds):
    start, end, step = tl.load(bounds), tl.load(bounds + 1), tl.load(bounds + 2)
    at = 0
    for k in range(start, end, step):
        tl.store(out + at, k)
        at += 1
    tl.store(out + 63, at)


@tawa.jit
def products(a, out, start, end, step, B: tl.constexpr):
    """A loop of products with roles, nested in one that counts either way."""
    i = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(start, end, step):
        for j in range(0, 2 * B, B):
            x = tl.load(a + (k * B + i)[:, None] * 2 * B + (j + i)[None, :])
            acc = tl.dot(x, tl.trans(x), acc) * 2
    tl.store(out + i[:, None] * B + i[None, :], acc)


@tawa.jit
def by_programs(out, n):
    for k in range(tl.program_id(0), n, tl.num_programs(0)):
        tl.store(out + k, k)


RANGES = [
    (0, 10, 3), (10, 0, -3), (10, -1, -1), (0, 10, -1), (10, 0, 1), (5, 5, -2), (-3, -20, -5),
    (-3, 20, 22), (-3, 20, 23), (7, 2, -100),
]  # fmt: skip


def run(kernel, out, *arguments, level):
    tawa.simulate(kernel, out, *arguments, grid=(1,), level=level)


def check(out, bounds) -> None:
    wanted = list(range(*bounds))
    assert out[63] == len(wanted)
    assert out[: len(wanted)].tolist() == wanted
    assert (out[len(wanted) : 63] == 99).all()


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("level", ["tile", "aref", "hopper"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_it_counts_as_python_does(bounds, level, dtype) -> None:
    out = np.full(64, 99, dtype)
    run(listed, out, *bounds, level=level)
    check(out, bounds)
    out = np.full(64, 99, dtype)
    run(listed_of_memory, out, np.array(bounds, dtype), level=level)
    check(out, bounds)


WIDE = [
    (0, -(1 << 63), -(1 << 62)), (1 << 62, -(1 << 63), -(1 << 61)), (0, -(1 << 63), -(1 << 63)),
    (-(1 << 63), (1 << 63) - 1, 1 << 62), (-(1 << 63), (1 << 63) - 1, -(1 << 62)),
]  # fmt: skip


@tawa.jit
def listed_of_constants(out, A: tl.constexpr, B: tl.constexpr, STEP: tl.constexpr):
    at = 0
    for k in range(A, B, STEP):
        tl.store(out + at, k)
        at += 1
    tl.store(out + 63, at)


@pytest.mark.parametrize("bounds", WIDE)
def test_bounds_may_be_farther_apart_than_int64_says(bounds) -> None:
    """The number of iterations wrapped, and made none; constants beyond int32 were cut to it."""
    for level in ("tile", "hopper"):
        out = np.full(64, 99, np.int64)
        run(listed_of_memory, out, np.array(bounds), level=level)
        check(out, bounds)
        if bounds[2] < 0:  # upwards, the counter passes int64 after its last iteration
            for kernel in (listed, listed_of_constants):
                out = np.full(64, 99, np.int64)
                run(kernel, out, *bounds, level=level)
                check(out, bounds)


@needs_compiler
@pytest.mark.parametrize("bounds", [RANGES[1], WIDE[0], WIDE[3]])
def test_the_text_counts_wide_bounds_too(bounds) -> None:
    out = np.full(64, 99, np.int64)
    given = {"out": out, "bounds": np.array(bounds, np.int64)}
    emulate(listed_of_memory.compile(*given.values()).asm.program("hopper"), given, (1, 1, 1))
    check(out, bounds)


@needs_compiler
@pytest.mark.parametrize("bounds", RANGES[1:4])
def test_the_text_counts_so_too(bounds) -> None:
    out = np.full(64, 99, np.int32)
    given = dict(zip(("out", "start", "end", "step"), (out, *bounds), strict=True))
    compiled = listed.compile(*given.values())
    if not guards_hold(compiled, given, (1, 1, 1)):
        compiled = listed.compile_plain(*given.values())
    emulate(compiled.asm.program("hopper"), given, (1, 1, 1))
    check(out, bounds)
    out = np.full(64, 99, np.int32)
    given = {"out": out, "bounds": np.array(bounds, np.int32)}
    emulate(listed_of_memory.compile(*given.values()).asm.program("hopper"), given, (1, 1, 1))
    check(out, bounds)


def test_the_loop_of_a_positive_step_is_as_it_was() -> None:
    text = listed.compile(np.zeros(64, np.int32), 0, 10, 3).asm["cuda"]
    assert re.search(r"for \(int k = start; k < end; k \+= step\w*\)", text)


@pytest.mark.parametrize("bounds", [(0, 3, 1), (0, 3, 2), (2, -1, -1), (2, -1, -2)])
def test_roles_and_products(bounds) -> None:
    a = np.random.default_rng(0).integers(-3, 4, (192, 128)).astype(np.float16)
    wanted = np.zeros((64, 64), np.float32)
    for k in range(*bounds):
        for j in range(2):
            x = a[k * 64 : k * 64 + 64, j * 64 : j * 64 + 64].astype(np.float32)
            wanted = (wanted + x @ x.T) * 2
    out = np.zeros((64, 64), np.float32)
    products[(1,)](a, out, *bounds, B=64)
    np.testing.assert_array_equal(out, wanted)


def test_a_step_of_zero_is_refused() -> None:
    line = listed.fn.__code__.co_firstlineno + 3
    for level in ("tile", "hopper"):
        with pytest.raises(LaunchError, match="never ends: its step is 0") as caught:
            run(listed, np.zeros(64, np.int32), 0, 10, 0, level=level)
        assert f"line {line}" in str(caught.value) or f":{line}" in str(caught.value)
        bounds = np.array([0, 10, 0], np.int32)
        with pytest.raises(LaunchError, match="step"):
            run(listed_of_memory, np.zeros(64, np.int32), bounds, level=level)


@pytest.mark.parametrize(
    ("bounds", "fine"),
    [
        ((MOST - 10, MOST, 4), False),
        ((MOST - 12, MOST, 4), True),
        ((MOST - 8, MOST - 4, 5), True),
        ((0, MOST, MOST), True),
        ((2, MOST, MOST), False),
        ((MOST, MOST - 9, -3), True),
        ((-MOST, -MOST - 1, -3), True),
    ],
)
def test_a_counter_that_wraps_is_refused(bounds, fine) -> None:
    out = np.full(64, 99, np.int32)
    if not fine:
        with pytest.raises(LaunchError, match="never ends: its counter passes 2147483647"):
            run(listed, out, *bounds, level="hopper")
        assert (out == 99).all()
        return
    run(listed, out, *bounds, level="hopper")
    check(out, bounds)


@tawa.jit
def by_constant_steps(out, n):
    for k in range(FIRST, n, 1024):
        tl.store(out + (k - FIRST) // 1024, k)


FIRST = tl.constexpr(MOST - 3000)


def test_constant_steps_wrap_as_well() -> None:
    with pytest.raises(LaunchError, match="its counter passes"):
        by_constant_steps[(1,)](np.zeros(64, np.int32), MOST)
    out = np.zeros(64, np.int32)
    by_constant_steps[(1,)](out, MOST - 2000)
    assert out[0] == MOST - 3000
    by_constant_steps[(1,)](np.zeros(64, np.int32), MOST + 1)  # an int64, counted so


def test_programs_share_out_what_there_is() -> None:
    out = np.zeros(64, np.int32)
    by_programs[(3,)](out, 50)
    assert (out[:50] == np.arange(50)).all()
    with pytest.raises(LaunchError, match="its counter passes"):
        by_programs[(3,)](out, MOST)
    with pytest.raises(LaunchError, match="its counter passes 9223372036854775807"):
        by_programs[(3,)](out, (1 << 63) - 2)


@tawa.jit
def by_products(out, n, m):
    for k in range(tl.program_id(0) * n, n * m, n):
        tl.store(out + k // n, k)


def test_bounds_that_leave_64_bits_are_refused() -> None:
    """Nothing was known of such numbers, and the launch went on."""
    out = np.zeros(64, np.int64)
    by_products[(2,)](out, 1 << 40, 8)
    assert (out[:8] == np.arange(8) << 40).all()
    for m in (1 << 40, -(1 << 40)):
        with pytest.raises(LaunchError, match="numbers leave 64 bits, so that perhaps the loop"):
            by_products[(2,)](out, 1 << 40, m)
