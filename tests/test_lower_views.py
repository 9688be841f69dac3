"""Tiles in shared memory under other shapes: what stays a view, and what is right."""

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def rows_of_two(a_desc, b_desc, c_desc, A: tl.constexpr, B: tl.constexpr, K: tl.constexpr):
    """One product for each tile along a grid, A's rows counted by two dimensions of its array."""
    at = tl.program_id(0) * A
    acc = tl.zeros((A * B, 64), tl.float32)
    for k in range(0, K, 64):
        a = a_desc.load([at, 0, k]).reshape(A * B, 64)
        acc = tl.dot(a, b_desc.load([k, 0]), acc)
    c_desc.store([at, 0, 0], acc.to(tl.float16).reshape(A, B, 64))


@pytest.mark.parametrize(("outer", "inner", "there"), [(16, 4, 3), (8, 8, 8), (2, 32, 20)])
@pytest.mark.short("16-4-3", "2-32-20")
def test_rows_counted_by_two_dimensions_stay_in_shared_memory(outer, inner, there):
    """Boxes may stick out of the array along both: copies give zeros, stores are dropped."""
    random = np.random.default_rng(0)
    a = random.standard_normal((2 * outer - 1, there, 192)).astype(np.float16)
    b = random.standard_normal((192, 64)).astype(np.float16)
    c = np.full((2 * outer - 1, there, 64), np.nan, np.float16)
    arguments = (
        tawa.TensorDescriptor.from_tensor(a, [outer, inner, 64]),
        tawa.TensorDescriptor.from_tensor(b, [64, 64]),
        tawa.TensorDescriptor.from_tensor(c, [outer, inner, 64]),
    )
    sizes = {"A": outer, "B": inner, "K": 192}
    rows_of_two[(2,)](*arguments, **sizes)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(c.astype(np.float64) - want) < 1e-3 * np.linalg.norm(want)
    kernel = rows_of_two.compile(*arguments, grid=(2,), **sizes)
    assert "hopper.reshape_view" in kernel.asm["hopper"]
    assert "shared_load" not in kernel.asm["cuda"], "the product reads the tile where it lies"
