"""Forms of well-known kernels, by what once kept them from compiling or from being specialized.

Each runs whole, in the simulator against the sequential program, bit for bit.
"""

import numpy as np
import pytest

import tawa
import tawa.language as tl


def fresh(arg):
    """Return an argument that no other run writes."""
    if isinstance(arg, tawa.TensorDescriptor):
        return tawa.TensorDescriptor.from_tensor(arg.base.copy(), list(arg.block_shape))
    return arg.copy() if isinstance(arg, np.ndarray) else arg


def written(arg):
    return arg.base if isinstance(arg, tawa.TensorDescriptor) else arg


def both_ways(kernel, *args, grid, outputs, **meta):
    """Run a kernel as tile IR and as hopper IR; their outputs must be the same bits."""
    found = []
    for level in ("tile", "hopper"):
        given = [fresh(arg) for arg in args]
        tawa.simulate(kernel, *given, grid=grid, level=level, **meta)
        found.append([written(given[index]) for index in outputs])
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)
    return kernel.compile(*args, grid=grid, **meta), found[0]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def whole(rng, *shape, dtype=np.float16):
    return rng.integers(-2, 3, shape).astype(dtype)


@tawa.jit
def expert_rows(
    a_ptr, b_ptr, c_ptr, sorted_ptr, experts_ptr, padded_ptr, weight_ptr, N, K, valid,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TOP: tl.constexpr,
):  # fmt: skip
    """A mixture of experts: rows by an index, whose tensor of pointers changes its layout."""
    pid = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    pm, pn = pid // columns, pid % columns
    if pm * BM >= tl.load(padded_ptr):
        return
    token = tl.load(sorted_ptr + pm * BM + tl.arange(0, BM))
    real = token < valid
    expert = tl.load(experts_ptr + pm).to(tl.int64)
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + token[:, None] // TOP * K + rk[None, :]
    b_ptrs = b_ptr + expert * N * K + rk[:, None] + rn[None, :] * K
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=real[:, None] & (rk[None, :] < K - k * BK), other=0.0)
        b = tl.load(b_ptrs, mask=rk[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BK
        b_ptrs += BK
    acc *= tl.load(weight_ptr + token, mask=real, other=0)[:, None]
    cn = pn * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + token[:, None] * N + cn[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=real[:, None] & (cn[None, :] < N))


def test_rows_of_experts(rng):
    experts, tokens, top, n, k, bm = 3, 40, 2, 64, 96, 64
    a, b = whole(rng, tokens, k), whole(rng, experts, n, k)
    weight = whole(rng, tokens * top, dtype=np.float32)
    of = rng.integers(0, experts, tokens * top)
    ids, blocks = [], []
    for expert in range(experts):
        rows = np.flatnonzero(of == expert)
        count = -(-len(rows) // bm)
        ids += [*rows, *[tokens * top] * (count * bm - len(rows))]
        blocks += [expert] * count
    c = np.zeros((tokens * top, n), np.float16)
    padded = np.array([len(ids)], np.int32)
    index, blocks = np.array(ids, np.int32), np.array(blocks, np.int32)
    arguments = (a, b, c, index, blocks, padded, weight, n, k, tokens * top)
    compiled, (found,) = both_ways(
        expert_rows, *arguments, grid=(len(blocks),), outputs=[2], BM=bm, BN=64, BK=32, TOP=top
    )
    assert compiled.plan.specialized
    # Rows begin at multiples of 16 bytes, which their addresses keep on the way between threads.
    assert "global_store_u32x4(c_ptrs" in compiled.asm["cuda"]
    x = a.astype(np.float32).repeat(top, 0)
    expected = np.einsum("tk,tnk->tn", x, b.astype(np.float32)[of]) * weight[:, None]
    np.testing.assert_array_equal(found, expected.astype(np.float16))


@tawa.jit
def scaled_state(x_ptr, b_ptr, scale_ptr, o_ptr, K, BM: tl.constexpr, BN: tl.constexpr,
                 BK: tl.constexpr):  # fmt: skip
    """A chunk's state: the first operand is turned before the second is loaded."""
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = K - k
        x = tl.load(x_ptr + rm[None, :] + (k + rk)[:, None] * BM, mask=rk[:, None] < left, other=0)
        turned = tl.trans(x)
        b = tl.load(b_ptr + (k + rk)[:, None] * BN + rn[None, :], mask=rk[:, None] < left, other=0)
        scale = tl.load(scale_ptr + k + rk, mask=rk < left, other=0.0)
        b = (b.to(tl.float32) * scale[:, None]).to(x.dtype)
        acc += tl.dot(turned, b)
    tl.store(o_ptr + rm[:, None] * BN + rn[None, :], acc)


def test_a_tile_is_turned_before_the_next_is_loaded(rng):
    x, b, scale = whole(rng, 160, 64), whole(rng, 160, 64), whole(rng, 160, dtype=np.float32)
    o = np.zeros((64, 64), np.float32)
    compiled, (found,) = both_ways(
        scaled_state, x, b, scale, o, 160, grid=(1,), outputs=[3], BM=64, BN=64, BK=64
    )
    assert compiled.plan.specialized
    expected = x.T.astype(np.float32) @ (b.astype(np.float32) * scale[:, None])
    np.testing.assert_array_equal(found, expected)


@tawa.jit
def gradients_of_keys(
    Q, K, V, DO, DK, DV, L_ptr, S, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """Attention backward, keys and values: operands that are computed take shared memory."""
    n = tl.program_id(0) * BN
    k, v = K.load([n, 0]), V.load([n, 0])
    dk = tl.zeros((BN, D), tl.float32)
    dv = tl.zeros((BN, D), tl.float32)
    for m in range(0, S, BM):
        q = Q.load([m, 0])
        shift = tl.load(L_ptr + m + tl.arange(0, BM))
        p = tl.dot(k, q.T) - shift[None, :]
        do = DO.load([m, 0])
        dv += tl.dot(p.to(do.dtype), do)
        ds = p * tl.dot(v, do.T)
        dk += tl.dot(ds.to(q.dtype), q)
    DK.store([n, 0], dk.to(DK.dtype))
    DV.store([n, 0], dv.to(DV.dtype))


def test_attention_backward_is_specialized():
    """What the first plan took too much is set aside for the second."""
    arrays = [tawa.array((2048, 128), "f16")] * 6
    blocks = [[64, 128], [128, 128], [128, 128], [64, 128], [128, 128], [128, 128]]
    descs = [tawa.TensorDescriptor.from_tensor(a, b) for a, b in zip(arrays, blocks)]
    shifts = tawa.array((2048,), "f32")
    compiled = gradients_of_keys.compile(*descs, shifts, 2048, grid=(16,), BM=64, BN=128, D=128)
    assert compiled.plan.specialized


@tawa.jit
def split_sums(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Parts of a product's K that meet by atomics; rows and columns past the end are wrapped."""
    part = tl.program_id(1)
    columns = tl.cdiv(N, BN)
    rm = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    rn = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    rk = part * BK + tl.arange(0, BK)
    a_ptrs = a_ptr + (rm % M)[:, None] * K + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] * N + (rn % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK * SPLIT)):
        left = K - k * (BK * SPLIT)
        a = tl.load(a_ptrs, mask=rk[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=rk[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * SPLIT
        b_ptrs += BK * SPLIT * N
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.atomic_add(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=mask)


def test_wrapped_rows_that_end_in_masked_atomics_come_by_tma(rng):
    m, n, k = 80, 48, 160
    a, b = whole(rng, m, k), whole(rng, k, n)
    sizes = {"BM": 64, "BN": 32, "BK": 32, "SPLIT": 2}
    compiled, (c,) = both_ways(
        split_sums, a, b, np.zeros((m, n), np.float32), m, n, k,
        grid=(4, 2), outputs=[2], **sizes,
    )  # fmt: skip
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    assert {ring.via for ring in compiled.plan.arefs} == {"tma"}
    # One fence before and one after, not one an element; neighbours in vectors.
    text = compiled.asm["cuda"]
    assert text.count(" fence_gpu();") == 2
    assert text.count("reduce_add_f32x2_gpu(") == 2
    assert "atomic_add" not in text


def test_a_tile_of_two_trips_stays_in_its_slot(rng):
    """The transposed product of one iteration and the plain one of the iteration before read one
    slot.
    """
    q, k, v, do = (whole(rng, 256, 64) / 8 for _ in range(4))
    dk, dv = (np.zeros((128, 64), np.float16) for _ in range(2))
    shift = whole(rng, 256, dtype=np.float32)
    blocks = (64, 128, 128, 64, 128, 128)
    arrays = (q, k[:128], v[:128], do, dk, dv)
    desc = tawa.TensorDescriptor.from_tensor
    descs = [desc(array, [rows, 64]) for array, rows in zip(arrays, blocks)]
    compiled, found = both_ways(
        gradients_of_keys, *descs, shift, 256, grid=(1,), outputs=[4, 5], BM=64, BN=128, D=64
    )
    assert {loop.schedule for loop in compiled.plan.loops} == {"coarse"}
    assert not [b.label for b in compiled.resources.buffers if b.label.endswith("operand")]
    p = k[:128].astype(np.float32) @ q.T.astype(np.float32) - shift
    ds = p * (v[:128].astype(np.float32) @ do.T.astype(np.float32))
    expected = (ds.astype(np.float16).astype(np.float32) @ q, p.astype(np.float16) @ do)
    for got, want in zip(found, expected):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=0.05 * np.abs(want).max())


@tawa.jit
def convolution(
    x_ptr, w_ptr, y_ptr, H, W, M, CO, CI: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A convolution as a product: one loop over the taps and the channels."""
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    ow, oh, n = pixel % W, pixel // W % H, pixel // W // H
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    blocks: tl.constexpr = (CI + BK - 1) // BK
    for step in range(KH * KW * blocks):
        tap = step // blocks
        ih = tap // KW - KH // 2 + oh
        iw = tap % KW - KW // 2 + ow
        rk = step % blocks * BK + tl.arange(0, BK)
        inside = (pixel < M) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        x_ptrs = x_ptr + ((n * H + ih) * W + iw)[:, None] * CI + rk[None, :]
        x = tl.load(x_ptrs, mask=inside[:, None] & (rk < CI)[None, :], other=0.0)
        w_ptrs = w_ptr + (tap * CI + rk)[:, None] * CO + rn[None, :]
        w = tl.load(w_ptrs, mask=(rk < CI)[:, None] & (rn < CO)[None, :], other=0.0)
        acc += tl.dot(x, w)
    c = acc.to(y_ptr.dtype.element_ty)
    at = y_ptr + pixel[:, None] * CO + rn[None, :]
    tl.store(at, c, mask=(pixel < M)[:, None] & (rn < CO)[None, :])


def test_a_convolution_copies_pixels_and_has_its_weights_by_tma(rng):
    n, h, w, ci, co = 2, 5, 8, 32, 32
    x, weights = whole(rng, n, h, w, ci), whole(rng, 3, 3, ci, co)
    m = n * h * w
    sizes = {"CI": ci, "KH": 3, "KW": 3, "BM": 64, "BN": 32, "BK": 16}
    compiled, (y,) = both_ways(
        convolution, x, weights, np.zeros((m, co), np.float16), h, w, m, co,
        grid=(2, 1), outputs=[2], **sizes,
    )  # fmt: skip
    padded = np.zeros((n, h + 2, w + 2, ci), np.float32)
    padded[:, 1:-1, 1:-1] = x
    wanted = sum(
        padded[:, i : i + h, j : j + w] @ weights[i, j].astype(np.float32)
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_array_equal(y, wanted.reshape(m, co).astype(np.float16))
    # Rows of weights follow a quotient of the iteration, and no mask of theirs is ever false.
    ways = {ring.payload[0].split("@")[0]: ring.via for ring in compiled.plan.arefs}
    assert ways == {"x": "copy_async", "w": "tma"}
    assert compiled.plan.blocks == 2
    # An iteration adds a scalar to addresses that stay, and compares what stays.
    copying = compiled.asm["cuda"].split("    copy_arrive(")[0]
    iteration = copying.rsplit("#pragma unroll 1", 1)[1]
    assert "oh[0] >= int(0u - " in iteration
    assert iteration.count("* 2;") == 1, "one address a copy"


@tawa.jit
def grouped_products(
    a_table, b_table, c_table, sizes_ptr, groups, PROGRAMS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Products of several sizes, whose arrays are known by tables of addresses only."""
    place = tl.program_id(0)
    end = 0
    for g in range(groups):
        gm = tl.load(sizes_ptr + g * 3)
        gn = tl.load(sizes_ptr + g * 3 + 1)
        gk = tl.load(sizes_ptr + g * 3 + 2)
        columns = tl.cdiv(gn, BN)
        tiles = tl.cdiv(gm, BM) * columns
        while place >= end and place < end + tiles:
            a_ptr = tl.load(a_table + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_table + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_table + g).to(tl.pointer_type(tl.float16))
            rm = (place - end) // columns * BM + tl.arange(0, BM)
            rn = (place - end) % columns * BN + tl.arange(0, BN)
            rk = tl.arange(0, BK)
            a = a_ptr + rm[:, None] * gk + rk[None, :]
            b = b_ptr + rk[:, None] * gn + rn[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for _ in range(0, tl.cdiv(gk, BK)):
                tl.multiple_of(a, [16, 16])
                tl.multiple_of(b, [16, 16])
                acc += tl.dot(tl.load(a), tl.load(b))
                a += BK
                b += BK * gn
            tl.store(c_ptr + rm[:, None] * gn + rn[None, :], acc.to(tl.float16))
            place += PROGRAMS
        end += tiles


def test_an_ordinary_kernel_copies_ahead(rng):
    tables = [np.zeros(1, np.int64) for _ in range(3)]
    sizes = {"PROGRAMS": 2, "BM": 64, "BN": 32, "BK": 32}
    compiled = grouped_products.compile(
        *tables, np.zeros(3, np.int32), 1, grid=(2,), num_warps=4, **sizes
    )
    assert not compiled.plan.specialized
    (ring,) = compiled.plan.arefs
    assert (ring.via, ring.depth) == ("copy_async", 4)
    assert not any("ahead" in note.feature for note in compiled.declined)


@tawa.jit
def plain_product(a_ptr, b_ptr, c_ptr, K, lda, B: tl.constexpr, BK: tl.constexpr):
    i = tl.arange(0, B)
    k = tl.arange(0, BK)
    a = a_ptr + i[:, None] * lda + k[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for at in range(0, K, BK):
        x = tl.load(a, mask=k[None, :] < K - at, other=0.0)
        y = tl.load(b_ptr + (at + k)[:, None] * B + i[None, :], mask=(at + k)[:, None] < K, other=0)
        acc = tl.dot(x, y, acc)
        a += BK
    tl.store(c_ptr + i[:, None] * B + i[None, :], acc)


@pytest.mark.parametrize("k", [0, 1, 16, 17, 32, 80])
def test_loads_a_trip_ahead_are_right_for_every_number_of_trips(rng, k):
    b, kept = 64, max(k, 1)
    x, y = whole(rng, b, kept), whole(rng, kept, b)
    _, (c,) = both_ways(
        plain_product, x, y, np.zeros((b, b), np.float32), k, kept,
        grid=(1,), outputs=[2], B=b, BK=16, specialize=False,
    )  # fmt: skip
    np.testing.assert_array_equal(c, x[:, :k].astype(np.float32) @ y[:k].astype(np.float32))


@tawa.jit
def packed_weights(
    a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """Weights of four bits, eight to a word: each word stands eight times in its tile."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * K + rk[None, :]
    b_ptrs = b_ptr + (rk[:, None] // 8) * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K // BK):
        scales = tl.load(s_ptr + k * BK // GROUP * N + rn)
        a = tl.load(a_ptrs, mask=rm[:, None] < M, other=0.0)
        words = tl.load(b_ptrs)
        b = (words >> (rk[:, None] % 8 * 4)) & 15
        acc += tl.dot(a, ((b - 8) * scales[None, :]).to(a.dtype))
        a_ptrs += BK
        b_ptrs += BK // 8 * N
    c_ptrs = c_ptr + rm[:, None] * N + rn[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=rm[:, None] < M)


def test_words_of_several_weights_come_once_by_tma(rng):
    m, n, k, group = 70, 64, 96, 32
    a, scales = whole(rng, m, k), whole(rng, k // group, n)
    numbers = rng.integers(0, 16, (k, n))
    words = (numbers.reshape(k // 8, 8, n) << (np.arange(8) * 4)[:, None]).sum(axis=1)
    words = words.astype(np.uint32).view(np.int32)
    sizes = {"GROUP": group, "BM": 64, "BN": 32, "BK": 32}
    compiled, (c,) = both_ways(
        packed_weights, a, words, scales, np.zeros((m, n), np.float16), m, n, k,
        grid=(2, 2), outputs=[3], **sizes,
    )  # fmt: skip
    weights = (numbers - 8) * scales.repeat(group, axis=0).astype(np.float32)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ weights).astype(np.float16))
    assert {ring.via for ring in compiled.plan.arefs} == {"tma"}
    slot = next(b.bytes for b in compiled.resources.buffers if b.label.startswith("words@"))
    depth = compiled.plan.arefs[0].depth
    assert slot == depth * 1024, "4 rows of 32 words, and what aligns them"


@tawa.jit
def row_maxima(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + columns, mask=columns < N, other=-float("inf"))
    tl.store(o_ptr + tl.program_id(0), tl.max(x, 0))


def test_what_a_thread_holds_is_reduced_before_lanes_exchange(rng):
    x = whole(rng, 2, 3000, dtype=np.float32)
    compiled, (found,) = both_ways(
        row_maxima, x, np.zeros(2, np.float32), 3000, grid=(2,), outputs=[1], BLOCK=4096,
    )  # fmt: skip
    np.testing.assert_array_equal(found, x.max(axis=1))
    # One number a lane, in five steps that stand in no loop over registers.
    steps = [line for line in compiled.asm["cuda"].splitlines() if ", shuffle_xor(" in line]
    assert [line.startswith("  total") for line in steps] == [True] * 5


@tawa.jit
def row_sums(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    total = 0
    for at in range(0, N, BLOCK):
        columns = at + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + tl.program_id(0) * N + columns, mask=columns < N, other=0))
    tl.store(o_ptr + tl.program_id(0), total)


@pytest.mark.parametrize("n", [0, 1, 256, 300, 1000])
def test_rows_in_pieces_are_loaded_a_trip_ahead(rng, n):
    x = whole(rng, 2, max(n, 1), dtype=np.int32)
    compiled, (found,) = both_ways(
        row_sums, x, np.zeros(2, np.int32), n, grid=(2,), outputs=[1], BLOCK=256,
    )  # fmt: skip
    np.testing.assert_array_equal(found, x.reshape(-1)[: 2 * n].reshape(2, n).sum(axis=1))
    assert not any("an iteration ahead" in note.feature for note in compiled.declined)
