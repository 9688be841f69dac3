"""Pins: values no field can have, pins that only roles can honour, and a plan's text read back."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.errors import PlanError
from tawa.ir import parse, tile
from tawa.passes.simplify import simplify_kernel
from tawa.plan.pins import Pins
from tawa.plan.plan import Declined, Plan
from tawa.plan.planner import plan_for
from tawa.plan.text import parse_plan, print_plan
from tawa.plan.unhonoured import refuse_declined
from tawa.target import H200
from tile_shapes import text_of

NUMBER = "whole number"


def kernel_of(name: str) -> tile.Kernel:
    kernel = parse(text_of(name))
    simplify_kernel(kernel)
    return kernel


def refusal(pins: dict[str, Any]) -> PlanError:
    with pytest.raises(PlanError) as caught:
        Pins(**pins)
    assert caught.value.why
    assert caught.value.remedy
    return caught.value


# --- values that no kernel can honour -----------------------------------------------------------


@pytest.mark.parametrize(
    ("pins", "what", "why", "remedy"),
    [
        (
            {"arrangement": "nonsense"},
            "arrangement='nonsense'",
            "one word",
            "use 'cooperative' or 'pingpong'",
        ),
        ({"schedule": "bogus"}, "schedule='bogus'", "one word", "use 'none' or 'fine' or 'coarse'"),
        ({"schedule": {"x": "fine"}}, "schedule={'x': 'fine'}", "whole kernel", "use 'none'"),
        ({"store": "direct"}, "store='direct'", "one word", "use 'tma' or 'slot' or 'registers'"),
        ({"specialize": "maybe"}, "specialize='maybe'", "is a bool", "use True or False"),
        ({"persistent": "yes"}, "persistent='yes'", "is a bool", "use True or False"),
        ({"persistent": 1}, "persistent=1", "is a bool", "use True or False"),
        ({"consumers": True}, "consumers=True", NUMBER, "an int of 1 or more"),
        ({"consumers": 2.0}, "consumers=2.0", NUMBER, "an int of 1 or more"),
        ({"consumers": 0}, "consumers=0", "counts the warpgroups", "use 1 or more"),
        ({"cluster": "2"}, "cluster='2'", NUMBER, "an int of 1 or more"),
        ({"cluster": 0}, "cluster=0", "1 is no cluster", "use 1 or more"),
        ({"group": "x"}, "group='x'", NUMBER, "an int of 0 or more"),
        ({"group": -3}, "group=-3", "0 is the program order", "use 0 or more"),
        ({"parts": 0}, "parts=0", "the whole tile", "use 1 or more"),
        ({"places": 0}, "places=0", "one for all", "use 1 or more"),
        ({"ceiling": 0}, "ceiling=0", "bytes of shared memory", "use 1 or more"),
        ({"depth": 0}, "depth=0", "a ring has slots", "use 1 or more"),
        ({"depth": {"a": -1}}, "depth['a']=-1", "a ring has slots", "use 1 or more"),
        ({"depth": {"a": "x"}}, "depth['a']='x'", NUMBER, "an int of 1 or more"),
        ({"depth": {1: 2}}, "depth={1: 2}", "by name", "write depth={'name': 2}"),
        ({"depth": [("a", 2)]}, "depth=[('a', 2)]", NUMBER, "an int of 1 or more"),
        ({"mma_depth": 0}, "mma_depth=0", "1 waits for each", "use 1 or more"),
        ({"mma_depth": -1}, "mma_depth=-1", "products in flight", "use 1 or more"),
        ({"mma_depth": {"for k": 0}}, "mma_depth['for k']=0", "1 waits for each", "use 1 or more"),
        ({"registers": (24, 240)}, "registers=(24, 240)", "by name", "registers={'load': 40,"),
        ({"registers": 240}, "registers=240", "each role has its own", "registers={'load': 40,"),
        (
            {"registers": {"nope": 200}},
            "no role 'nope'",
            "the roles load, transpose, mma",
            "these names",
        ),
        ({"registers": {"mma": "many"}}, "registers['mma']='many'", NUMBER, "an int of"),
        ({"registers": {"mma": 0}}, "registers['mma']=0", "multiples of 8 in 24..256", "or more"),
        ({"shared": 3}, "shared=3", "tensors that loops carry", 'write shared=["x", "y"]'),
        ({"direct": [3]}, "direct=[3]", "loads that threads make", 'write direct=["x", "y"]'),
        ({"operands": {"s": 1}}, "operands['s']=1", "its first operand", "use 'registers' or"),
        ({"operands": "s"}, "operands='s'", "by name", "operands={'s': 'registers'}"),
        ({"plan": 3}, "plan=3", "a Plan or its text", "use kernel.plan"),
        ({"plan": Plan(), "depth": 2}, "plan= together with depth=", "decides all", "drop plan="),
    ],
    ids=str,
)
def test_a_value_the_field_cannot_have(
    pins: dict[str, Any], what: str, why: str, remedy: str
) -> None:
    error = refusal(pins)
    assert what in error.what
    assert why in error.why
    assert remedy in error.remedy


def test_good_values_are_kept_hashable() -> None:
    two: Any = np.int64(2)
    pins = Pins(depth={"b": 2, "a": 4}, consumers=two, registers={"mma": 232})
    assert pins.depth == (("a", 4), ("b", 2))
    assert type(pins.consumers) is int
    assert pins == Pins(depth=(("a", 4), ("b", 2)), consumers=2, registers=(("mma", 232),))
    assert hash(pins)
    assert pins.given == ("consumers", "depth", "registers")
    listed = Pins(shared="acc", direct=["b", "a", "b"], operands={"s": "shared"})
    assert listed == Pins(shared=("acc",), direct=("b", "a"), operands=(("s", "shared"),))
    assert hash(listed)


# --- pins of roles on an ordinary kernel --------------------------------------------------------

OF_ROLES: list[tuple[dict[str, Any], str]] = [
    ({"consumers": 2}, "consumers=2"),
    ({"depth": 2}, "depth=2"),
    ({"depth": {"a": 2}}, "depth={'a': 2}"),
    ({"mma_depth": 2}, "mma_depth=2"),
    ({"schedule": "coarse"}, "schedule='coarse'"),
    ({"persistent": True}, "persistent=True"),
    ({"registers": {"mma": 200}}, "registers={'mma': 200}"),
    ({"arrangement": "pingpong"}, "arrangement='pingpong'"),
    ({"blocks": 2}, "blocks=2"),
    ({"cluster": 2}, "cluster=2"),
    ({"group": 8}, "group=8"),
    ({"grouped": "columns"}, "grouped='columns'"),
    ({"walk": "serpentine"}, "walk='serpentine'"),
    ({"split": "columns"}, "split='columns'"),
    ({"parts": 2}, "parts=2"),
    ({"places": 2}, "places=2"),
]


@pytest.mark.parametrize(("pins", "what"), OF_ROLES, ids=str)
def test_not_specialized_and_pinned_for_roles(pins: dict[str, Any], what: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_for(kernel_of("gemm"), H200, Pins(specialize=False, **pins))
    assert caught.value.what == what
    assert caught.value.why.endswith("this one is ordinary: specialize=False")
    assert caught.value.remedy == f"leave {next(iter(pins))}= out, or specialize=False"


def test_all_pins_of_roles_are_listed() -> None:
    with pytest.raises(PlanError) as caught:
        plan_for(kernel_of("gemm"), H200, Pins(specialize=False, depth=3, consumers=1))
    assert caught.value.what == "consumers=1, depth=3"
    assert caught.value.remedy == "leave consumers=, depth= out, or specialize=False"


@pytest.mark.parametrize(
    "pins",
    [
        {},
        {"persistent": False},
        {"arrangement": "cooperative"},
        {"blocks": 1},
        {"cluster": 1},
        {"group": 0},
        {"walk": "forward"},
        {"split": "rows"},
        {"parts": 1},
    ],
    ids=str,
)
def test_what_an_ordinary_kernel_honours(pins: dict[str, Any]) -> None:
    assert not plan_for(kernel_of("gemm"), H200, Pins(specialize=False, **pins)).specialized


def test_a_kernel_that_cannot_have_roles() -> None:
    with pytest.raises(PlanError, match="ordinary: no asynchronous load") as caught:
        plan_for(kernel_of("no load"), H200, Pins(cluster=2))
    assert caught.value.remedy == "leave cluster= out"
    with pytest.raises(PlanError, match="no asynchronous load") as caught:
        plan_for(kernel_of("no load"), H200, Pins(consumers=2, registers={"mma": 200}))
    assert caught.value.what == "consumers=2, registers={'mma': 200}"
    assert caught.value.remedy == "leave consumers=, registers= out"


@pytest.mark.parametrize(
    ("pins", "what"),
    [({"mma_depth": 2}, "mma_depth=2"), ({"schedule": "coarse"}, "schedule='coarse'")],
)
def test_a_kernel_without_a_loop_of_products(pins: dict[str, Any], what: str) -> None:
    with pytest.raises(PlanError, match="no product of this kernel stands in one") as caught:
        plan_for(kernel_of("loop without a dot"), H200, Pins(**pins))
    assert caught.value.what == what
    assert plan_for(kernel_of("loop without a dot"), H200, Pins(mma_depth=1)).specialized


# --- pins of stores -----------------------------------------------------------------------------


def stores_through_pointers(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    places = at[:, None] * n + at[None, :]
    tl.store(out + places, tl.load(x + places), mask=places % 2 == 0)


def stores_through_a_descriptor_of_the_run(x, out, table, n, B: tl.constexpr):
    rows = tl.load(table)
    desc = tl.make_tensor_descriptor(out, [rows, n], [n, 1], [B, B])
    at = tl.arange(0, B)
    desc.store([0, 0], tl.load(x + at[:, None] * B + at[None, :]))


@pytest.mark.parametrize("pins", [{"store": "tma"}, {"parts": 2}, {"places": 2}], ids=str)
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (stores_through_pointers, "it goes through pointers (the mask is not"),
        (stores_through_a_descriptor_of_the_run, "made from values of the run"),
    ],
)
def test_a_store_that_tma_cannot_take(function: Any, why: str, pins: dict[str, Any]) -> None:
    kernel = tawa.jit(function)
    given: dict[str, Any] = {"x": tawa.array((64, 64), "f16"), "out": tawa.array((64, 64), "f16")}
    if "table" in kernel.arg_names:
        given["table"] = tawa.array((1,), "i32")
    with pytest.raises(PlanError) as caught:
        kernel.compile(**given, n=64, B=64, **pins)
    assert caught.value.what == next(f"{name}={value!r}" for name, value in pins.items())
    if "store" in pins:
        assert why in caught.value.why
        assert "out@" in caught.value.why or "desc@" in caught.value.why
    else:
        assert "this kernel has none" in caught.value.why


def copies_a_tile(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    places = at[:, None] * n + at[None, :]
    tl.store(out + places, tl.load(x + places))


def test_a_pinned_store_by_tma_where_nothing_overlaps() -> None:
    arrays = [tawa.array((64, 64), "f16")] * 2
    pinned = tawa.jit(copies_a_tile).compile(*arrays, n=64, B=64, store="tma")
    free = tawa.jit(copies_a_tile).compile(*arrays, n=64, B=64)
    assert [store.via for store in pinned.plan.stores] == ["tma"]
    assert "tma" not in [store.via for store in free.plan.stores]


def sums_rows(x, out, n, B: tl.constexpr):
    at, sums = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for first in range(0, n, B):
        sums += tl.sum(tl.load(x + at[:, None] * n + (first + at)[None, :]), 1)
    tl.store(out + at, sums)


@pytest.mark.parametrize(
    "pins", [{"specialize": True}, {"depth": 2}, {"persistent": True}], ids=str
)
def test_pinned_roles_where_threads_reach_memory_as_fast(pins: dict[str, Any]) -> None:
    arrays = np.zeros((64, 256), np.float32), np.zeros(64, np.float32)
    free = tawa.jit(sums_rows).compile(*arrays, n=256, B=64)
    pinned = tawa.jit(sums_rows).compile(*arrays, n=256, B=64, **pins)
    assert not free.plan.specialized
    assert pinned.plan.specialized
    for plan in (free.plan, pinned.plan):
        assert tawa.jit(sums_rows).compile(*arrays, n=256, B=64, plan=str(plan)).plan == plan


def copies_rows_of_8_bytes(x_desc, out_desc):
    out_desc.store([0, 0], x_desc.load([0, 0]))


def test_what_the_lowering_declines_is_refused_where_it_is_pinned() -> None:
    """The descriptor is the host's, and its box too narrow: only the lowering knows."""
    describe = tawa.TensorDescriptor.from_tensor
    descs = [describe(tawa.array((64, 64), "f16"), [64, 4]) for _ in range(2)]
    kernel = tawa.jit(copies_rows_of_8_bytes)
    assert not kernel.compile(*descs).plan.specialized
    with pytest.raises(PlanError, match="TMA for out_desc@") as caught:
        kernel.compile(*descs, store="tma")
    assert caught.value.what == "store='tma'"
    assert caught.value.remedy == "leave store= out"
    plan = str(kernel.compile(*descs).plan)
    assert kernel.compile(*descs, plan=plan).proof.ok  # a whole plan reads back


