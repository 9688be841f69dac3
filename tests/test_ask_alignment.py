"""Stores whose vectors memory aligns: asked about once, right either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.codegen.generate import generate
from tawa.ir import tile
from tawa.ir.types import shape_of

TILE = 64
SIZES = {"B": TILE}


@tawa.jit
def spread(x_ptr, o_ptr, size_ptr, B: tl.constexpr):
    """Rows of as many elements as memory says, one behind the other."""
    n = tl.load(size_ptr)
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    x = tl.load(x_ptr + rows * B + columns)
    tl.store(o_ptr + rows * n + columns, x * 2, mask=columns < n)


@tawa.jit
def shifted(x_ptr, o_ptr, size_ptr, B: tl.constexpr):
    """What memory says is a multiple of 16 already, and is added to one that is asked about."""
    n = tl.load(size_ptr)
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    x = tl.load(x_ptr + rows * B + columns)
    tl.store(o_ptr + n * 16 + rows * B + columns, x * 2)


@tawa.jit
def through_table(x_ptr, table, B: tl.constexpr):
    o_ptr = tl.load(table).to(tl.pointer_type(tl.float16))
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    tl.store(o_ptr + rows * B + columns, tl.load(x_ptr + rows * B + columns))


def arguments(n: int) -> dict[str, Any]:
    x = np.arange(TILE * TILE).reshape(TILE, TILE) % 251
    return {
        "x_ptr": x.astype(np.float16),
        "o_ptr": np.full(TILE * TILE, -1, np.float16),
        "size_ptr": np.array([n], np.int32),
    }


def wanted(n: int) -> np.ndarray:
    given = arguments(n)
    o = given["o_ptr"].copy()
    for row in range(TILE):
        o[row * n : row * n + n] = given["x_ptr"][row, :n] * 2
    return o


def compiled(kernel: Any, *arguments: Any) -> Any:
    return kernel.compile(*arguments, grid=(1,), **SIZES)


def branches(made: Any) -> list[tile.Store]:
    return [op for op in made.asm.program("hopper").walk() if isinstance(op, tile.Store)]


def test_both_sides_stand_in_the_text() -> None:
    made = compiled(spread, *arguments(40).values())
    text = made.asm["cuda"]
    assert "global_store_u32x4(" in text
    assert "global_store_b16(" in text
    assert len(branches(made)) == 2


def test_each_side_computes_its_own_addresses() -> None:
    kernel = compiled(spread, *arguments(40).values()).asm.program("hopper")
    made = [op for op in kernel.walk() if isinstance(op, tile.PtrAdd) and shape_of(op.result.type)]
    inside = [op for op in made if isinstance(op.parent_op(), scf.IfOp)]
    assert len({op.parent for op in inside}) == 2


@pytest.mark.parametrize("n", [64, 40, 37])
@pytest.mark.parametrize("level", ["tile", "hopper"])
def test_simulated(n: int, level: str) -> None:
    given = arguments(n)
    tawa.simulate(spread, *given.values(), grid=(1,), level=level, **SIZES)
    np.testing.assert_array_equal(given["o_ptr"], wanted(n))


@needs_compiler
@pytest.mark.parametrize("n", [64, 40, 37, 1])
def test_emulated(n: int) -> None:
    given = arguments(n)
    source = generate(compiled(spread, *given.values()).asm.program("hopper"))
    emulate(source, given, (1, 1, 1), blocks=1)
    np.testing.assert_array_equal(given["o_ptr"], wanted(n))


def test_addresses_in_memory_are_asked_about() -> None:
    given = arguments(0)
    made = compiled(through_table, given["x_ptr"], np.zeros(1, np.int64))
    assert len(branches(made)) == 2
    assert "& 15ll) == 0ll" in made.asm["cuda"]


def test_what_is_known_is_not_asked() -> None:
    made = compiled(shifted, *arguments(0).values())
    assert len(branches(made)) == 1
    assert "global_store_u32x4(" in made.asm["cuda"]
