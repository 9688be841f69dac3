"""Ranges of integers, and the comparisons they decide."""

import pytest

import tawa
import tawa.language as tl
from tawa.analysis.ranges import Range, compare, range_of
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


MOST = (1 << 31) - 1
ANY = Range(-MOST - 1, MOST)
EXPECTED = [
    Range(2, 17 + 15), Range(0, 4), Range(0, 3), Range(3 - 17, 1), Range(-34, -4), Range(2, 5),
    Range(7, MOST), ANY, Range(-7, 7), ANY,
]  # fmt: skip


def test_ranges_of_what_is_stored():
    import numpy as np

    compiled = numbers.compile(np.zeros(64, np.int32), 3, 4, B=16, grid=(1,))
    from tawa.ir import parse

    kernel = parse(compiled.asm["tile"])
    stored = [op.value for op in kernel.walk() if isinstance(op, tile.Store)]
    assert [range_of(value) for value in stored] == EXPECTED


@tawa.jit
def tiles(p, n, m, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    for at in range(i, tl.cdiv(n, BLOCK), tl.num_programs(0)):
        tl.store(p, at)
        tl.store(p + 1, at % 8)
        tl.store(p + 2 + tl.arange(0, BLOCK), (at // 8) * BLOCK + tl.arange(0, BLOCK))
    for k in range(0, n, BLOCK):
        tl.store(p + 3 + tl.arange(0, BLOCK), k + tl.arange(0, BLOCK))
    for k in range(m, n, BLOCK):
        tl.store(p + 4, k)
    tl.store(p + 5, i * 2)
    tl.store(p + 6, (i & 1023) * 2)
    tl.store(p + 7, i.to(tl.int64) * 2 // 4)
    tl.store(p + 8, (m & 255).to(tl.int8) + 0)
    tl.store(p + 9, (m % 100).to(tl.int8) + 0)
    tl.store(p + 10, m.to(tl.uint32) // 2)
    tl.store(p + 11, -(m % 8) // -3)


TILES = [
    Range(0, MOST // 128 - 1), Range(0, 7), Range(0, MOST // 8), Range(0, MOST),
    Range(-MOST - 1, MOST - 1), ANY, Range(0, 2046), Range(0, MOST // 2), Range(-128, 127),
    Range(-99, 99), Range(0, MOST), Range(-2, 2),
]  # fmt: skip


def test_ranges_of_tiles_and_of_what_may_wrap():
    import numpy as np

    compiled = tiles.compile(np.zeros(64, np.int32), 3, 4, 5, BLOCK=128, grid=(1,))
    from tawa.ir import parse

    kernel = parse(compiled.asm["tile"])
    stored = [op.value for op in kernel.walk() if isinstance(op, tile.Store)]
    assert [range_of(value) for value in stored] == TILES


@pytest.mark.parametrize(
    ("function", "a", "b", "expected"),
    [
        ("lt", Range(0, 7), Range(8, 8), True), ("lt", Range(0, 8), Range(8, 8), None),
        ("le", Range(0, 8), Range(8, 8), True), ("lt", Range(8, MOST), Range(-MOST, 8), False),
        ("ge", Range(0, MOST), Range(0, 0), True), ("gt", Range(0, MOST), Range(0, 0), None),
        ("gt", ANY, Range(0, 0), None), ("le", Range(9, 9), Range(8, 8), False),
        ("eq", Range(1, 1), Range(1, 1), None),
    ],
)  # fmt: skip
def test_what_ranges_decide(function, a, b, expected):
    assert compare(function, a, b) is expected
