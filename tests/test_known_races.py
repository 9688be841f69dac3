"""Kernels that race elsewhere and give wrong numbers without a word, each named by its public
thread: here they equal the program as written, under every schedule that is tried.

The kernels are written anew in the tile language, in the shape that the thread reports.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa.language as tl
from known_failures import blank, blocks, integers, long, operations, result, tried
from tawa.ir import hopper

# --- tilelang#2613: an operand that two warpgroups read, taken away under one of them -----------


def shared_operand(a_desc, b_desc, d_desc, c_desc, e_desc, K, B: tl.constexpr):
    one, two = tl.zeros((2 * B, B), tl.float32), tl.zeros((2 * B, B), tl.float32)
    for k in range(0, K, B):
        a = a_desc.load([0, k])
        one = tl.dot(a, b_desc.load([k, 0]), one)
        two = tl.dot(a, d_desc.load([k, 0]), two)
    c_desc.store([0, 0], one.to(tl.float16))
    e_desc.store([0, 0], two.to(tl.float16))


@pytest.mark.parametrize("pins", [{"depth": 1}, *long({"depth": 2}), {}], ids=str)
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.short("2-{'depth': 1}", "1-{}")
def test_tilelang_2613_one_operand_of_two_products(consumers, pins):
    arrays = {
        "a_desc": integers(128, 256),
        "b_desc": integers(256, 64),
        "d_desc": integers(256, 64),
    }
    arrays |= {name: blank(128, 64, dtype=np.float16) for name in ("c_desc", "e_desc")}
    shapes = {"a_desc": (128, 64), "b_desc": (64, 64), "d_desc": (64, 64)}
    arguments = {n: blocks(a, *shapes.get(n, (128, 64))) for n, a in arrays.items()}
    tried(shared_operand, arguments | {"K": 256, "B": 64}, (1,), consumers=consumers, **pins)


# --- tilelang#374: barriers under a condition read from memory -----------------------------------


def block_sparse(a_desc, b_desc, mask, c_desc, steps, CONDITIONS: tl.constexpr, B: tl.constexpr):
    acc = tl.zeros((B, B), tl.float32)
    for k in range(steps):
        wanted = tl.load(mask + k * CONDITIONS)
        for i in tl.static_range(1, CONDITIONS):
            wanted = wanted & tl.load(mask + k * CONDITIONS + i)
        if wanted != 0:
            a = a_desc.load([0, k * B])
            b = b_desc.load([k * B, 0])
            acc = tl.dot(a, b, acc)
    c_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize(
    "mask", ["101010", "011001", *long("000000", "111111", "100000", "000001")]
)
@pytest.mark.parametrize("conditions", [1, *long(2)])
def test_tilelang_374_blocks_that_are_skipped(mask, conditions):
    wanted = np.repeat(np.array([int(bit) for bit in mask], np.int32), conditions)
    a, b = integers(64, 384), integers(384, 64)
    arguments = {
        "a_desc": blocks(a, 64, 64),
        "b_desc": blocks(b, 64, 64),
        "mask": wanted,
        "c_desc": blocks(blank(64, 64, dtype=np.float16), 64, 64),
    }
    counts = {"steps": 6, "CONDITIONS": conditions, "B": 64}
    tried(block_sparse, arguments | counts, (1,))


# --- facebookexperimental/triton#1278: a slot given back while its product still reads it --------


def product(a_desc, b_desc, c_desc, K, B: tl.constexpr):
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, 0]), acc)
    c_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("depth", [2, *long(3), 4])
def test_fb_triton_1278_products_stay_in_flight_over_the_release(depth):
    """With P products in flight the slot of P - 1 iterations ago is the one that is given back."""
    arrays = {"a_desc": integers(64, 640), "b_desc": integers(640, 64)}
    arrays |= {"c_desc": blank(64, 64, dtype=np.float16)}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    options = {"depth": depth + 1, "mma_depth": depth}
    kernel = tried(product, arguments | {"K": 640, "B": 64}, (1,), **options)
    pending = [op.pending.data for op in operations(kernel, hopper.WgmmaWait)]
    assert depth - 1 in pending


# --- tilelang#2668: a block read, and then overwritten, in one iteration
# -----------------------------


def handed_on(a, first, out, n, W: tl.constexpr):
    at = tl.arange(0, W)
    s, acc = tl.load(first + at), tl.zeros((W,), tl.int32)
    for k in tl.range(n, num_stages=3):
        acc += s
        s = tl.load(a + k * W + at)
    tl.store(out + at, acc)


def handed_on_blocks(a_desc, first_desc, out_desc, n, W: tl.constexpr):
    s, acc = first_desc.load([0, 0]), tl.zeros((W, W), tl.float32)
    for k in tl.range(n, num_stages=3):
        acc = tl.dot(s, s, acc)
        s = a_desc.load([k * W, 0])
    out_desc.store([0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("n", [*long(0), 1, *long(8)])
def test_tilelang_2668_a_tile_handed_on_to_the_next_trip(n):
    a, first = integers(8, 32, dtype=np.int32), integers(32, dtype=np.int32)
    arguments = {"a": a, "first": first, "out": np.zeros(32, np.int32), "n": n, "W": 32}
    tried(handed_on, arguments, (1,))
    arrays = {"a_desc": integers(512, 64, low=-1, high=2), "first_desc": integers(64, 64)}
    arrays |= {"out_desc": blank(64, 64, dtype=np.float16)}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    tried(handed_on_blocks, arguments | {"n": n, "W": 64}, (1,))


# --- tilelang#2443: a row loaded before the loop and used after it ------------------------------


def with_bias(a_desc, b_desc, bias, c_desc, K, B: tl.constexpr):
    column = tl.program_id(0) * B
    row = tl.load(bias + column + tl.arange(0, B))
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        acc = tl.dot(a_desc.load([0, k]), b_desc.load([k, column]), acc)
    acc = tl.maximum(acc + row[None, :], 0.0)
    c_desc.store([0, column], acc.to(tl.float16))


def test_tilelang_2443_a_bias_loaded_before_the_loop():
    a, b, bias = integers(64, 192), integers(192, 128), integers(128, dtype=np.float32)
    arguments = {"a_desc": blocks(a, 64, 64), "b_desc": blocks(b, 64, 64), "bias": bias}
    arguments |= {"c_desc": blocks(blank(64, 128, dtype=np.float16), 64, 64), "K": 192, "B": 64}
    tried(with_bias, arguments, (2,))
    got = result(with_bias, arguments, (2,), "c_desc")
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    np.testing.assert_array_equal(got, want)


# --- tilelang#284: coordinates that the author splits himself ------------------------------------


def split_coordinates(x, y, out, COLUMNS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """One long index, taken apart into rows and columns by division."""
    at = tl.program_id(0) * BM * BN + tl.arange(0, BM * BN)
    row, column = at // COLUMNS, at % COLUMNS
    places = column * (BM * 2) + row
    tl.store(out + places, tl.load(x + places) + tl.load(y + places))


def test_tilelang_284_coordinates_by_division():
    x, y = integers(32, 64, dtype=np.float32), integers(32, 64, dtype=np.float32, low=0)
    arguments = {"x": x, "y": y, "out": blank(32, 64), "COLUMNS": 64, "BM": 16, "BN": 64}
    tried(split_coordinates, arguments, (2,))
    np.testing.assert_array_equal(result(split_coordinates, arguments, (2,), "out"), x + y)
