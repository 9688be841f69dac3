"""What a library call launches is prepared once for a kind of call, and never for another."""

import numpy as np
import pytest

import tawa
from in_threads import together
from runtime_fakes import FakeCompiler, FakeDriver, GpuArray, install
from tawa.errors import ArgumentError
from tawa.kernels import attention as flash
from tawa.kernels import gemm
from tawa.kernels.attention import attention
from tawa.kernels.matmul import Tuner, matmul
from tawa.kernels.prepare import bind, prepare
from tawa.kernels.variants import Variant
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(np.float16)


def right(c, a, b):
    want = a.astype(np.float64) @ b.astype(np.float64)
    return np.linalg.norm(c.astype(np.float64) - want) < 2e-3 * np.linalg.norm(want)


def recipes(tuner):
    return len(tuner.recipes._kept)


def test_other_arrays_of_the_same_kind_share_a_recipe():
    tuner = Tuner()
    x, y = normal(64, 64), normal(64, 64, seed=1)
    first = matmul(x, x, tuner=tuner)
    second = matmul(x, y, tuner=tuner)  # the recipe was made of one array in two places
    third = matmul(y, x, tuner=tuner)
    assert recipes(tuner) == 1
    assert right(first, x, x)
    assert right(second, x, y)
    assert right(third, y, x)
    out = np.empty_like(x)
    assert matmul(x, y, out, tuner=tuner) is out
    assert right(out, x, y)
    assert recipes(tuner) == 2


def test_each_kind_of_call_has_its_own():
    tuner = Tuner()
    x, bias = normal(64, 64), np.ones(64, np.float32)
    memory = np.zeros(64 * 64 + 4, np.float16)
    shifted = memory[4:].reshape(64, 64)
    shifted[...] = x
    for a, b, more in (
        (x, x, {}),
        (x, x.T, {}),
        (x[:, :32], x[:32], {}),
        (shifted, x, {}),
        (x, x, {"out_dtype": "f32"}),
        (x, x, {"activation": "relu"}),
        (x, x, {"bias": bias}),
    ):
        c = matmul(a, b, tuner=tuner, **more).astype(np.float64)
        want = a.astype(np.float64) @ b.astype(np.float64) + (1 if "bias" in more else 0)
        want = np.maximum(want, 0) if "activation" in more else want
        assert np.linalg.norm(c - want) < 2e-3 * np.linalg.norm(want)
    assert recipes(tuner) == 7


def test_workspace_is_made_anew():
    tuner = Tuner()
    chosen = Variant(
        "split_once", tawa.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64}), splits=3
    )
    a, b = normal(16, 256), normal(256, 72, seed=1)
    tuner.best[bind(a, b).problem] = chosen
    for seed in (0, 2, 3):
        a = normal(16, 256, seed=seed)
        assert right(matmul(a, b, tuner=tuner), a, b)
    assert recipes(tuner) == 1


def test_many_threads_share_recipes():
    tuner, wrong = Tuner(), []
    b = normal(64, 64, seed=9)

    def work(seed):
        a = normal(64, 64, seed=seed)
        if not right(matmul(a, b, tuner=tuner), a, b):
            wrong.append(seed)

    together(4, work)
    assert not wrong
    assert recipes(tuner) == 1


def test_options_that_can_change_are_read_at_each_call():
    tuner = flash.Tuner()
    q, k, v = (normal(1, 1, 8, 64, seed=seed) for seed in range(3))
    scale = np.array(0.5, np.float32)
    first = attention(q, k, v, scale=scale, tuner=tuner)
    scale[...] = 0.25
    second = attention(q, k, v, scale=scale, tuner=tuner)
    assert recipes(tuner) == 0
    assert not np.array_equal(first, second)
    assert np.array_equal(second, attention(q, k, v, scale=0.25))
    for wrong in (0, -0.5, float("inf"), float("nan")):
        with pytest.raises(ArgumentError, match="multiplied by"):
            attention(q, k, v, scale=wrong)
    attention(q, k, v, scale=0.5, window=(3, None), tuner=tuner)
    assert recipes(tuner) == 1


