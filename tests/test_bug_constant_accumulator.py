"""A product that is added to a constant, in a loop whose stores diverge: its registers are filled
there and then, before the fence that orders them. Computed anew on other paths, they serialise it.
"""

from __future__ import annotations

import pytest

from fuzz_gpu import launched
from fuzz_run import keywords
from tawa.runtime import nvrtc
from tawa.runtime.jit import JitFunction

CASE = launched(3_000_487, False)


def test_a_constant_is_pinned_in_the_accumulator_before_its_fence() -> None:
    given = CASE.given(CASE.data())
    text = JitFunction(CASE.function()).compile(*given.values(), **keywords(CASE)).asm["cuda"]
    filled = text.index("= 1.0f;")
    pinned, product = text.index("pin(", filled), text.index("wgmma_m64n96k16", filled)
    assert filled < pinned < text.index("wgmma_fence();", pinned) < product


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_it_is_not_serialised() -> None:
    given = CASE.given(CASE.data())
    made = JitFunction(CASE.function()).compile(*given.values(), **keywords(CASE))
    assert made.plan.specialized
    assert made.asm["cubin"]
