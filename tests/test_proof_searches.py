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


def few_trips(a_desc, b_desc, c_desc, flag_ptr, BM: tl.constexpr, BN: tl.constexpr):
    """At most two trips, as programs count from 0: a ring of seven slots is never turned."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.program_id(0), 3, 2):
        acc = tl.dot(a_desc.load([row, k * 64]), b_desc.load([k * 64, column]), acc)
    c_desc.store([row, column], acc)


def asked_twice(a_desc, b_desc, c_desc, flag_ptr, BM: tl.constexpr, BN: tl.constexpr):
    """A flag in memory that nobody writes, read again where it is known."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    if tl.load(flag_ptr) > 1:
        acc += 1
    else:
        acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, column]), acc)
        if tl.load(flag_ptr) > 1:
            acc = tl.dot(a_desc.load([row, 64]), b_desc.load([64, column]), acc)
    c_desc.store([row, column], acc)


def asked_anew(a_desc, b_desc, c_desc, flag_ptr, BM: tl.constexpr, BN: tl.constexpr):
    """The same, but the flag is written: nothing is known of it."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    if tl.load(flag_ptr) > 1:
        acc += 1
    else:
        acc = tl.dot(a_desc.load([row, 0]), b_desc.load([0, column]), acc)
        tl.store(flag_ptr, 2)
        if tl.load(flag_ptr) > 1:
            acc = tl.dot(a_desc.load([row, 64]), b_desc.load([64, column]), acc)
    c_desc.store([row, column], acc)


@pytest.mark.parametrize("options", [{}, {"specialize": False}])
@pytest.mark.parametrize("function", [few_trips, asked_twice, asked_anew])
def test_what_no_input_does_need_not_be_run(function, options):
    desc = tawa.TensorDescriptor.from_tensor
    a, b = np.zeros((128, 192), np.float16), np.zeros((192, 64), np.float16)
    given = desc(a, [64, 64]), desc(b, [64, 64]), desc(np.zeros((128, 64), np.float32), [64, 64])
    kernel = tawa.jit(function)
    compiled = kernel.compile(*given, np.zeros(4, np.int32), BM=64, BN=64, grid=(2, 1), **options)
    assert compiled.proof.ok
    if function is not few_trips:
        told = "reached by no input" in compiled.proof.verdict
        assert told == (function is asked_twice)


def not_the_first(a_desc, b_desc, c_desc, bands, times, K, BM: tl.constexpr, BN: tl.constexpr):
    """What all programs but the first do in each tile: its ring must be seen to turn."""
    for band in tl.range(tl.program_id(0), bands, tl.num_programs(0)):
        acc = tl.zeros((BM, BN), tl.float32)
        if tl.program_id(0) > 0:
            acc = tl.dot(a_desc.load([0, band * 64]), b_desc.load([band * 64, 0]), acc)
        for _ in range(times):
            for k in range(0, K, 64):
                acc = tl.dot(a_desc.load([band * BM, k]), b_desc.load([k, 0]), acc)
        c_desc.store([band * BM, 0], acc)


def test_tiles_of_other_programs_are_run():
    desc = tawa.TensorDescriptor.from_tensor
    a, b = np.zeros((512, 512), np.float16), np.zeros((512, 64), np.float16)
    given = desc(a, [64, 64]), desc(b, [64, 64]), desc(np.zeros((512, 64), np.float32), [64, 64])
    kernel = tawa.jit(not_the_first)
    assert kernel.compile(*given, 8, 3, 512, BM=64, BN=64, grid=(4,), specialize=True).proof.ok


def guarded(a_desc, b_desc, c_desc, bands, BM: tl.constexpr, BN: tl.constexpr):
    """The condition settles both ends of the loop: its step alone is open."""
    first = tl.program_id(0)
    if first < bands:
        for band in tl.range(first, bands, tl.num_programs(0)):
            acc = tl.dot(a_desc.load([band * BM, 0]), b_desc.load([0, 0]))
            c_desc.store([band * BM, 0], acc)


def test_a_loop_of_which_the_step_alone_is_open():
    desc = tawa.TensorDescriptor.from_tensor
    a, b = np.zeros((512, 64), np.float16), np.zeros((64, 64), np.float16)
    given = desc(a, [64, 64]), desc(b, [64, 64]), desc(np.zeros((512, 64), np.float32), [64, 64])
    assert tawa.jit(guarded).compile(*given, 8, BM=64, BN=64, grid=(4,)).proof.ok
