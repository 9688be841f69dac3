"""Ranges of integers, and the comparisons they decide."""

import pytest

import tawa
import tawa.language as tl
from tawa.analysis.ranges import ANY, Range, compare, range_of
from tawa.ir import tile


@tawa.jit
def numbers(p, n, unsigned, B: tl.constexpr):
    i = tl.program_id(0)
    for k in range(2, 20, 3):
        inside = k + tl.arange(0, B)
        tl.store(p + inside, inside)
        tl.store(p + k, k // 4)
        tl.store(p + k + 1, k % 4)
        tl.store(p + k + 2, 3 - k)
        tl.store(p + k + 3, -2 * k)
        tl.store(p + k + 4, tl.minimum(k, 5))
        tl.store(p + k + 5, tl.maximum(n, 7))
        tl.store(p + k + 6, i * k)
        tl.store(p + k + 7, n % 8)
        tl.store(p + k + 8, k - n)


EXPECTED = [
    Range(2, 19 + 15), Range(0, 4), Range(0, 3), Range(3 - 19, 1), Range(-38, -4), Range(2, 5),
    Range(7, None), Range(0, None), ANY, ANY,
]  # fmt: skip


def test_ranges_of_what_is_stored():
    import numpy as np

    compiled = numbers.compile(np.zeros(64, np.int32), 3, 4, B=16, grid=(1,))
    from tawa.ir import parse

    kernel = parse(compiled.asm["tile"])
    stored = [op.value for op in kernel.walk() if isinstance(op, tile.Store)]
    assert [range_of(value) for value in stored] == EXPECTED


@pytest.mark.parametrize(
    ("function", "a", "b", "expected"),
    [
        ("lt", Range(0, 7), Range(8, 8), True), ("lt", Range(0, 8), Range(8, 8), None),
        ("le", Range(0, 8), Range(8, 8), True), ("lt", Range(8, None), Range(None, 8), False),
        ("ge", Range(0, None), Range(0, 0), True), ("gt", Range(0, None), Range(0, 0), None),
        ("gt", ANY, Range(0, 0), None), ("le", Range(9, 9), Range(8, 8), False),
        ("eq", Range(1, 1), Range(1, 1), None),
    ],
)  # fmt: skip
def test_what_ranges_decide(function, a, b, expected):
    assert compare(function, a, b) is expected
