"""Stores by TMA in a loop: what waits for them, and what is read ahead of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa
import tawa.language as tl
from tawa.analysis.memory import Box, disjoint_in_other_iterations
from tawa.analysis.polynomial import Polynomial, polynomial
from tawa.ir import hopper, parse, tile
from tawa.runtime.dispatch import guards_hold
from test_analysis_affine import kernel_of, results
from tile_shapes import loop, number, op

META = {"B": 64, "D": 64}


@tawa.jit
def states(k, v, g, h, T, B: tl.constexpr, D: tl.constexpr,
           STEP: tl.constexpr):  # fmt: skip
    """A recurrence whose state before each chunk is stored, `STEP` rows further on each time."""
    i, j = tl.arange(0, B), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for chunk in range(tl.cdiv(T, B)):
        rows = chunk * B + i
        at = chunk * STEP + j
        tl.store(h + at[:, None] * D + j[None, :], state.to(tl.float16))
        x = tl.load(k + rows[None, :] * D + j[:, None], mask=(rows < T)[None, :], other=0.0)
        y = tl.load(v + rows[:, None] * D + j[None, :], mask=(rows < T)[:, None], other=0.0)
        gate = tl.load(g + rows, mask=rows < T, other=0.0)
        state = state * 0.5 + tl.dot(x, (y * gate[:, None]).to(tl.float16))


def arguments(step: int) -> list[Any]:
    rng, t, d = np.random.default_rng(7), 160, 64
    k, v = (rng.integers(-1, 2, (t, d)).astype(np.float16) for _ in range(2))
    g = rng.integers(1, 3, t).astype(np.float32)
    return [k, v, g, np.full((2 * step + d, d), -1, np.float16), t]


def expected(given: list[Any], step: int) -> np.ndarray:
    k, v, g, h, t = given
    out, state = h.copy(), np.zeros((64, 64), np.float32)
    for chunk, first in enumerate(range(0, t, 64)):
        out[chunk * step : chunk * step + 64] = state
        part = slice(first, min(first + 64, t))
        state = state * 0.5 + k[part].T.astype(np.float32) @ (v[part] * g[part, None])
    return out


def waits_in_loops(made: Any) -> int:
    """Waits in loops until stores are complete, not only read."""
    program = parse(made.asm["hopper"])
    found = (op for op in program.walk() if isinstance(op, hopper.BulkWait) and not op.read)
    return sum(isinstance(op.parent_op(), scf.ForOp) for op in found)


@pytest.mark.parametrize(("step", "waits"), [(64, 0), (128, 0), (32, 1)])
@pytest.mark.short("64-0", "32-1")
def test_only_stores_that_overlap_wait_for_one_another(step: int, waits: int) -> None:
    for seed in range(3):
        given = arguments(step)
        wanted = expected(given, step)
        made = states.compile(*given, **META, STEP=step, grid=(1,))
        assert waits_in_loops(made) == waits
        tawa.simulate(states, *given, **META, STEP=step, grid=(1,), seed=seed)
        np.testing.assert_array_equal(given[3], wanted)


def test_what_a_loop_reads_is_read_ahead_of_its_stores() -> None:
    """Its array is none of those stored to: that a launch is asked."""
    given = arguments(64)
    made = states.compile(*given, **META, STEP=64, grid=(1,))
    named = dict(zip(("k", "v", "g", "h", "T"), given))
    assert guards_hold(made, named, (1, 1, 1))
    assert not guards_hold(made, named | {"g": given[3].view(np.float32).ravel()}, (1, 1, 1))
    (mma,) = (role for role in parse(made.asm["hopper"]).walk() if is_role(role, "mma"))
    loads = [op for op in mma.walk() if isinstance(op, tile.Load)]
    assert len(loads) == 2  # before the loop, and in it


def is_role(operation: Any, label: str) -> bool:
    return isinstance(operation, hopper.Role) and operation.label.data == label


def test_arrays_that_overlap_are_read_in_order() -> None:
    """The gates of a chunk are what the state before it left there."""
    d, t = 64, 128
    k, v = (np.ones((t, d), np.float16) for _ in range(2))
    h = np.zeros((256, d), np.float16)
    g = h[:4].view(np.float32).ravel()
    g[:] = 1
    states[1,](k, v, g, h, t, **META, STEP=64)
    # The first store clears all gates.
    assert not h[:128].any()


def boxes(*starts: tuple[dict[str, int], int], width: int, kernel: tile.Kernel) -> list[Box]:
    values = results(kernel)
    counters = {
        arg.name_hint: arg
        for each in kernel.walk()
        if isinstance(each, scf.ForOp)
        for arg in each.body.block.args[:1]
    }
    symbols = {**values, **counters}
    return [
        Box(
            (
                sum(
                    (polynomial(symbols[name]).scaled(by) for name, by in terms.items()),
                    start=Polynomial.constant(first),
                ),
            ),
            (width,),
        )
        for terms, first in starts
    ]


def test_blocks_of_unlike_trips_against_all_trips() -> None:
    """i in 0, 16 .. 48, j in 0, 16, 32: what is said to be apart is, for all pairs of
    iterations.
    """
    kernel = kernel_of(
        "out K",
        number("c40", 40),
        number("c64", 64),
        loop(loop([op("deep", "add", "i", "j")], index="j", end="c40"), index="i", end="c64"),
    )
    inner, outer = reversed([each for each in kernel.walk() if isinstance(each, scf.ForOp)])
    iterations = list(product(range(0, 64, 16), range(0, 40, 16)))
    said = 0
    for by_i, by_j, shift, width in product((0, 1, 3, -3), (0, 1, -1), (0, 8, 40), (8, 16, 48)):
        one, other = boxes(
            ({"i": by_i, "j": by_j}, 0), ({"i": by_i, "j": by_j}, shift), width=width, kernel=kernel
        )
        for loops, alike in (((inner, outer), ()), ((inner,), (0,)), ((outer,), (1,))):
            if not disjoint_in_other_iterations(one, other, loops):
                continue
            said += 1
            for first, second in product(iterations, iterations):
                if first == second or any(first[place] != second[place] for place in alike):
                    continue
                starts = (first[0] * by_i + first[1] * by_j, second[0] * by_i + second[1] * by_j)
                assert abs(starts[0] - starts[1] - shift) >= width
    assert said >= 20
