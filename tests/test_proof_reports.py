"""What a reader gets when a proof fails: one sentence, and the steps that lead there."""

from __future__ import annotations

import pytest

from proof_reports import BROKEN, FILE, report
from tawa.simulator.proof import RULES

WRITTEN = {
    head: text.strip()
    for part in FILE.read_text().split("=== ")[1:]
    for head, text in [part.split("\n", 1)]
}


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case[0]}: {case[2]} {case[3]}")
def test_reports_read_as_written(case: tuple[str, str, str, str, int]) -> None:
    """`python tests/proof_reports.py` writes them anew."""
    rule, kernel, kind, operation, place = case
    assert rule in RULES
    text = report(kernel, kind, operation, place).strip()
    assert f'rule "{rule}"' in text
    assert text == WRITTEN[f"{rule}: {kind} {operation} {place} of {kernel}"]


def test_each_trace_is_a_table() -> None:
    for text in WRITTEN.values():
        if "before any role runs" not in text:
            assert "step" in text.splitlines()[2]
            assert "does or waits for" in text.splitlines()[2]
        assert len(text.splitlines()) <= 20
