"""`tl.map_elementwise`: functions of scalars, whose control flow is each element's own."""

import math

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from frontend_kernels import of
from tawa.codegen.generate import generate
from tawa.errors import TypeMismatch, UnsupportedSyntax
from tawa.frontend import build
from tawa.passes import pipeline
from tawa.plan.plan import Plan
from tawa.target import Target


@tawa.jit
def compare(x, y):
    if x < y:
        return -1
    elif x == y:
        return 0
    else:
        return 1


@tawa.jit
def steps(x, y):
    """Collatz, at most y steps: a loop that ends at another time for each element."""
    count = 0
    while (x != 1) & (count < y):
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        count += 1
    return count


@tawa.jit
def triangle(x, y):
    total = x * 0
    for i in range(x, y, 3):
        total += i
        for j in range(i, i + 2):
            total += j * j
    return total


@tawa.jit
def halvings(x, y):
    """A loop that ends only for elements that come to it."""
    count = 0
    if x > 0:
        while x != 1:
            x = x // 2
            count += 1
    elif y > 0:
        while (y & 1) == 0:
            y = y // 2
    return count + y


@tawa.jit
def all_halvings(x, y):
    """An inner loop that ends only for elements that are in the outer one still."""
    total = 0
    while x > 0:
        rest = x
        while rest != 1:
            rest = rest // 2
            total += 1
        x -= 1
    return total


@tawa.jit
def sums(x, y):
    """A loop of which elements that do not come to it would make millions of iterations."""
    total = 0
    if x > 0:
        for i in range(0, y):
            total += i
    return total


@tawa.jit
def quotients(x, y):
    whole = 0
    rest = x
    if y != 0:
        whole = x // y
        rest = x % y
    return whole, rest


@tawa.jit
def pairs(x0, x1, y0, y1):
    if x0 > x1:
        x0, x1 = x1, x0
    return x0, x1 + 0, y0 + y1, y0 - y1


@tawa.jit
def selu(x, y):
    if x > 0:
        return x
    return y * (tl.exp(x) - 1)


def by_python(function, x, y, width=1):
    """Call the function as it is for each element, or group of neighbours."""
    rows = zip(x.reshape(-1, width), y.reshape(-1, width))
    found = [function(*a.tolist(), *b.tolist()) for a, b in rows]
    found = [one if isinstance(one, tuple) else (one,) for one in found]
    outputs = len(found[0]) // width
    return [np.array([one[i * width : (i + 1) * width] for one in found]) for i in range(outputs)]


def one(x_ptr, y_ptr, out_ptr, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.map_elementwise(F, tl.load(x_ptr + at), tl.load(y_ptr + at)))


def two(x_ptr, y_ptr, out_ptr, F: tl.constexpr, N: tl.constexpr, PACK: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    a, b = tl.map_elementwise(F, x, y, pack=PACK)
    tl.store(out_ptr + at, a)
    tl.store(out_ptr + N + at, b)


def columns(x_ptr, y_ptr, out_ptr, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)[:, None]
    y = tl.load(y_ptr + tl.arange(0, 8))[None, :]
    tl.store(out_ptr + at[:, None] * 8 + tl.arange(0, 8), tl.map_elementwise(F, x, y))


def numbers(seed, low, high, count=64):
    return np.random.default_rng(seed).integers(low, high, count, dtype=np.int32)


INTEGERS = {
    "compare": (compare, numbers(1, -3, 3), numbers(2, -3, 3)),
    "steps": (steps, numbers(3, 1, 50), numbers(4, 0, 40)),
    "triangle": (triangle, numbers(5, -9, 20), numbers(6, -9, 40)),
    "halvings": (halvings, numbers(13, -3, 40), numbers(14, -3, 40)),
    "all_halvings": (all_halvings, numbers(15, -3, 9), numbers(16, -3, 9)),
    "sums": (
        sums,
        np.tile(np.array([0, 3], np.int32), 32),
        np.tile(np.array([1 << 30, 9], np.int32), 32),
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_control_flow_of_each_element(name):
    function, x, y = INTEGERS[name]
    out = np.zeros_like(x)
    tawa.jit(one)[(1,)](x, y, out, function, 64)
    assert np.array_equal(out, by_python(function.fn, x, y)[0].ravel())


def test_several_results():
    x, y = numbers(7, 0, 99), numbers(8, 0, 5)
    out = np.zeros(128, np.int32)
    tawa.jit(two)[(1,)](x, y, out, quotients, 64, 1)
    wanted = by_python(quotients.fn, x, y)
    assert np.array_equal(out, np.concatenate([w.ravel() for w in wanted]))


def test_neighbours_go_into_one_call():
    x, y = numbers(9, 0, 99), numbers(10, 0, 99)
    out = np.zeros(128, np.int32)
    tawa.jit(two)[(1,)](x, y, out, pairs, 64, 2)
    wanted = by_python(pairs.fn, x, y, 2)
    assert np.array_equal(out, np.concatenate([w.ravel() for w in wanted]))


def test_inputs_meet_in_one_shape():
    x, y = numbers(11, -3, 3, 16), numbers(12, -3, 3, 8)
    out = np.zeros((16, 8), np.int32)
    tawa.jit(columns)[(1,)](x, y, out, compare, 16)
    assert np.array_equal(out, np.sign(x[:, None] - y[None, :]))


def test_floats():
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    y = np.full(64, 1.5, np.float32)
    out = np.zeros_like(x)
    tawa.jit(one)[(1,)](x, y, out, selu, 64)
    wanted = [v if v > 0 else 1.5 * (math.exp(v) - 1) for v in x.tolist()]
    assert np.allclose(out, wanted, rtol=1e-6)


def one_signature(function):
    return of(x_ptr="i32*", y_ptr="i32*", out_ptr="i32*", F=function, N=64)


@needs_compiler
@pytest.mark.parametrize("name", INTEGERS)
def test_generated_code(name):
    function, x, y = INTEGERS[name]
    kernel = build(one, one_signature(function), {})
    pipeline.run(pipeline.HOPPER, kernel, Plan(), Target())
    out = np.zeros_like(x)
    emulate(generate(kernel), {"x_ptr": x, "y_ptr": y, "out_ptr": out}, (1, 1, 1))
    assert np.array_equal(out, by_python(function.fn, x, y)[0].ravel())


@tawa.jit
def reads(x, y):
    return tl.load(x) + y


def reading(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.map_elementwise(reads, x_ptr + at, tl.load(y_ptr + at)))


def test_memory_is_refused():
    signature = of(x_ptr="i32*", y_ptr="i32*", out_ptr="i32*", N=64)
    with pytest.raises(UnsupportedSyntax, match=r"load in a function of tl\.map_elementwise"):
        build(reading, signature, {})


def odd_pack(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x_ptr + at, tl.map_elementwise(selu, tl.load(x_ptr + at), 1.0, pack=3))


def test_a_pack_that_does_not_divide_is_refused():
    with pytest.raises(TypeMismatch, match="pack=3 does not divide"):
        build(odd_pack, of(x_ptr="f32*", N=64), {})