def test_attention_without_keys():
    tuner = flash.Tuner()
    q, none = normal(1, 2, 8, 64), normal(1, 2, 0, 64)
    for logit in (1.0, 2.0):
        sink = np.full(2, logit, np.float32)
        out, lse = attention(q, none, none, sink=sink, return_lse=True, tuner=tuner)
        assert not out.any()
        assert np.array_equal(lse, np.full((1, 2, 8), logit, np.float32))
    assert recipes(tuner) == 1


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"b": [[1.0]]}, "b is of the type list"),
        ({"bias": np.ones(63, np.float32)}, r"bias has shape \(63,\)"),
        ({"bias": np.ones(128, np.float32)[::2]}, r"strides \(2,\)"),
        ({"bias": np.ones(64, np.int32)}, "bias holds i32"),
        ({"scale_a": np.ones(1, np.float16), "scale_b": np.ones(1, np.float32)}, "scale_a holds"),
        ({"out": np.zeros((64, 64), np.int32)}, "out holds i32"),
        ({"out": np.broadcast_to(np.zeros((1, 64), np.float16), (64, 64))}, "its own place"),
        ({"out": np.zeros((64, 64), np.float32), "out_dtype": "f16"}, "out_dtype is f16"),
        ({"scale_a": 1.0, "scale_b": 1.0}, "scale_a is of the type float"),
    ],
)
def test_what_is_no_array_or_does_not_fit(more, text):
    x = normal(64, 64)
    with pytest.raises(ArgumentError, match=text):
        matmul(**{"a": x, "b": x, **more})


def test_out_must_not_share_memory_with_what_is_read():
    tuner, x, y = Tuner(), normal(64, 64), normal(64, 64, seed=1)
    with pytest.raises(ArgumentError, match="out shares memory with a"):
        matmul(x, y, x, tuner=tuner)
    whole = normal(96, 64)
    with pytest.raises(ArgumentError, match="out shares memory with b"):
        matmul(x, whole[:64], whole[32:], tuner=tuner)
    both = normal(64, 128)  # side by side in one array: no element in common
    c = matmul(both[:, :64], y, both[:, 64:], tuner=tuner)
    assert right(c, both[:, :64], y)
    q, k, v = (normal(1, 1, 8, 64, seed=seed) for seed in range(3))
    with pytest.raises(ArgumentError, match="out shares memory with q"):
        attention(q, k, v, out=q)
    with pytest.raises(ArgumentError, match="its own place"):
        attention(q, k, v, out=np.broadcast_to(q[:, :, :1], q.shape))


def test_what_tma_cannot_take_goes_through_pointers():
    tuner = Tuner()
    a, b, bias = normal(3, 40, 65), normal(3, 65, 50, seed=1), np.ones(50, np.float32)
    c = matmul(a, b, bias=bias, activation="relu", tuner=tuner).astype(np.float64)
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + 1, 0)
    assert np.linalg.norm(c - want) < 2e-3 * np.linalg.norm(want)
    x, y = normal(72, 64), normal(64, 80, seed=1)
    out = np.zeros((72, 80), np.float16)[::-1]
    assert right(matmul(x[::-1], y, out, tuner=tuner), x[::-1], y)
    rows, columns = np.full(72, 2, np.float32), np.full(70, 0.5, np.float32)
    scaled = matmul(x, y[:, 3:73], scale_a=rows, scale_b=columns, tuner=tuner)
    assert right(scaled, x, y[:, 3:73])
    assert {each.form for each in tuner.best.values()} == {"pointers"}


def test_products_far_apart_count_in_64_bits():
    far = tawa.array((1 << 16, 65), "f16", strides=(1 << 16, 1))
    near = tawa.array((1 << 10, 65), "f16")
    b = tawa.array((65, 64), "f16")
    sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
    for a, kernel in ((far, gemm.matmul_strided), (near, gemm.matmul_pointers)):
        (launch,) = prepare(bind(a, b), Variant("pointers", tawa.Config(sizes)))
        assert launch.kernel is kernel


def test_launches_on_a_gpu_get_the_addresses_of_each_call(monkeypatch, tmp_path):
    driver = FakeDriver(parameters=4)
    install(monkeypatch, driver)
    kernel = gemm.matmul_descriptors
    fake = JitFunction(kernel.fn, compiler=FakeCompiler(), store=DiskStore(tmp_path))
    monkeypatch.setattr(gemm, "matmul_descriptors", fake)
    tuner = Tuner()

    def array(address):
        return GpuArray((256, 256), "float16", address=address)

    base, page = 0x7F0000000000, 1 << 20
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    problem = bind(array(base), array(base), array(base)).problem
    tuner.best[problem] = Variant("descriptors", tawa.Config(sizes))
    for turn in range(3):
        places = [base + page * (3 * turn + number) for number in range(3)]
        matmul(*map(array, places), tuner=tuner)
        assert driver.placed[-3:] == places
    assert len(driver.encoded) == 3
    assert len(driver.launches) == 3
    assert recipes(tuner) == 1
