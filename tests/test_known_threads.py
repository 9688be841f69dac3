"""Each public thread about crashes, hangs, races and silence of warp specialization has a test that
names it, as a whole number beside its project.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

THREADS = {
    "triton": (9728, 10284, 7108, 7136, 6624, 7561, 7157, 8285, 9046, 11244, 1278, 1121, 2614),
    "tritonbench": (1094,),
    "tilelang": (2566, 2567, 2559, 2613, 374, 2547, 2548, 2555, 2549, 2603, 2643, 2668),
    "cutlass": (1801, 2365, 3654),
    "vllm": (26026,),
    "Fuser": (5862,),
    "emmy": (217, 191),
}
NAMED = "\n".join(
    path.read_text()
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if path.name != "test_known_threads.py"
)


@pytest.mark.parametrize(
    ("project", "number"),
    [(project, number) for project, numbers in THREADS.items() for number in numbers],
)
def test_a_test_names_it(project: str, number: int) -> None:
    # In a name, test_triton_9728_10284_a_loop, or a text, tilelang#2566.
    named = rf"{project}(_\d+)*_{number}_|{project}#(\d+, #)*{number}\b"
    assert re.search(named, NAMED)
