"""What Triton's language got from 3.7 to 3.9: taken, or refused by name."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import LaunchError, TypeMismatch, UnsupportedSyntax


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
