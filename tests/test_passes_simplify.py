"""Folding, sharing, hoisting and dropping, one fact a test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import scf

import tawa.language as tl
from frontend_kernels import of
from tawa.frontend import build
from tawa.ir import parse, tile
from tawa.ir.types import SCALARS, element_type
from tawa.passes.fold import constant_of
from tawa.passes.simplify import simplify_kernel
from tile_shapes import SHAPES, F, T, dot, finish, give, half, load, loop, number, op, shape, store
from tile_shapes import when as branch


def simplified(arguments: str, *body: str | list[str]) -> tile.Kernel:
    kernel = parse(shape(arguments, *body).text("kernel"))
    simplify_kernel(kernel)
    return kernel


def stored(kernel: tile.Kernel) -> list[str]:
    """What is stored at the end: names, numbers or functions of what the store's operands are."""
    last = [op for op in kernel.walk() if isinstance(op, tile.Store)][-1]
    return describe(last.value)


def describe(value: object) -> str:
    owner = value.owner
    match owner:
        case tile.Constant():
            return str(constant_of(value))
        case tile.Elementwise():
            return f"{owner.function.data}({', '.join(map(describe, owner.inputs))})"
        case _:
            return value.name_hint or owner.name


def scalar_store(value: str, kind: str = "i32") -> str:
    return f"tile.store %p, %{value} : !tile.ptr<i32>, {kind}"


def folded(*body: str) -> str:
    return stored(simplified("*p K L", *body, scalar_store("r")))


@pytest.mark.parametrize(
    ("function", "left", "right", "expected"),
    [
        ("add", "K", "c0", "K"),
        ("add", "c0", "K", "K"),
        ("sub", "K", "c0", "K"),
        ("sub", "c0", "K", "sub(0, K)"),
        ("sub", "K", "K", "0"),
        ("mul", "K", "c1", "K"),
        ("mul", "c0", "K", "0"),
        ("idiv", "K", "c1", "K"),
        ("irem", "K", "c1", "0"),
        ("and", "K", "K", "K"),
        ("xor", "K", "K", "0"),
        ("max", "K", "K", "K"),
        ("shl", "K", "c0", "K"),
        ("add", "c16", "c16", "32"),
        ("idiv", "cm7", "c2", "-3"),
        ("irem", "cm7", "c2", "-1"),
        ("mul", "big", "c2", "-2"),
        ("add", "K", "L", "add(K, L)"),
    ],
)
def test_integer_facts(function: str, left: str, right: str, expected: str) -> None:
    numbers = [number("c1", 1), number("c2", 2), number("cm7", -7), number("big", 2147483647)]
    assert folded(*numbers, op("r", function, left, right)) == expected


def wide(result: str, value: str) -> str:
    return f"%{result} = tile.cast %{value} : (i32) -> i64"


@pytest.mark.parametrize("function", ["idiv", "irem"])
@pytest.mark.parametrize(
    ("dividend", "divisor", "narrow"),
    [
        ("pid", wide("b", "K"), "{}(pid, K)"),
        ("pid", number("b", 12, "i64"), "{}(pid, 12)"),
        ("K", wide("b", "L"), None),  # it may be the least number, over -1
        ("pid", number("b", 1 << 40, "i64"), None),
    ],
)
def test_quotients_of_widened_numbers_are_narrow(
    function: str, dividend: str, divisor: str, narrow: str | None
) -> None:
    kernel = simplified(
        "*p K L",
        wide("a", dividend),
        divisor,
        op("q", function, "a", "b", kind="i64"),
        "%r = tile.cast %q : (i64) -> i32",
        scalar_store("r"),
    )
    (made,) = (op for op in kernel.walk() if isinstance(op, tile.Elementwise))
    assert (element_type(made.result.type) == SCALARS["i32"]) == (narrow is not None)
    assert narrow is None or describe(made.result) == narrow.format(function)


def test_float_zero_is_not_neutral() -> None:
    """-0.0 + 0.0 is 0.0."""
    kernel = simplified(
        "out *p",
        "%x = tile.cast %m : (i32) -> f32",
        "%z = tile.constant {value = #builtin.int<0>} : f32",
        op("s", "add", "x", "z", kind="f32"),
        "%r = tile.cast %s : (f32) -> i32",
        scalar_store("r"),
    )
    assert any(
        isinstance(op, tile.Elementwise) and op.function.data == "add" for op in kernel.walk()
    )


