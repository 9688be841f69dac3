"""What Figures 8, 9 and 10 of the paper show of a GEMM, by FileCheck on the texts of a program.

The paper has three passes; here one walk of the tree makes the events (`lower.py`), so that what
stands between the passes is read from the tree: Figure 8 has a copy-in and a copy-out at each
launch, which are the tree's lines with their memories.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tawa.cypress as cy
from tawa.cypress.kernels import dual

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "08_cypress.py"

DEPEND = """
CHECK: block at BLOCK: gemm_block(C: [128, 128] in GLOBAL, A: [128, A.shape[1]] in GLOBAL
CHECK-NEXT: clear at THREAD
CHECK-NEXT: spread like tile: 2 by rows over WARPGROUP, wgmma 64x128x16 C over WARP
The product: nothing of C is copied on the way down, A and B are where BLOCK wants them first.
CHECK-NEXT: tile at BLOCK: mma_tile(C: [128, 128] in NONE, A: [128, 64] in SHARED
CHECK-NEXT: wg at WARPGROUP: mma_split(C: [64, 128] in NONE, A: [64, 64] in SHARED
CHECK-NEXT: warp at WARP: mma_split(C: [16, 128] in NONE, A: [16, 64] in SHARED
CHECK-NEXT: leaf at THREAD: mma_leaf(C: [16, 128] in REGISTER, A: [16, 64] in SHARED
CHECK-NEXT: copy at THREAD: {{.*}}copy_leaf(D: [128, 128] in GLOBAL, S: [128, 128] in REGISTER)
"""

VECTORIZE = """
No pfor of WARPGROUP, WARP or THREAD is left: they are dimensions of events.
CHECK: pfor i in (C.shape[0] + 127)//128, j in (C.shape[1] + 127)//128 over BLOCK
CHECK-NOT: pfor
CHECK: [[CLEAR:[0-9]+]]: acc = call clear(acc)
Each thread of the loop waits for its own part of what clear wrote.
CHECK: [[LOOP:[0-9]+]]: for k in {{.*}} after [[CLEAR]][i WARPGROUP, i WARP, i THREAD]
All threads have read a tile before the next one is copied to its place: a barrier of each level.
CHECK: [[A:[0-9]+]]: A: fp16[128, 64] = copy {{.*}} after [[MMA:[0-9]+]][: WARPGROUP, : WARP, : THREAD] of the
CHECK: [[B:[0-9]+]]: B: fp16[64, 128] = copy {{.*}} after [[MMA]][: WARPGROUP, : WARP, : THREAD] of the iteration before
CHECK: [[MMA]]: acc = call leaf(acc, A, B) after [[A]], [[B]]
CHECK: [[COPY:[0-9]+]]: C = call copy(C, acc) after [[LOOP]][i WARPGROUP, i WARP, i THREAD]
TMA stores what all threads have put there.
CHECK: copy C by SHARED to {{.*}} after [[COPY]][: WARPGROUP, : WARP, : THREAD]
"""  # noqa: E501

ELIMINATE = """
Of all copies in and out of the levels three are left, and none of C inside of the loop.
CHECK-NOT: copy
CHECK: for k
CHECK-NEXT: A: fp16[128, 64] = copy A[128*i:+128, 64*k:+64] into SHARED
CHECK-NEXT: B: fp16[64, 128] = copy B[64*k:+64, 128*j:+128] into SHARED
CHECK-NEXT: acc = call leaf(acc, A, B)
CHECK-NEXT: C = call copy(C, acc)
CHECK-NEXT: copy C by SHARED to C[128*i:+128, 128*j:+128]
CHECK-NOT: copy {{[A-Z]}}
"""

DUPLICATE = """
Both products of a dual GEMM take one tile of A; the second copy is not made, and explain says so.
CHECK: events
CHECK: for k
CHECK-NEXT: A: fp16[128, 64] = copy A[
CHECK-NOT: copy A[
CHECK: copies that are not made
CHECK-NEXT: a[0, k] of A: A is it, unchanged
"""

FIGURES = {"8": (DEPEND, "tree"), "9": (VECTORIZE, "event"), "10": (ELIMINATE, "event")}


def filecheck(checks: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run FileCheck on a text; other lines of the checks are comments."""
    script, given = folder / "checks.txt", folder / "given.txt"
    script.write_text(checks)
    given.write_text(text)
    command = [sys.executable, "-m", "filecheck", script, "--input-file", given]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_the_paper(figure, tmp_path):
    checks, stage = FIGURES[figure]
    text = cy.program(runpy.run_path(str(EXAMPLE))["mapping"]()).show(stage)
    found = filecheck(checks, text, tmp_path)
    assert found.returncode == 0, found.stderr
    # A line less is missed.
    shorter = "\n".join(line for line in text.splitlines() if "A: " not in line)
    assert filecheck(checks, shorter, tmp_path).returncode


def test_a_duplicate_is_not_copied_again(tmp_path):
    found = filecheck(DUPLICATE, cy.program(dual.dual()).explain(), tmp_path)
    assert found.returncode == 0, found.stderr
