"""Where an error points: places stay with the IR of a kernel that is read back from the cache."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from proof_kernels import KERNELS
from tawa.errors import ArgumentError, LaunchError
from tawa.ir import parse
from tawa.ir.text import places_of, put_places, text_of


@tawa.jit
def product(a, b, c, N, K, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    depth = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        x = tl.load(a + rows[:, None] * K + (k + depth)[None, :])
        y = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


def test_each_copy_of_a_slot_points_at_its_load(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    a, b = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16)
    c = np.zeros((128, 128), np.float32)
    for fresh in (product, tawa.jit(product.fn)):  # the second is read from disk
        for grid, line in (((2, 1), "x = tl.load(a"), ((1, 2), "y = tl.load(b")):
            with pytest.raises(LaunchError) as caught:
                fresh[grid](a, b, c, 128 if grid[1] == 2 else 64, 64, B=64)
            assert caught.value.place is not None
            assert line in caught.value.place.render()


@pytest.mark.parametrize("name", list(KERNELS)[::20])
def test_places_are_read_back(name: str) -> None:
    kernel = KERNELS[name]()
    again = parse(text_of(kernel))
    put_places(again, places_of(kernel))
    assert places_of(again) == places_of(kernel)


def test_an_array_of_no_element_type_is_named() -> None:
    at = np.zeros((64, 64), np.complex64)
    with pytest.raises(
        ArgumentError, match="product: the argument 'a': the element type complex64"
    ):
        product[1, 1](at, at, at, 64, 64, B=64)
