"""Descriptors that a condition chooses or a loop carries, and what stands outside them.

They reached the generated text as values of a type that C++ has not: an internal error. A host
descriptor padded with NaN whose accesses go through pointers read zeros outside.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.errors import TypeMismatch
from tawa.ir import parse

ROWS, COLUMNS = 20, 40
FORMS = ["simulated", pytest.param("emulated", marks=needs_compiler)]


def run(form, kernel, *arguments, grid=(1,), **options):
    if form == "simulated":
        tawa.simulate(kernel, *arguments, grid=grid, **options)
        return
    compiled = kernel.compile(*arguments, grid=grid, **options)
    names = kernel.fn.__code__.co_varnames
    extents = (*grid, 1, 1)[:3]
    emulate(parse(compiled.asm["hopper"]), dict(zip(names, arguments)), extents)


def arrays():
    x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    return x, -x


@tawa.jit
def put(o_ptr, at, v):
    r = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(o_ptr + at * 128 + r, v)


@tawa.jit
def made_in_branches(x_ptr, y_ptr, o_ptr, flag, rows):
    if flag > 3:
        d = tl.make_tensor_descriptor(x_ptr, [rows, 40], [40, 1], [8, 16])
    else:
        d = tl.make_tensor_descriptor(y_ptr + 40, [rows - 1, 36], [40, 1], [8, 16])
    put(o_ptr, 0, d.load([15, 30]))
    tl.store(o_ptr + 128, (d.shape[0] * 100 + d.shape[1]).to(tl.float32))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flag", [3, 5])
def test_made_in_branches(form, flag):
    x, y = arrays()
    out = np.zeros(129, np.float32)
    run(form, made_in_branches, x, y, out, flag, ROWS)
    shape = (ROWS, COLUMNS) if flag > 3 else (ROWS - 1, 36)
    source = x if flag > 3 else y[1:]
    want = np.zeros((8, 16), np.float32)
    part = source[15 : shape[0], 30 : shape[1]]
    want[: part.shape[0], : part.shape[1]] = part
    np.testing.assert_array_equal(out[:128].reshape(8, 16), want)
    assert out[128] == shape[0] * 100 + shape[1]


@tawa.jit
def pick(one, other, flag):
    if flag > 3:
        return one
    return other


@tawa.jit
def chosen(x_desc, y_desc, o_ptr, flag):
    d = x_desc if flag > 3 else y_desc
    put(o_ptr, 0, d.load([0, 0]))
    put(o_ptr, 1, pick(x_desc, d, flag - 2).load([16, 8]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flag", [3, 5, 6])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_chosen(form, flag, padding):
    x, y = arrays()
    out = np.zeros((2, 8, 16), np.float32)
    descs = [
        tawa.TensorDescriptor(each, (ROWS, COLUMNS), (COLUMNS, 1), [8, 16], padding=padding)
        for each in (x, y)
    ]
    run(form, chosen, *descs, out, flag)
    one = x if flag > 3 else y
    other = x if flag > 5 else one
    np.testing.assert_array_equal(out[0], one[:8, :16])
    np.testing.assert_array_equal(out[1, :4], other[16:, 8:24])
    outside = np.full((4, 16), 0 if padding == "zero" else np.nan, np.float32)
    np.testing.assert_array_equal(out[1, 4:], outside)


@tawa.jit
def carried(x_desc, y_desc, o_ptr, n):
    d, e = x_desc, y_desc
    for k in range(n):
        put(o_ptr, k, d.load([0, k * 8]))
        d, e = e, d
        if k == 2:
            e = tl.make_tensor_descriptor(o_ptr, [8, 16], [16, 1], [8, 16])
    at = n
    while at < n + 2:
        put(o_ptr, at, e.load([1, 1]))
        e = d
        at += 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_carried(form, n):
    x, y = arrays()
    out = np.zeros((n + 2, 8, 16), np.float32)
    descs = [tawa.TensorDescriptor(each, (ROWS, COLUMNS), (COLUMNS, 1), [8, 16]) for each in (x, y)]
    want = np.zeros_like(out)

    def loaded(source, row, column):
        found = np.zeros((8, 16), np.float32)
        part = source[row : row + 8, column : column + 16]
        found[: part.shape[0], : part.shape[1]] = part
        return found

    d, e = x, y
    for k in range(n):
        want[k] = loaded(d, 0, k * 8)
        d, e = e, d
        if k == 2:
            e = want[0]
    for k in range(n, n + 2):
        want[k] = loaded(e, 1, 1)
        e = d
    run(form, carried, *descs, out, n)
    np.testing.assert_array_equal(out, want)


@tawa.jit
def product(a_desc, b_desc, c_desc, o_desc, flag, K, BK: tl.constexpr):
    acc = tl.zeros((64, 64), tl.float32)
    weights = b_desc
    if flag > 5:
        weights = c_desc
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([0, k]), weights.load([k, 0]), acc)
    o_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flag", [5, 6])
def test_operand_of_a_product(form, flag):
    random = np.random.default_rng(flag)
    a = random.integers(-2, 3, (64, 192)).astype(np.float16)
    b, c = (random.integers(-2, 3, (192, 64)).astype(np.float16) for _ in range(2))
    out = np.zeros((64, 64), np.float16)
    desc = tawa.TensorDescriptor.from_tensor
    tiles = (desc(a, [64, 64]), desc(b, [64, 64]), desc(c, [64, 64]), desc(out, [64, 64]))
    run(form, product, *tiles, flag, 192, BK=64)
    np.testing.assert_array_equal(out, a @ (c if flag > 5 else b))


@tawa.jit
def stored(x_desc, y_desc, flag):
    d = x_desc if flag > 3 else y_desc
    d.store([16, 32], tl.full((8, 16), 7.0, tl.float32))


@pytest.mark.parametrize("form", FORMS)
def test_stored(form):
    x, y = arrays()
    want = y.copy()
    want[16:, 32:] = 7
    descs = [tawa.TensorDescriptor(each, (ROWS, COLUMNS), (COLUMNS, 1), [8, 16]) for each in (x, y)]
    run(form, stored, *descs, 2)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(x, arrays()[0])


def test_unlike_paddings_are_refused():
    x, y = arrays()
    zero, nan = (
        tawa.TensorDescriptor(each, (ROWS, COLUMNS), (COLUMNS, 1), [8, 16], padding=padding)
        for each, padding in ((x, "zero"), (y, "nan"))
    )
    with pytest.raises(TypeMismatch, match="padded with nan") as caught:
        chosen.compile(zero, nan, np.zeros((2, 8, 16), np.float32), 2, grid=(1,))
    assert "x_desc if flag > 3 else y_desc" in str(caught.value)


@tawa.jit
def short_rows(x_desc, o_ptr):
    i = tl.arange(0, 8)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(o_ptr + i, x_desc.load([16, 38]))


@pytest.mark.parametrize("form", FORMS)
def test_nan_outside_through_pointers(form):
    x = arrays()[0].astype(np.float16)
    desc = tawa.TensorDescriptor(x, (ROWS, COLUMNS), (COLUMNS, 1), [8, 4], padding="nan")
    out = np.zeros((8, 4), np.float16)
    run(form, short_rows, desc, out)
    want = np.full((8, 4), np.nan, np.float16)
    want[:4, :2] = x[16:, 38:]
    np.testing.assert_array_equal(out, want)
