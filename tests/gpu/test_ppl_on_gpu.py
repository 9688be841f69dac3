"""Every draw of tawa.ppl has the same bits on the GPU as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import test_ppl_bits as bits
from tawa import ppl
from tawa.errors import NoDriver
from tawa.ppl.emit import gpu


def has_gpu() -> bool:
    try:
        gpu._context()
    except NoDriver:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_gpu(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("model", "given", "method"),
    [pytest.param(m, g, k, id=f"{n}-{k}") for n, m, g, k in bits.RUNS],
)
def test_the_same_bits(model, given, method, dtype):
    for seed in range(10):
        options = {"method": method, "seed": seed, "dtype": dtype, "stack": 400}
        options |= {**bits.SIZES[method], "chains": 96, "particles": 300}
        cpu = bits.arrays(ppl.infer(model, *given, **options))
        other = bits.arrays(ppl.infer(model, *given, device="cuda", **options))
        for a, b in zip(cpu, other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
