"""What is stored into an array of bools is whether it is not 0: it went through int8, so that 256,
0.5 and NaN became False.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler

N = 16
INTEGERS = (np.int16, np.int32, np.int64, np.uint8)
KINDS = (*INTEGERS, np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


@tawa.jit
def by_pointers(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i))


@tawa.jit
def by_scalars(x, o, N: tl.constexpr):
    for i in range(N):
        tl.store(o + i, tl.load(x + i))


@tawa.jit
def by_block_pointers(x, o, N: tl.constexpr):
    p = tl.make_block_ptr(o, (N,), (1,), (0,), (N,), (0,))
    tl.store(p, tl.load(x + tl.arange(0, N)), boundary_check=(0,))


@tawa.jit
def by_descriptor(x, o, N: tl.constexpr):
    desc = tl.make_tensor_descriptor(o, [1, N], [N, 1], [1, N])
    desc.store([0, 0], tl.load(x + tl.arange(0, N))[None, :])


@tawa.jit
def by_host(x, o, N: tl.constexpr):
    o.store([0, 0], tl.load(x + tl.arange(0, N))[None, :])


@tawa.jit
def by_scatter(x, o, N: tl.constexpr):
    desc = tl.make_tensor_descriptor(o, [8, N], [N, 1], [1, N])
    rows = tl.load(x + tl.arange(0, N))[None, :] + tl.zeros((8, 1), x.dtype.element_ty)
    desc.scatter(rows, tl.arange(0, 8), 0)


def numbers(dtype) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        values = [0, 1, 2, 255, 0, 128, 7]
        values += [256, 512, -256, 1 << 14] if np.dtype(dtype).itemsize > 1 else []
    else:
        values = [0.0, -0.0, 0.5, 256.0, 512.0, 1.0, -0.25, np.nan, np.inf, 1e-7]
    with np.errstate(invalid="ignore"):
        return np.resize(np.array(values).astype(dtype), N)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("level", ["tile", "hopper"])
@pytest.mark.short(
    "tile-int16",
    "tile-float16",
    "tile-float64",
    "tile-uint8",
    "hopper-int64",
    "hopper-int32",
    "hopper-float32",
    "hopper-bfloat16",
)
def test_whether_it_is_not_zero(dtype, level) -> None:
    x = numbers(dtype)
    for kernel in (by_pointers, by_scalars, by_block_pointers, by_descriptor, by_host, by_scatter):
        o = np.zeros((8, N), np.bool_)
        held = tawa.TensorDescriptor.from_tensor(o, [1, N]) if kernel is by_host else o
        tawa.simulate(kernel, x, held, N=N, grid=(1,), level=level)
        rows = o if kernel is by_scatter else o[:1]
        np.testing.assert_array_equal(rows, np.broadcast_to(x != 0, rows.shape), kernel.__name__)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_the_text_stores_the_same(dtype) -> None:
    x, o = numbers(dtype), np.zeros(N, np.bool_)
    compiled = by_pointers.compile(x, o, N=N)
    emulate(compiled.asm.program("hopper"), {"x": x, "o": o}, (1, 1, 1))
    np.testing.assert_array_equal(o, x != 0)
    assert set(o.view(np.uint8)) == {0, 1}, "a bool is a byte of 0 or 1"


@tawa.jit
def constants(o, V: tl.constexpr):
    tl.store(o, V)
    tl.store(o + 1 + tl.arange(0, 8), tl.full((8,), V, tl.float32))


@pytest.mark.parametrize("value", [0.5, 256, 512, float("nan"), -0.0, 0, 300.5, True])
def test_constants(value) -> None:
    o = np.zeros(9, np.bool_)
    constants[(1,)](o, V=value)
    assert (o == (value != 0)).all()


@tawa.jit
def others(x, o, V: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + i, mask=i < 8, other=V).to(tl.int32))


@pytest.mark.parametrize("value", [0.5, 256, 0, float("nan"), 1])
def test_what_a_masked_load_of_bools_gives_instead(value) -> None:
    x, o = np.zeros(16, np.bool_), np.zeros(16, np.int32)
    others[(1,)](x, o, V=value)
    assert (o == [0] * 8 + [int(value != 0)] * 8).all()


@tawa.jit
def through_descriptors(a, o, N: tl.constexpr):
    made = tl.make_tensor_descriptor(o, [8, N], [N, 1], [8, N])
    x = a.load([0, 0])
    made.store([0, 0], ~x)
    made.store([0, 0], tl.where(x, 0.25, 0.0))


def test_bools_are_loaded_through_descriptors() -> None:
    a = np.random.default_rng(0).integers(0, 2, (8, N)).astype(np.bool_)
    for level in ("tile", "hopper"):
        o = np.zeros((8, N), np.bool_)
        desc = tawa.TensorDescriptor.from_tensor(a, [8, N])
        tawa.simulate(through_descriptors, desc, o, N=N, grid=(1,), level=level)
        np.testing.assert_array_equal(o, a)
