"""Attention over keys that are not there: lengths past the keys counted zeros, and pages outside of
those there are were read. What the CPU can read is refused; kernels look for themselves.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa.kernels.attention as library
from tawa.errors import ArgumentError
from tawa.kernels.attention import attention

HEADS, DIM, PAGE, PAGES = 2, 64, 64, 5


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def softmax(q, k, v):
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) / DIM**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), v.astype(np.float64))


def dense():
    return (normal(3, HEADS, n, DIM, seed=seed) for seed, n in enumerate((2, 100, 100)))


def paged(page=PAGE):
    q = normal(2, HEADS, 2, DIM)
    k, v = (normal(PAGES, HEADS, page, DIM, seed=seed) for seed in (1, 2))
    return q, k, v, np.array([[4, 0], [2, 3]])


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_lengths_of_either_type(kind) -> None:
    q, k, v = dense()
    lengths = np.array([100, 7, 64], kind)
    out = attention(q, k, v, lengths=lengths)
    for one, length in enumerate(lengths):
        wanted = softmax(q[one], k[one, :, :length], v[one, :, :length])
        np.testing.assert_allclose(out[one], wanted, atol=2e-3)


@pytest.mark.parametrize("lengths", [[101, 5, 5], [5, -1, 5], [5, 5, 1 << 20]])
def test_lengths_past_the_keys_are_refused(lengths) -> None:
    q, k, v = dense()
    for kind in (np.int32, np.int64):
        with pytest.raises(ArgumentError, match="a batch has 0 to 100 keys"):
            attention(q, k, v, lengths=np.array(lengths, kind))
    attention(q, k, v, lengths=np.array([5, 5, 5], np.int32))  # and a good call after it


@pytest.mark.parametrize("page", [64, 16])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.short("int64-16", "int32-64")
def test_pages_of_either_type(page, kind) -> None:
    q, k, v, table = paged(page)
    out = attention(q, k, v, block_table=table.astype(kind))
    for one in range(2):
        keys, values = (x[table[one]].transpose(1, 0, 2, 3).reshape(HEADS, -1, DIM) for x in (k, v))
        np.testing.assert_allclose(out[one], softmax(q[one], keys, values), atol=2e-3)


@pytest.mark.parametrize("entry", [PAGES, -1, 1 << 20])
def test_pages_that_are_not_there_are_refused(entry) -> None:
    q, k, v, table = paged()
    table[1, 1] = entry
    with pytest.raises(ArgumentError, match=f"names page {entry}"):
        attention(q, k, v, block_table=table.astype(np.int32))
    lengths = np.array([128, 65], np.int32)
    with pytest.raises(ArgumentError, match=f"names page {entry}"):
        attention(q, k, v, block_table=table.astype(np.int32), lengths=lengths)
    # What lies past a length is not read.
    lengths = np.array([128, 64], np.int32)
    out = attention(q, k, v, block_table=table.astype(np.int32), lengths=lengths)
    np.testing.assert_allclose(out[1], softmax(q[1], k[2], v[2]), atol=2e-3)


# --- the kernels, as a GPU runs them ------------------------------------------------------------


@pytest.fixture
def unchecked(monkeypatch):
    """The CPU's arrays as if only kernels could read them."""
    monkeypatch.setattr(library, "check_values", lambda *_: None)
    monkeypatch.setattr(library, "_TUNER", library.Tuner(keep=False))


def test_the_kernel_counts_no_more_keys_than_there_are(unchecked) -> None:
    q, k, v = dense()
    out = attention(q, k, v, lengths=np.array([1 << 20, -5, 100], np.int64))
    np.testing.assert_allclose(out[0], softmax(q[0], k[0], v[0]), atol=2e-3)
    np.testing.assert_allclose(out[2], softmax(q[2], k[2], v[2]), atol=2e-3)
    assert (out[1] == 0).all(), "no keys"


@pytest.mark.parametrize("page", [64, 16])
@pytest.mark.parametrize("entry", [PAGES, -1])
def test_rows_that_see_a_page_that_is_not_there_are_nan(page, entry, unchecked) -> None:
    q, k, v, table = paged(page)
    wrong = table.copy()
    wrong[1, 1] = entry
    good = attention(q, k, v, block_table=table.astype(np.int32))
    out = attention(q, k, v, block_table=wrong.astype(np.int32))
    np.testing.assert_array_equal(out[0], good[0])
    assert np.isnan(out[1]).all()
