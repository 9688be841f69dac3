"""tl.dot of batches: one product for each pair of matrices."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from known_failures import blank, blocks, integers, long, operations, result, tried
from tawa.errors import ShapeUnsupported
from tawa.ir import hopper


def once(a, b, c, G: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    g, m, n, k = tl.arange(0, G), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + (g[:, None, None] * M + m[None, :, None]) * K + k[None, None, :])
    y = tl.load(b + (g[:, None, None] * K + k[None, :, None]) * N + n[None, None, :])
    z = tl.dot(x, y)
    tl.store(c + (g[:, None, None] * M + m[None, :, None]) * N + n[None, None, :], z)


@pytest.mark.parametrize("count", [*long(1), 2, *long(4)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_a_batch_in_pointers(count, dtype):
    m, n, k = 16, 32, 32
    a, b = integers(count, m, k, dtype=dtype), integers(count, k, n, dtype=dtype)
    sums = np.int32 if dtype == np.int8 else np.float32
    out = np.zeros((count, m, n), np.int32) if sums == np.int32 else blank(count, m, n)
    arguments = {"a": a, "b": b, "c": out, "G": count, "M": m, "N": n, "K": k}
    tried(once, arguments, (1,))
    got = result(once, arguments, (1,), "c")
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


def test_the_most_matrices():
    a, b, out = integers(32, 16, 16), integers(32, 16, 16), blank(32, 16, 16)
    arguments = {"a": a, "b": b, "c": out, "G": 32, "M": 16, "N": 16, "K": 16}
    got = result(once, arguments, (1,), "c")
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


def looped(a_desc, b_desc, c_desc, n, G: tl.constexpr, B: tl.constexpr):
    """Sums carried as one batch through a loop over blocks of three dimensions."""
    acc = tl.zeros((G, B, B), tl.float32)
    for k in range(0, n, B):
        acc = tl.dot(a_desc.load([0, 0, k]), b_desc.load([0, k, 0]), acc)
    c_desc.store([0, 0, 0], acc.to(tl.float16))


@pytest.mark.parametrize("count", [1, 2])
def test_a_batch_carried_through_a_loop(count):
    a, b = integers(count, 64, 192), integers(count, 192, 64)
    out = blank(count, 64, 64, dtype=np.float16)
    arrays = {"a_desc": a, "b_desc": b, "c_desc": out}
    arguments = {name: blocks(array, count, 64, 64) for name, array in arrays.items()}
    arguments |= {"n": 192, "G": count, "B": 64}
    tried(looped, arguments, (1,))
    got = result(looped, arguments, (1,), "c_desc")
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


def of_two_axes(a, b, c, N: tl.constexpr):
    at = tl.arange(0, 4 * N * N)
    x = tl.reshape(tl.load(a + at), (2, 2, N, N))
    y = tl.reshape(tl.load(b + at), (2, 2, N, N))
    tl.store(c + at, tl.reshape(tl.dot(x, y), (4 * N * N,)))


def test_a_batch_of_two_axes():
    a, b = integers(4, 16, 16), integers(4, 16, 16)
    arguments = {"a": a, "b": b, "c": blank(4, 16, 16), "N": 16}
    tried(of_two_axes, arguments, (1,))
    got = result(of_two_axes, arguments, (1,), "c")
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


def one_of_a_batch(a_desc, b_desc, c_desc, n, TURNED: tl.constexpr, B: tl.constexpr):
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n, B):
        a = tl.reshape(a_desc.load([0, 0, k]), (B, B))
        if TURNED:
            b = b_desc.load([0, 0, k]).reshape(B, B).T
        else:
            b = tl.reshape(b_desc.load([0, k, 0]), (B, B))
        acc = tl.dot(a, b, acc)
    c_desc.store([0, 0, 0], tl.reshape(acc.to(tl.float16), (1, B, B)))


@pytest.mark.parametrize("turned", [False, True])
def test_operands_that_are_reshaped_fill_one_slot(turned):
    """A view between a load and its product keeps them in one payload, so on one barrier."""
    array = tawa.array((2, 256, 256), "f16")
    descs = [tawa.TensorDescriptor.from_tensor(array, [1, 64, 64]) for _ in range(3)]
    kernel = tawa.jit(one_of_a_batch).compile(*descs, 256, turned, 64)
    assert [len(ring.payload) for ring in kernel.plan.arefs] == [2]


@needs_compiler
def test_the_generated_text():
    a, b, c = integers(2, 16, 16), integers(2, 16, 16, low=0), blank(2, 16, 16)
    sizes = {"G": 2, "M": 16, "N": 16, "K": 16}
    kernel = tawa.jit(once).compile(a, b, c, **sizes)
    emulate(kernel.asm.program("hopper"), {"a": a, "b": b, "c": c}, (1, 1, 1))
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_products_of_a_batch_stand_side_by_side():
    arrays = [tawa.array((4, 64, 64), "f16")] * 2
    kernel = tawa.jit(once).compile(*arrays, tawa.array((4, 64, 64), "f32"), 4, 64, 64, 64)
    assert len(operations(kernel, hopper.Wgmma)) == 4


@pytest.mark.parametrize("count", [24, 64])
def test_batches_that_are_refused(count):
    arrays = [tawa.array((count, 16, 16), "f16")] * 2
    with pytest.raises(ShapeUnsupported) as caught:
        tawa.jit(once).compile(*arrays, tawa.array((count, 16, 16), "f32"), count, 16, 16, 16)
    assert f"is a batch of {count} matrices" in caught.value.what
    assert caught.value.remedy == "loop over the batch, or give it an axis of the grid"
    assert caught.value.place is not None
