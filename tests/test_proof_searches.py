"""Kernels whose inputs the proof must find: each stands for one that users wrote."""

import numpy as np
import pytest

import tawa
import tawa.language as tl


def strided(x_ptr, o_ptr, start, end, step, n, BLOCK: tl.constexpr):
    """A loop by a step that is an argument, known to be a multiple of 16."""
    at = tl.arange(0, BLOCK)
    for i in tl.range(start + tl.program_id(0), end, step):
        x = tl.load(x_ptr + (i % n) * n + at, mask=at < n, other=0.0)
        tl.store(o_ptr + (i - start) * n + at, x, mask=at < n)


def counted(x_ptr, index_ptr, o_ptr, n, step, width, BLOCK: tl.constexpr):
    """A while loop that counts by an argument, around a loop."""
    row = tl.program_id(0)
    while row < n:
        source = tl.load(index_ptr + row)
        for block in tl.range(0, tl.cdiv(width, BLOCK)):
            at = block * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + source * width + at, mask=at < width)
            tl.store(o_ptr + row * width + at, x, mask=at < width)
        row += step


def last_program(x_ptr, index_ptr, o_ptr, n, step, width, BLOCK: tl.constexpr):
    """What one program alone does: the number of programs is an argument, a multiple of 16."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    taken = tl.sum(tl.where(at == row, tl.load(x_ptr + at), 0.0))
    if row == n - 1:
        for begin in range(step, width, BLOCK):
            tl.store(o_ptr + begin + at, taken, mask=begin + at < width)


def ladder(x_ptr, index_ptr, o_ptr, n, step, width, BLOCK: tl.constexpr):
    """An unrolled loop with a condition in each trip: the last holds for large `n` only."""
    at = tl.arange(0, BLOCK)
    total = 0.0
    for i in tl.static_range(12):
        if i < n:
            x = tl.load(x_ptr + i * width + at, mask=at < width, other=0.0)
            total += tl.sum(x * x)
    tl.store(o_ptr, total)


def taken_apart(x_ptr, index_ptr, o_ptr, n, step, width, BLOCK: tl.constexpr):
    """A program's number is a row and a column; those above the diagonal leave early."""
    row, column = tl.program_id(0) // 16, tl.program_id(0) % 16
    if row * BLOCK >= n:
        return
    if row <= column:
        return
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + at)
    tl.store(o_ptr + column * width + at, x / tl.sum(x))


@pytest.mark.parametrize("function", [strided, counted, last_program, ladder, taken_apart])
@pytest.mark.parametrize("unit", [1, 16])
def test_inputs_are_found(function, unit):
    kernel = tawa.jit(function)
    x, index = np.zeros(4096, np.float32), np.zeros(64, np.int32)
    given = (x, index, np.zeros(4096, np.float32))
    if function is strided:
        given = (x, np.zeros(4096, np.float32), 3)
    numbers = (5 * unit, 3 * unit, 7 * unit)
    if unit == 1:
        numbers = tuple(number | 1 for number in numbers)
    assert kernel.compile(*given, *numbers, BLOCK=64, grid=(1,)).proof.ok


def test_inputs_of_a_split_causal_loop_are_found():
    """Of the diagonal's loop two trips are needed, which only some lengths have."""
    from tawa.kernels.attention import Variant, bind, prepare

    arrays = [tawa.array((1, 2, 512, 128), "f16") for _ in range(4)]
    pins = (("arrangement", "pingpong"), ("walk", "dynamic"))
    operands = bind(*arrays[:3], causal=True, out=arrays[3])
    assert prepare(operands, Variant(128, 128, True, pins)).compile().proof.ok
