"""Each public thread about crashes, hangs, races and silence of warp specialization has a test that
is named by it: in the name of the test function, or as the name of its parameter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

THREADS = {
    "triton": (9728, 10284, 7108, 7136, 6624, 7561, 7157, 8285, 9046, 11244, 11626, 10656, 11303),
    "facebookexperimental_triton": (1278, 1121, 2614),
    "tritonbench": (1094,),
    "tilelang": (2566, 2567, 2559, 2613, 374, 2547, 2548, 2555),
    "cutlass": (1801, 2365, 3654),
    "vllm": (26026,),
    "Fuser": (5862,),
    "emmy": (217, 191),
}
FUZZED = {"tilelang": (2309, 2549, 2603, 2643, 2668, 3030)}
"""Found by a fuzzer of tile kernels, as #2547 .. #2567 and #2613 were."""
ALIKE = {"tilelang": (284, 2166, 2184, 2249, 2443, 2674), "triton": (2779, 4418, 8260, 8311, 8932)}
ALL = [
    (project, number)
    for threads in (THREADS, FUZZED, ALIKE)
    for project, numbers in threads.items()
    for number in numbers
]


def names() -> Iterator[str]:
    """The names of tests, and of the parameters that name one."""
    for path in Path(__file__).parent.glob("test_known_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.FunctionDef(name=name) if name.startswith("test_"):
                    yield name
                case ast.Dict(keys=keys):
                    yield from (key.value for key in keys if isinstance(key, ast.Constant))
                case _:
                    pass


# tilelang_2548 and #2548 alike; several of a project follow it: test_triton_7108_7136_6624_...
SAID = [re.sub(r"[/#\W]+", "_", str(name)).replace("fb_triton", "facebookexperimental_triton")
        for name in names()]  # fmt: skip


@pytest.mark.parametrize(("project", "number"), ALL)
def test_a_test_is_named_by_it(project: str, number: int) -> None:
    named = rf"(^|_){project}(_\d+)*_{number}(_|$)"
    assert [name for name in SAID if re.search(named, name)]
