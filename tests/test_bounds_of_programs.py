"""How many programs there are at most is known of their numbers, also of those that a persistent
kernel computes; launches of more are refused.
"""

from __future__ import annotations

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.analysis.contiguity import Contiguity
from tawa.analysis.ranges import Range, range_of
from tawa.errors import ArgumentError, InternalError
from tawa.ir import parse, tile
from tawa.ir.types import int_array, shape_of
from tawa.simulator import simulate


@tawa.jit
def scaled(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    """C = (A B') s: one scale for 32 columns and 32 of the inner dimension."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, 32):
        a = tl.load(a_ptr + rows[:, None] * K + (k + depth)[None, :], rows[:, None] < M, 0.0)
        b = tl.load(b_ptr + columns[None, :] * K + (k + depth)[:, None], columns[None, :] < N, 0.0)
        scale = tl.load(s_ptr + columns // 32 * (K // 32) + k // 32, columns < N, 0.0)
        acc += tl.dot(a, b) * scale[None, :]
    place = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(place, acc, (rows[:, None] < M) & (columns[None, :] < N))


M, N, K = 192, 96, 64
GRID = 3, 2


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "a_ptr": rng.integers(-4, 5, (M, K)).astype(np.float16),
        "b_ptr": rng.integers(-4, 5, (N, K)).astype(np.float16),
        "s_ptr": rng.integers(1, 9, (N // 32, K // 32)).astype(np.float32),
        "c_ptr": np.zeros((M, N), np.float32),
    }


def expected(given: dict[str, np.ndarray]) -> np.ndarray:
    parts = zip(*(np.split(given[x].astype(np.float32), K // 32, 1) for x in ("a_ptr", "b_ptr")))
    scales = np.repeat(given["s_ptr"], 32, axis=0)
    return sum(a @ b.T * scales[:, i] for i, (a, b) in enumerate(parts))


def compiled(**meta):
    return scaled.compile(*arrays().values(), M, N, K, BM=64, BN=64, grid=GRID, **meta)


WALKS = [{"persistent": False}] + [
    {"persistent": True, "walk": walk} for walk in ("forward", "serpentine")
]


@pytest.mark.parametrize("meta", WALKS, ids=str)
def test_scales_of_a_block_are_one(meta) -> None:
    program = parse(compiled(**meta).asm["hopper"])
    quotients = [
        op
        for op in program.walk()
        if isinstance(op, tile.Elementwise)
        and op.function.data == "idiv"
        and shape_of(op.result.type) == (64,)
    ]
    assert quotients
    for quotient in quotients:
        assert range_of(quotient.inputs[0]) == Range(0, 65_535 * 64 - 1)
        assert Contiguity().of(quotient.result)[0].constancy == 32


def test_a_cluster_passes_the_last_row() -> None:
    """Its blocks take rows together, also past the last; columns end where the grid does."""
    made = compiled(persistent=True, cluster=2)
    assert made.plan.cluster == 2
    marked = {
        op.within
        for op in parse(made.asm["hopper"]).walk()
        if isinstance(op, tile.Elementwise) and op.within is not None
    }
    assert marked == {int_array((0, 65_534))}


@needs_compiler
@pytest.mark.parametrize("meta", WALKS, ids=str)
def test_results(meta) -> None:
    given = arrays()
    emulate(compiled(**meta).asm.program("hopper"), given | {"M": M, "N": N, "K": K}, (*GRID, 1))
    np.testing.assert_array_equal(given["c_ptr"], expected(given))


@pytest.mark.parametrize("level", ["tile", "aref", "hopper"])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("grid", [(1, 65_536), (1, 1, 65_536)])
def test_more_programs_are_refused(level: str, persistent: bool, grid: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=f"extent {len(grid) - 1} may be 0 to 65535"):
        tawa.simulate(
            scaled, *arrays().values(), M, N, K, BM=64, BN=64, grid=grid, level=level,
            persistent=persistent,
        )  # fmt: skip
    with pytest.raises(ArgumentError, match=f"extent {len(grid) - 1} may be 0 to 65535"):
        scaled[grid](*arrays().values(), M, N, K, BM=64, BN=64, persistent=persistent)


def test_the_simulator_checks_what_is_said_of_a_number() -> None:
    program = parse(compiled(persistent=True).asm["hopper"])
    for op in program.walk():
        if isinstance(op, tile.Elementwise) and op.within is not None:
            op.attributes["within"] = int_array((0, 0))
    given = arrays() | {"M": M, "N": N, "K": K}
    with pytest.raises(InternalError, match="within 0 and 0"):
        simulate(program, GRID, given, multiprocessors=2)
