"""What a mapping says of roles, rings, loops and stores: the whole plan, or pins of the planner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tawa.cypress.event import (
    Call,
    CopyIn,
    CopyOut,
    Event,
    Events,
    For,
    Slot,
    calls,
    loops,
    walk,
    warpgroups,
)
from tawa.cypress.machine import Auto
from tawa.cypress.mapping import Instance, Mapping, nearest
from tawa.cypress.tensor import Tensor
from tawa.errors import MappingError, OverBudget
from tawa.plan.ceiling import within
from tawa.plan.pins import Pins
from tawa.plan.plan import (
    ArefPlan,
    LoopPlan,
    OperandPlan,
    Plan,
    RolePlan,
    Split,
    StorePlan,
    TensorPlan,
)
from tawa.plan.planner import rings_of_walk
from tawa.plan.resources import LEAST_SLACK, Buffer, split_registers
from tawa.plan.text import parse_plan
from tawa.runtime.compiled import SharedBuffer
from tawa.target import H200

_OF_ROLES = ("persistent", "cluster", "turns", "tiles", "walk")


def block_of(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """Return the argument that a part of a tensor of the program goes by: name and block."""
    return tensor.root.name, tuple(n for n in tensor.box if isinstance(n, int))


def plan_of(
    kernel: Any,
    events: Events,
    mapping: Mapping,
    names: dict[tuple[str, tuple[int, ...]], str],
    tensors: Iterable[TensorPlan],
) -> tuple[Plan | Pins, tuple[Buffer, ...]]:
    """Return the plan that a mapping says of its kernel, and the buffers in shared memory."""
    block = events.block
    groups = warpgroups(events)
    copies = list(copies_of(events.body))
    stores = [event for event, _ in copies if isinstance(event, CopyOut)]
    loaded = [event for event, _ in copies if isinstance(event, CopyIn)]
    loads = [(e, loop) for e, loop in copies if isinstance(e, CopyIn) and not e.direct]
    _check_block(block)
    split = _split(events)
    operands = tuple(OperandPlan(c.product, c.a) for c in calls(events.body) if c.a)
    direct = tuple(event.slot.name for event in loaded if event.direct)
    if isinstance(block.pipeline, Auto):
        places = Pins(
            ceiling=mapping.ceiling,
            shared=tuple(slot.name for slot in events.shared) or None,
            direct=direct or None,
            operands=tuple((each.product, each.a) for each in operands) or None,
            tensors=tuple((each.tensor, each.layout) for each in tensors) or None,
        )
        return _pins(block, groups, stores, split, places), ()
    rings = _rings(block, loads)
    ahead = rings if block.specialize else _own_rings(rings, loads)
    # A coarse schedule keeps two iterations' values: it takes what there is.
    coarse = block.schedule == "coarse"
    budgets = split_registers(groups * block.tiles, 240 if coarse else 0, H200)
    load, mma = (
        RolePlan("load", 4, budgets.producer),
        RolePlan("mma", 4 * groups, budgets.consumer, block.tiles),
    )
    pairs = {
        (names[block_of(event.source)], names[block_of(store.target)])
        for event in loaded
        for store in stores
    }
    plan = Plan(
        roles=(load, mma) if block.specialize else (),
        arefs=(*rings, *rings_of_walk(block.walk)),
        walk=block.walk,
        arrangement="pingpong" if block.turns or block.tiles > 1 else "cooperative",
        loops=_loops(events, ahead, coarse),
        stores=tuple(
            StorePlan(
                store.name,
                "tma" if store.staged else "registers",
                # No block reads what another one writes.
                eviction="first" if store.staged else "",
            )
            for store in stores
        ),
        direct=direct,
        operands=operands,
        tensors=tuple(tensors),
        warps=4 * (groups * block.tiles + 1) if block.specialize else 4 * groups,
        persistent=block.persistent,
        group=block.group if block.persistent else 0,
        cluster=block.cluster,
        guards=tuple(sorted(pairs)) if block.specialize else (),
        split=split,
    )
    plan, buffers = within(kernel, plan, mapping.ceiling)
    check_ceiling(events, mapping, sum(each.bytes for each in buffers), buffers)
    # Without roles a thread has at most the 255 registers that an instruction can name.
    most = min(255, H200.registers_per_block // (128 * groups))
    _check_registers(events, groups, budgets.consumer if block.specialize else most)
    if not block.specialize:
        plan = replace(plan, arefs=ahead)
    return edited(plan, block.plan), tuple(buffers)


def _check_block(block: Instance) -> None:
    """Refuse fields of a block that ask for what another field leaves out."""
    of_roles = [name for name in block.of_block if name in _OF_ROLES]
    if not block.specialize and of_roles:
        raise block.error(
            f" has {', '.join(of_roles)}, and specialize=False",
            why="walks over tiles and loads for several blocks are the producer's, and turns are "
            "those of roles",
            remedy="write specialize=True, or leave them out",
        )
    if block.tiles > 1 and not block.persistent:
        raise block.error(
            f" computes {block.tiles} tiles at once and is not persistent",
            why="a block that does not walk has one tile",
            remedy="write persistent=True, or leave tiles out",
        )
    if isinstance(block.pipeline, Auto) and block.plan:
        raise block.error(
            " gives lines of the plan, and leaves pipeline to the planner",
            remedy="say the depth of the rings, or leave the lines out",
        )


def _loops(events: Events, rings: tuple[ArefPlan, ...], coarse: bool) -> tuple[LoopPlan, ...]:
    """Return what loops do with the tiles of their rings: those of products and of tensors in
    shared memory, or without roles each.
    """
    found: list[LoopPlan] = []
    for loop in loops(events.body):
        shared = [slot for slot in loop.carried if slot in events.shared]
        multiplies = any(isinstance(e, Call) and e.facts.products for e in loop.body)
        if multiplies or shared or not events.block.specialize:
            names = {e.slot.name for e in loop.body if isinstance(e, CopyIn) and not e.direct}
            slots = [
                ring.depth // fills
                for ring in rings
                if (fills := sum(map(names.issuperset, (ring.payload, *ring.also))))
            ]
            schedule = ("coarse" if coarse else "fine") if slots else "none"
            flying = _in_flight(loop, slots, shared)
            kept = tuple(slot.name for slot in shared)
            found.append(LoopPlan(loop.name, schedule, flying, pins=coarse, shared=kept))
    return tuple(found)


def edited(plan: Plan, lines: Sequence[str]) -> Plan:
    """Return a plan with some lines of its text replaced, added or, by their subject, left out."""
    if not lines:
        return plan
    text = {subject(line): line for line in str(plan).splitlines()}
    for line in lines:
        bare = not line.startswith(("plan ", "guard ")) and line == subject(line)
        if bare and line in text:
            del text[line]
        else:
            text[subject(line)] = line
    return parse_plan("\n".join(text.values()))


def subject(line: str) -> str:
    """Return what a line of a plan speaks of: its text without options. A tile that is turned round
    has two rings.
    """
    if line.startswith("plan "):
        return "plan"
    return re.sub(r" (?!via=transpose)[a-z_]+=\S+", "", line)


def _split(events: Events) -> Split:
    """Return what of the products each warpgroup has; raises MappingError."""
    found: dict[Split, Instance] = {}
    for call in calls(events.body):
        for operand in call.spread.operands if call.facts.products else ():
            first = operand.parts[0] if operand.of_wgmma == "C" else None
            if first and not first.held and first.extent > 1:
                found["columns" if first.dims == (1,) else "rows"] = call.spread.leaf
    if len(found) > 1:
        raise MappingError(
            f'"{found["rows"].name}" shares out rows, "{found["columns"].name}" columns',
            place=found["columns"].place,
            why="the warpgroups of a block have one or the other of all products",
            remedy="part both alike",
        )
    return "columns" if "columns" in found else "rows"


def _pins(block: Instance, groups: int, stores: list[CopyOut], split: Split, places: Pins) -> Pins:
    """Return what a mapping fixes where it leaves rings and schedules to the planner: `places`, and
    what a block is.
    """
    ways = {store.staged for store in stores}
    if not block.specialize:
        return replace(places, specialize=False)
    return replace(
        places,
        specialize=True,
        consumers=groups * block.tiles,
        persistent=block.persistent,
        group=block.group if block.persistent else None,
        cluster=block.cluster,
        walk=block.walk if block.walk != "forward" else None,
        arrangement="pingpong" if block.turns or block.tiles > 1 else None,
        schedule="coarse" if block.schedule == "coarse" else None,
        split=split if groups > 1 else None,
        store=("tma" if ways.pop() else "registers") if len(ways) == 1 else None,
    )


def _rings(block: Instance, loads: list[tuple[CopyIn, For | None]]) -> tuple[ArefPlan, ...]:
    """Return the rings: one a loop, or as the mapping groups tensors; each load outside of loops
    has one of one slot. Equal tiles of several loops turn through one ring.
    """
    depths = block.depths
    every = block.pipeline if isinstance(block.pipeline, int) else 1
    shared = {tensor: ring for ring in depths for tensor in ring.split()}
    loaded = {event.source.root.name for event, _ in loads}
    if unknown := sorted(set(shared) - loaded):
        raise block.error(
            f": pipeline is given for {unknown[0]}, which it does not load",
            why=f"it loads {', '.join(sorted(loaded))}",
            remedy=nearest(unknown[0], loaded),
        )
    members: dict[tuple[int, str], list[CopyIn]] = {}
    for event, loop in loads:
        name = event.source.root.name
        if depths and loop is not None and name not in shared:
            raise block.error(
                f": pipeline has no depth for {name}",
                why=f"it is loaded in the loop over {loop.index}",
                remedy=f'write pipeline={{..., "{name}": 2}}',
            )
        alone = "" if loop is not None else event.slot.name
        members.setdefault((id(loop), shared.get(name, alone)), []).append(event)
    inside = {id(event) for event, loop in loads if loop is not None}
    found: dict[object, ArefPlan] = {}
    for (_, ring), payload in members.items():
        names = tuple(event.slot.name for event in payload)
        tiles = tuple(block_of(event.source) for event in payload)
        depth = depths.get(ring, every if id(payload[0]) in inside else 1)
        made = found.get(tiles, ArefPlan(names, depth))
        also = (*made.also, names) if tiles in found else ()
        found[tiles] = replace(made, also=also, depth=max(depth, made.depth))
    return tuple(found.values())


def _own_rings(
    rings: tuple[ArefPlan, ...], loads: list[tuple[CopyIn, For | None]]
) -> tuple[ArefPlan, ...]:
    """Return the rings of a block without a producer: what no loop loads, or is one slot deep, is
    loaded where it is wanted.
    """
    inside = {event.slot.name for event, loop in loads if loop}
    each = ((r.depth, [*filter(inside.issuperset, (r.payload, *r.also))]) for r in rings)
    return tuple(ArefPlan(at[0], depth, tuple(at[1:])) for depth, at in each if at and depth > 1)


def _in_flight(loop: For, slots: list[int], shared: list[Slot]) -> int:
    """Return how many products are under way: one where others of the loop use what they make, or
    it is stored, else one less than the slots, and two are enough.
    """
    inside = [each for each in loop.body if isinstance(each, Call)]
    made = {slot for each in inside if each.facts.products for slot in each.outputs}
    used = {slot for each in inside if not each.facts.products for slot in each.slots}.union(shared)
    return 1 if not made or made & used else max(1, min(2, min(slots, default=1) - 1))


def _check_registers(events: Events, groups: int, budget: int) -> None:
    """Refuse what cannot be: what a loop carries stays in registers all along."""
    for loop in loops(events.body):
        kept = [slot for slot in loop.carried if slot not in events.shared]
        bits = [(slot.name, prod(slot.shape) * slot.element.primitive_bitwidth) for slot in kept]
        held = [(name, -(-count // (32 * 128 * groups))) for name, count in bits]
        needed = sum(count for _, count in held)
        if needed + LEAST_SLACK > budget:
            raise OverBudget(
                f"a thread holds {needed} registers through the loop over {loop.index}, and has"
                f" {budget}",
                place=events.block.place,
                why=", ".join(f"{name}: {count}" for name, count in held)
                + f"; addresses and counters take {LEAST_SLACK} or more",
                remedy="make the tile smaller, or part it over other numbers of warpgroups",
            )


def check_ceiling(
    events: Events, mapping: Mapping, needed: int, buffers: Sequence[Buffer | SharedBuffer]
) -> None:
    """Raise OverBudget where a block needs more bytes of shared memory than its mapping allows."""
    if needed > mapping.ceiling:
        raise OverBudget(
            f"the block needs {needed:,} bytes of SHARED, the ceiling is {mapping.ceiling:,}",
            place=events.block.place,
            why=", ".join(f"{buffer.label}: {buffer.bytes:,}" for buffer in buffers),
            remedy="make the tiles smaller, pipeline less deep, or raise the ceiling",
        )


def copies_of(body: tuple[Event, ...]) -> list[tuple[CopyIn | CopyOut, For | None]]:
    """Return the copies of a body, each with the innermost loop around it."""
    return [(e, loop) for e, loop in walk(body) if isinstance(e, CopyIn | CopyOut)]