@pytest.mark.parametrize(
    ("pins", "feature", "what"),
    [
        ({"mma_depth": 3}, "mma_depth 3 of for k@7", "mma_depth=3"),
        ({"mma_depth": {"for k": 2}}, "mma_depth 2 of for k@7", "mma_depth=2"),
        ({"parts": 4}, "4 parts of c@9", "parts=4"),
        ({"places": 2}, "4 parts of c@9", "places=2"),
        ({"registers": {"mma": 200}}, "register reallocation", "registers={'mma': 200}"),
    ],
)
def test_notes_of_the_lowering_that_speak_of_pins(
    pins: dict[str, Any], feature: str, what: str
) -> None:
    note = Declined(feature, "it does not fit")
    with pytest.raises(PlanError, match="it does not fit") as caught:
        refuse_declined(Pins(**pins), Plan(), [note])
    assert caught.value.what == what
    refuse_declined(Pins(), Plan(), [note])
    refuse_declined(Pins(**pins), Plan(), [Declined("wgmma for acc@8", "mma.sync is used")])


# --- a plan's text ------------------------------------------------------------------------------


@pytest.mark.parametrize("specialize", [True, False])
def test_str_of_a_plan_reads_back(specialize: bool) -> None:
    kernel = kernel_of("gemm")
    plan = plan_for(kernel, H200, Pins(specialize=specialize))
    assert str(plan) == print_plan(plan)
    assert parse_plan(str(plan)) == plan
    assert plan_for(kernel, H200, Pins(plan=str(plan))) == plan


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (" group", "group"),
        (" depth", "depth of a"),
        (" mma_depth", "mma_depth of for k"),
        (" parts", "parts of"),
        (" places", "places of"),
    ],
)
def test_numbers_of_a_whole_plan_are_checked(key: str, what: str) -> None:
    kernel = kernel_of("gemm")
    plain = str(plan_for(kernel, H200)).replace(" parts=1", " parts=1 places=1")
    text = re.sub(rf"{key}=\d+", f"{key}=-3", plain)
    with pytest.raises(PlanError, match=f"the plan gives -3 as {what}"):
        plan_for(kernel, H200, Pins(plan=text))
