"""The software pipeliner: any legal schedule of any loop computes what the loop did; the coarse
schedule, from dataflow to final waits.
"""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.analysis.stages import Stages, carried_roots, find_stages, statements, used_by
from tawa.errors import InternalError, PlanError
from tawa.ir import aref, hopper, parse, tile, verify
from tawa.passes import pipeline
from tawa.passes.arefs import insert_arefs
from tawa.passes.coarse import overlap_products, settle_carried
from tawa.passes.distribute import distribute
from tawa.passes.simplify import simplify_kernel
from tawa.passes.software_pipeline import Schedule, pipeline_loop
from tawa.plan.pins import Pins
from tawa.plan.plan import Plan
from tawa.plan.planner import plan_for
from tawa.simulator.aref import run_aref
from tawa.simulator.hopper import run_hopper
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.tile import run_tile
from tawa.target import H200
from tawa.verify import verify as prove
from tile_shapes import (
    SHAPES,
    D,
    F,
    Shape,
    dot,
    full,
    give,
    half,
    load,
    loop,
    number,
    op,
    shape,
    store,
)

ARRAYS = "x y z out out2"


def clamped(result: str, value: str) -> list[str]:
    """Keep numbers small, so that every order of sums is exact."""
    return [
        op(f"{result}0", "min", value, "two", kind=F),
        op(result, "max", f"{result}0", "minus", kind=F),
    ]


BOUNDS = [number("two", 2, F), number("minus", -2, F)]


def make(*body: str | list[str], out: list[str]) -> Shape:
    return shape(f"{ARRAYS} K", BOUNDS, *body, out, grid=(2, 1, 1))


def both(first: str, second: str) -> list[str]:
    return [
        half("r1", first),
        store("out", "m", "c0", "r1"),
        half("r2", second),
        store("out2", "m", "c0", "r2"),
    ]


LOOPS = {
    "rescaled": make(
        load("q", "x", "m", "c0"),
        loop(
            [
                load("kt", "y", "k", "c0"),
                dot("s", "q", "kt", "zero"),
                *clamped("t", "s"),
                op("top2", "max", "top1", "t", kind=F),
                op("scale", "sub", "top2", "top1", kind=F),
                half("p", "t"),
                op("acc2", "sub", "acc1", "scale", kind=F),
                load("v", "z", "k", "c0"),
                dot("acc3", "p", "v", "acc2"),
                give("acc3", "top2"),
            ],
            carry={"acc": ("acc1", "zero"), "top": ("top1", "minus")},
        ),
        out=both("acc", "top"),
    ),
    "chain of three": make(
        load("q", "x", "m", "c0"),
        loop(
            [
                load("kt", "y", "k", "c0"),
                dot("s", "q", "kt", "zero"),
                *clamped("t", "s"),
                half("p", "t"),
                load("v", "z", "k", "c0"),
                dot("u", "p", "v", "zero"),
                *clamped("w", "u"),
                half("g", "w"),
                load("h", "y", "k", "c16"),
                dot("acc2", "g", "h", "acc1"),
                op("sum2", "add", "sum1", "w", kind=F),
                give("acc2", "sum2"),
            ],
            carry={"acc": ("acc1", "zero"), "sum": ("sum1", "zero")},
        ),
        out=both("acc", "sum"),
    ),
    "tile read by both stages": make(
        load("q", "x", "m", "c0"),
        loop(
            [
                load("kt", "y", "k", "c0"),
                dot("s", "q", "kt", "zero"),
                *clamped("t", "s"),
                half("p", "t"),
                dot("acc2", "p", "kt", "acc1"),
                full("wide", "kt"),
                op("sum2", "add", "sum1", "wide", kind=F),
                give("acc2", "sum2"),
            ],
            carry={"acc": ("acc1", "zero"), "sum": ("sum1", "zero")},
        ),
        out=both("acc", "sum"),
    ),
    "two accumulators": make(
        load("q", "x", "m", "c0"),
        loop(
            [
                load("kt", "y", "k", "c0"),
                dot("s", "q", "kt", "zero"),
                *clamped("t", "s"),
                half("p", "t"),
                load("v", "z", "k", "c0"),
                dot("acc2", "p", "v", "acc1"),
                load("w", "z", "k", "c16"),
                dot("sum2", "p", "w", "sum1"),
                give("acc2", "sum2"),
            ],
            carry={"acc": ("acc1", "zero"), "sum": ("sum1", "zero")},
        ),
        out=both("acc", "sum"),
    ),
}


