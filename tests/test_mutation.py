"""A sample of the mutation test: `make mutants` runs all of it, and writes the figures."""

from __future__ import annotations

import pytest

from mutation import Score, score, table
from proof_kernels import KERNELS, TASKS

# A few of each kind; of each, every ninth mutant or so, beginning with another one for each kernel.
SAMPLE = (
    "sample gemm",
    "sample gemm_cluster",
    "matmul in 4 parts",
    "two products depth 2",
    "instances gemm depth 2",
    "copies gather",
    "turns attention coarse",
    "shape stores to what it later loads",
    pytest.param("library stream 0", marks=pytest.mark.long),
    "flash 64 causal split",
)
EVERY = {"flash 64 causal split": 36}  # its mutants take the longest to judge


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.short(
    "sample gemm",
    "sample gemm_cluster",
    "matmul in 4 parts",
    "two products depth 2",
    "copies gather",
    "turns attention coarse",
)
def test_mutants_of_the_sample(name: str) -> None:
    every = EVERY.get(name, 9)
    found = score(name, every, len(name) % every)
    assert found.false_alarm == ""
    assert found.mutants > 0
    assert found.survivors == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*KERNELS, *TASKS])
def test_mutants(name: str) -> None:
    found = score(name, 5)
    assert found.false_alarm == ""
    assert found.survivors == []


def test_the_page() -> None:
    one = Score("gemm", mutants=3)
    one.fates.update(proof=2, survivor=1)
    one.survivors.append("drop wait #3 (survivor)")
    page = table([one], {"abc": 4})
    assert "1 kernels, 3 mutants; 0 of the originals flagged" in page
    assert "| proof | 2 |" in page
    assert "- gemm: drop wait #3 (survivor)" in page
