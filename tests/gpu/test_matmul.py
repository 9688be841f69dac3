"""`tawa.kernels.matmul` on the GPU: few rows, sums in one launch, clusters of pointer kernels."""

from __future__ import annotations

import pytest

import tawa
from tawa.kernels.matmul import Tuner, matmul
from tawa.kernels.prepare import bind
from tawa.kernels.variants import Variant, variants
from tawa.runtime.store import DiskStore

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a Hopper GPU",
)


def operands(m, n, k):
    """A, and B stored [N, K] as a linear layer's weight."""
    torch.manual_seed(m + n + k)
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    return a, torch.randn(n, k, device="cuda", dtype=torch.bfloat16).T


def assert_product(c, a, b):
    want = a.double() @ b.double()
    assert (c.double() - want).norm() < 8e-3 * want.norm()


@pytest.mark.parametrize("m", [1, 16, 33, 64])
def test_first_variants_of_few_rows(m):
    a, b = operands(m, 1544, 2048)
    for variant in variants(bind(a, b).problem)[:4]:
        assert_product(matmul(a, b, variant=variant), a, b)


def split_once(splits):
    sizes = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128}
    return Variant("split_once", tawa.Config(sizes), splits)


def test_parts_are_added_up_by_the_last_to_arrive():
    a, b = operands(16, 1024, 8192)
    first = matmul(a, b, variant=split_once(8))
    assert_product(first, a, b)
    for _ in range(50):
        assert torch.equal(matmul(a, b, variant=split_once(8)), first), "one order of sums"


def test_a_graph_replays_sums_in_one_launch():
    a, b = operands(16, 1024, 4096)
    out = torch.empty(16, 1024, device="cuda", dtype=torch.bfloat16)
    want = matmul(a, b, variant=split_once(4)).clone()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        matmul(a, b, out, variant=split_once(4))
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            matmul(a, b, out, variant=split_once(4))
    for _ in range(3):
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, want)


@pytest.mark.parametrize("pins", [{}, {"persistent": False}, {"arrangement": "pingpong"}])
@pytest.mark.parametrize("m", [1024, 1100, 896])
def test_pointer_kernels_in_clusters(m, pins):
    """Of 1100 and 896 rows the tiles are 9 and 7: the guard takes the ordinary kernel."""
    a, b = operands(m, 1024, 512)
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    variant = Variant("pointers", tawa.Config(sizes, cluster=2, **pins))
    assert_product(matmul(a, b, variant=variant), a, b)


def test_what_was_fastest_is_recalled(tmp_path, monkeypatch):
    a, b = operands(16, 512, 1024)
    assert_product(matmul(a, b, tuner=Tuner(store=DiskStore(tmp_path))), a, b)
    monkeypatch.setattr("tawa.kernels.tuner.do_bench", None)
    assert_product(matmul(a, b, tuner=Tuner(store=DiskStore(tmp_path))), a, b)