def inputs(form: Shape, seed: int, iterations: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    values: dict[str, object] = {}
    for argument, kind in form.arguments.items():
        if kind == D:
            base = rng.integers(-2, 3, (96, 96)).astype(np.float16)
            values[argument] = HostDescriptor(base, (96, 96), (96, 1), (16, 16))
        else:
            values[argument] = 16 * iterations
    return values


def results(values: dict[str, object]) -> dict[str, bytes]:
    return {name: v.base.tobytes() for name, v in values.items() if isinstance(v, HostDescriptor)}


def loop_of(kernel: Operation) -> scf.ForOp:
    return next(op for op in kernel.walk() if isinstance(op, scf.ForOp))


# --- any schedule ---------------------------------------------------------------------------------


def random_loop(random: Random) -> Shape:
    """A loop over tiles: sums of what is loaded and carried, carried on in any order."""
    names = ["a1", "b1", "c1"]
    known = list(names)
    body: list[str] = []
    for number_ in range(random.randint(2, 7)):
        new = f"v{number_}"
        if random.random() < 0.3:
            body += [load(f"l{number_}", random.choice("xy"), "m", "k"), full(new, f"l{number_}")]
        else:
            made = op(
                f"{new}s", random.choice(["add", "sub", "max"]), *random.choices(known, k=2), kind=F
            )
            body += [made, *clamped(new, f"{new}s")]
        known.append(new)
    ends = [random.choice(known) for _ in names]
    carry = dict(zip("abc", zip(names, ("zero", "two", "minus"))))
    out = [op("ab", "add", "a", "b", kind=F), *both("ab", "c")]
    return make(loop([*body, give(*ends)], carry=carry), out=out)


def random_schedule(target: scf.ForOp, random: Random, count: int) -> Schedule:
    """Stages raised until every dependence holds, and an order that respects what meets."""
    ops = statements(target.body.block)
    roots = carried_roots(target)
    assert roots is not None
    stage = {operation: random.randrange(count) for operation in ops}
    while True:
        stages = Stages(stage, roots)
        before = dict(stage)
        for operation in ops:
            for value in used_by(operation):
                found = stages.distance(value, operation)
                if found is not None and found[1] < 0:
                    stage[operation] -= found[1]
        if before == stage:
            break
    stages = Stages(stage, roots)
    order: list[Operation] = []

    def place(operation: Operation) -> None:
        if operation not in order:
            for before in stages.met_by(operation):
                place(before)
            order.append(operation)

    for operation in random.sample(ops, len(ops)):
        place(operation)
    return Schedule(tuple(order), stage)


@pytest.mark.short(*map(str, range(12)))
@pytest.mark.parametrize("seed", range(40))
def test_any_schedule_computes_the_same(seed: int) -> None:
    random = Random(seed)
    form = random_loop(random)
    kernel = parse(form.text("random"))
    target = loop_of(kernel)
    if carried_roots(target) is None:
        return  # carried values that only exchange places
    settle_carried(target)
    schedule = random_schedule(target, random, random.randint(2, 4))
    if len(set(schedule.stage.values())) < 2 or min(schedule.stage.values()) > 0:
        return
    pipeline_loop(target, schedule)
    verify(kernel)
    for iterations in range(6):
        expected, actual = inputs(form, seed, iterations), inputs(form, seed, iterations)
        run_tile(parse(form.text("random")), form.grid, expected)
        run_tile(kernel, form.grid, actual)
        assert results(actual) == results(expected), iterations


def test_a_schedule_that_breaks_a_dependence_is_refused() -> None:
    kernel = parse(LOOPS["rescaled"].text("rescaled"))
    target = loop_of(kernel)
    ops = statements(target.body.block)
    stage = {operation: 0 if isinstance(operation, tile.Dot) else 1 for operation in ops}
    with pytest.raises(InternalError, match="before what it reads"):
        pipeline_loop(target, Schedule(tuple(ops), stage))


# --- the coarse schedule --------------------------------------------------------------------------


def stages_of_dots(name: str) -> list[int]:
    target = loop_of(parse(LOOPS[name].text(name.replace(" ", "_"))))
    found = find_stages(target)
    assert not found.reason
    return [found.of[op] for op in target.body.block.ops if isinstance(op, tile.Dot)]


def test_stages_follow_the_dataflow() -> None:
    assert stages_of_dots("rescaled") == [0, 1]
    assert stages_of_dots("chain of three") == [0, 1, 2]
    assert stages_of_dots("tile read by both stages") == [0, 1]
    assert stages_of_dots("two accumulators") == [0, 1, 1]


@pytest.mark.parametrize(
    ("name", "why"), [("gemm", "no product feeds"), ("two dots in one loop", "no product feeds")]
)
def test_loops_that_do_not_gain(name: str, why: str) -> None:
    assert why in find_stages(loop_of(parse(SHAPES[name].text("k")))).reason


def test_a_product_that_needs_the_last_one_is_not_overlapped() -> None:
    form = make(
        load("q", "x", "m", "c0"),
        loop(
            [
                load("kt", "y", "k", "c0"),
                half("last", "acc1"),
                dot("s", "last", "kt", "zero"),
                *clamped("t", "s"),
                half("p", "t"),
                dot("acc2", "p", "kt", "acc1"),
                give("acc2"),
            ],
            carry={"acc": ("acc1", "two")},
        ),
        out=both("acc", "acc"),
    )
    assert find_stages(loop_of(parse(form.text("serial")))).reason


def planned(name: str, pins: Pins) -> tuple[tile.Kernel, Plan]:
    kernel = parse(LOOPS[name].text(name.replace(" ", "_")))
    simplify_kernel(kernel)
    return kernel, plan_for(kernel, H200, pins)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("iterations", range(6))
def test_every_trip_count(name: str, iterations: int) -> None:
    form = LOOPS[name]
    expected = inputs(form, iterations, iterations)
    run_tile(parse(form.text("k")), form.grid, expected)
    kernel, plan = planned(name, Pins(persistent=False, schedule="coarse"))
    assert [item.schedule for item in plan.loops] == ["coarse"]
    notes = pipeline.run(pipeline.AREF, kernel, plan, H200)
    assert not notes
    verify(kernel)
    actual = inputs(form, iterations, iterations)
    run_aref(kernel, form.grid, actual, seed=iterations)
    assert results(actual) == results(expected)
    pipeline.run(pipeline.HOPPER, kernel, plan, H200)
    assert prove(kernel, H200).ok
    actual = inputs(form, iterations, iterations)
    run_hopper(kernel, form.grid, actual, seed=iterations, multiprocessors=2)
    assert results(actual) == results(expected)


def steady(kernel: tile.Kernel, kind: type[Operation]) -> list[Operation]:
    """The operations of the innermost consumer loop."""
    role = [op for op in kernel.walk() if isinstance(op, kind)][-1]
    inner = [op for op in role.walk() if isinstance(op, scf.ForOp)][-1]
    return list(inner.body.block.ops)


def test_the_order_of_a_trip() -> None:
    """T of one iteration, U of the one before, C under U, then what U's result goes into."""
    kernel, plan = planned("rescaled", Pins(persistent=False))
    for step in (insert_arefs, distribute, overlap_products):
        step(kernel, plan, H200)
    words = {
        aref.GetEnter: "get",
        aref.GetExit: "free",
        tile.Dot: "dot",
        hopper.Pin: "pin",
        tile.Cast: "cast",
        tile.Elementwise: "",
    }
    seen: list[str] = []
    for operation in steady(kernel, aref.Role):
        word = words.get(type(operation), "")
        if isinstance(operation, tile.Elementwise):
            word = operation.function.data
        if word and seen[-1:] != [word]:
            seen.append(word)
    assert " ".join(seen) == "get dot get dot free min max sub pin free cast sub"


def test_a_pin_that_cannot_be_honoured() -> None:
    kernel = parse(SHAPES["gemm"].text("gemm"))
    simplify_kernel(kernel)
    with pytest.raises(PlanError, match="no product feeds another"):
        plan_for(kernel, H200, Pins(schedule="coarse"))
    kernel, _ = planned("rescaled", Pins())
    with pytest.raises(PlanError, match="have 1 slots"):
        plan_for(kernel, H200, Pins(schedule="coarse", depth=1))
    assert plan_for(kernel, H200, Pins(schedule="none")).loops[0].schedule == "none"
    assert plan_for(kernel, H200, Pins(depth=1)).loops[0].schedule == "fine"


def test_the_waits_come_out_as_in_the_best_kernels() -> None:
    """QK, PV; wait 1; release K; softmax; wait 0; release V; rescale."""
    text = attention_text("coarse")
    order = re.findall(
        r"hopper\.wgmma %|wgmma_wait \{pending = #builtin\.int<(\d)>|(arrive)|(pin|exp2)\b", text
    )
    words = [match if isinstance(match, str) else "".join(match) for match in order]
    joined = " ".join(word or "dot" for word in words)
    assert "dot dot 1 arrive exp2" in joined
    assert "pin 0 arrive" in re.sub(r"(pin )+", "pin ", joined)


def attention_text(schedule: str) -> str:
    from tawa.frontend import build
    from tawa.frontend.signature import ConstantArg, DescriptorArg, ScalarArg
    from test_lower_pingpong import attention

    blocks = {"q_desc": (128, 64), "k_desc": (64, 64), "v_desc": (64, 64), "o_desc": (128, 64)}
    signature = {name: DescriptorArg("f16", block) for name, block in blocks.items()}
    signature |= {"n": ScalarArg("i32"), "BM": ConstantArg(128), "BN": ConstantArg(64)}
    kernel = build(attention, signature, {})
    pipeline.run(pipeline.TILE, kernel, Plan(), H200)
    plan = plan_for(kernel, H200, Pins(schedule=schedule, arrangement="cooperative"))
    pipeline.run((*pipeline.AREF, *pipeline.HOPPER), kernel, plan, H200)
    return "\n".join(str(op) for op in steady(kernel, hopper.Role))
