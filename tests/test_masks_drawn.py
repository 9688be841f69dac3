"""Tiles at random places under random bounds: a launch moves what the masks let through, by TMA, or
by the kernel that runs where a guard does not hold.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import tawa
import tawa.language as tl

B = 16
Drawn = dict[str, Any]


@tawa.jit
def tiles(a, out, M, N, R, C, S, L, META: tl.constexpr, B: tl.constexpr):
    """Rows and columns move with the program and the iteration; heads and batches are added to the
    address alone, or to what is compared as well.
    """
    i, j = tl.arange(0, B), tl.arange(0, B)
    program, head = tl.program_id(0), tl.program_id(1)
    for t in range(META[0]):
        s = META[0] - 1 - t if META[1] else t
        r = program * META[2] + s * META[3] + R + i
        c = program * META[4] + s * META[5] + C + j
        mask = (i >= 0)[:, None] & (j < B)[None, :]
        if META[6] == 1:
            mask = mask & (r >= 0)[:, None]
        if META[6] == 2:
            mask = mask & (r + 2 > -1)[:, None]
        if META[6] == 3:
            mask = mask & (-r <= 0)[:, None]
        if META[7] == 1:
            mask = mask & (c >= 0)[None, :]
        if META[7] == 2:
            mask = mask & (c - 8 > -1)[None, :]
        if META[8] == 1:
            mask = mask & (r < M)[:, None]
        if META[8] == 2:
            mask = mask & (M - 1 - r >= 0)[:, None]
        if META[8] == 3:
            mask = mask & (r + head * META[10] < M)[:, None]
        if META[9] == 1:
            mask = mask & (c < N)[None, :]
        if META[9] == 2:
            mask = mask & (c + head * META[11] < N)[None, :]
        rows, columns = r + head * META[10] + META[12], c + head * META[11] + META[13]
        at = head * L * S + rows[:, None] * S + columns[None, :]
        same = (i[:, None] == j[None, :]).to(tl.float16)  # TMA moves what goes into a product
        x = tl.dot(tl.load(a + at, mask=mask, other=0.0), same).to(tl.float16)
        if META[14]:
            tl.store(out + at, x + 1, mask=mask)
        else:
            place = ((program * tl.num_programs(1) + head) * META[0] + t) * B * B
            tl.store(out + place + i[:, None] * B + j[None, :], x)


def draw(random: Random) -> tuple[Drawn, tuple[int, ...], tuple[int, int]]:
    pick = random.choice
    width, height = pick((32, 48, 64)), pick((40, 64, 100))
    numbers = {
        "M": pick((height, height // 2, 20, 17, 0)), "N": pick((width, width - 8, 24, 12, 9)),
        "R": pick((0, 0, 0, -1, -20, 7, 60, -40)), "C": pick((0, 0, 0, 8, -8, -24, 16, 4)),
        "S": width, "L": pick((0, 0, 5, 16, 20)),
    }  # fmt: skip
    meta = (
        pick((1, 2, 3)), pick((0, 1)), pick((0, 16, 16, 5)), pick((0, 16, 3)), pick((0, 8, 16)),
        pick((0, 8, 16)), random.randrange(4), random.randrange(3), random.randrange(4),
        random.randrange(3), pick((0, 0, 3, 16)), pick((0, 0, 8, 16)), pick((0, 0, 0, 2, -3)),
        pick((0, 0, 0, 8, -8)), pick((0, 0, 1)),
    )  # fmt: skip
    a = np.array([random.randrange(-3, 4) for _ in range(height * width)], np.float16)
    return {"a": a, **numbers}, meta, (pick((1, 2, 3)), pick((1, 2)))


def wanted(d: Drawn, meta: tuple[int, ...], grid: tuple[int, int]) -> np.ndarray | None:
    """What is left in the output; None where a program is wrong, or two write the same element."""
    a, i, owners = d["a"], np.arange(B), {}
    tile = B * B
    out = np.full(len(a) if meta[14] else grid[0] * grid[1] * meta[0] * tile, -9, np.float16)
    for number, (program, head, t) in enumerate(np.ndindex(*grid, meta[0])):
        s = meta[0] - 1 - t if meta[1] else t
        r, c = (
            program * meta[2] + s * meta[3] + d["R"] + i,
            program * meta[4] + s * meta[5] + d["C"] + i,
        )
        whole, by, on = np.ones(B, bool), head * meta[10], head * meta[11]
        low = (whole, r >= 0, r >= -2, r >= 0)[meta[6]]
        left = (whole, c >= 0, c >= 8)[meta[7]]
        high = (whole, r < d["M"], r < d["M"], r + by < d["M"])[meta[8]]
        right = (whole, c < d["N"], c + on < d["N"])[meta[9]]
        mask = (low & high)[:, None] & (left & right)[None, :]
        at = (head * d["L"] + r + by + meta[12])[:, None] * d["S"] + (c + on + meta[13])[None, :]
        if ((at < 0) | (at >= len(a)))[mask].any():
            return None
        x = np.where(mask, a[np.where(mask, at, 0)], 0)
        if not meta[14]:
            out[number * tile : (number + 1) * tile] = x.ravel()
            continue
        if any(
            owners.setdefault(int(each), (program, head)) != (program, head) for each in at[mask]
        ):
            return None
        out[at[mask]] = x[mask] + 1
    return out


def run(seed: int) -> tuple[int, int]:
    """Draw until a program is right, and launch it; loads and stores by TMA where it may be."""
    random = Random(seed)
    while True:
        d, meta, grid = draw(random)
        if (expected := wanted(d, meta, grid)) is not None:
            break
    out = np.full(len(expected), -9, np.float16)
    given = (d["a"], out, *(d[name] for name in ("M", "N", "R", "C", "S", "L")))
    made = tiles.compile(*given, META=meta, B=B, grid=grid)
    tiles[grid](*given, META=meta, B=B)
    np.testing.assert_array_equal(out, expected, err_msg=f"{meta} {grid}")
    text = made.asm.text("hopper")
    return int("tma_load" in text), int("tma_store" in text)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
@pytest.mark.short("0")
def test_what_masks_let_through_is_moved(seed: int) -> None:
    found = [run(each) for each in range(10 * seed, 10 * seed + 10)]
    loads, stores = (sum(each) for each in zip(*found))
    assert loads
    assert stores
