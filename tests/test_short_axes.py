"""Reductions in loops along an axis of a few elements: no iteration meets at a barrier."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler


@tawa.jit
def chains(
    x, out, energies, n, C: tl.constexpr, D: tl.constexpr, ROW: tl.constexpr, COLUMN: tl.constexpr
):
    """Three sums along the short axis in each iteration; where rows lie is ROW and COLUMN."""
    c, d = tl.arange(0, C), tl.arange(0, D)
    at = c[:, None] * ROW + d[None, :] * COLUMN
    q = tl.load(x + at)
    p = q * 0.5
    total = tl.zeros((C,), tl.float32)
    for _ in range(n):
        p = p - 0.125 * q
        q = q + 0.125 * p
        energy = tl.sum(q * q, 1) + tl.sum(p * p, 1)
        total += energy * tl.sum(p * q, 1)
        q = tl.where(energy[:, None] > 4, q * 0.5, q)
    tl.store(energies + c, total)
    tl.store(out + at, q)


@tawa.jit
def drawn(x, out, energies, n, C: tl.constexpr, D: tl.constexpr, ROW: tl.constexpr, COLUMN: tl.constexpr):  # fmt: skip  # noqa: E501
    """What is added up comes from no memory, but from ranges."""
    c, d = tl.arange(0, C), tl.arange(0, D)
    at = c[:, None] * ROW + d[None, :] * COLUMN
    q = tl.load(x + at)
    total = tl.zeros((C,), tl.float32)
    for t in range(n):
        p = tl.rand(t, at)
        total += tl.sum(p, 1) - tl.sum(p * p, 1)
        q = q * 0.5 + total[:, None]
    tl.store(energies + c, total)
    tl.store(out + at, q)


def of(kernel, shape, columns):
    """Arguments, and constants for rows or columns that lie side by side in memory."""
    c, d = shape
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32) / 4
    sizes = {"C": c, "D": d} | ({"ROW": 1, "COLUMN": c} if columns else {"ROW": d, "COLUMN": 1})
    held = np.ascontiguousarray(x.T) if columns else x
    return x, (held, np.zeros_like(held), np.zeros(c, np.float32), 3), sizes


SHAPES = [(128, 8), (256, 8), (64, 4), (32, 8), (128, 2), (512, 1)]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("kernel", "shape"), [*((chains, shape) for shape in SHAPES), (drawn, (128, 8))]
)
def test_no_trip_meets_at_a_barrier(kernel, shape, columns) -> None:
    _, given, sizes = of(kernel, shape, columns)
    compiled = kernel.compile(*given, **sizes)
    text = compiled.asm.text("hopper")
    loop = text[text.index("scf.for") : text.rindex("scf.yield")]
    assert "named_barrier" not in loop
    if "cubin" in compiled.asm.ready and shape == (128, 8):
        assert compiled.asm.text("sass").count("BAR.") == text.count("hopper.named_barrier")


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_the_sums_are_right(shape, columns) -> None:
    x, given, sizes = of(chains, shape, columns)
    want = [array.copy() if isinstance(array, np.ndarray) else array for array in given]
    tawa.simulate(chains, *want, **sizes, grid=(1,), level="tile")
    tawa.simulate(chains, *given, **sizes, grid=(1,), level="hopper")
    np.testing.assert_array_equal(given[1], want[1])
    np.testing.assert_allclose(given[2], want[2], rtol=1e-5)
    q = x.astype(np.float64)
    p, total = q / 2, np.zeros(shape[0])
    for _ in range(3):
        p = p - q / 8
        q = q + p / 8
        energy = (q * q).sum(1) + (p * p).sum(1)
        total += energy * (p * q).sum(1)
        q = np.where(energy[:, None] > 4, q / 2, q)
    np.testing.assert_allclose(given[2], total, rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("columns", [False, True])
def test_the_text_gives_the_same(columns) -> None:
    _, given, sizes = of(chains, (128, 8), columns)
    want = [array.copy() if isinstance(array, np.ndarray) else array for array in given]
    tawa.simulate(chains, *want, **sizes, grid=(1,), level="hopper")
    compiled = chains.compile(*given, **sizes)
    names = ("x", "out", "energies", "n")
    emulate(compiled.asm.program("hopper"), dict(zip(names, given, strict=True)), (1, 1, 1))
    np.testing.assert_allclose(given[2], want[2], rtol=1e-5)
