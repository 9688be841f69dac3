"""The concurrent run of aref IR: rings, several consumers, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tawa import ir
from tawa.errors import ProtocolError
from tawa.simulator import simulate

INT = "#builtin.int"
RING = "!aref.aref<[tensor<4xi32>, i32]>"
SLOT = "!aref.slot<[tensor<4xi32>, i32]>"
PUT = f"%slot = aref.put_enter %ring : ({RING}) -> {SLOT}\n"
PUBLISH = f"aref.put_exit %slot(%v, %i) : {SLOT}, tensor<4xi32>, i32\n"
GET = f"%t, %k = aref.get_enter %ring : ({RING}) -> (tensor<4xi32>, i32)\n"
FREE = f"aref.get_exit %ring : {RING}\n"
STORE = """
  %r = "tile.reduce"(%t) ({
  ^bb0(%a : i32, %b : i32):
    %s = tile.elementwise "add"(%a, %b) : (i32, i32) -> i32
    tile.yield %s : i32
  }) {axis = #builtin.int<0>} : (tensor<4xi32>) -> i32
  %at = tile.ptr_add %OUT, %i : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
  %w = tile.elementwise "add"(%r, %k) : (i32, i32) -> i32
  tile.store %at, %w : !tile.ptr<i32>, i32
"""


def loop(count: str, body: str) -> str:
    return f"""
      %zero = tile.constant {{value = {INT}<0>}} : i32
      %one = tile.constant {{value = {INT}<1>}} : i32
      scf.for %i = %zero to %{count} step %one : i32 {{
        {body}
      }}
      """


def role(label: str, body: str, instances: int = 0) -> str:
    extra = f", instances = {INT}<{instances}>" if instances else ""
    head = "^bb0(%me : i32):\n" if instances else ""
    return (
        f'"aref.role"() ({{\n{head}{body}}}) {{label = "{label}", warps = {INT}<4>{extra}}} '
        ": () -> ()\n"
    )


def kernel(roles: str, depth: int = 2):
    names = ["x", "y", "n", "m"]
    facts = ", ".join(f'{{name = "{name}"}}' for name in names)
    return ir.parse(
        f"""
        "tile.kernel"() ({{
        ^bb0(%x : !tile.ptr<i32>, %y : !tile.ptr<i32>, %n : i32, %m : i32):
          %ring = aref.create "v@3" {{depth = {INT}<{depth}>}} : {RING}
          {roles}
        }}) {{sym_name = "k", arguments = [{facts}], options = {{}}}} : () -> ()"""
    )


def produce(count: str = "n", enter: str = PUT, leave: str = PUBLISH) -> str:
    make = "%v = tile.splat %i : (i32) -> tensor<4xi32>\n"
    return role("load", loop(count, enter + make + leave))


def consume(label: str, out: str, count: str = "n", body: str = GET + STORE + FREE) -> str:
    return role(label, loop(count, body.replace("%OUT", f"%{out}")))


def run(made, n: int = 7, m: int = 0, **how):
    x, y = np.zeros(16, np.int32), np.zeros(16, np.int32)
    simulate(made, (1, 1, 1), {"x": x, "y": y, "n": n, "m": m}, level="aref", **how)
    return x, y


SCHEDULES = ("random", "starve=load", "starve=a")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_values_arrive_in_order(n, depth, schedule):
    for seed in range(5):
        x, _ = run(kernel(produce() + consume("a", "x"), depth), n, seed=seed, schedule=schedule)
        assert x.tolist() == [5 * i for i in range(n)] + [0] * (16 - n)


@pytest.mark.parametrize("seed", range(5))
def test_a_slot_is_free_when_all_consumers_have_freed_it(seed):
    roles = produce() + consume("a", "x") + consume("b", "y")
    x, y = run(kernel(roles, 1), seed=seed)
    assert x.tolist() == y.tolist() == [5 * i for i in range(7)] + [0] * 9


def test_instances_are_consumers_each():
    body = GET + STORE + FREE
    pick = (
        f"%eight = tile.constant {{value = {INT}<8>}} : i32\n"
        '%off = tile.elementwise "mul"(%me, %eight) : (i32, i32) -> i32\n'
        "%mine = tile.ptr_add %x, %off : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>\n"
    )
    roles = produce() + role("mma", pick + loop("n", body.replace("%OUT", "%mine")), 2)
    for seed in range(5):
        x, _ = run(kernel(roles, 2), seed=seed)
        assert x.tolist() == ([5 * i for i in range(7)] + [0]) * 2


def test_a_consumer_that_reads_after_freeing_reads_poison():
    late = kernel(produce() + consume("a", "x", body=GET + FREE + STORE), 1)
    seen = [run(late, seed=seed)[0].tolist() for seed in range(8)]
    assert any(x != [5 * i for i in range(7)] + [0] * 9 for x in seen)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (produce() + consume("a", "x", body=GET + STORE), "deadlock"),
        (produce("m") + consume("a", "x"), "deadlock"),
        (produce() + consume("a", "x", "m"), "deadlock"),
        (produce(leave="") + consume("a", "x"), "deadlock"),
        (produce() + consume("a", "x", body=FREE + GET + STORE), "has not taken"),
        (produce() + produce().replace("load", "more") + consume("a", "x"), "has 2 producers"),
    ],
)
def test_what_is_wrong(roles, message):
    with pytest.raises(ProtocolError, match=message):
        run(kernel(roles))


def test_leftovers():
    with pytest.raises(ProtocolError, match="7 slots published, 0 taken by a"):
        run(kernel(produce() + consume("a", "x", "m"), 9))
    with pytest.raises(ProtocolError, match="7 slots taken by a and never freed"):
        run(kernel(produce() + consume("a", "x", body=GET + STORE), 9))


def test_a_deadlock_is_a_table():
    with pytest.raises(ProtocolError) as error:
        run(kernel(produce("m") + consume("a", "x")), 3, 1)
    text = str(error.value)
    assert "a     -     v@3[1] filled  0      filled 0, freed by a 0" in text
    assert "a waits for slot 1 of v@3 to be filled (round 0)" in text


def test_roles_race_on_global_memory_unless_an_aref_orders_them():
    write = """
      %at = tile.ptr_add %x, %i : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
      tile.store %at, %one : !tile.ptr<i32>, i32
      """
    read = """
      %at = tile.ptr_add %x, %i : (!tile.ptr<i32>, i32) -> !tile.ptr<i32>
      %u = "tile.load"(%at) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tile.ptr<i32>) -> i32
      """
    ordered = produce(enter=PUT + write) + consume("a", "y", body=GET + read + FREE)
    run(kernel(ordered, 3))
    late = produce(leave=PUBLISH + write) + consume("a", "y", body=GET + read + FREE)
    for seed in range(5):
        with pytest.raises(ProtocolError, match="race on global memory of x"):
            run(kernel(late, 3), seed=seed)
