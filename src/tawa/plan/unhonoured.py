"""Pins that a kernel cannot honour: each is an error that says which fact of the kernel stands in
the way. What no kernel could honour is refused earlier, in `tawa.plan.pins`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from tawa.analysis.hardware import is_host_made
from tawa.analysis.statements import enclosing_loops, name_of
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, parse_layout, shape_of
from tawa.ir.walk import walk
from tawa.layouts.register import LANES
from tawa.plan.pins import Pins, pick
from tawa.plan.plan import Declined, Plan
from tawa.plan.problem import Problem


def refuse_roles(pins: Pins, reason: str) -> None:
    """Raise PlanError when an ordinary kernel is asked for what only roles can do."""
    if not pins.of_roles:
        return
    names = ", ".join(f"{pin.partition('=')[0]}=" for pin in pins.of_roles)
    remedy = f"leave {names} out"
    if pins.specialize is False:
        remedy += ", or specialize=False"
    raise PlanError(
        ", ".join(pins.of_roles),
        why="only a kernel split into roles has rings, consumers and the loads of a producer; this "
        f"one is ordinary: {reason}",
        remedy=remedy,
    )


def refuse_loops(problem: Problem) -> None:
    """Raise PlanError for a schedule of products on a kernel without a loop of them."""
    if any(enclosing_loops(dot) for dot in problem.dots):
        return
    pins = problem.pins
    deepest = pins.mma_depth or 1
    if not isinstance(deepest, int):
        deepest = max(dict(deepest).values(), default=1)
    asked = [f"mma_depth={deepest}"] if deepest > 1 else []
    asked += ["schedule='coarse'"] if pins.schedule == "coarse" else []
    names = " and ".join(f"{pin.partition('=')[0]}=" for pin in asked)
    if asked:
        raise PlanError(
            ", ".join(asked),
            why="it orders the products of a loop, and no product of this kernel stands in one",
            remedy=f"leave {names} out",
        )


def refuse_stores(problem: Problem, notes: Iterable[Declined]) -> None:
    """Raise PlanError when stores are pinned to a way that they cannot take.

    `notes` are what the passes before the planner declined: why an access through pointers became
    no descriptor access.
    """
    pins = problem.pins
    reasons = {note.feature: note.reason for note in notes}
    refused: dict[str, str] = {}
    sent = 0
    for name, operation in problem.statements.items():
        match operation:
            case tile.DescStore() | tile.DescAtomic() if is_host_made(operation.desc):
                sent += 1
            case tile.DescStore() | tile.DescAtomic():
                refused[name] = "its descriptor is made from values of the run"
            case tile.Store():
                base = name.partition("#")[0]
                why = reasons.get(f"descriptor for {base}", "it stores one element")
                why = reasons.get(f"TMA for {base}", why)
                refused[name] = f"it goes through pointers ({why})"
            case _:
                pass
    if pins.store == "tma" and (refused or not sent):
        listed = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise PlanError(
            "store='tma'",
            why="TMA stores blocks through descriptors that the host can encode. "
            + (listed or "The kernel has no store"),
            remedy="leave store= out: each store then takes the best way it has",
        )
    for name, count in (("parts", pins.parts), ("places", pins.places)):
        if (count or 1) > 1 and (pins.store in ("slot", "registers") or not sent):
            raise PlanError(
                f"{name}={count}",
                why="it is for the pieces of a store by TMA through a stage of its own, and this "
                "kernel has none",
                remedy=f"leave {name}= out",
            )


def refuse_declined(pins: Pins, plan: Plan, notes: Iterable[Declined]) -> None:
    """Raise PlanError where the lowering of a plan did not do what is pinned, and said why.

    `notes` are those of the lowering. A whole plan that is given is carried out as far as it goes:
    it is what an earlier compilation printed, with the same notes.
    """
    for note in notes:
        if pin := _pin_of(pins, plan, note.feature):
            raise PlanError(
                pin,
                why=f"{note.feature}: {note.reason}",
                remedy=f"leave {pin.partition('=')[0]}= out",
            )


def _pin_of(pins: Pins, plan: Plan, feature: str) -> str:
    """Return the pin that a note of the lowering speaks of, if it is pinned."""
    kind, _, name = feature.partition(" of ")
    if kind.startswith("mma_depth ") and (pick(pins.mma_depth, (name,), "mma_depth") or 1) > 1:
        return kind.replace(" ", "=", 1)
    if kind.endswith(" parts") and (pins.parts or 1) > 1:
        return f"parts={pins.parts}"
    if kind.endswith(" parts") and (pins.places or 1) > 1:
        return f"places={pins.places}"
    if feature == "register reallocation" and pins.registers:
        return f"registers={dict(pins.registers)}"
    if pins.store == "tma" and feature in {f"TMA for {store.store}" for store in plan.stores}:
        return "store='tma'"
    return ""


def check_counts(plan: Plan) -> None:
    """Raise PlanError for a number that means nothing in any kernel."""
    counts = [("group", plan.group, 0), ("blocks", plan.blocks, 1)]
    counts += [(f"depth of {ring.label}", ring.depth, 1) for ring in plan.arefs]
    counts += [(f"mma_depth of {loop.loop}", loop.mma_depth, 1) for loop in plan.loops]
    counts += [(f"parts of {store.store}", store.parts, 1) for store in plan.stores]
    counts += [(f"places of {store.store}", store.places, 1) for store in plan.stores]
    for what, number, least in counts:
        if number < least:
            raise PlanError(
                f"the plan gives {number} as {what}",
                why=f"it counts, from {least} on",
                remedy=f"write {least} or more",
            )


def check_operands(problem: Problem, plan: Plan) -> None:
    """Raise PlanError for an operand of no product, or of one whose elements it cannot be."""
    products = {name_of(dot): dot for dot in problem.dots}
    for operand in plan.operands:
        dot = products.get(operand.product)
        if dot is None:
            raise PlanError(
                f"the plan speaks of the product {operand.product}",
                why=f"the kernel has: {', '.join(products) or 'none'}",
            )
        if operand.a == "registers" and bit_width(element_type(dot.a.type)) != 16:
            raise PlanError(
                f"operand {operand.product} a=registers",
                why="registers hold elements of 16 bits as they lie in memory, and no others",
                remedy="leave it out",
            )


def check_tensors(kernel: tile.Kernel, plan: Plan) -> None:
    """Raise PlanError for a layout that is none, or of no tensor of the kernel."""
    if not plan.tensors:
        return
    blocks = [b for op in walk(kernel.body) for region in op.regions for b in region.blocks]
    values = [result for op in walk(kernel.body) for result in op.results]
    values += [argument for block in blocks for argument in block.args]
    shapes = {(value.name_hint, shape_of(value.type)) for value in values}
    for each in plan.tensors:
        why = ""
        try:
            layout = parse_layout(each.layout)
        except (KeyError, ValueError):
            why = "it is no text of a layout: 64x32;r[16:(0,1)];l[2:(0,16);16:(1,0)];w[4:(16,0)]"
        else:
            axes = (*layout.registers, *layout.lanes, *layout.warps)
            told = prod(axis.extent for axis in axes if any(axis.step))
            held = {
                tuple(map(sum, zip(*three, strict=True)))
                for three in product(layout.register_table, layout.lane_table, layout.warp_table)
            }
            within = set(product(*map(range, layout.shape)))
            if held != within or told != len(within) or len(layout.lane_table) != LANES:
                why = "its threads do not have each element, as often as they share it"
            elif (each.tensor, layout.shape) not in shapes:
                names = sorted({name for name, shape in shapes if name and shape == layout.shape})
                why = f"tensors of the kernel of that shape are {', '.join(names) or 'none'}"
        if why:
            raise PlanError(f"tensor {each.tensor} layout={each.layout}", why=why)


def is_plain(load: tile.DescLoad) -> bool:
    """Tell whether threads can make a load by themselves: windows are counted by TMA alone."""
    return load.desc.type.window is None


def check_direct(problem: Problem, plan: Plan) -> None:
    """Raise PlanError for a load into registers that is none by a descriptor, or is in a ring."""
    transposing = {
        name for ring in plan.arefs for one in (ring.payload, *ring.also) for name in one
    }
    for name in plan.direct:
        load = problem.statements.get(name)
        if not (isinstance(load, tile.DescLoad) and is_plain(load)) or name in transposing:
            raise PlanError(
                f"load {name} via=registers",
                why="the plan has a ring for it as well"
                if name in transposing
                else "it is for loads by descriptors, and not of windows, which TMA alone counts",
                remedy="leave it out",
            )


def check_split(problem: Problem, plan: Plan) -> None:
    """Raise PlanError where warpgroups are to share columns that wgmma cannot part so."""
    groups = max((role.warps for role in plan.consumers), default=plan.warps) // 4
    for dot in problem.dots if plan.split == "columns" else ():
        columns = shape_of(dot.result.type)[-1]
        if columns % (8 * groups):
            raise PlanError(
                f"split=columns of {name_of(dot)}",
                why=f"{columns} columns do not make {groups} parts of a multiple of 8",
                remedy="leave it out, or change the tile or the warps",
            )
