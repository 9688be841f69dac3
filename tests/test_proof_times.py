"""The times of all proofs are of the kernels that tests hand to the proof, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

import proof_times
from proof_kernels import text
from tawa.errors import ProtocolError
from tawa.ir import parse
from tawa.simulator.proof import prove, verdict
from tawa.target import H200


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """What is proved in the test is kept there."""
    monkeypatch.setattr(verdict, "read_kernel", verdict.read_kernel)  # which is put back
    monkeypatch.setenv(proof_times.KEPT, str(tmp_path))
    proof_times.pytest_configure(request.config)
    return tmp_path


def test_what_is_proved_is_kept_and_timed(folder: Path) -> None:
    right = text("sample gemm")
    broken = right.replace("hopper.wgmma_commit\n", "", 1)
    assert broken != right
    for _ in range(2):
        prove(parse(right), H200)
    with pytest.raises(ProtocolError):
        prove(parse(broken), H200)
    found = proof_times.all_of(folder, jobs=1, tries=2)
    assert (found["kernels"], found["proved"], found["over"]) == (2, 1, 0)
    (longest,) = found["longest"]
    assert longest["test"].endswith("test_what_is_proved_is_kept_and_timed")
    assert longest["states"] == prove(parse(right), H200).states
    assert 0 < longest["ms"] < 200
    page = "\n".join(proof_times.page(found))
    assert "Of 2 kernels that the suite hands to the proof 1 are proved" in page
    assert f"| {longest['ms']} |" in page


def test_nothing_is_kept_unasked(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    read = verdict.read_kernel
    monkeypatch.delenv(proof_times.KEPT, raising=False)
    proof_times.pytest_configure(request.config)
    assert verdict.read_kernel is read
