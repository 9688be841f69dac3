"""The option ``debug``: device_assert, checks of overflow, and what prints show of bits."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tawa
import tawa.language as tl
from codegen_emulator import emulate, needs_compiler
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate
from tawa.errors import ArgumentError, LaunchError, PlanError, UnsupportedSyntax

LARGE = 2**31 - 1


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))


def _checked(x, limit):
    tl.device_assert(tl.load(x + tl.arange(0, 32)) < limit, "too large")


def _text(compiled) -> str:
    return compiled.asm.text("cuda")


def _source(compiled) -> CudaSource:
    return generate(compiled.asm.program("hopper"))


X = np.arange(32, dtype=np.int32)


# --- where the option comes from ----------------------------------------------------------------


def test_asserts_are_compiled_where_the_decorator_says_so():
    assert "too large" in _text(tawa.jit(debug=True)(_checked).compile(X, 8))
    assert "too large" not in _text(tawa.jit(_checked).compile(X, 8))
    assert "too large" not in _text(tawa.jit(debug=False)(_checked).compile(X, 8))


def test_a_launch_decides_otherwise():
    always, never = tawa.jit(debug=True)(_checked), tawa.jit(_checked)
    for kernel in (always, never):
        kernel[(1,)](X, 8, debug=False)
        with pytest.raises(LaunchError, match="device_assert failed: too large"):
            kernel[(1,)](X, 8, debug=True)
    never[(1,)](X, 8)
    with pytest.raises(LaunchError, match="too large"):
        always[(1,)](X, 8)


def test_it_reaches_kernels_with_tuples_heuristics_and_tuning():
    def kernel(pair, B: tl.constexpr):
        tl.device_assert(tl.load(pair[0]) < 0, "not below zero")

    plain = tawa.jit(debug=True)(kernel)
    guessed = tawa.heuristics({"B": lambda _: 4})(tawa.jit(debug=True)(kernel))
    tuned = tawa.autotune([tawa.Config({"B": 4})], key=[])(tawa.jit(debug=True)(kernel))
    for given in (plain.compile((X, X), 4), guessed.compile((X, X)), tuned.compile((X, X))):
        assert "not below zero" in _text(given)


def test_a_kernel_of_triton_keeps_it():
    class JITFunction:  # as triton.jit(debug=True) makes them
        fn = staticmethod(_checked)
        debug = True

    assert "too large" in _text(tawa.jit(JITFunction()).compile(X, 8))


def test_a_kernel_is_not_made_twice():
    kernel = tawa.jit(_checked)
    assert tawa.jit(kernel) is kernel
    with pytest.raises(ArgumentError, match="got debug for what it has made a kernel of"):
        tawa.jit(kernel, debug=True)


# --- asserts -----------------------------------------------------------------------------------


def test_a_tile_is_asserted_with_one_branch_and_its_line():
    text = _text(tawa.jit(debug=True)(_checked).compile(np.zeros(32, np.int32), 8))
    (said,) = re.findall(r'printf\("(.*)\\n"', text)
    line = _checked.__code__.co_firstlineno + 1
    assert said == f"test_debug.py:{line}: pid (%d, %d, %d) device_assert failed: too large"


def _unreachable(x, n):
    if n > 3:
        tl.device_assert(False, "n is above 3")
    tl.store(x, n)


def test_a_false_constant_fails_where_the_program_comes_there():
    plain, debugged = tawa.jit(_unreachable), tawa.jit(debug=True)(_unreachable)
    x = np.zeros(1, np.int32)
    plain[(1,)](x, 5)
    debugged[(1,)](x, 2)
    assert x == 2
    with pytest.raises(LaunchError, match="n is above 3"):
        debugged[(1,)](x, 5)


def test_what_always_holds_is_no_code():
    @tawa.jit(debug=True)
    def kernel(x, B: tl.constexpr):
        tl.device_assert(B > 2, "B")
        tl.device_assert(tl.program_id(0) >= 0, "program")
        tl.store(x + tl.program_id(0), 1)

    assert "printf" not in _text(kernel.compile(X, 4))


def test_a_combine_function_asserts_nothing():
    @tawa.jit
    def larger(a, b):
        tl.device_assert(a > 0, "a")
        return tl.maximum(a, b)

    def kernel(x, out):
        tl.store(out, tl.reduce(tl.load(x + tl.arange(0, 32)), 0, larger))

    tawa.jit(kernel).compile(X, X)
    with pytest.raises(UnsupportedSyntax, match="in the combine function"):
        tawa.jit(debug=True)(kernel).compile(X, X)


def test_products_beside_prints_are_tried_by_two_plans():
    """By no plan does ptxas keep a product in flight across a call: the first one told so."""
    pytest.importorskip("cuda.bindings.nvrtc")

    @tawa.jit
    def kernel(a, b, c, K):
        acc = tl.zeros((128, 256), tl.float32)
        for k in range(0, K, 64):
            tl.device_print("k ", k)
            acc = tl.dot(a.load([0, k]), b.load([k, 0]), acc)
        c.store([0, 0], acc.to(tl.float16))

    shapes = {"a": (128, 64), "b": (64, 256), "c": (128, 256)}
    array = tawa.array((512, 512), "f16")
    given = {n: tawa.TensorDescriptor.from_tensor(array, list(s)) for n, s in shapes.items()}
    notes = {note.feature: note.reason for note in kernel.compile(**given, K=512).declined}
    assert "device_print or device_assert calls a function" in notes["plan 1"]
    assert "plan 2" not in notes


# --- overflow ----------------------------------------------------------------------------------


def _arithmetic(x, out, n: tl.constexpr):
    a = tl.load(x + tl.arange(0, 4))
    if n == 1:
        a = a + 5
    elif n == 2:
        a = a - 5
    elif n == 3:
        a *= 7
    elif n == 4:
        a = -a
    elif n == 5:
        a = tl.add(a, 5, sanitize_overflow=False)
    elif n == 6:
        a = (a.to(tl.int64) * 7).to(a.dtype)
    tl.store(out + tl.arange(0, 4), a)


@pytest.mark.parametrize(("n", "value", "dtype", "name"), [
    (1, LARGE - 4, np.int32, "int32 overflow detected for operation add"),
    (2, 3 - LARGE, np.int32, "int32 overflow detected for operation sub"),
    (2, 4, np.uint32, "uint32 overflow detected for operation sub"),
    (3, 2**31 // 7 + 1, np.int32, "int32 overflow detected for operation mul"),
    (3, 37, np.uint8, "uint8 overflow detected for operation mul"),
    (4, -LARGE - 1, np.int32, "int32 overflow detected for operation sub"),
])  # fmt: skip
def test_overflow_is_seen(n, value, dtype, name):
    x = np.array([0 if n != 2 else 100, 7, value, 8], dtype)
    with pytest.raises(LaunchError, match=name):
        tawa.jit(debug=True)(_arithmetic)[(1,)](x, x.copy(), n)
    tawa.jit(_arithmetic)[(1,)](x, x.copy(), n)
    tawa.jit(debug=True)(_arithmetic)[(1,)](x, x.copy(), np.int64(n), sanitize_overflow=False)


@pytest.mark.parametrize(("n", "value"), [(1, LARGE - 5), (2, 4 - LARGE), (4, -LARGE)])
def test_what_fits_is_no_overflow(n, value):
    x = np.array([0, 7, value, 8], np.int32)
    out = np.zeros(4, np.int32)
    tawa.jit(debug=True)(_arithmetic)[(1,)](x, out, n)
    np.testing.assert_array_equal(out, {1: x + 5, 2: x - 5, 4: -x}[n])


@pytest.mark.parametrize("n", [5, 6])
def test_what_is_meant_to_wrap_or_is_wide_is_not_checked(n):
    x = np.full(4, LARGE, np.int32)
    tawa.jit(debug=True)(_arithmetic)[(1,)](x, x.copy(), n)


def test_products_of_unsigned_numbers_that_wrap_64_bits_too():
    @tawa.jit(debug=True)
    def square(x):
        a = tl.load(x)
        tl.store(x, a * a)

    for value in (0x10000, 0xC0000000, 0xFFFFFFFF):
        with pytest.raises(LaunchError, match="uint32 overflow"):
            square[(1,)](np.array([value], np.uint32))
    x = np.array([0xFFFF], np.uint32)
    square[(1,)](x)
    assert x == 0xFFFE0001


def test_reductions_and_random_numbers_are_not_checked():
    @tawa.jit(debug=True)
    def kernel(x, out):
        i = tl.arange(0, 32)
        total = tl.sum(tl.load(x + i)) + tl.max(tl.cumsum(tl.load(x + i)))
        tl.store(out + i, tl.rand(7, i) + total.to(tl.float32) * 0)

    out = np.zeros(32, np.float32)
    kernel[(1,)](np.full(32, LARGE // 64, np.int32), out)
    assert np.unique(out).size == 32


def test_a_matmul_is_right_with_all_its_checks():
    @tawa.jit(debug=True)
    def matmul(a, b, c, K, B: tl.constexpr):
        row, column = tl.program_id(0) * B, tl.program_id(1) * B
        acc = tl.zeros((B, B), tl.float32)
        for k in range(0, K, B):
            tl.device_assert(k + B <= K, "K is no multiple of B")
            acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
        c.store([row, column], acc)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (128, 128)).astype(np.float16) for _ in range(2))
    c = np.zeros((128, 128), np.float32)
    given = [tawa.TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, c)]
    matmul[(2, 2)](*given, 128, B=64)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    with pytest.raises(LaunchError, match="K is no multiple of B"):
        matmul[(2, 2)](*given, 120, B=64)


# --- prints ------------------------------------------------------------------------------------


@tawa.jit
def shown(bytes_, halves, words, longs, n, f):
    i = tl.arange(0, 4)
    tl.device_print("byte ", tl.load(bytes_ + i), hex=True)
    tl.device_print("half ", tl.load(halves + i), hex=True)
    tl.device_print("word ", tl.load(words + i), hex=True)
    tl.device_print("long ", tl.load(longs + i), hex=True)
    tl.device_print("number ", n, f, n < 0, hex=True)
    print("one ", tl.load(halves), hex=True)
    print("plain ", i)


def _printed():
    halves = np.array([1, -2, np.inf, np.nan], ml_dtypes.bfloat16)
    words = np.array([1.5, -0.0, 3, 4], np.float32)
    arrays = np.array([-1, 0, 127, -128], np.int8), halves, words, np.array([-2, 3, 4, 5])
    bits = [
        *(f"byte 0x{x:02x}" for x in (0xFF, 0, 0x7F, 0x80)),
        *(f"half 0x{x:04x}" for x in (0x3F80, 0xC000, 0x7F80, 0x7FC0)),
        *(f"word 0x{x:08x}" for x in (0x3FC00000, 0x80000000, 0x40400000, 0x40800000)),
        *(f"long 0x{x:016x}" for x in (2**64 - 2, 3, 4, 5)),
        *("number 0xfffffffe", "number 0x3f800000", "number 0x1", "one 0x3f80"),
        *("plain 0", "plain 1", "plain 2", "plain 3"),
    ]
    return {**dict(zip(shown.arg_names, arrays)), "n": -2, "f": 1.0}, bits


def test_the_simulator_prints_bits(capsys):
    arguments, bits = _printed()
    shown[(1,)](**arguments)
    text = re.sub(r"[\[\]\n]", "", capsys.readouterr().out)
    found: list[str] = []
    for group in text.split("pid (0, 0, 0) ")[1:]:
        name, *items = group.split()
        found += [f"{name} {item}" for item in items]
    assert found == bits


@needs_compiler
def test_the_generated_text_prints_bits(capsys):
    arguments, bits = _printed()
    emulate(_source(shown.compile(**arguments)), arguments, (1, 1, 1))
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.removeprefix("pid (0, 0, 0) ") for line in lines) == sorted(bits)


@needs_compiler
def test_the_generated_text_stops_at_an_assert(capfd):
    kernel = tawa.jit(debug=True)(_checked)
    compiled = kernel.compile(X, 31)
    with pytest.raises(AssertionError, match="trap"):
        emulate(_source(compiled), {"x": X, "limit": 31}, (1, 1, 1))
    emulate(_source(compiled), {"x": X - 1, "limit": 31}, (1, 1, 1))


def test_a_print_names_the_program():
    """The blocks of a persistent kernel compute several programs."""

    @tawa.jit
    def kernel(x_desc, out_desc):
        row = tl.program_id(0) * 64
        tl.device_print("row ", row)
        for column in range(0, 256, 64):
            out_desc.store([row, column], x_desc.load([row, column]) * 2)

    x, out = (tawa.TensorDescriptor.from_tensor(np.zeros((256, 256), "f2"), [64, 64]) for _ in "xo")
    assert not kernel.compile(x, out).plan.persistent
    with pytest.raises(PlanError, match="name the program"):
        kernel.compile(x, out, persistent=True)