@pytest.mark.parametrize("kind", ["i8", "u8", "i16", "i32", "u32", "i64"])
@given(data=st.data())
def test_constants_fold_as_numpy_wraps(kind: str, data: st.DataObject) -> None:
    import numpy as np

    dtype = np.dtype(kind.replace("u", "uint").replace("i", "int").replace("uintnt", "uint"))
    info = np.iinfo(dtype)
    values = st.integers(int(info.min), int(info.max))
    a, b = data.draw(values), data.draw(values)
    function = data.draw(st.sampled_from(["add", "sub", "mul", "min", "max", "and", "xor"]))
    spelled = str(SCALARS[kind])
    kernel = simplified(
        "*p",
        number("a", a, spelled),
        number("b", b, spelled),
        op("s", function, "a", "b", kind=spelled),
        f"%r = tile.bitcast %s : ({spelled}) -> {spelled}",
        f"%q = tile.ptr_add %p, %r : (!tile.ptr<i32>, {spelled}) -> !tile.ptr<i32>",
        "tile.store %q, %m : !tile.ptr<i32>, i32",
    )
    from tawa.ir.functions import FUNCTIONS

    with np.errstate(all="ignore"):
        expected = FUNCTIONS[function].numpy(np, np.array(a, dtype), np.array(b, dtype))
    value = next(op for op in kernel.walk() if isinstance(op, tile.Bitcast)).value
    assert constant_of(value) == int(expected)


def test_equal_statements_are_one() -> None:
    kernel = simplified(
        "*p K L",
        op("x", "mul", "K", "L"),
        op("y", "mul", "L", "K"),
        op("r", "sub", "x", "y"),
        op("s", "add", "x", "y"),
        op("t", "add", "s", "r"),
        scalar_store("t"),
    )
    assert stored(kernel) == "add(mul(K, L), mul(K, L))"
    assert sum(isinstance(op, tile.Elementwise) for op in kernel.walk()) == 2


def test_tensors_of_scalars_are_computed_as_scalars() -> None:
    kernel = simplified(
        "out K",
        "%kt = tile.splat %K : (i32) -> tensor<16x16xi32>",
        "%mt = tile.splat %m : (i32) -> tensor<16x16xi32>",
        op("sum", "add", "kt", "mt", kind="tensor<16x16xi32>"),
        f"%h = tile.cast %sum : (tensor<16x16xi32>) -> {T}",
        store("out", "m", "c0", "h"),
    )
    value = next(op for op in kernel.walk() if isinstance(op, tile.DescStore)).value
    assert isinstance(value.owner, tile.Splat)


def test_transposes_undo_one_another() -> None:
    swap = "{permutation = [#builtin.int<1>, #builtin.int<0>]}"
    kernel = simplified(
        "x out",
        load("a", "x", "m", "c0"),
        f"%b = tile.transpose %a {swap} : ({T}) -> {T}",
        f"%c = tile.transpose %b {swap} : ({T}) -> {T}",
        store("out", "m", "c0", "c"),
    )
    assert not any(isinstance(op, tile.Transpose) for op in kernel.walk())


def test_scalars_leave_the_loop_and_tensors_stay() -> None:
    kernel = simplified(
        "x out K L",
        loop(
            [
                op("kl", "mul", "K", "L"),
                load("a", "x", "k", "kl"),
                f"%z = tile.constant {{value = #builtin.int<1>}} : {T}",
                op("b", "add", "a", "z", kind=T),
                store("out", "k", "c0", "b"),
            ]
        ),
    )
    (around,) = (op for op in kernel.walk() if isinstance(op, scf.ForOp))
    inside = [op.name for op in around.body.block.ops]
    assert "tile.constant" in inside
    names = {r.name_hint for op in around.body.block.ops for r in op.results}
    assert "kl" not in names


def test_load_stays_in_a_loop_that_stores() -> None:
    kernel = simplified(
        "x out K",
        loop([load("a", "x", "m", "c0"), store("out", "k", "c0", "a")]),
    )
    (around,) = (op for op in kernel.walk() if isinstance(op, scf.ForOp))
    assert any(isinstance(op, tile.DescLoad) for op in around.body.block.ops)


def test_decided_branch_and_empty_loop_vanish() -> None:
    kernel = simplified(
        "x out K",
        op("yes", "lt", "c0", "c16", to="i1"),
        branch("yes", [load("a", "x", "m", "c0"), store("out", "m", "c0", "a")]),
        loop([load("b", "x", "m", "k"), store("out", "m", "k", "b")], first="c16", end="c16"),
    )
    assert not any(isinstance(op, (scf.IfOp, scf.ForOp)) for op in kernel.walk())
    assert sum(isinstance(op, tile.DescStore) for op in kernel.walk()) == 1


def test_a_multiple_is_never_what_it_does_not_divide() -> None:
    kernel = simplified(
        "x out K",
        number("c8", 8),
        op("r", "mul", "K", "c16"),
        op("no", "eq", "r", "c8", to="i1"),
        branch("no", [load("a", "x", "m", "c0"), store("out", "m", "c0", "a")]),
    )
    assert not any(isinstance(op, (scf.IfOp, tile.DescStore)) for op in kernel.walk())


