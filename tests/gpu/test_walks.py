"""Kernels that walk over their tiles themselves, by TMA and, where a guard fails, without."""

from __future__ import annotations

import pytest

from test_own_loops import product, scaled

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)


@pytest.mark.parametrize("wide", [64, 128, 256])
@pytest.mark.parametrize(
    ("m", "n", "k", "programs"),
    [(1000, 1016, 520, 132), (130, 264, 72, 2), (64, 64, 64, 132), (2048, 3072, 512, 100)],
)
def test_a_product(m, n, k, programs, wide):
    torch.manual_seed(m + n + k)
    a, b = (torch.randn(*shape, device="cuda").half() for shape in ((m, k), (k, n)))
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
    meta = {"BM": 128, "BN": wide, "BK": 64, "GROUP": 8, "PROGRAMS": programs}
    for _ in range(3):
        c.fill_(float("nan"))
        product[(programs,)](a, b, c, m, n, k, k, 1, n, 1, n, 1, **meta)
        want = a.double() @ b.double()
        assert (c.double() - want).norm() < 2e-3 * want.norm()


@pytest.mark.parametrize("programs", [1, 7, 500])
def test_numbers_for_a_tile(programs):
    m, n = 1000, 1536
    a = torch.randn(m, n, device="cuda").half()
    s = torch.randn(n // 64, device="cuda").half()
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
    scaled[(programs,)](a, s, c, m, n, BM=32, BN=128)
    assert torch.equal(c, a * s.repeat_interleave(64))
