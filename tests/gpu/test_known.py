"""Kernels that hang, race or crash elsewhere, on the GPU: the result is that of the program as it
is written (the sequential oracle), bit for bit where sums are exact.

Needs torch with CUDA and a Hopper GPU; skipped elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)

import tawa  # noqa: E402
import test_batched_dot as batched  # noqa: E402
import test_known_crashes as crashes  # noqa: E402
import test_known_hangs as hangs  # noqa: E402
import test_known_races as races  # noqa: E402
from known_failures import blank, blocks, integers  # noqa: E402
from tawa.runtime.dispatch import simulate_stage  # noqa: E402


def on_gpu(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy()).cuda()
    if isinstance(value, tawa.TensorDescriptor):
        base = torch.from_numpy(value.base.copy()).cuda()
        return tawa.TensorDescriptor.from_tensor(base, list(value.block_shape))
    return value


def numbers(value: Any) -> np.ndarray | None:
    value = getattr(value, "base", value) if isinstance(value, tawa.TensorDescriptor) else value
    if isinstance(value, np.ndarray):
        return value.astype(np.float64)
    return value.double().cpu().numpy() if isinstance(value, torch.Tensor) else None


def agrees(function: Any, arguments: dict[str, Any], grid: tuple[int, ...], close: float = 0.0):
    kernel = tawa.jit(function)
    names = [name for name in kernel.arg_names if name in arguments]
    given = {name: on_gpu(arguments[name]) for name in names}
    compiled = kernel[grid](**given)
    torch.cuda.synchronize()
    want = {name: arguments[name] for name in names}
    simulate_stage(compiled.asm.program("tile"), want, grid, "tile")
    for name in names:
        found, expected = numbers(given[name]), numbers(want[name])
        if found is None or expected is None:
            continue
        if close:
            error = np.linalg.norm(found - expected) / max(1e-30, np.linalg.norm(expected))
            assert error <= close, name
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("k", [0, 8, 64, 640])
def test_one_trip(k):
    agrees(hangs.matmul, hangs.product(256, 256, k, 128, 128, 64), (2, 2))


@pytest.mark.parametrize("iterations", [(0, 0, 0, 0), (0, 3, 1, 0), (2, 0, 0, 5)])
def test_tiles_without_work(iterations):
    arguments = {
        "a_desc": blocks(integers(256, 320), 64, 64),
        "b_desc": blocks(integers(320, 64), 64, 64),
        "c_desc": blocks(blank(256, 64, dtype=np.float16), 64, 64),
        "iterations": np.array(iterations, np.int32),
    }
    agrees(hangs.ragged, arguments | {"tiles": 4, "B": 64}, (2,))


@pytest.mark.parametrize("share", [1, 2, 5])
def test_stream_k(share):
    arguments = {
        "a_desc": blocks(integers(192, 192), 64, 64),
        "b_desc": blocks(integers(192, 64), 64, 64),
        "out_desc": blocks(np.zeros((192, 64), np.float32), 64, 64),
    }
    counts = {"units": 9, "share": share, "steps": 3, "B": 64}
    agrees(hangs.stream_k, arguments | counts, (-(-9 // share),))


@pytest.mark.parametrize("stride", [80, 75])
def test_a_pointer_loop(stride):
    a, b = integers(100, stride), integers(72, 80)
    arguments = {"a": a, "b": b, "c": blank(100, 80, dtype=np.float16), "M": 100, "N": 80, "K": 72}
    arguments |= {"am": stride, "bk": 80, "cm": 80, "BM": 64, "BN": 64, "BK": 32}
    agrees(crashes.pointer_loop, arguments, (2, 2))


def test_two_loops_of_causal_attention():
    q, k = (integers(256, 64, low=-1, high=2) for _ in range(2))
    arrays = {"q_desc": q, "k_desc": k, "v_desc": integers(256, 64)}
    arrays |= {"o_desc": blank(256, 64, dtype=np.float16)}
    arguments = {name: blocks(array, 64, 64) for name, array in arrays.items()}
    agrees(crashes.causal, arguments | {"n": 256, "B": 64, "D": 64}, (4,), close=2e-3)


def test_the_grouped_product():
    sizes = np.array([40, 100, 7], np.int32)
    arguments = {"a": integers(147, 64), "b": integers(3, 64, 32), "sizes": sizes, "groups": 3}
    arguments |= {"c": blank(147, 32, dtype=np.float16), "PROGRAMS": 2, "N": 32, "K": 64, "B": 32}
    agrees(crashes.grouped, arguments, (2,))


@pytest.mark.parametrize("columns", [8, 24, 72])
def test_columns_of_one_instruction(columns):
    a, b, c = integers(64, 128), integers(128, columns), blank(64, columns, dtype=np.float16)
    arguments = {"a_desc": blocks(a, 64, 64), "b_desc": blocks(b, 64, columns)}
    arguments |= {"c_desc": blocks(c, 64, columns), "K": 128, "BM": 64, "BN": columns, "BK": 64}
    agrees(crashes.product, arguments, (1, 1))


@pytest.mark.parametrize("mask", ["000000", "101010", "011001"])
def test_blocks_that_are_skipped(mask):
    arguments = {
        "a_desc": blocks(integers(64, 384), 64, 64),
        "b_desc": blocks(integers(384, 64), 64, 64),
        "mask": np.array([int(bit) for bit in mask], np.int32),
        "c_desc": blocks(blank(64, 64, dtype=np.float16), 64, 64),
    }
    agrees(races.block_sparse, arguments | {"steps": 6, "CONDITIONS": 1, "B": 64}, (1,))


def test_one_operand_of_two_products():
    b, d = integers(256, 64), integers(256, 64, low=0)
    arrays = {"a_desc": integers(128, 256), "b_desc": b, "d_desc": d}
    arrays |= {name: blank(128, 64, dtype=np.float16) for name in ("c_desc", "e_desc")}
    shapes = {"b_desc": (64, 64), "d_desc": (64, 64)}
    arguments = {n: blocks(a, *shapes.get(n, (128, 64))) for n, a in arrays.items()}
    agrees(races.shared_operand, arguments | {"K": 256, "B": 64}, (1,))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_batches_of_products(count):
    a, b = integers(count, 16, 32), integers(count, 32, 32)
    arguments = {"a": a, "b": b, "c": blank(count, 16, 32), "G": count, "M": 16, "N": 32, "K": 32}
    agrees(batched.once, arguments, (1,))
    arrays = {"a_desc": integers(count, 64, 192), "b_desc": integers(count, 192, 64)}
    arrays |= {"c_desc": blank(count, 64, 64, dtype=np.float16)}
    arguments = {name: blocks(array, count, 64, 64) for name, array in arrays.items()}
    agrees(batched.looped, arguments | {"n": 192, "G": count, "B": 64}, (1,))
