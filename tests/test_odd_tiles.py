"""Tiles that are no powers of two, in every order of operands: compiled, right in the simulator.

Their swizzled panels overlap or end early, TMA cannot take all of their rows, and wgmma not all of
their heights.
"""

import numpy as np
import pytest

import tawa
from tawa.kernels.matmul import matmul
from tawa.kernels.variants import Variant
from tawa.runtime.dtypes import numpy_dtype

TILES = [
    (192, 24, 48),
    (64, 40, 96),
    (128, 56, 160),
    (192, 200, 32),
    (16, 24, 48),
    (80, 48, 64),
    (64, 168, 64),
    (48, 72, 32),
]
ORDERS = ["NN", "NT", "TN", "TT"]
TOLERANCE = {"f16": 2e-3, "bf16": 8e-3, "f32": 2e-3, "f8e4m3": 8e-3}
# One of each kind in the quick run.
QUICK = {
    ("bf16", "NN", (64, 168, 64)),
    ("bf16", "TN", (192, 24, 48)),
    ("f16", "TT", (16, 24, 48)),
    ("f32", "NT", (48, 72, 32)),
    ("f8e4m3", "NN", (64, 40, 96)),
    ("f8e4m3", "TT", (64, 40, 96)),
}


def normal(rows: int, columns: int, dtype: str, turned: bool, seed: int):
    shape = (columns, rows) if turned else (rows, columns)
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    values = values.astype(numpy_dtype(dtype))
    return values.T if turned else values


def cases():
    for dtype in TOLERANCE:
        for order in ORDERS:
            for tile in TILES:
                quick = (dtype, order, tile) in QUICK
                marks = () if quick else (pytest.mark.long,)
                name = f"{dtype}-{order}-{'x'.join(map(str, tile))}"
                yield pytest.param(dtype, order, tile, id=name, marks=marks)


@pytest.mark.parametrize(("dtype", "order", "tile"), [*cases()])
def test_odd_tile(dtype, order, tile):
    rows, columns, depth = tile
    m, n, k = rows + 16, columns + 16, 2 * depth + 16  # tails of every axis
    a = normal(m, k, dtype, order[0] == "T", 0)
    b = normal(k, n, dtype, order[1] == "T", 1)
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}
    c = matmul(a, b, variant=Variant("descriptors", tawa.Config(sizes)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want)
    assert error < TOLERANCE[dtype]
