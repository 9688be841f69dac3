"""The generated text of lowered kernels, run on the host: register and shared layouts fit together.

The simulator moves whole tiles and does not see layouts; the emulated text moves every element.
"""

from __future__ import annotations

import numpy as np
import pytest

from codegen_emulator import emulate, needs_compiler
from lower_kernels import CASES, fresh, lowered, tile_kernel
from tawa.simulator import simulate

CHOSEN = [
    pytest.param("matmul 16x128", marks=pytest.mark.long),
    pytest.param("matmul fp8 runs of 32", marks=pytest.mark.long),
    "matmul fp8 nn",
    "matmul fp8 tn",
    "matmul int8 nn",
    "matmul int8 16x32",
    "attention fp8",
    "matmul tf32 tn",
    "row sums",
    "many tiles split",
    "pointers",
    pytest.param("largest", marks=pytest.mark.long),
]


@needs_compiler
@pytest.mark.parametrize("name", CHOSEN)
def test_emulated_text_equals_the_oracle(name: str) -> None:
    case = CASES[name]
    expected, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    actual, arguments = fresh(case)
    emulate(lowered(name)[0], arguments | actual, case.grid, blocks=2)
    for array in expected:
        want, got = (np.asarray(x[array], np.float64) for x in (expected, actual))
        if case.exact:
            assert np.array_equal(want, got, equal_nan=True), array
        else:
            assert np.allclose(want, got, rtol=2e-3, atol=1e-5), array
