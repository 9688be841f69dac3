"""Lane tables without a formula lie in memory: as arrays of a function each thread made its own.

Running sums of rows that several warps share took four times as long as they do.
"""

from __future__ import annotations

import pytest

from lower_kernels import lowered
from tawa.codegen.generate import generate


@pytest.mark.parametrize("name", ["running sums", "running sums back"])
def test_threads_index_no_array_of_a_function(name: str) -> None:
    kernel, *_ = lowered(name)
    text = generate(kernel).text
    assert "::at(thread)" not in text
    assert "::at(lane)" not in text
