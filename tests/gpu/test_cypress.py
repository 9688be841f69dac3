"""Task programs on the GPU: the example's mappings at its sizes, sums of rows, drawn mappings."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import tawa.cypress as cy
from tawa.cypress import GLOBAL, SHARED
from tawa.cypress.kernels import attention, sums
from test_cypress import FREEDOMS, I, add_host, add_leaf, sums_mapping
from test_cypress_kernels import in_shared

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "08_cypress.py"


def integers(*shape):
    return torch.randint(-2, 3, shape, device="cuda").half()


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_the_example(example):
    assert [equal for _, equal in example["on_gpu"](torch)] == [True] * 3


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("shape", [(1000, 520, 776), (8, 8, 0), (4096, 2048, 1024)])
def test_each_freedom_is_exact(example, freedom, shape):
    m, n, k = shape
    a, b = integers(m, k), integers(k, n)
    c = torch.full((m, n), 7.0, device="cuda", dtype=torch.float16)
    cy.program(FREEDOMS[freedom](example["mapping"]()))(c, a, b)
    assert torch.equal(c, (a.float() @ b.float()).half())


def test_sums_of_rows():
    how = {"specialize": True, "pipeline": 3, "persistent": True}
    for groups in (1, 2, 3):
        a, b = integers(1000, 520), integers(520, 264)
        c = torch.empty(1000, 264, device="cuda", dtype=torch.float16)
        y = torch.empty(5, 1000, device="cuda")
        cy.program(sums_mapping(groups, **how))(c, y, a, b)
        assert torch.equal(c, (a.float() @ b.float()).half())
        assert torch.equal(y, a.float().sum(1).expand(5, 1000))


@pytest.mark.parametrize("groups", [1, 2])
def test_sums_in_shared_memory(groups):
    mapping = sums.sums(groups, 64 * groups, 128, 64, 3, tiles=3 - groups)
    a, b = integers(1000, 520), integers(520, 264)
    c = torch.empty(1000, 264, device="cuda", dtype=torch.float16)
    y = torch.empty(3, 1000, device="cuda")
    cy.program(in_shared(mapping, "tile", {"add": "R"}))(c, y, a, b)
    assert torch.equal(c, (a.float() @ b.float()).half())
    assert torch.equal(y, a.float().sum(1).expand(3, 1000))


@pytest.mark.parametrize("loop", ["fa2", "fa3"])
def test_the_state_of_attention_in_shared_memory(loop):
    mapping = attention.attention(loop, 2, 128, 64, 64, True, turns=False)
    q, k, v, plain, ours = (torch.randn(4, 1000, 64, device="cuda").half() for _ in "qkvpo")
    cy.program(mapping)(plain, q, k, v)
    cy.program(in_shared(mapping, "product", {"softmax": "MLA"}))(ours, q, k, v)
    assert torch.equal(ours, plain)


@pytest.mark.parametrize("memory", [SHARED, GLOBAL])
def test_a_leaf_reads_either_memory(memory):
    host = I("host", add_host, cy.HOST, [GLOBAL] * 3, {"U": 64, "V": 64}, calls=["l"], entry=True)
    leaf = I("l", add_leaf, cy.BLOCK, [GLOBAL, memory, GLOBAL])
    a, b = integers(1000, 520), integers(1000, 520)
    c = torch.empty_like(a)
    cy.program(cy.Mapping([host, leaf]))(c, a, b)
    assert torch.equal(c, torch.where(a > b, a - b, a + b) * 2)
