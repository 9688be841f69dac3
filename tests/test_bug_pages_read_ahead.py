"""Row numbers read an iteration ahead cost a copying thread the addresses of two iterations.

Attention over pages of 16 rows spilled 308 bytes in its producer and ran at 0.81 to 0.97 of before.
"""

from __future__ import annotations

import pytest

import tawa
from tawa.kernels.attention import bind, launches, variants
from tawa.runtime import nvrtc


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_a_producer_of_pages_of_16_does_not_spill() -> None:
    q, held = (1, 32, 1, 128), (512, 8, 16, 128)
    arrays = [tawa.array(shape, "f16") for shape in (q, held, held, q)]
    more = {"block_table": tawa.array((1, 512), "i32"), "lengths": tawa.array((1,), "i32")}
    bound = bind(*arrays[:3], out=arrays[3], **more)
    kernel = launches(bound, next(iter(variants(bound.problem))))[0].compile()
    assert kernel.resources.spills == 0
    # It has registers for them now.
    assert not any("iteration ahead" in note.feature for note in kernel.declined)
