"""A product that is added to a constant, in a loop whose stores diverge: its registers are filled
there and then, before the fence that orders them. Computed anew on other paths, they serialise it.
"""

from __future__ import annotations

import pytest

from fuzz_gpu import launched
from fuzz_run import assert_not_serialised, compile_case
from tawa.runtime import nvrtc

CASE = launched(3_000_487, False)


def test_a_constant_is_pinned_in_the_accumulator_before_its_fence() -> None:
    text = compile_case(CASE).asm["cuda"]
    filled = text.index("= 1.0f;")
    pinned, product = text.index("pin(", filled), text.index("wgmma_m64n96k16", filled)
    assert filled < pinned < text.index("wgmma_fence();", pinned) < product


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_it_is_not_serialised() -> None:
    made = compile_case(CASE)
    assert_not_serialised(made)
    assert made.asm["cubin"]