def test_what_is_equal_to_a_number_is_that_number() -> None:
    kernel = simplified(
        "x out K",
        op("none", "eq", "K", "c0", to="i1"),
        branch(
            "none",
            [
                op("more", "gt", "K", "c0", to="i1"),
                *branch("more", [load("a", "x", "m", "K"), store("out", "m", "K", "a")]),
                load("b", "x", "m", "K"),
                store("out", "m", "K", "b"),
            ],
        ),
    )
    (stored,) = (op for op in kernel.walk() if isinstance(op, tile.DescStore))
    assert constant_of(stored.offsets[1]) == 0


def test_value_handed_on_unchanged_is_its_first() -> None:
    kernel = simplified(
        "x out K",
        loop(
            [
                load("a", "x", "m", "k"),
                half("h", "same"),
                store("out", "m", "k", "h"),
                give("same"),
            ],
            carry={"last": ("same", "zero")},
        ),
        finish("last"),
    )
    (around,) = (op for op in kernel.walk() if isinstance(op, scf.ForOp))
    assert not around.results


def test_what_is_carried_for_itself_is_dropped() -> None:
    kernel = simplified(
        "x y out K",
        loop(
            [
                load("a", "x", "m", "k"),
                load("b", "y", "k", "c0"),
                dot("p2", "a", "b", "p1"),
                dot("q2", "a", "b", "q1"),
                give("p2", "q2"),
            ],
            carry={"p": ("p1", "zero"), "q": ("q1", "zero")},
        ),
        finish("q"),
    )
    (around,) = (op for op in kernel.walk() if isinstance(op, scf.ForOp))
    assert [result.name_hint for result in around.results] == ["q"]
    assert sum(isinstance(op, tile.Dot) for op in kernel.walk()) == 1


def test_while_loses_what_it_need_not_carry() -> None:
    kernel = simplified(
        "out K *p",
        f"%n, %t = scf.while (%i = %c0, %acc = %zero) : (i32, {F}) -> (i32, {F}) {{",
        op("go", "lt", "i", "K", to="i1"),
        f"scf.condition(%go) %i, %acc : i32, {F}",
        "} do {",
        f"^bb0(%j : i32, %sum : {F}):",
        op("next", "add", "j", "c16"),
        op("more", "add", "sum", "sum", kind=F),
        f"scf.yield %next, %more : i32, {F}",
        "}",
        scalar_store("n"),
    )
    (around,) = (op for op in kernel.walk() if isinstance(op, scf.WhileOp))
    assert len(around.results) == len(around.arguments) == 1


def test_loop_without_effect_is_dropped() -> None:
    kernel = simplified("x out K", loop([load("a", "x", "m", "k")]), finish("zero"))
    assert not any(isinstance(op, scf.ForOp) for op in kernel.walk())


@pytest.mark.parametrize("name", list(SHAPES))
def test_twice_is_once(name: str) -> None:
    kernel = parse(SHAPES[name].text(name))
    simplify_kernel(kernel)
    once = str(kernel)
    simplify_kernel(kernel)
    assert str(kernel) == once


def either_way(o_ptr, n, m, APART: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    if m > n:
        index = tl.max_contiguous(at % n, 64)
    else:
        index = at % m if APART else at % n
    tl.store(o_ptr + at, index)


@pytest.mark.parametrize("apart", [False, True])
def test_what_both_sides_hand_on_is_computed_before(apart):
    """Nothing is left of the condition, nor of what one side promises."""
    signature = of(o_ptr="i32*", n="i32", m="i32", APART=apart)
    kernel = build(either_way, signature, {})
    simplify_kernel(kernel)
    branches = [op for op in kernel.walk() if isinstance(op, scf.IfOp)]
    promises = [op for op in kernel.walk() if "max_contiguous" in op.attributes]
    assert (len(branches), len(promises)) == ((1, 1) if apart else (0, 0))


def doubled(o_ptr, n, m, TIMES: tl.constexpr):
    index = tl.arange(0, 64) % n
    if m > n:
        for _ in tl.static_range(TIMES):
            index = index * index + index
    else:
        for _ in tl.static_range(TIMES):
            index = index * index + index
    tl.store(o_ptr + tl.arange(0, 64), index)


def test_what_both_sides_read_often_is_compared_once():
    """Each of the statements reads the one before three times: their paths are 3^60."""
    kernel = build(doubled, of(o_ptr="i32*", n="i32", m="i32", TIMES=60), {})
    simplify_kernel(kernel)
    assert not any(isinstance(op, scf.IfOp) for op in kernel.walk())
