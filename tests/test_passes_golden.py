"""What each pass of the middle end makes of one kernel; `UPDATE_GOLDEN=1 pytest` writes anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tawa.ir import parse
from tawa.passes.arefs import insert_arefs
from tawa.passes.coarse import overlap_products
from tawa.passes.distribute import distribute
from tawa.passes.persist import persist
from tawa.passes.simplify import simplify, simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.planner import plan_for
from tawa.target import H200
from tile_shapes import text_of

GOLDEN = Path(__file__).parent / "golden" / "passes"
CASES = {
    "persist": ("gemm", True, (persist, simplify)),
    "arefs": ("two dots in sequence", False, (insert_arefs,)),
    "distribute": ("gemm", False, (insert_arefs, distribute)),
    "coarse": ("two dots in sequence", False, (insert_arefs, distribute, overlap_products)),
    "distribute_branch": ("load under an if", False, (insert_arefs, distribute)),
}


@pytest.mark.parametrize("name", CASES)
def test_pass(name: str) -> None:
    shape, persistent, passes = CASES[name]
    kernel = parse(text_of(shape))
    simplify_kernel(kernel)
    plan = plan_for(kernel, H200, Pins(persistent=persistent))
    for step in passes:
        step(kernel, plan, H200)
    text = str(kernel) + "\n"
    file = GOLDEN / f"{name}.mlir"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
    assert text.count("\n") <= 60
