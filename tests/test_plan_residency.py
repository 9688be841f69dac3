"""Blocks share a multiprocessor where one warpgroup would leave the tensor cores idle."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import OverBudget, PlanError
from tawa.plan.text import parse_plan, print_plan
from tawa.target import H200


@tawa.jit
def promoted(A, B, C, s_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The product of each iteration is scaled outside of the tensor cores."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        scale = tl.load(s_ptr + k // BK)
        acc += tl.dot(A.load([row, k]), B.load([k, column])) * scale
    C.store([row, column], acc)


@tawa.jit
def bare(A, B, C, s_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Nothing stands between the products."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(A.load([row, k]), B.load([k, column]), acc)
    C.store([row, column], acc)


def descriptors(rows, columns, depth, tile, make):
    shapes = ((rows, depth), (depth, columns), (rows, columns))
    blocks = ((tile[0], tile[2]), (tile[2], tile[1]), (tile[0], tile[1]))
    kinds = ("f16", "f16", "f32")
    of = tawa.TensorDescriptor.from_tensor
    return [of(make(s, kind), list(b)) for s, b, kind in zip(shapes, blocks, kinds)]


def compiled(kernel, tile=(64, 128, 64), **pins):
    descs = descriptors(512, 512, 512, tile, tawa.array)
    sizes = dict(zip(("BM", "BN", "BK"), tile))
    scale = tawa.array((8,), "f32")
    return kernel.compile(*descs, scale, 512, grid=(8, 4), **sizes, **pins)


def test_one_warpgroup_with_other_work_shares_its_multiprocessor():
    kernel = compiled(promoted)
    assert kernel.plan.blocks == kernel.launch.blocks == 2
    assert 2 * (kernel.launch.shared + 1024) <= H200.shared_per_multiprocessor
    registers = sum(role.registers * role.warps * 32 for role in kernel.plan.roles)
    assert 2 * registers <= H200.registers_per_block
    assert "__launch_bounds__(256, 2)" in kernel.asm["cuda"]
    assert "2 blocks a multiprocessor" in str(kernel)


@pytest.mark.parametrize("tile", [(64, 128, 64), (128, 128, 64)])
def test_who_keeps_the_tensor_cores_busy_stays_alone(tile):
    assert compiled(bare, tile).plan.blocks == 1
    assert compiled(promoted, (128, 128, 64)).plan.blocks == 1


def test_blocks_can_be_pinned():
    assert compiled(promoted, blocks=1).plan.blocks == 1
    plan = compiled(bare, blocks=2).plan
    assert plan.blocks == 2
    assert parse_plan(print_plan(plan)) == plan
    assert compiled(bare, plan=print_plan(plan)).launch.blocks == 2
    with pytest.raises(PlanError):
        compiled(bare, specialize=False, blocks=2)


def test_a_pinned_depth_that_does_not_fit_beside_another_block():
    with pytest.raises(OverBudget):
        compiled(promoted, blocks=2, depth=8)
    assert compiled(promoted, depth=8).plan.blocks == 1


def test_two_blocks_compute_the_same():
    rng = np.random.default_rng(3)

    def whole(shape, kind):
        kinds = {"f16": np.float16, "f32": np.float32}
        return rng.integers(-2, 3, shape).astype(kinds[kind])

    a, b, c = descriptors(192, 256, 192, (64, 128, 64), whole)
    scale = np.array([1, 2, 3], np.float32)
    tawa.simulate(promoted, a, b, c, scale, 192, grid=(3, 2), BM=64, BN=128, BK=64)
    parts = (slice(64 * i, 64 * i + 64) for i in range(3))
    expected = sum(
        s * (a.base[:, of].astype(np.float32) @ b.base[of].astype(np.float32))
        for s, of in zip(scale, parts)
    )
    np.testing.assert_array_equal(c.base, expected)


@tawa.jit
def gradients(Q, K, G, DK, DV, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Three products an iteration with work between them, as long as BM columns make them."""
    at = tl.program_id(0) * BN
    k = K.load([at, 0])
    dk, dv = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    for m in range(0, n, BM):
        q, g = Q.load([m, 0]), G.load([m, 0])
        p = tl.exp2(tl.dot(k, q.T))
        dv += tl.dot(p.to(g.dtype), g)
        dk += tl.dot((p * 0.5).to(q.dtype), q)
    DK.store([at, 0], dk)
    DV.store([at, 0], dv)


