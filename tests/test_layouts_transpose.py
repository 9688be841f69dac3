"""Transposition of 8-bit tiles: the instructions' definitions, applied byte by byte."""

import numpy as np
import pytest

from tawa.ir.types import scalar
from tawa.layouts.shared import SharedLayout
from tawa.layouts.transpose import (
    INTERLEAVED,
    given,
    share_blocks,
    sides,
    taken,
)
from tawa.passes.lower.placement import choose_layout
from tawa.simulator.footprints import owners


def taken_row(lane: int, *, interleaved: bool) -> int:
    """Return the row of a block that ldmatrix.x4 reads at the address of `lane`."""
    if interleaved:
        return lane
    pair = lane >> 1 & 3
    return (lane >> 4) * 16 + 4 * pair + (lane & 1) + 2 * ((lane >> 3 & 1) ^ (pair >> 1))


def given_row(lane: int) -> int:
    """Return the row of the transposed block that stmatrix.x4 writes at the address of `lane`.

    Lanes from 16 on write its second 16 bytes.
    """
    return 2 * (lane & 7) + ((lane >> 3 & 1) ^ (lane >> 2 & 1))


def selector(lane: int, *, interleaved: bool) -> int:
    """Return the byte permutation (prmt) of two words read that makes the first word written.

    The second word's is this one exclusive-or 0x1111.
    """
    chosen = 0x7531 if lane & 16 else 0x6420
    if not interleaved and lane & 2:
        chosen = (chosen >> 8 | chosen << 8) & 0xFFFF
    return chosen


def address(side, warp: int, block: int, row: int, more: int = 0) -> int:
    thread = side.warps[warp] + row * side.row_bytes + more
    mask = side.chunk_mask
    thread ^= thread >> 3 & mask
    offset = side.blocks[block]
    return (thread ^ (offset & mask)) + (offset & ~mask)


def permute(low: bytes, high: bytes, chosen: int) -> bytes:
    both = low + high
    return bytes(both[chosen >> 4 * i & 7] for i in range(4))


def run(shape: tuple[int, int], warps: int, interleaved: bool) -> np.ndarray:
    """Execute the copy as the instructions define it; returns the [C, R] tile read back."""
    source, target = (choose_layout(s, scalar("f8e4m3")) for s in (shape, shape[::-1]))
    found = sides(source, target, warps)
    assert found is not None
    memory = np.zeros(shape[0] * shape[1], np.uint8)
    result = np.zeros_like(memory)
    data = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    for where in np.ndindex(shape):
        memory[source.offset(where)] = data[where]
    for warp in range(warps):
        for block in range(len(found[0].blocks)):
            rows = [
                memory[at : at + 16].tobytes()
                for lane in range(32)
                for at in [address(found[0], warp, block, taken_row(lane, interleaved=interleaved))]
            ]
            for half in (0, 1):
                for lane in range(32):
                    q, g = lane % 4, lane // 4
                    words = [
                        b"".join(rows[8 * m + 2 * q + i][2 * g : 2 * g + 2] for i in (0, 1))
                        for m in (2 * half, 2 * half + 1)
                    ]
                    chosen = selector(lane, interleaved=interleaved)
                    for m in (0, 1):
                        word = permute(*words, chosen ^ (0x1111 * m))
                        to = 8 * (2 * half + m) + g  # the lane that addresses the row
                        at = address(found[1], warp, block, given_row(to), to // 16 * 16) + 4 * q
                        result[at : at + 4] = np.frombuffer(word, np.uint8)
    order = list(INTERLEAVED) if interleaved else list(range(16))
    wanted = data.reshape(-1, 16, shape[1])[:, order].reshape(shape).T
    got = np.array(
        [result[target.offset(where)] for where in np.ndindex(shape[::-1])], np.uint8
    ).reshape(shape[::-1])
    assert (got == wanted).all()
    return got


SHAPES = ((128, 128), (64, 64), (32, 64), (224, 128), (160, 256), (96, 192), (64, 96), (128, 32))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_byte_arrives(shape: tuple[int, int], interleaved: bool) -> None:
    run(shape, 4, interleaved)


@pytest.mark.parametrize("shape", SHAPES)
def test_warps_share_both_tiles_without_overlap(shape: tuple[int, int]) -> None:
    assert (owners(taken(shape, 4)).sum(axis=0) == 1).all()
    assert (owners(given(shape, 4)).sum(axis=0) == 1).all()
    assert (owners(given(shape, 4)).transpose(0, 2, 1) == owners(taken(shape, 4))).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_rows_of_a_matrix_lie_in_different_banks(interleaved: bool) -> None:
    for matrix in range(4):
        lanes = range(8 * matrix, 8 * matrix + 8)
        assert len({taken_row(lane, interleaved=interleaved) % 8 for lane in lanes}) == 8
        assert len({given_row(lane) % 8 for lane in lanes}) == 8


def test_what_does_not_divide_is_refused() -> None:
    assert share_blocks((48, 64), 4) is None
    assert share_blocks((32, 16), 4) is None
    assert share_blocks((64, 24), 4) is None
    wide = SharedLayout((64, 64), (0, 1), 16, 128)
    assert sides(wide, SharedLayout((64, 64), (0, 1), 16, 128), 4) is None
