# ruff: noqa: SIM117  (a context that refuses stands around the one that raises)
"""Tile IR without Python source: what it means, what it refuses, and that there is one builder."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tawa
import tawa.language as tl
from tawa.errors import (
    DefinitionError,
    DescriptorError,
    ShapeUnsupported,
    TypeMismatch,
    UnsupportedSyntax,
)
from tawa.frontend import build
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg, ScalarArg
from tawa.ir import parse
from tawa.ir.build import KernelBuilder
from tawa.ir.text import text_of
from tawa.runtime.tile_function import signature_of
from tawa.simulator import simulate


def ran(kernel, grid=(1, 1, 1), **arguments):
    """Run tile IR by the oracle; arrays are changed in place."""
    simulate(kernel, grid, arguments, level="tile")


def here() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    return frame.f_back.f_lineno


# --- the same IR as from source -------------------------------------------------------------------


def written(x, out, n, B: tl.constexpr):
    where = tl.program_id(0) * B + tl.arange(0, B)
    inside = where < n
    value = tl.load(x + where, mask=inside, other=0.0)
    total = tl.sum(value, 0)
    best = tl.max(tl.where(inside, value, float("-inf")), 0)
    for _ in range(n, 0, -3):
        total = total * 0.5
    if best > 0:
        total = total + best
    else:
        total = total - 1
    while total > 8:
        total = total / 2
    tl.store(out + tl.program_id(0), total)


def built(b: int):
    k = KernelBuilder("written")
    x, out = k.pointer("x", "f32"), k.pointer("out", "f32", aligned=False)
    n = k.scalar("n", "i32")
    where = (k.program_id(0) * b + k.arange(0, b)).named("where")
    inside = (where < n).named("inside")
    value = k.load(x + where, inside, 0.0).named("value")
    total = value.sum(0).named("total")
    best = k.where(inside, value, float("-inf")).max(0).named("best")
    with k.range(n, 0, -3, carry=[total], name="_") as loop:
        loop.yield_((loop.carried[0] * 0.5).named("total"))
    total = loop.results[0]
    with k.if_(best > 0) as branch:
        branch.yield_((total + best).named("total"))
    with branch.otherwise():
        branch.yield_((total - 1).named("total"))
    total = branch.results[0]
    with k.while_([total], lambda total: total > 8) as loop:
        loop.yield_((loop.carried[0] / 2).named("total"))
    total = loop.results[0]
    k.store(out + k.program_id(0), total)
    return k.finish()


def test_built_and_written_kernels_have_one_text():
    signature = {
        "x": PointerArg("f32", True),
        "out": PointerArg("f32"),
        "n": ScalarArg("i32"),
        "B": ConstantArg(16),
    }
    text = text_of(built(16)).replace(', label = "_"', "").replace(' {label = "_"}', "")
    assert text == text_of(build(written, signature, {}))


def test_text_with_names_reads_back():
    kernel = built(16)
    assert 'label = "_"' in text_of(kernel)
    assert text_of(parse(text_of(kernel))) == text_of(kernel)


# --- meaning --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from("+-*&|^<>mM=!~r"), min_size=1, max_size=6), st.integers(0, 2**31 - 1)
)
def test_operators_compute_what_numpy_does(symbols, seed):
    rng = np.random.default_rng(seed)
    one, other = (rng.integers(-99, 99, 16).astype(np.int32) for _ in range(2))
    k = KernelBuilder("chain")
    a, b, out = (k.pointer(name, "i32") for name in ("a", "b", "out"))
    where = k.arange(0, 16)
    x, y = k.load(a + where), k.load(b + where)
    value, expected = x, one
    for symbol in symbols:
        match symbol:
            case "<":
                value, expected = (
                    k.where(value < y, value, y),
                    np.where(expected < other, expected, other),
                )
            case ">":
                value, expected = (
                    k.where(value >= 3, 7, value),
                    np.where(expected >= 3, 7, expected),
                )
            case "=":
                value, expected = (
                    k.where(value == y, 1, value),
                    np.where(expected == other, 1, expected),
                )
            case "!":
                value, expected = k.where(value != 5, y, 1), np.where(expected != 5, other, 1)
            case "~":
                value, expected = ~-value, ~-expected
            case "r":
                value, expected = (
                    7 - (3 & value | (1 << (y & 3))),
                    7 - (3 & expected | (1 << (other & 3))),
                )
            case "m":
                value, expected = k.minimum(value, y), np.minimum(expected, other)
            case "M":
                value, expected = k.maximum(5, value), np.maximum(5, expected)
            case _:
                function = {"+": "__add__", "-": "__sub__", "*": "__mul__", "&": "__and__"}
                name = function.get(symbol) or {"|": "__or__", "^": "__xor__"}[symbol]
                value, expected = getattr(value, name)(y), getattr(expected, name)(other)
    k.store(out + where, value)
    result = np.zeros(16, np.int32)
    with np.errstate(all="ignore"):
        ran(k.finish(), a=one, b=other, out=result)
    np.testing.assert_array_equal(result, expected)


def test_shapes_and_reductions():
    k = KernelBuilder("shapes")
    x, out, places = k.pointer("x", "f32"), k.pointer("out", "f32"), k.pointer("places", "i32")
    rows, columns = k.arange(0, 8), k.arange(0, 16)
    tensor = k.load(x + rows[:, None] * 16 + columns[None, :])
    sums = k.reduce(tensor.T, 0, lambda a, b: a + b)  # of each row
    best, where = k.reduce(
        (tensor, columns[None, :].broadcast_to(8, 16)),
        1,
        lambda a, i, b, j: (k.where(a > b, a, b), k.where(a > b, i, j)),
    )
    running = k.scan(tensor, 1, "add").reshape(8, 2, 8).permute(1, 0, 2).max(0).min(1)
    k.store(out + rows, sums + best + running)
    k.store(places + rows, where)
    given = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    found, at = np.zeros(8, np.float32), np.zeros(8, np.int32)
    ran(k.finish(), x=given, out=found, places=at)
    running = given.cumsum(1).reshape(8, 2, 8).max(1).min(1)
    np.testing.assert_allclose(found, given.sum(1) + given.max(1) + running, rtol=1e-5)
    np.testing.assert_array_equal(at, given.argmax(1))


def test_every_function_of_the_language_is_a_call():
    k = KernelBuilder("calls")
    x, out, n = k.pointer("x", "f32"), k.pointer("out", "f32"), k.scalar("n", "i64")
    where = k.arange(0, 16)
    value = k.call("exp2", k.load(x + where))
    value = k.call("clamp", value, 0.5, 1.5)
    first, second = k.call("split", value.reshape(8, 2))
    value = k.call("join", second, first).reshape(16)
    value = k.call("gather", value, (where + 1) % 16, 0)
    k.call("assume", n > 3)
    desc = k.make_descriptor(out, [n, 16], [16, 1], [1, 16])
    desc.store([0, 0], value.reshape(1, 16))
    k.atomic("add", out + where + desc.shape[0] * 0, k.full([16], 1, "f32"))
    given = np.linspace(-2, 2, 16, dtype=np.float32)
    found = np.zeros((4, 16), np.float32)
    ran(k.finish(), x=given, out=found, n=4)
    expected = np.roll(np.clip(np.exp2(given), 0.5, 1.5).reshape(8, 2)[:, ::-1].ravel(), -1) + 1
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


# --- what breaks the form -------------------------------------------------------------------------


def refused(kind, line: int, words: str):
    """A context in which an error of `kind` is raised at `line` of this file."""

    class Refused:
        def __enter__(self):
            return self

        def __exit__(self, raised, error, trace):
            assert raised is kind, error
            assert words in error.what, error.what
            assert (error.place.file, error.place.line) == (__file__, line), error
            return True

    return Refused()


@pytest.fixture
def k():
    return KernelBuilder("broken")


def test_values_stay_in_their_region(k):
    n = k.scalar("n", "i32")
    with k.range(0, n) as loop:
        inner = loop.index + 1
    with refused(DefinitionError, here() + 1, "int32 is used outside of its region"):
        inner + 1
    with k.if_(n > 0):
        inner = n * 2
    with refused(DefinitionError, here() + 1, "used outside of its region"):
        k.range(0, inner).__enter__()
    with refused(DefinitionError, here() + 1, "in a function of elements and was made outside"):
        k.reduce(k.arange(0, 8), 0, lambda a, b: a + b + n)


def test_values_stay_in_their_kernel(k):
    other = KernelBuilder("other").scalar("n", "i32")
    with refused(DefinitionError, here() + 1, "int32 belongs to another kernel than broken"):
        k.scalar("n", "i32") + other


def test_loops_yield_what_they_carry(k):
    n, x = k.scalar("n", "i32"), k.constant(0, "f32")
    with refused(DefinitionError, here() + 1, "this loop yields 0 values and carries 1"):
        with k.range(0, n, carry=[x]):
            pass


def test_loops_yield_once(k):
    n, x = k.scalar("n", "i32"), k.constant(0, "f32")
    with k.range(0, n, carry=[x]) as loop:
        loop.yield_(loop.carried[0] + 1)
        with refused(DefinitionError, here() + 1, "this loop yields twice"):
            loop.yield_(loop.carried[0])
        with refused(DefinitionError, here() + 1, "results of a loop are asked for in its body"):
            loop.results  # noqa: B018
    with refused(DefinitionError, here() + 1, "this loop yields after its end"):
        loop.yield_(x)


def test_carried_values_keep_their_type(k):
    n, x = k.scalar("n", "i32"), k.constant(0, "f32")
    with refused(TypeMismatch, here() + 1, "carried value 0 (top) changes its type: fp32 before"):
        with k.range(0, n, carry={"top": x}) as loop:
            loop.yield_(loop.carried[0].to("f16"))


def test_branches_have_both_sides(k):
    n = k.scalar("n", "i32")
    line = here() + 1
    with k.if_(n > 0) as branch:
        branch.yield_(n + 1)
    with refused(DefinitionError, here() + 1, "a branch of one side has no results"):
        branch.results  # noqa: B018
    n * 2
    with refused(DefinitionError, here() + 1, "other side of a branch does not stand behind"):
        with branch.otherwise():
            branch.yield_(n)
    with refused(DefinitionError, line, "a branch of one side yields values"):
        k.finish()


def test_branches_yield_the_same_types(k):
    n = k.scalar("n", "i32")
    with k.if_(n > 0) as branch:
        branch.yield_(n + 1)
    with refused(TypeMismatch, here() + 1, "the sides of a branch yield (int32) and (fp32)"):
        with branch.otherwise():
            branch.yield_(1.5)


def test_names_are_of_one_statement_each(k):
    x = k.pointer("x", "f32")
    k.load(x, name="a")
    with refused(DefinitionError, here() + 1, "two statements are named a"):
        k.load(x + 1, name="a")
    with refused(DefinitionError, here() + 1, "'a + b' cannot name a statement"):
        k.load(x, name="a + b")
    for name in ("x", "lambda", "__tawa_at", "two words"):
        with refused(DefinitionError, here() + 1, f"{name!r} cannot name an argument"):
            k.scalar(name, "i32")
    with refused(DefinitionError, here() + 1, "'class' cannot name a kernel"):
        KernelBuilder("class")


def test_types_are_checked_as_in_the_language(k):
    a, b = k.zeros([16, 16], "f16"), k.zeros([32, 16], "f16")
    with refused(TypeMismatch, here() + 1, "the operands of tl.dot do not fit"):
        k.dot(a, b)
    with refused(TypeMismatch, here() + 1, "do not fit together"):
        a + b
    with refused(TypeMismatch, here() + 1, "a ndarray cannot stand in a kernel"):
        a + np.arange(16)
    with refused(TypeMismatch, here() + 1, "the combine function is constant 'foo'"):
        a.maker.reduce(a, 0, "foo")
    with refused(TypeMismatch, here() + 1, "the combine function gives fp32"):
        k.reduce(k.arange(0, 8), 0, lambda a, b: a * 1.5)
    with refused(ShapeUnsupported, here() + 1, "has an extent of 7"):
        k.zeros([7], "f32")
    with refused(TypeMismatch, here() + 1, "'f33' is not an element type"):
        k.pointer("y", "f33")
    with refused(DescriptorError, here() + 1, "the last stride of a descriptor"):
        k.make_descriptor(k.pointer("x", "f16"), [16, 16], [1, 16], [16, 16])
    with refused(TypeMismatch, here() + 1, "a bound of this loop is fp32"):
        k.range(0, k.constant(3, "f32")).__enter__()


def test_promises_are_what_the_compiler_uses(k):
    with refused(DefinitionError, here() + 1, "m is said to be divisible by 4"):
        k.scalar("m", "i32", divisible=4)
    with refused(DefinitionError, here() + 1, "f is said to be divisible by 16"):
        k.scalar("f", "f32", divisible=16)


def test_the_run_alone_knows_what_is_true(k):
    n = k.scalar("n", "i32")
    with refused(DefinitionError, here() + 1, "has no truth value while the kernel is built"):
        if n > 0:
            pass
    with refused(TypeMismatch, here() + 1, "the condition of this branch is int1[8]"):
        k.if_(k.arange(0, 8) > 3).__enter__()


def test_what_is_not_there_is_refused_by_name(k):
    with refused(DefinitionError, here() + 1, "'exq2' is no operation of the language"):
        k.call("exq2", 1.0)
    with refused(DefinitionError, here() + 1, "'sort' is no operation of the language"):
        k.call("sort", k.arange(0, 8))
    with refused(DefinitionError, here() + 1, "a loop has no hint 'stages'"):
        k.range(0, 4, stages=2).__enter__()
    k.finish()
    with refused(DefinitionError, here() + 1, "broken is finished, and gets another statement"):
        k.arange(0, 8)


def test_arguments_are_what_is_declared():
    k = KernelBuilder("declared")
    k.descriptor("d", "bf16", (64, 32), padding="nan")
    k.pointer("p", tl.float8e5)
    k.scalar("s", "u64", divisible=8)
    assert signature_of(k.finish()) == {
        "d": DescriptorArg("bf16", (64, 32), "nan"),
        "p": PointerArg("f8e5m2", True),
        "s": ScalarArg("u64", by_eight=True),
    }


# --- functions of the language in a built kernel --------------------------------------------------


def scaled(x, y, factor: tl.constexpr):
    product = x * factor + y
    if factor > 2:
        product = product.to(tl.float32)
    return product, tl.sum(product, 0)


def wrong(x):
    y = x + 1
    return tl.dot(y, y)


def test_functions_of_the_language_are_compiled_into_a_built_kernel():
    k = KernelBuilder("inlined")
    x, out = k.pointer("x", "i32"), k.pointer("out", "f32")
    where = k.arange(0, 16)
    value = k.load(x + where)
    with k.range(0, 3, carry=[k.zeros([16], "f32")]) as loop:
        product, total = tawa.inline(k, scaled, value, loop.index, factor=3)
        largest = tawa.inline(k, tl.flip, tawa.inline(k, tl.sort, product))
        loop.yield_(loop.carried[0] + largest + total)
    k.store(out + where, loop.results[0])
    given, found = np.random.default_rng(0).integers(-9, 9, 16), np.zeros(16, np.float32)
    ran(k.finish(), x=given.astype(np.int32), out=found)
    expected = sum(np.sort(3 * given + i)[::-1] + (3 * given + i).sum() for i in range(3))
    np.testing.assert_array_equal(found, expected)


def test_errors_of_an_inlined_function_name_both_places(k):
    line = here() + 2
    with pytest.raises(TypeMismatch, match=r"tl\.dot takes two matrices") as raised:
        tawa.inline(k, wrong, k.arange(0, 16))
    assert raised.value.place.line == wrong.__code__.co_firstlineno + 2
    assert [(call.file, call.line) for call in raised.value.calls] == [(__file__, line)]
    with refused(UnsupportedSyntax, here() + 1, "3 cannot be compiled into a kernel"):
        tawa.inline(k, 3)
    k.arange(0, 8)
