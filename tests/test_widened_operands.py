"""Products whose consumers make an operand: weights of few bits, tiles scaled by rows."""

import re

import numpy as np
import pytest

import tawa
import tawa.language as tl


@tawa.jit
def few_bits(
    a_ptr, b_ptr, s_ptr, z_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A W, with 8 rows of W in a word, a scale and a zero for each column and 64 rows."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K // BK):
        scale = tl.load(s_ptr + k * N + columns)
        word = tl.load(z_ptr + k * (N // 8) + columns // 8)
        zero = ((word >> ((columns % 8) * 4)) & 15).to(tl.float16)
        a = tl.load(a_ptr + rows[:, None] * K + (k * BK + depth)[None, :])
        w = tl.load(b_ptr + ((k * BK + depth) // 8)[:, None] * N + columns[None, :])
        w = ((w >> ((depth % 8) * 4)[:, None]) & 15).to(tl.float16)
        acc += tl.dot(a, (w - zero[None, :]) * scale[None, :])
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


@tawa.jit
def weighted(
    x_ptr, b_ptr, w_ptr, o_ptr, HEADS,
    LENGTH: tl.constexpr, P: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sums over the steps of a chunk of x' (w b); x is [steps, HEADS, P]."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    steps = tl.num_programs(0) * LENGTH
    rows, columns = tl.arange(0, P), tl.arange(0, BN)
    acc = tl.zeros((P, BN), tl.float32)
    for k in range(0, LENGTH, BK):
        at = chunk * LENGTH + k + tl.arange(0, BK)
        x = tl.load(x_ptr + at[None, :] * (HEADS * P) + head * P + rows[:, None])
        b = tl.load(b_ptr + at[:, None] * BN + columns[None, :]).to(tl.float32)
        weight = tl.load(w_ptr + head * steps + at)
        acc += tl.dot(x, (b * weight[:, None]).to(x.dtype))
    place = ((chunk * HEADS + head) * P + rows[:, None]) * BN + columns[None, :]
    tl.store(o_ptr + place, acc)


def bits_arguments(m: int = 64, n: int = 128, k: int = 192):
    rng = np.random.default_rng(k)
    a = rng.integers(-2, 3, (m, k)).astype(np.float16)
    w = rng.integers(0, 16, (k, n))
    zero = rng.integers(0, 16, (k // 64, n))
    scale = rng.integers(1, 3, (k // 64, n)).astype(np.float16)
    b = sum(w[i::8] << (4 * i) for i in range(8)).astype(np.uint32).view(np.int32)
    z = sum(zero[:, i::8] << (4 * i) for i in range(8)).astype(np.uint32).view(np.int32)
    want = a.astype(np.float64) @ ((w - zero.repeat(64, 0)) * scale.repeat(64, 0))
    return (a, b, scale, z, np.zeros((m, n), np.float32), m, n, k), want


TILES = {"BM": 64, "BN": 128, "BK": 64}


@pytest.mark.parametrize("k", [0, 64, 192, 512])
def test_weights_of_few_bits_are_right(k: int) -> None:
    arguments, want = bits_arguments(k=max(k, 64))
    arguments = (*arguments[:-1], k)
    tawa.simulate(few_bits, *arguments, grid=(1, 1), **TILES)
    np.testing.assert_array_equal(arguments[4], want if k else 0 * want)


def test_threads_read_their_part_of_rows_and_of_tiles() -> None:
    """No row goes through shared memory, and the words are read once: as the product needs them."""
    arguments, _ = bits_arguments()
    text = few_bits.compile(*arguments, grid=(1, 1), **TILES).asm["cuda"]
    loop = text[text.index("void role_mma") :]
    loop = loop[loop.index("barrier_wait") : loop.index("wgmma_wait")]
    # Before the operand is stored, and after.
    assert len(re.findall(r"named_sync<", loop)) == 2
    assert len(re.findall(r"shared_load_", loop)) == 1


def test_rows_that_go_into_operands_are_read_ahead() -> None:
    arguments, _ = bits_arguments()
    text = few_bits.compile(*arguments, grid=(1, 1), **TILES).asm["cuda"]
    before = text[text.index("void role_mma") : text.index("named_sync", text.index("void role_m"))]
    assert before.index("global_load_int(") < before.index("float acc")


def weighted_arguments(chunks: int = 2, heads: int = 16):
    rng = np.random.default_rng(heads)
    steps, p, n = 128 * chunks, 64, 128
    x = rng.integers(-2, 3, (steps, heads, p)).astype(np.float16)
    b = rng.integers(-2, 3, (steps, n)).astype(np.float16)
    w = rng.integers(-2, 3, (heads, steps)).astype(np.float32)
    want = np.einsum(
        "clhp,cln,hcl->chpn",
        *(each.astype(np.float64).reshape(chunks, 128, *each.shape[1:]) for each in (x, b)),
        w.reshape(heads, chunks, 128),
    )
    return (x, b, w, np.zeros((chunks, heads, p, n), np.float32), heads), want


SCAN = {"LENGTH": 128, "P": 64, "BN": 128, "BK": 64}


def test_a_stride_may_be_a_product_of_arguments() -> None:
    arguments, want = weighted_arguments()
    compiled = weighted.compile(*arguments, grid=(2, 16), **SCAN)
    assert {ring.via for ring in compiled.plan.arefs} == {"tma"}
    assert compiled.plan.persistent, "a number of programs that no loop looks at"
    tawa.simulate(weighted, *arguments, grid=(2, 16), **SCAN)
    np.testing.assert_array_equal(arguments[3], want)
