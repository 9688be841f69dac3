"""The generated text of lowered kernels, run on the host: register and shared layouts fit together.

The simulator moves whole tiles and does not see layouts; the emulated text moves every element.
"""

from __future__ import annotations

import numpy as np
import pytest

from codegen_emulator import COMPILER, emulate
from lower_kernels import CASES, fresh, lowered, tile_kernel
from tawa.simulator import simulate

CHOSEN = [
    "matmul 16x128",
    "matmul fp8 runs of 32",
    "matmul fp8 nn",
    "row sums",
    "many tiles split",
    "pointers",
    "largest",
]


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", CHOSEN)
def test_emulated_text_equals_the_oracle(name: str) -> None:
    case = CASES[name]
    expected, arguments = fresh(case)
    simulate(tile_kernel(case), case.grid, arguments, level="tile")
    actual, arguments = fresh(case)
    emulate(lowered(name)[0], arguments | actual, case.grid, blocks=2)
    for array in expected:
        want, got = (np.asarray(x[array], np.float64) for x in (expected, actual))
        assert np.array_equal(want, got, equal_nan=True), array
