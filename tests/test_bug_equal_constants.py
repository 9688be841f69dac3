"""Constants that are equal but not the same: a kernel of 0.0 ran for -0.0, and a NaN was compiled
anew at every launch.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.constants import freeze, is_exact
from tawa.runtime.compiler import compile_kernel


@tawa.jit
def put(out, X: tl.constexpr):
    tl.store(out, X)


@tawa.jit
def put_item(out, X: tl.constexpr):
    tl.store(out, X[0] / 1)


@tawa.jit
def tell(out, X: tl.constexpr):
    if isinstance(X, bool):
        tl.store(out, 1)
    elif isinstance(X, int):
        tl.store(out, 2)
    else:
        tl.store(out, 3)


class Counting:
    """A compile driver that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, request):
        self.count += 1
        return compile_kernel(request)


def counted(kernel, tmp_path):
    from tawa.runtime.jit import JitFunction
    from tawa.runtime.store import DiskStore

    counting = Counting()
    return JitFunction(kernel.fn, compiler=counting, store=DiskStore(tmp_path)), counting


def bits(value) -> bytes:
    return struct.pack("<f", value)


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_both_signs(order, tmp_path) -> None:
    for kernel, wrap in ((put, lambda x: x), (put_item, lambda x: (x, 1)), (put, tl.constexpr)):
        mine, _ = counted(kernel, tmp_path / str(wrap))
        for value in (*order, *order):
            out = np.ones(1, np.float32)
            mine[(1,)](out, wrap(value))
            assert bits(out[0]) == bits(value)


def test_a_nan_is_compiled_once(tmp_path) -> None:
    mine, counting = counted(put, tmp_path)
    for value in (float("nan"), math.nan, float("inf") - float("inf"), np.float64("nan")):
        out = np.zeros(1, np.float32)
        mine[(1,)](out, abs(value) if value == value else float("nan"))
        assert math.isnan(out[0])
    assert counting.count == 1


def test_true_and_1_and_1_0(tmp_path) -> None:
    mine, _ = counted(tell, tmp_path)
    for value, told in ((1, 2), (True, 1), (1.0, 3), (True, 1), (1, 2)):
        out = np.zeros(1, np.int32)
        mine[(1,)](out, value)
        assert out[0] == told


@tawa.jit
def tell_item(out, X: tl.constexpr):
    if isinstance(X[0][0], bool):
        tl.store(out, 1)
    elif isinstance(X[0][0], int):
        tl.store(out, 2)
    else:
        tl.store(out, 3)


def test_nested_in_tuples(tmp_path) -> None:
    mine, _ = counted(tell_item, tmp_path)
    for value, told in ((1, 2), (True, 1), (1.0, 3), (True, 1), (1, 2)):
        for nest in (lambda x: ((x, 2), "a"), lambda x: [[x]]):
            out = np.zeros(1, np.int32)
            mine[(1,)](out, nest(value))
            assert out[0] == told


@dataclass(frozen=True)
class Settings:
    scale: float


class Pair(NamedTuple):
    a: float
    b: float


def test_twins_are_equal_only_for_the_same() -> None:
    groups = [
        [0.0, -0.0, 0, False, float("nan"), np.float32(0.0), np.float32(-0.0), np.float64(0), "0"],
        [1.0, 1, True, np.int32(1), np.int64(1), np.bool_(True), 1 + 0j],
        [(1, 2), (1.0, 2), (True, 2), [1, 2], Pair(1, 2), (1, (2,)), ((1, 2),)],
        [Settings(0.0), Settings(-0.0), Settings(0), Pair(0.0, 0), Pair(-0.0, 0)],
        [
            {"a": 0.0},
            {"a": -0.0},
            {"a": False},
            {1: 1},
            {True: 1},
            frozenset({1}),
            frozenset({1.0}),
        ],
        [tl.constexpr(0.0), tl.constexpr(-0.0), tl.constexpr(0)],
        [tl.float16, tl.bfloat16, float, int, bool],
    ]
    for group in groups:
        twins = [freeze(value) for value in group]
        for i, twin in enumerate(twins):
            assert [j for j, other in enumerate(twins) if bool(twin == other)] == [i], group[i]
            hash(twin)
    assert freeze(float("nan")) == freeze(math.nan)
    assert freeze((1, [0.5, {"a": tl.float16}])) == freeze((1, [0.5, {"a": tl.float16}]))


def test_what_a_launch_finds_at_once() -> None:
    """Numbers, names and types need no second look."""
    for value in (64, True, "relu", 0.5, None, tl.float16, float, put):
        assert is_exact(value)
    for value in (0.0, -0.0, float("nan"), (1, 2), (0.5,), Settings(1.0), np.float32(1)):
        assert not is_exact(value)


@tawa.jit
def joined(out, n, X: tl.constexpr):
    zero = 0.0
    if n > 3:
        zero = -0.0
    tl.store(out, zero)


@tawa.jit
def after_a_loop(out, n, X: tl.constexpr):
    zero = 0.0
    for _ in range(n):
        zero = -zero
    tl.store(out, zero)


@pytest.mark.parametrize("n", [2, 5])
def test_branches_and_loops_tell_them_apart(n) -> None:
    out = np.ones(1, np.float32)
    joined[(1,)](out, n, X=0)
    assert bits(out[0]) == bits(-0.0 if n > 3 else 0.0)
    after_a_loop[(1,)](out, n, X=0)
    assert bits(out[0]) == bits(-0.0 if n % 2 else 0.0)
