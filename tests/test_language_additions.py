"""What Triton's language got from 3.7 to 3.9: taken, or refused by name."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import ArgumentError, LaunchError, TypeMismatch, UnknownName, UnsupportedSyntax


@tawa.jit
def message(x, y, flag, B: tl.constexpr):
    o = tl.arange(0, B)
    if tl.program_id(0) == 0:
        (x + o).atomic_store(o.to(x.dtype.element_ty) + 1, mask=o < 5, sem="relaxed")
        tl.atomic_store(flag, 1)
    else:
        while tl.atomic_load(flag) != 1:
            pass
        tl.store(y + o, tl.atomic_load(x + o, o < B, sem="relaxed", scope="gpu"))


@pytest.mark.parametrize("kind", [np.int32, np.float32, np.int64, np.float64, np.uint32])
def test_atomic_load_and_store(kind):
    x, y = np.full(16, -0.0).astype(kind), np.zeros(16, kind)
    message[2,](x, y, np.zeros(1, np.int32), B=16)
    expected = np.where(np.arange(16) < 5, np.arange(16) + 1, 0).astype(kind)
    assert np.array_equal(x, expected)
    assert np.array_equal(y, expected)


@tawa.jit
def short(x):
    tl.store(x, tl.atomic_load(x, sem="release"))


@tawa.jit
def polled(x):
    tl.store(x, tl.atomic_poll(x, 1))


def test_refusals_name_the_call():
    with pytest.raises(TypeMismatch, match="the sem of a load is acquire or relaxed") as caught:
        short.compile(tawa.array((4,), "i32"))
    assert 'tl.atomic_load(x, sem="release")' in str(caught.value)
    with pytest.raises(UnsupportedSyntax, match=r"tl\.atomic_poll is not supported"):
        polled.compile(tawa.array((4,), "i32"))


@tawa.jit
def joined(x, y, DIM: tl.constexpr):
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    both = tl.cat(tl.load(x + at), tl.load(x + 32 + at), dim=DIM)
    rows: tl.constexpr = both.shape[0]
    columns: tl.constexpr = both.shape[1]
    tl.store(y + tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :], both)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_along_a_dimension(dim):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    joined[1,](x, y, DIM=dim)
    assert np.array_equal(y, np.concatenate(x.reshape(2, 4, 8), axis=dim).ravel())


@tawa.jit
def chosen(x, y, K: tl.constexpr, UP: tl.constexpr):
    tl.store(y + tl.arange(0, K), tl.topk(tl.load(x + tl.arange(0, 64)), K, descending=UP))


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("k", [1, 4, 64])
def test_topk_of_the_smallest(k, up):
    x = np.random.default_rng(0).permutation(64).astype(np.float32)
    y = np.zeros(k, np.float32)
    chosen[1,](x, y, K=k, UP=up)
    assert np.array_equal(y, np.sort(x)[::-1][:k] if up else np.sort(x)[:k])


@tawa.jit
def products(x, y):
    o = tl.arange(0, 16)
    v = tl.cumprod(tl.load(x + o), 0, dtype=tl.int64)
    tl.store(y + o, tl.expect_zero(tl.fdiv(v.to(tl.float32), 2.0, approx=True), v > 40))


def test_products_in_a_type_and_what_is_expected_to_be_zero():
    x = np.array([3, 2, 5, 0] + [7] * 12, np.int8)
    y = np.zeros(16, np.float32)
    products[1,](x, y)
    assert np.array_equal(y, np.cumprod(x.astype(np.int64)) / 2)
    with pytest.raises(LaunchError, match="expect_zero: x is not zero where mask is true"):
        products[1,](np.full(16, 3, np.int8), y, debug=True)


@tawa.jit
def total_of(offsets, *arrays, scale=1.0):
    total = tl.zeros((16,), tl.float32)
    for i in tl.static_range(len(arrays)):
        total += tl.load(arrays[i] + offsets)
    return total * scale


@tawa.jit
def passed_on(offsets, *arrays):
    return total_of(offsets, *arrays, scale=2.0)


@tawa.jit
def sums(x, y, z, out):
    o = tl.arange(0, 16)
    pair = (x, y)
    tl.store(out + o, total_of(o, *pair) + passed_on(o, x, y, z) * 10 + total_of(o))


def test_helpers_take_any_number_of_arguments():
    x, y, z = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    out = np.zeros(16, np.float32)
    sums[1,](x, y, z, out)
    np.testing.assert_allclose(out, x + y + 20 * (x + y + z), rtol=1e-5, atol=1e-5)


def test_arguments_by_any_name_are_refused():
    def takes_names(out, **names): ...

    with pytest.raises(ArgumentError, match=r"takes_names has a parameter \*\*names"):
        tawa.jit(takes_names)


@tawa.jit
def assigned_inside(x, out, n, FACTORS: tl.constexpr):
    o = tl.arange(0, 16)
    if (k := n + 2) > 4:
        v = tl.load(x + (j := o)) + k
    else:
        v, j = tl.load(x + o), o
    products = [a * b for a, (b, c) in FACTORS if (least := c) > 0]
    tl.store(out + j, v + products[0] * 100 + len(products) * 10 + least)


def test_assignments_inside_expressions_and_names_of_tuples():
    x = np.arange(16, dtype=np.float32)
    for n in (1, 7):
        out = np.zeros(16, np.float32)
        assigned_inside[1,](x, out, n, FACTORS=((2, (3, 4)), (5, (6, 0)), (7, (8, 9))))
        assert np.array_equal(out, x + (n + 2) * (n > 2) + 6 * 100 + 20 + 9)


@tawa.jit
def assigned_now_and_then(x, out, n):
    found = (k := tl.load(x)) if n > 0 else tl.load(x + 1)
    tl.store(out, found + k)


@tawa.jit
def assigned_after_a_condition(x, out, n):
    k = 3
    if n > 0 and (k := tl.load(x)) > 0:
        tl.store(out, 1)
    tl.store(out, k)


@tawa.jit
def assigned_while(x, out):
    while (k := tl.load(x)) > 0:
        tl.store(x, k - 1)
    tl.store(out, 1)


def test_a_name_that_may_not_be_assigned_has_no_value():
    arrays = tawa.array((4,), "i32"), tawa.array((1,), "i32")
    for kernel in (assigned_now_and_then, assigned_after_a_condition):
        with pytest.raises(UnknownName, match="k has no value here"):
            kernel.compile(*arrays, 5)
    with pytest.raises(UnsupportedSyntax, match="an assignment in the condition of a loop"):
        assigned_while.compile(*arrays)


@tawa.jit
def filtered_by_the_run(x, out):
    v = tl.load(x)
    found = [i for i in (1, 2, 3) if v > i]
    tl.store(out, len(found))


def test_a_comprehension_filtered_by_a_value_of_the_run_is_refused():
    arrays = tawa.array((4,), "i32"), tawa.array((1,), "i32")
    with pytest.raises(TypeMismatch, match="the condition of a comprehension is "):
        filtered_by_the_run.compile(*arrays)


@tawa.jit
def named_as_outside(x, out, n):
    o = tl.arange(0, 16)
    i = n + 2
    v = tl.load(x + o)
    pair = [v * i for i in (1, 2)] if n > 0 else (v, v)
    some = i > 0 and [n > i for i in (1, 2)][1]
    tl.store(out + o, pair[1] + tl.where(some, i, 0))


def test_names_of_a_comprehension_are_its_own():
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    named_as_outside[1,](x, out, 5)
    assert np.array_equal(out, 2 * x + 7)


@tawa.jit
def signed(x):
    return -1 if x < 0 else 1, (x, 2)


@tawa.jit
def declared(out, n):
    y: tl.constexpr
    x, y = 3, 4
    tl.static_assert(y == 4)
    z: tl.constexpr
    if (z := y + 1) == 5:
        tl.store(out, x + z)
    y = n
    tl.store(out + 1, y)
    both: tl.constexpr = signed(-5)
    tl.static_assert(both[0] == -1)
    tl.static_assert(both[1][1] == 2)


def test_the_next_value_of_a_declared_name_is_a_constant():
    out = np.zeros(2, np.int32)
    declared[1,](out, 9)
    assert out.tolist() == [8, 9]
