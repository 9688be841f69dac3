"""What a launch is asked so that quotients of indices are known to be alike in a tile."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.analysis.contiguity import Contiguity
from tawa.ir import parse, tile
from tawa.ir.types import int_array
from tawa.runtime.dispatch import guards_hold

MOST = (1 << 31) - 1


@tawa.jit
def points(table, x, out, total, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """A number of a row and one of a column, as fusers write it; STEP is the block where right."""
    program = tl.program_id(0)
    point = program * STEP + tl.arange(0, BLOCK)
    place = program * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(table + (point // 64 & 63))
    column = tl.load(table + (point % 64 & 63))
    tl.store(out + place, row * 1000 + column + tl.load(x + place), place < total)


@tawa.jit
def walked(table, out, m, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """One scale for 64 columns, where a program is one of `GROUP` rows of a walk."""
    program = tl.program_id(0)
    across = tl.cdiv(n, BLOCK)
    first = program // (GROUP * across) * GROUP
    height = min(tl.cdiv(m, BLOCK) - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    columns = (column * BLOCK + tl.arange(0, BLOCK)) % n
    scale = tl.load(table + columns // 64)
    place = row * n + column * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, scale, column * BLOCK + tl.arange(0, BLOCK) < n)


@tawa.jit
def lanes(table, out, n, BLOCK: tl.constexpr):
    """Nothing to gain: a quotient by what is no multiple of anything; a number from memory."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(table) + tl.arange(0, BLOCK)
    tl.store(out + i, i // n + tl.load(table + j // 64))


def arrays(programs: int, block: int = 256) -> dict[str, np.ndarray]:
    size = programs * block
    table, x = np.arange(64, dtype=np.int32), np.arange(size, dtype=np.int32)
    return {"table": table, "x": x, "out": np.zeros(size, np.int32)}


def expected(step: int, programs: int, block: int = 256) -> np.ndarray:
    """The same with numbers that wrap, and quotients towards zero."""
    first = np.arange(programs, dtype=np.int64)[:, None] * step
    point = (first + np.arange(block)).astype(np.int32).astype(np.int64)
    row, column = np.trunc(point / 64).astype(np.int64) & 63, np.fmod(point, 64) & 63
    return (row * 1000 + column).ravel() + np.arange(programs * block)


def bounds_of(kernel) -> list[str]:
    return [guard.condition for guard in kernel.guards if "not to wrap" in guard.reason]


def test_what_grows_with_the_grid() -> None:
    given = arrays(4)
    made = points.compile(*given.values(), 1024, STEP=256, BLOCK=256, grid=(4,))
    assert bounds_of(made) == [f"256*grid(0) <= {1 << 31}"]
    found = {
        op.function.data: Contiguity().of(op.result)[0]
        for op in parse(made.asm["hopper"]).walk()
        if isinstance(op, tile.Elementwise) and op.function.data in ("idiv", "irem")
    }
    assert found["idiv"].constancy == 64
    assert found["irem"].contiguity == 64


@pytest.mark.parametrize(("step", "programs", "holds"), [
    (256, 4, True), (1 << 28, 8, True), (1 << 28, 9, False), (3 << 26, 11, True),
    (3 << 26, 12, False),
])  # fmt: skip
def test_numbers_that_wrap_run_the_plain_kernel(step: int, programs: int, holds: bool) -> None:
    given = arrays(programs)
    meta = {"STEP": step, "BLOCK": 256, "grid": (programs,)}
    made = points.compile(*given.values(), programs * 256, **meta)
    assert guards_hold(made, given | {"total": programs * 256}, (programs,)) == holds
    call = (*given.values(), programs * 256)
    tawa.simulate(points, *call, **meta)
    np.testing.assert_array_equal(given["out"], expected(step, programs))
    given["out"][:] = 0
    points[(programs,)](*call, STEP=step, BLOCK=256)
    np.testing.assert_array_equal(given["out"], expected(step, programs))


@needs_compiler
@pytest.mark.parametrize(("step", "programs"), [(256, 4), (1 << 28, 8), (1 << 28, 9)])
def test_the_text(step: int, programs: int) -> None:
    given = arrays(programs)
    call = (*given.values(), programs * 256)
    made = points.compile(*call, STEP=step, BLOCK=256)
    if not guards_hold(made, given | {"total": programs * 256}, (programs,)):
        made = points.compile_plain(*call, STEP=step, BLOCK=256)
        assert not bounds_of(made)
    arguments = given | {"total": programs * 256}
    emulate(made.asm.program("hopper"), arguments, (programs, 1, 1))
    np.testing.assert_array_equal(given["out"], expected(step, programs))


def columns_of(program: int, m: int, n: int, group: int = 4, block: int = 128) -> list[int]:
    """First columns of programs as the device computes them: every sum wraps to 32 bits."""

    def wrapped(number: int) -> int:
        return (number + (1 << 31)) % (1 << 32) - (1 << 31)

    def divided(a: int, b: int) -> int:
        return wrapped(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))

    def rest(a: int, b: int) -> int:
        return wrapped(a - divided(a, b) * b)

    across = divided(wrapped(n + block - 1), block)
    span = wrapped(group * across)
    first = wrapped(divided(program, span) * group)
    height = min(wrapped(divided(wrapped(m + block - 1), block) - first), group)
    return wrapped(divided(rest(program, span), height) * block)


