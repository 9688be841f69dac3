"""Polynomials of scalars, and when two blocks are proved apart."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf

from tawa.analysis.memory import box_of, difference, may_meet, meetings, roots_of, writers
from tawa.analysis.polynomial import Leaf, polynomial, trip_count
from tawa.analysis.roles import partition
from tawa.ir import parse, tile
from tile_shapes import F, T, load, loop, number, op, shape, store


def kernel_of(arguments: str, *body: str | list[str]) -> tile.Kernel:
    return parse(shape(arguments, *body).text("kernel"))


def results(kernel: tile.Kernel) -> dict[str, object]:
    return {r.name_hint: r for op in kernel.walk() for r in op.results if r.name_hint}


def test_forms() -> None:
    kernel = kernel_of(
        "out K",
        op("twice", "add", "m", "m"),
        op("less", "sub", "twice", "c16"),
        op("four", "shl", "less", "c16"),
        op("minus", "neg", "less"),
        op("product", "mul", "m", "K"),
    )
    values = results(kernel)
    pid, k = Leaf(values["pid"]), Leaf(kernel.body.block.args[-1])
    assert polynomial(values["less"]).terms == {(pid,): 32, (): -16}
    assert polynomial(values["four"]).terms == {(pid,): 32 << 16, (): -16 << 16}
    assert polynomial(values["minus"]).terms == {(pid,): -32, (): 16}
    assert list(polynomial(values["product"]).terms.values()) == [16]
    assert polynomial(values["product"]).leaves == {pid, k}
    assert (polynomial(values["less"]) - polynomial(values["twice"])).as_constant == -16


def test_trip_counts() -> None:
    kernel = kernel_of(
        "out K",
        number("c40", 40),
        op("end", "add", "K", "c40"),
        loop([], index="i", end="c40"),
        loop([], index="j", first="K", end="end"),
        loop([], index="k", end="K"),
        loop([], index="l", first="c40", end="c16"),
    )
    counts = [trip_count(op) for op in kernel.walk() if isinstance(op, scf.ForOp)]
    assert counts == [3, 3, None, 0]


def pair(*body: str | list[str]) -> tuple[tile.DescLoad, tile.DescStore]:
    kernel = kernel_of("out K", number("c32", 32), number("c48", 48), *body)
    (one,) = (op for op in kernel.walk() if isinstance(op, tile.DescLoad))
    (other,) = (op for op in kernel.walk() if isinstance(op, tile.DescStore))
    return one, other


@pytest.mark.parametrize(
    ("body", "meet"),
    [
        # the same block; its neighbour in either dimension; half over it
        ((load("a", "out", "m", "c0"), store("out", "m", "c0", "a")), True),
        ((load("a", "out", "m", "c16"), store("out", "m", "c0", "a")), False),
        (
            (
                op("down", "add", "m", "c16"),
                load("a", "out", "m", "c0"),
                store("out", "down", "c0", "a"),
            ),
            False,
        ),
        (
            (
                number("c8", 8),
                op("down", "add", "m", "c8"),
                load("a", "out", "m", "c0"),
                store("out", "down", "c0", "a"),
            ),
            True,
        ),
        # unrelated rows
        ((load("a", "out", "m", "c0"), store("out", "K", "c0", "a")), True),
        # one loop: the store of one iteration against the loads of all others
        (loop([load("a", "out", "m", "k"), store("out", "m", "k", "a")], end="c32"), True),
        (loop([load("a", "out", "m", "k"), store("out", "m", "c48", "a")], end="c48"), False),
        (loop([load("a", "out", "m", "k"), store("out", "m", "c48", "a")]), True),
    ],
)
def test_blocks_apart(body: tuple[str, ...], meet: bool) -> None:
    one, other = pair(*body)
    assert may_meet(one, other) is meet


def test_difference_of_unrelated_trips() -> None:
    one, other = pair(loop([load("a", "out", "m", "k"), store("out", "m", "k", "a")], end="c48"))
    around = [one.parent_op()]
    column, same = box_of(one).offsets[1], box_of(other).offsets[1]
    assert difference(column, same, []) == (0, 0)
    assert difference(column, same, around) == (-32, 32)


def test_roots_through_loops_and_choices() -> None:
    kernel = kernel_of(
        "*p *q K",
        op("first", "lt", "m", "K", to="i1"),
        '%either = tile.elementwise "select"(%first, %p, %q) : '
        "(i1, !tile.ptr<i32>, !tile.ptr<i32>) -> !tile.ptr<i32>",
        "%last = scf.for %k = %c0 to %K step %c16 iter_args(%at = %either) -> "
        "(!tile.ptr<i32>) : i32 {",
        "%next = tile.ptr_add %at, %k : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>",
        "scf.yield %next : !tile.ptr<i32>",
        "}",
    )
    values = results(kernel)
    assert roots_of(values["last"]) == {0, 1}
    assert roots_of(values["next"]) == {0, 1}
    assert roots_of(values["either"]) == {0, 1}


def test_other_argument_needs_a_guard() -> None:
    kernel = kernel_of("x out", load("a", "x", "m", "c0"), store("out", "m", "c0", "a"))
    (one,) = (op for op in kernel.walk() if isinstance(op, tile.DescLoad))
    meeting = meetings(one, writers(kernel))
    assert meeting.writers == ()
    assert meeting.guards == {(0, 1)}


def test_unknown_address_meets_everything() -> None:
    kernel = kernel_of(
        "x out *table",
        "%wide = tile.cast %m : (i32) -> i64",
        "%p = tile.bitcast %wide : (i64) -> !tile.ptr<i32>",
        "tile.store %p, %m : !tile.ptr<i32>, i32",
        load("a", "x", "m", "c0"),
        store("out", "m", "c0", "a"),
    )
    found = partition(kernel)
    assert found.payloads == ()
    assert "an address is not known" in found.declined[0][1]


def test_disjoint_halves_of_one_tensor_are_loaded_ahead() -> None:
    kernel = kernel_of(
        "out",
        number("c48", 48),
        loop(
            [
                load("a", "out", "m", "k"),
                f"%af = tile.cast %a : ({T}) -> {F}",
                f"%h = tile.cast %af : ({F}) -> {T}",
                store("out", "m", "c48", "h"),
            ],
            end="c48",
        ),
    )
    found = partition(kernel)
    assert [payload.names for payload in found.payloads] == [("a",)]
    assert found.guards == frozenset()
