"""What the author promises of a tensor counts as what is found out."""

import pytest

import tawa.language as tl
from frontend_kernels import of
from tawa.analysis.contiguity import Contiguity
from tawa.frontend import build
from tawa.ir import tile
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.simplify import simplify
from tawa.plan.plan import Plan
from tawa.target import Target


def runs_of(function, **signature):
    """Return the regularity of each load's pointers, in the order of the program."""
    kernel = build(function, of(**signature), {})
    simplify(kernel, Plan(), Target())
    facts = Contiguity()
    return [facts.of(op.pointer) for op in kernel.walk() if isinstance(op, tile.Load)]


def of_the_table(loads):
    """Drop the loads of scalars."""
    return [runs for runs in loads if len(runs) == 2]


def through_a_table(table_ptr, o_ptr, K, ld, PROMISE: tl.constexpr):
    """Pointers from memory, advanced in a loop: nothing but the promise says they are aligned."""
    base = tl.load(table_ptr).to(tl.pointer_type(tl.float16))
    rows, columns = tl.arange(0, 16), tl.arange(0, 64)
    at = base + rows[:, None] * ld + columns[None, :]
    total = tl.zeros((16, 64), tl.float32)
    for _ in range(0, K):
        if PROMISE:
            tl.multiple_of(at, [16, 16])
        total += tl.load(at)
        at += 64 * ld
    tl.store(o_ptr + rows[:, None] * 64 + columns[None, :], total)


def test_pointers_that_a_loop_carries():
    arguments = {"table_ptr": "i64*", "o_ptr": "f32*", "K": "i32", "ld": "i32"}
    ((_, plain),) = of_the_table(runs_of(through_a_table, **arguments, PROMISE=False))
    assert (plain.contiguity, plain.divisibility) == (64, 1)
    ((_, told),) = of_the_table(runs_of(through_a_table, **arguments, PROMISE=True))
    assert (told.contiguity, told.divisibility) == (64, 8)  # 16 bytes are 8 elements


def wrapped(x_ptr, o_ptr, n, PROMISE: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    index = at % n
    if PROMISE:
        index = tl.max_contiguous(tl.multiple_of(index, 64), 64)
    tl.store(o_ptr + at, tl.load(x_ptr + index))


def test_indices_that_wrap_round():
    arguments = {"x_ptr": "f16*/16", "o_ptr": "f16*/16", "n": "i32"}
    ((plain,),) = runs_of(wrapped, **arguments, PROMISE=False)
    ((told,),) = runs_of(wrapped, **arguments, PROMISE=True)
    assert plain.contiguity == 1
    assert (told.contiguity, told.divisibility) == (64, 8)


def planes(x_ptr, o_ptr, W, DIVISOR: tl.constexpr):
    """Pixels along the first dimension, planes along the second: an image is W pixels wide."""
    pixel, plane = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, 8)[None, :]
    width = W if DIVISOR is None else DIVISOR
    at = pixel % width + (pixel // width) * 8192 + plane * 1024
    tl.store(o_ptr + at, tl.load(x_ptr + at))


@pytest.mark.parametrize(("divisor", "axis"), [(1024, 0), (None, 0), (1, 1)])
def test_the_axis_along_memory_of_a_divided_index(divisor, axis):
    arguments = {"x_ptr": "f16*/16", "o_ptr": "f16*/16", "W": "i32"}
    kernel = build(planes, of(**arguments, DIVISOR=divisor), {})
    simplify(kernel, Plan(), Target())
    (load,) = (op for op in kernel.walk() if isinstance(op, tile.Load))
    assert contiguous_axis(load.pointer) == axis


def either_way(x_ptr, o_ptr, n, m, APART: tl.constexpr):
    at = tl.arange(0, 64)
    if m > n:
        index = tl.max_contiguous(tl.multiple_of(at % n, 64), 64)
    else:
        index = (at + 16) % n if APART else at % n
    tl.store(o_ptr + at, tl.load(x_ptr + index))


@pytest.mark.parametrize("apart", [False, True])
def test_indices_of_one_side_of_a_condition(apart):
    """What holds of both sides holds after them; the promise is that of one."""
    arguments = {"x_ptr": "f16*/16", "o_ptr": "f16*/16", "m": "i32", "APART": apart}
    ((told,),) = runs_of(either_way, **arguments, n="i32/16")
    assert (told.contiguity, told.divisibility) == (16, 8)
    ((plain,),) = runs_of(either_way, **arguments, n="i32")
    assert plain.contiguity == 1
