"""Small things that were refused, or gave garbage, for no reason of the user's: differences of
bools, sorting bools, `topk` of more than there is, scalars outside of their types, and keys of a
configuration that are given again.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.errors import ArgumentError, TypeMismatch

N = 16


@tawa.jit
def differences(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i) > 0, tl.load(y + i) > 0
    tl.store(o + i, a - b)
    tl.store(o + N + i, -a)
    tl.store(o + 2 * N + i, a << b)
    tl.store(o + 3 * N + i, a >> b)
    tl.store(o + 4 * N + i, a + b)
    tl.store(o + 5 * N + i, a * b)
    tl.store(o + 6 * N + i, True - a)
    total = a
    total |= b
    tl.store(o + 7 * N + i, tl.sum(a - b, 0) - total)
    tl.store(o + 8 * N + i, tl.cumsum(a, 0, dtype=tl.int1))
    tl.store(o + 9 * N + i, tl.sum(a, 0, dtype=tl.int1))


def operands():
    x = np.resize(np.array([1, -1, 0, 2], np.float32), N)
    y = np.resize(np.array([1, 1, -2, -2, 0], np.float32), N)
    return x, y


def check(x, y, o) -> None:
    a, b = (x > 0).astype(np.int32), (y > 0).astype(np.int32)
    odd = a ^ b  # one bit: Triton computes these modulo 2
    rows = [odd, a, a << b, a >> b, odd, a & b, 1 - a, odd.sum() - (a | b), a.cumsum() % 2]
    rows.append(np.full(N, a.sum() % 2))
    np.testing.assert_array_equal(o.reshape(10, N), np.array(rows))


@pytest.mark.parametrize("level", ["tile", "hopper"])
def test_bools_are_numbers_of_one_bit(level) -> None:
    x, y = operands()
    o = np.zeros(10 * N, np.int32)
    tawa.simulate(differences, x, y, o, N=N, grid=(1,), level=level)
    check(x, y, o)


@needs_compiler
def test_the_text_says_the_same() -> None:
    x, y = operands()
    given = {"x": x, "y": y, "o": np.zeros(10 * N, np.int32)}
    emulate(differences.compile(*given.values(), N=N).asm.program("hopper"), given, (1, 1, 1))
    check(x, y, given["o"])


# --- sorting -------------------------------------------------------------------------------------


@tawa.jit
def sorted_rows(x, o, N: tl.constexpr, DOWN: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.sort(tl.load(x + i), descending=DOWN))
    tl.store(o + N + i, tl.flip(tl.load(x + i)))


@tawa.jit
def largest(x, o, K: tl.constexpr, N: tl.constexpr):
    top = tl.topk(tl.load(x + tl.arange(0, N)), K)
    tl.store(o + tl.arange(0, K), top)


@pytest.mark.parametrize("down", [False, True])
def test_bools_are_sorted(down) -> None:
    x = np.random.default_rng(1).integers(0, 2, N).astype(np.bool_)
    for level in ("tile", "hopper"):
        o = np.zeros(2 * N, np.bool_)
        tawa.simulate(sorted_rows, x, o, N=N, DOWN=down, grid=(1,), level=level)
        np.testing.assert_array_equal(o[:N], np.sort(x)[:: -1 if down else 1])
        np.testing.assert_array_equal(o[N:], x[::-1])
        largest[(1,)](x, o, K=4, N=N)
        np.testing.assert_array_equal(o[:4], np.sort(x)[::-1][:4])


@pytest.mark.parametrize("k", [1, 4, N])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, np.int64])
def test_topk_of_what_there_is(k, dtype) -> None:
    x = np.random.default_rng(2).integers(0, 100, N).astype(dtype)
    o = np.zeros(k, dtype)
    largest[(1,)](x, o, K=k, N=N)
    np.testing.assert_array_equal(o, np.sort(x)[::-1][:k])


@pytest.mark.parametrize(
    ("k", "n", "said"),
    [(0, N, "power of two"), (3, N, "power of two"), (-2, N, "power of two"),
     (32, N, "at most the last extent"), (4, 24, "elements along each dimension")],
)  # fmt: skip
def test_topk_of_what_there_is_not_is_refused_at_the_users_line(k, n, said) -> None:
    with pytest.raises(TypeMismatch, match=said) as caught:
        largest.compile(np.zeros(n, np.float32), np.zeros(64, np.float32), K=k, N=n)
    assert caught.value.place.file == __file__
    assert "language/sorting.py" not in str(caught.value)


# --- scalars -------------------------------------------------------------------------------------


@tawa.jit
def put(o, n: tl.int8, m: tl.uint32, f: tl.float32):
    tl.store(o, n)
    tl.store(o + 1, m)
    tl.store(o + 2, f.to(tl.int32))


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 128), ("n", -129), ("m", -1), ("m", 1 << 32), ("f", 1e39), ("n", 2.5), ("m", 1 << 70)],
)
@pytest.mark.parametrize("level", ["launch", "tile", "hopper"])
def test_scalars_fit_their_declared_types(name, value, level) -> None:
    given = {"n": 1, "m": 2, "f": 3.0, name: value}
    o = np.zeros(3, np.int64)
    how = {} if level == "launch" else {"grid": (1,), "level": level}
    run = put[(1,)] if level == "launch" else partial(tawa.simulate, put)
    with pytest.raises(ArgumentError, match=f"argument '?{name}'?"):
        run(o, **given, **how)
    assert not o.any()
    put[(1,)](o, n=-128, m=(1 << 32) - 1, f=float("inf"))
    assert o.tolist() == [-128, (1 << 32) - 1, (1 << 31) - 1]


# --- configurations ------------------------------------------------------------------------------


@tawa.autotune(configs=[tawa.Config({"BLOCK": 16}, num_warps=4)], key=["n"])
@tawa.jit
def tuned(o, n, BLOCK: tl.constexpr, OTHER: tl.constexpr = 1):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, i * OTHER, mask=i < n)


@pytest.mark.parametrize("given", [{"BLOCK": 32}, {"BLOCK": 16}, {"num_warps": 8}])
def test_a_key_of_the_configurations_is_not_given_again(given) -> None:
    o = np.zeros(16, np.int32)
    for call in (tuned[(1,)], tuned.compile):
        with pytest.raises(ArgumentError, match=next(iter(given))) as caught:
            call(o, 16, **given)
        assert "configurations" in str(caught.value)
    tuned[(1,)](o, 16, OTHER=2)
    assert o.tolist() == [2 * i for i in range(16)]