EDGES = [-MOST - 1, -200, -1, 1, 100, 128, 1000, 70_000, MOST - 128, MOST - 127, MOST - 126, MOST]


@pytest.mark.parametrize("programs", [1, 7, 600])
@pytest.mark.short("1", "600")
def test_a_walk_that_is_said_not_to_wrap_does_not(programs: int) -> None:
    table, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    made = walked.compile(table, out, 1024, 1024, GROUP=4, BLOCK=128)
    assert bounds_of(made)
    held = 0
    for m, n in product(EDGES, EDGES):
        given = {"table": table, "out": out, "m": m, "n": n}
        if guards_hold(made, given, (programs,)):
            held += 1
            first = [columns_of(program, m, n) for program in range(programs)]
            assert 0 <= min(first) <= max(first) <= MOST - 127
    assert held >= 9


def test_a_walk() -> None:
    m, n = 640, 384
    table, out = np.arange(6, dtype=np.float32), np.zeros((m // 128, n), np.float32)
    grid = (m // 128 * (n // 128),)
    made = walked.compile(table, out, m, n, GROUP=4, BLOCK=128, grid=grid)
    assert guards_hold(made, {"table": table, "out": out, "m": m, "n": n}, grid)
    tawa.simulate(walked, table, out, m, n, GROUP=4, BLOCK=128, grid=grid)
    np.testing.assert_array_equal(out, np.broadcast_to(np.repeat(table, 64), out.shape))


def test_what_gains_nothing_asks_nothing() -> None:
    table, out = np.zeros(1024, np.int32), np.zeros(1024, np.int32)
    made = lanes.compile(table, out, 7, BLOCK=128)
    assert not made.guards
    program = parse(made.asm["hopper"])
    assert not any(isinstance(op, tile.Elementwise) and op.within for op in program.walk())


def test_clusters_forget_what_a_launch_was_asked() -> None:
    """Their blocks run programs past the grid, of which the launch knows nothing."""
    from test_bounds_of_programs import compiled

    marked = {
        op.within
        for op in parse(compiled(persistent=True, cluster=2).asm["hopper"]).walk()
        if isinstance(op, tile.Elementwise) and op.within is not None
    }
    assert marked == {int_array((0, 65_534))}


@tawa.jit
def returns(out, n, BLOCK: tl.constexpr, WHAT: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    if WHAT == "wraps":
        if row < 0:
            return
    elif WHAT == "turned":
        if -1 >= row:  # noqa: SIM300
            return
    elif WHAT == "first":
        if row - BLOCK < 0:
            return
    elif WHAT == "far":
        if row > 5:
            return
    else:
        if row + n < 0:
            return
    tl.store(out + row + tl.arange(0, BLOCK), row)


@pytest.mark.parametrize("what", ["wraps", "turned", "first", "far", "argument"])
def test_a_comparison_that_wrapping_alone_would_decide_otherwise(what: str) -> None:
    out = np.full(4 * 256, -1, np.int32)
    made = returns.compile(out, 3, BLOCK=256, WHAT=what, grid=(4,))
    asked = what in ("wraps", "turned")
    assert bounds_of(made) == [f"256*grid(0) <= {MOST + 256}"] * asked
    assert ("scf.if" in str(made.asm["hopper"])) != asked
    assert guards_hold(made, {"out": out, "n": 3}, (1 << 23, 1, 1))
    assert guards_hold(made, {"out": out, "n": 3}, ((1 << 23) + 1, 1, 1)) != asked
    tawa.simulate(returns, out, 3, BLOCK=256, WHAT=what, grid=(4,))
    rows = np.repeat(np.arange(4) * 256, 256)
    runs = {"first": rows > 0, "far": rows == 0}.get(what, rows >= 0)
    np.testing.assert_array_equal(out, np.where(runs, rows, -1))
