"""A loop body that was unrolled had a ring for each of its loads: six of 40 KB do not fit a block,
and the kernel was not specialized.
"""

import numpy as np

import tawa
import tawa.language as tl


@tawa.jit
def taps(a_desc, b_desc, c_desc, K, TAPS: tl.constexpr, DEPTH: tl.constexpr):
    acc = tl.zeros((64, 256), tl.float32)
    for k in range(0, K, DEPTH):
        for tap in tl.static_range(TAPS):
            acc = tl.dot(a_desc.load([tap, k]), b_desc.load([tap * K + k, 0]), acc)
    c_desc.store([0, 0], acc.to(tl.float16))


def test_equal_loads_of_a_body_turn_through_one_ring() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, shape).astype(np.float16) for shape in ((69, 64), (384, 256)))
    c = np.zeros((64, 256), np.float16)
    blocks = (a, [64, 64]), (b, [64, 256]), (c, [64, 256])
    given = [tawa.TensorDescriptor.from_tensor(*each) for each in blocks]
    compiled = taps.compile(*given, 64, grid=(1,), TAPS=6, DEPTH=64)
    (ring,) = compiled.plan.arefs
    assert (compiled.plan.specialized, len(ring.also), compiled.proof.ok) == (True, 5, True)
    assert "a ring for each load" in [item.feature for item in compiled.plan.declined]
    taps[1,](*given, 64, TAPS=6, DEPTH=64)
    wide = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(
        c, sum(wide[0][tap : tap + 64] @ wide[1][64 * tap :][:64] for tap in range(6))
    )
