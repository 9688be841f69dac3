"""The shipped kernels in the simulator, against float64 in NumPy."""

import dataclasses

import numpy as np
import pytest

import tawa
from tawa.errors import ArgumentError
from tawa.kernels.matmul import Tuner, matmul
from tawa.kernels.variants import Variant

CUBINS = True


def normal(*shape, dtype="bf16", seed=0):
    from tawa.runtime.dtypes import numpy_dtype

    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(numpy_dtype(dtype))


def error(c, a, b):
    want = a.astype(np.float64) @ b.astype(np.float64)
    return np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want)


def variant(form, splits=1, **options):
    sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64} | options
    return Variant(form, tawa.Config(sizes), splits)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_transposition(trans_a, trans_b):
    a = normal(136, 72).swapaxes(0, 1) if trans_a else normal(72, 136)
    b = normal(200, 136, seed=1).T if trans_b else normal(136, 200, seed=1)
    c = matmul(a, b, variant=variant("descriptors"))
    assert error(c, a, b) < 8e-3


def test_the_first_variant_that_builds_is_used_without_a_gpu():
    a, b, tuner = normal(100, 64), normal(64, 136, seed=1), Tuner()
    assert error(matmul(a, b, tuner=tuner), a, b) < 8e-3
    assert len(tuner.best) == 1


def test_an_output_that_tma_cannot_take_goes_through_pointers():
    a, b, tuner = normal(33, 64), normal(70, 64, seed=1).T, Tuner()
    assert error(matmul(a, b, tuner=tuner), a, b) < 8e-3
    assert next(iter(tuner.best.values())).form == "pointers"


@pytest.mark.parametrize(
    ("form", "dtype", "trans_a", "n"),
    [
        ("descriptors", "bf16", True, 72),
        ("descriptors", "f8e4m3", False, 72),
        ("pointers", "bf16", False, 71),
    ],
)
def test_operands_that_tma_cannot_take_are_copied(form, dtype, trans_a, n):
    a = normal(65, 33, dtype=dtype).T if trans_a else normal(33, 65, dtype=dtype)
    b = normal(n, 65, dtype=dtype, seed=1).T
    chosen = variant(form, **({"GROUP_M": 8} if form == "pointers" else {}))
    c = matmul(a, b, variant=dataclasses.replace(chosen, copied="ab"))
    assert error(c, a, b) < 8e-3


def test_a_batch_is_copied_each_item_by_itself():
    a, b = normal(2, 33, 66)[..., :65], normal(1, 65, 72, seed=1)
    c = matmul(a, b, variant=dataclasses.replace(variant("descriptors"), copied="ab"))
    assert all(error(c[i], a[i], b[0]) < 8e-3 for i in range(2))


@pytest.mark.parametrize("splits", [pytest.param(2, marks=pytest.mark.long), 3])
def test_split(splits):
    a, b = normal(40, 456), normal(456, 72, seed=1)
    assert error(matmul(a, b, variant=variant("split", splits)), a, b) < 8e-3


def test_narrow_tiles_are_added_up_whole():
    a, b = normal(130, 136), normal(136, 24, seed=1)
    chosen = dataclasses.replace(variant("split", 2, BLOCK_N=8), whole=2)
    assert error(matmul(a, b, variant=chosen), a, b) < 8e-3


def test_what_adds_in_one_launch_refuses_scales():
    a, b, one = normal(16, 136), normal(136, 24, seed=1), np.ones(1, np.float32)
    with pytest.raises(ArgumentError, match="scales nothing"):
        matmul(a, b, scale_a=one, scale_b=one, variant=variant("split_once", 2, BLOCK_M=16))


@pytest.mark.parametrize(("m", "splits"), [(16, 3), (40, 2)])
def test_split_in_one_launch(m, splits):
    a, b, bias = normal(m, 456), normal(456, 72, seed=1), normal(72, seed=2)
    chosen = variant("split_once", splits, BLOCK_M=16 if m == 16 else 64)
    assert error(matmul(a, b, variant=chosen), a, b) < 8e-3
    bias[5] = np.nan
    c = matmul(a, b, bias=bias, activation="relu", variant=chosen).astype(np.float64)
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64), 0)
    assert np.isnan(c[:, 5]).all()
    c[:, 5] = want[:, 5] = 0
    assert np.linalg.norm(c - want) < 8e-3 * np.linalg.norm(want)


def test_the_last_to_arrive_leaves_the_counters_zero():
    from tawa.kernels.prepare import bind, prepare

    operands = bind(normal(16, 256), normal(256, 136, seed=1))
    (launch,) = prepare(operands, variant("split_once", 4, BLOCK_M=16))
    launch()
    first = operands.c.array.copy()
    counts = launch.arguments[4]
    assert not counts.any()
    launch()
    assert np.array_equal(first, operands.c.array), "the order of sums is fixed"


@pytest.mark.parametrize("whole", [0, 3])
def test_the_last_tiles_are_dealt_out(whole):
    a, b, bias = normal(264, 328), normal(328, 200, seed=1), normal(200, seed=2)
    chosen = dataclasses.replace(variant("split", 2), whole=whole)
    wide = np.zeros((264, 208), a.dtype)  # rows of the output lie apart
    for out in (None, wide[:, :200]):
        c = matmul(a, b, bias=bias, out=out, variant=chosen)
        want = a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)
        assert np.linalg.norm(c.astype(np.float64) - want) < 8e-3 * np.linalg.norm(want)
    assert not wide[:, 200:].any()


def test_batch():
    a, b = normal(3, 72, 136), normal(3, 136, 64, seed=1)
    c = matmul(a, b, variant=variant("descriptors"))
    assert max(error(c[i], a[i], b[i]) for i in range(3)) < 8e-3


@pytest.mark.parametrize(
    "activation",
    [
        pytest.param("relu", marks=pytest.mark.long),
        pytest.param("silu", marks=pytest.mark.long),
        "gelu",
    ],
)
def test_bias_and_activation(activation):
    a, b, bias = normal(72, 64), normal(64, 136, seed=1), normal(136, seed=2)
    c = matmul(a, b, bias=bias, activation=activation, variant=variant("descriptors"))
    x = a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)
    gate = 1.5957691216057308 * (x + 0.044715 * x**3) if activation == "gelu" else x
    with np.errstate(over="ignore"):
        want = np.maximum(x, 0) if activation == "relu" else x / (1 + np.exp(-gate))
    assert np.linalg.norm(c.astype(np.float64) - want) < 8e-3 * np.linalg.norm(want)


def test_fp8_with_scales():
    a, b = normal(72, 128, dtype="f8e4m3"), normal(136, 128, dtype="f8e4m3", seed=1).T
    rows = np.abs(normal(72, dtype="f32", seed=2)) + 0.5
    columns = np.abs(normal(136, dtype="f32", seed=3)) + 0.5
    chosen = variant("descriptors", BLOCK_K=128)
    c = matmul(a, b, scale_a=rows, scale_b=columns, variant=chosen)
    want = a.astype(np.float64) @ b.astype(np.float64) * rows[:, None] * columns[None, :]
    assert np.linalg.norm(c.astype(np.float64) - want) < 1e-2 * np.linalg.norm(want)


def test_empty_products():
    assert matmul(normal(0, 64), normal(64, 8)).shape == (0, 8)
    c = np.full((64, 64), np.nan, np.float32)
    a, b = normal(64, 0, dtype="f32"), normal(0, 64, dtype="f32")
    assert (matmul(a, b, out=c, variant=variant("descriptors", BLOCK_K=32)) == 0).all()
