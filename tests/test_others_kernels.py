"""What made kernels of public packages slow, each in a few lines, and what is made of it now."""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl


def whole(*shape: int, seed: int = 0, dtype: type = np.float16) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@tawa.jit
def chosen_blocks(a, b, out, masks, B: tl.constexpr):
    """Products with the blocks that the bits of a word choose, as block-sparse attention does."""
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    bits = tl.load(masks + tl.program_id(0)).to(tl.uint32, bitcast=True)
    odd = bits - ((bits >> 1) & 0x55555555)
    pairs = (odd & 0x33333333) + ((odd >> 2) & 0x33333333)
    count = (((pairs + (pairs >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24
    x = tl.load(a + (tl.program_id(0) * B + i) * B + j)
    acc = tl.zeros((B, B), tl.float32)
    for block in range(0, count.to(tl.int32)):
        acc = tl.dot(x, tl.load(b + (block * B + i) * B + j), acc)
    tl.store(out + (tl.program_id(0) * B + i) * B + j, acc.to(tl.float16))


@pytest.mark.parametrize("masks", [(0, 1), (5, 7), (-1 << 28, 3)])
def test_roles_agree_on_a_word_cast_bit_by_bit(masks: tuple[int, int]) -> None:
    b, words = 64, np.array(masks, np.int32)
    x, y = whole(2 * b, b), whole(4 * b, b, seed=1)
    out = np.full((2 * b, b), np.nan, np.float16)
    made = chosen_blocks.compile(x, y, out, words, B=b, grid=(2,))
    assert made.plan.specialized
    chosen_blocks[2,](x, y, out, words, B=b)
    counts = [(word & 0xFFFFFFFF).bit_count() for word in masks]
    sums = [y.reshape(4, b, b)[:count].astype(np.float32).sum(0) for count in counts]
    wanted = np.concatenate([x[p * b : (p + 1) * b] @ sums[p] for p in range(2)])
    np.testing.assert_array_equal(out, wanted.astype(np.float16))


@tawa.jit
def exact_products(a, out, B: tl.constexpr):
    """A product of computed operands by multiply-adds."""
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    x = tl.load(a + i * B + j)
    once = tl.dot(x + 1.0, x, input_precision="ieee")
    tl.store(out + i * B + j, tl.dot(once, x, input_precision="ieee"))


def test_what_threads_read_is_not_fenced() -> None:
    x, out = whole(32, 32, dtype=np.float32), np.zeros((32, 32), np.float32)
    made = exact_products.compile(x, out, B=32, specialize=False)
    text = made.asm.text("hopper")
    staged = text[text.index("hopper.shared_store") : text.rindex("hopper.fma_dot")]
    assert "hopper.named_barrier" in staged
    assert "hopper.proxy_fence" not in staged
    exact_products[1,](x, out, B=32, specialize=False)
    np.testing.assert_array_equal(out, (x + 1) @ x @ x)


@tawa.jit
def scores(a, b, rows, out, N, B: tl.constexpr, D: tl.constexpr):
    """Products by mma.sync with rows that the producer's threads copy."""
    i, d = tl.arange(0, B), tl.arange(0, D)
    x = tl.load(a + i[:, None] * D + d[None, :])
    acc = tl.zeros((B, B), tl.float32)
    for s in range(0, N, B):
        r = tl.load(rows + s + i)
        acc = tl.dot(x, tl.load(b + r[None, :] * D + d[:, None]), acc)
    tl.store(out + i[:, None] * B + i[None, :], acc)


def test_slots_that_threads_read_and_fill_are_freed_without_a_fence() -> None:
    x, y, n = whole(16, 64), whole(64, 64, seed=1), 48
    rows = np.random.default_rng(2).integers(0, 64, n).astype(np.int32)
    out = np.zeros((16, 16), np.float32)
    made = scores.compile(x, y, rows, out, n, B=16, D=64, grid=(1,))
    lines = made.asm.text("hopper").splitlines()
    assert any("hopper.copy_async_arrive" in line for line in lines)
    frees = [place for place, line in enumerate(lines) if "arrive %freed" in line]
    assert frees
    # The tile that TMA brings is read by threads too: its slot alone is fenced.
    assert sum("hopper.proxy_fence" in lines[place - 1] for place in frees) < len(frees)
    scores[1,](x, y, rows, out, n, B=16, D=64)
    wanted = sum(x @ y[rows[s : s + 16]].T for s in range(0, n, 16))
    np.testing.assert_array_equal(out, wanted)


@tawa.jit
def columns_summed(a, out, M: tl.constexpr, N: tl.constexpr):
    """Running sums down the rows of a tile."""
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.cumsum(tl.load(a + place), 0))


@pytest.mark.parametrize(
    ("m", "n", "warps", "held"),
    [
        (64, 32, 2, "64x32 r[16:(1,0) 2:(0,8)] l[4:(16,0) 8:(0,1)] w[2:(0,16)]"),
        (16, 4, 1, "16x4 r[2:(1,0)] l[8:(2,0) 4:(0,1)] w[]"),
    ],
)
def test_a_scan_of_columns_reads_rows(m: int, n: int, warps: int, held: str) -> None:
    """Eight lanes read a sector of each row, and not each a row of its own."""
    x, out = whole(m, n, dtype=np.float32), np.zeros((m, n), np.float32)
    made = columns_summed.compile(x, out, M=m, N=n, num_warps=warps)
    assert f'tensor<{m}x{n}xf32, #hopper.layout<"{held}">>' in made.asm.text("hopper")
    columns_summed[1,](x, out, M=m, N=n, num_warps=warps)
    np.testing.assert_array_equal(out, x.cumsum(0))


@tawa.jit
def row_sum(a, out, N, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, N, BLOCK):
        total += tl.load(a + at + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(total))


@pytest.mark.parametrize(("block", "together"), [(32, 16), (128, 4), (256, 2), (1024, 0)])
def test_iterations_that_read_little_are_written_together(block: int, together: int) -> None:
    x, out = whole(4096, dtype=np.float32), np.zeros(1, np.float32)
    made = row_sum.compile(x, out, 4096, BLOCK=block, num_warps=1)
    assert (f"#pragma unroll {together}\n" in made.asm["cuda"]) == bool(together)
    assert bool(together) == any(f"unroll {n}\n" in made.asm["cuda"] for n in range(2, 33))
    row_sum[1,](x, out, 4096, BLOCK=block, num_warps=1)
    assert out[0] == x.sum()


@tawa.jit
def scaled_rows(a, out, N, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for at in range(0, N, B):
        total += tl.load(a + i * N + at + j)
    tl.store(out + i * B + j, total)


def test_tiles_without_a_product_are_loaded_by_threads() -> None:
    x, out = whole(32, 128, dtype=np.float32), np.zeros((32, 32), np.float32)
    made = scaled_rows.compile(x, out, 128, B=32)
    assert not made.plan.specialized
    assert "hopper.tma_load" not in made.asm.text("hopper")
    scaled_rows[1,](x, out, 128, B=32)
    np.testing.assert_array_equal(out, x.reshape(32, 4, 32).sum(1))
