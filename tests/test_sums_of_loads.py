"""Sums of loaded rows beside a product: threads add their runs, lanes meet once after the loop."""

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def product_and_squares(
    a, b, c, out, K, SCALED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n, rows = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.arange(0, BM)
    acc, squares = tl.zeros((BM, BN), tl.float32), tl.zeros((BM,), tl.float32)
    for k in range(0, K, BK):
        x = a.load([m, k])
        f = x.to(tl.float32)
        if SCALED:  # what is summed is an operand as well, computed: it lies as the product says
            f = f * 2
            squares += tl.sum(f, 1)
            acc = tl.dot(f.to(tl.float16), b.load([k, n]), acc)
        else:
            squares += tl.sum(f * f, 1)
            acc = tl.dot(x, b.load([k, n]), acc)
    c.store([m, n], acc)
    tl.store(out + m + rows, squares)


@pytest.mark.parametrize("iterations", [0, 1, 3])
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_are_summed_beside_a_product(scaled: bool, iterations: int) -> None:
    draw = np.random.default_rng(iterations)
    a = draw.integers(-3, 4, (128, 64 * max(iterations, 1))).astype(np.float16)
    b = draw.integers(-3, 4, (64 * max(iterations, 1), 64)).astype(np.float16)
    c, out = np.ones((128, 64), np.float32), np.ones(128, np.float32)
    of = tawa.TensorDescriptor.from_tensor
    descs = of(a, [128, 64]), of(b, [64, 64]), of(c, [128, 64])
    sizes = {"BM": 128, "BN": 64, "BK": 64}
    compiled = product_and_squares[1, 1](*descs, out, 64 * iterations, SCALED=scaled, **sizes)
    a, b = a.astype(np.float32) * bool(iterations), b.astype(np.float32)
    assert np.array_equal(c, (1 + scaled) * a @ b)
    assert np.array_equal(out, (2 * a if scaled else a * a).sum(1))
    text = compiled.asm["cuda"]
    loop = text[text.index("void role_mma") :]
    loop = loop[loop.index("for (int k ") : loop.index("wgmma_m")]
    if not scaled:
        assert "shuffle" not in loop
        assert "named_sync<" not in loop
