"""How many heads are walked together: all multiprocessors work until the end, and share keys."""

import heapq

import pytest

import tawa
from tawa.kernels.attention import bind
from tawa.kernels.attention_order import packed_side_by_side, side_by_side

SKEWED = (1, 3, 100, 37, 5000, 77, 2, 9000, 650)
HALVING = (8192, 4096, 2048, 1024, 512, 256, 128, 64, 64)


def packed(lengths, heads, kv_heads, dim, causal=True):
    total = sum(lengths)
    q, k = (tawa.array((1, n, total, dim), "f16") for n in (heads, kv_heads))
    starts = tawa.array((len(lengths) + 1,), "i32")
    return bind(q, k, k, cu_seqlens=starts, causal=causal).problem


def busy(lengths, heads, together, processors=132):
    """The share of time that multiprocessors work, each taking the next tile when it is free."""
    tiles = [min(n, 128 * (block + 1)) / 128 + 1 for n in lengths for block in range(-(-n // 128))]
    tiles.sort(reverse=True)
    section = [length for length in tiles for _ in range(together)]
    order = section * (heads // together)
    ends = [0.0] * processors
    for length in order:
        heapq.heappush(ends, heapq.heappop(ends) + length)
    return sum(order) / processors / max(ends)


@pytest.mark.parametrize("lengths", [SKEWED, HALVING])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(16, 16, 128), (32, 4, 128), (8, 8, 256)])
def test_long_sequences_do_not_come_last(lengths, heads, kv_heads, dim):
    together = packed_side_by_side(packed(lengths, heads, kv_heads, dim), 128, len(lengths))
    assert heads % together == 0
    assert busy(lengths, heads, together) > 0.985
    assert busy(lengths, heads, 1) < 0.985


def test_heads_whose_keys_nobody_shares_stay_apart():
    many = tuple(range(64, 1056, 31))
    assert packed_side_by_side(packed(many, 8, 8, 256), 128, len(many)) <= 2
    assert packed_side_by_side(packed((64,) * 8, 8, 8, 64), 128, 8) == 8  # all keys lie in L2
    assert packed_side_by_side(packed(SKEWED, 8, 8, 256, causal=False), 128, 9) == 1


@pytest.mark.parametrize("heads", [1, 6, 7, 24])
def test_whole_sections(heads):
    q = tawa.array((3, heads, 4096, 128), "f16")
    problem = bind(q, q, q, causal=True).problem
    assert 3 * heads % side_by_side(problem) == 0
    assert side_by_side(problem, "serpentine") == 3 * heads
    assert side_by_side(bind(q, q, q).problem) == 1