@pytest.mark.parametrize(("columns", "blocks"), [(32, 2), (64, 1)])
def test_short_products_get_a_second_block(columns, blocks):
    of = tawa.TensorDescriptor.from_tensor
    rows = [of(tawa.array((512, 64), "f16"), [columns, 64]) for _ in range(2)]
    wide = [of(tawa.array((512, 64), kind), [128, 64]) for kind in ("f16", "f32", "f32")]
    arguments = (rows[0], wide[0], rows[1], *wide[1:], 512)
    kernel = gradients.compile(*arguments, grid=(4,), BM=columns, BN=128, D=64)
    assert kernel.plan.blocks == blocks
    assert kernel.plan.consumers[0].warps == 8 // blocks
    # A pin is a hint for the rest as it was.
    alone = gradients.compile(*arguments, grid=(4,), BM=columns, BN=128, D=64, blocks=1)
    assert alone.plan.blocks == 1


@pytest.mark.parametrize("tile", [(32, 32, 32), (16, 16, 16)])
def test_products_that_warps_wait_for_share_with_as_many_as_fit(tile):
    """By mma.sync and by multiply-adds."""
    kernel = compiled(bare, tile)
    assert kernel.plan.specialized
    assert kernel.launch.blocks == 4
    assert all(ring.depth >= 2 for ring in kernel.plan.arefs)
    assert compiled(bare, tile, blocks=1).plan.blocks == 1


@pytest.mark.parametrize(
    ("tile", "asked", "warps", "blocks"),
    [((64, 64, 8), 8, 8, 1), ((64, 64, 8), 4, 4, 2), ((16, 16, 8), 8, 4, 4)],
)
def test_a_scheduler_has_two_warps_of_multiply_adds(tile, asked, warps, blocks):
    """Of one tile whose threads keep squares of vectors, where they are asked for, else of two."""
    plan = compiled(bare, tile, num_warps=asked).plan
    assert plan.consumers[0].warps == warps
    assert plan.blocks >= blocks if warps == 4 else plan.blocks == blocks
    if warps == 8:
        alone = compiled(bare, tile, num_warps=asked, consumers=1).plan
        assert alone.consumers[0].warps == 4


def test_short_products_by_wgmma_stay_alone():
    assert compiled(bare, (64, 32, 32)).plan.blocks == 1


@tawa.jit
def image(x, w, out, C: tl.constexpr, S: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """A convolution of 3x3 over C channels of squares of S: rows of operand A are gathered, and
    the result is stored channel by channel.
    """
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    n, h, v = at // (S * S), at // S % S, at % S
    channels, columns = tl.arange(0, C), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for tap in range(9):
        i, j = h - 1 + tap // 3, v - 1 + tap % 3
        inside = (i >= 0) & (i < S) & (j >= 0) & (j < S)
        a = x + ((n * S + i) * S + j)[:, None] * C + channels[None, :]
        left = tl.load(a, mask=inside[:, None] & (at < 8 * S * S)[:, None], other=0.0)
        right = tl.load(w + (tap * C + channels)[:, None] * 64 + columns[None, :])
        acc += tl.dot(left, right)
    place = (n[:, None] * 64 + columns[None, :]) * (S * S) + (h * S + v)[:, None]
    tl.store(out + place, acc.to(tl.float16), mask=(at < 8 * S * S)[:, None])


def test_a_producer_that_copies_is_not_starved_for_the_addresses_of_a_store():
    x, w, out = (tawa.array(s, "f16") for s in ((8, 56, 56, 64), (576, 64), (8, 64, 56, 56)))
    kernel = image.compile(x, w, out, 64, 56, 128, 64, grid=(196, 1), num_warps=8)
    assert kernel.plan.arefs[0].via == "copy_async"
    assert kernel.resources.spills == 0


@tawa.jit
def planes(x, w, out, C: tl.constexpr, S: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    """The same from planes of one channel: each element is a copy of its own."""
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    n, h, v = at // (S * S), at // S % S, at % S
    columns = tl.arange(0, 64)
    acc = tl.zeros((BM, 64), tl.float32)
    for step in range(9 * C // BC):
        tap, channels = step // (C // BC), step % (C // BC) * BC + tl.arange(0, BC)
        i, j = h - 1 + tap // 3, v - 1 + tap % 3
        inside = (i >= 0) & (i < S) & (j >= 0) & (j < S)
        a = x + (n[:, None] * C + channels[None, :]) * S * S + (i * S + j)[:, None]
        left = tl.load(a, mask=inside[:, None], other=0.0)
        right = tl.load(w + (tap * C + channels)[:, None] * 64 + columns[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(out + at[:, None] * 64 + columns[None, :], acc)


def test_a_producer_of_too_many_copies_is_none():
    x, w, out = (tawa.array(s, "f32") for s in ((8, 64, 48, 48), (576, 64), (8 * 48 * 48, 64)))
    few, many = (planes.compile(x, w, out, 64, 48, 256, c, grid=(72,)) for c in (16, 32))
    assert few.plan.specialized
    assert not many.plan.specialized
    assert any("registers of addresses" in note.reason for note in many.plan.declined)
    assert not many.resources.spills
