"""Known failures of others, once more through the generated text: compiled for the host and run
against the emulation of the device functions, at small sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tawa
import test_known_crashes as crashes
import test_known_hangs as hangs
import test_known_races as races
from codegen_emulator import emulate, needs_compiler
from known_failures import array_of, blank, blocks, integers
from tawa.runtime.dispatch import simulate_stage

pytestmark = needs_compiler


def emulated(
    function: Any, arguments: dict[str, Any], grid: tuple[int, int, int], close: float = 0.0
) -> None:
    kernel = tawa.jit(function).compile(**arguments)
    names = [name for name in tawa.jit(function).arg_names if name in arguments]
    given = {name: array_of(arguments[name]) for name in names}
    given = {n: arguments[n] if array is None else array.copy() for n, array in given.items()}
    emulate(kernel.asm.program("hopper"), given, grid, blocks=2)
    want = {name: arguments[name] for name in names}
    simulate_stage(kernel.asm.program("tile"), want, grid, "tile")
    for name in names:
        if (array := array_of(want[name])) is None:
            continue
        got, expected = given[name].astype(np.float64), array.astype(np.float64)
        if close:
            error = np.linalg.norm(got - expected) / max(1e-30, np.linalg.norm(expected))
            assert error <= close, name
        else:
            np.testing.assert_array_equal(got, expected, err_msg=name)


def described(**arrays: np.ndarray) -> dict[str, Any]:
    return {name: blocks(array, 64, 64) for name, array in arrays.items()}


@pytest.mark.parametrize("k", [8, pytest.param(0, marks=pytest.mark.long)])
def test_tilelang_2566_one_trip(k):
    emulated(hangs.matmul, hangs.product(64, 64, k, 64, 64, 64), (1, 1, 1))


def test_vllm_26026_tiles_without_work():
    arguments = described(
        a_desc=integers(256, 128),
        b_desc=integers(128, 64),
        c_desc=blank(256, 64, dtype=np.float16),
    )
    iterations = np.array((0, 2, 1, 0), np.int32)
    emulated(hangs.ragged, arguments | {"iterations": iterations, "tiles": 4, "B": 64}, (2, 1, 1))


@pytest.mark.long
def test_cutlass_1801_stream_k():
    arguments = described(
        a_desc=integers(128, 128), b_desc=integers(128, 64), out_desc=np.zeros((128, 64), "f4")
    )
    counts = {"units": 4, "share": 3, "steps": 2, "B": 64}
    emulated(hangs.stream_k, arguments | counts, (2, 1, 1))


def test_tilelang_374_blocks_that_are_skipped():
    arguments = described(
        a_desc=integers(64, 256), b_desc=integers(256, 64), c_desc=blank(64, 64, dtype=np.float16)
    )
    mask = np.array([0, 1, 0, 1], np.int32)
    counts = {"mask": mask, "steps": 4, "CONDITIONS": 1, "B": 64}
    emulated(races.block_sparse, arguments | counts, (1, 1, 1))


@pytest.mark.long
def test_triton_9728_two_loops_of_causal_attention():
    q, k = (integers(128, 64, low=-1, high=2) for _ in range(2))
    out = blank(128, 64, dtype=np.float16)
    arguments = described(q_desc=q, k_desc=k, v_desc=integers(128, 64), o_desc=out)
    emulated(crashes.causal, arguments | {"n": 128, "B": 64, "D": 64}, (2, 1, 1), close=2e-3)


def test_triton_2779_the_grouped_product():
    sizes = np.array([40, 7], np.int32)
    arguments = {"a": integers(47, 32), "b": integers(2, 32, 32), "sizes": sizes, "groups": 2}
    arguments |= {"c": blank(47, 32, dtype=np.float16), "PROGRAMS": 2, "N": 32, "K": 32, "B": 32}
    emulated(crashes.grouped, arguments, (2, 1, 1))


def test_triton_8932_eight_columns():
    arguments = {
        "a_desc": blocks(integers(64, 64), 64, 64),
        "b_desc": blocks(integers(64, 8), 64, 8),
    }
    arguments |= {"c_desc": blocks(blank(64, 8, dtype=np.float16), 64, 8)}
    emulated(crashes.product, arguments | {"K": 64, "BM": 64, "BN": 8, "BK": 64}, (1, 1, 1))
