"""What a mapping says of roles, rings, loops and stores: the whole plan, or pins of the planner."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal

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
from tawa.cypress.size import most
from tawa.cypress.tensor import Tensor
from tawa.errors import MappingError, OverBudget
from tawa.layouts.shared import split_columns
from tawa.plan.budgets import split_registers
from tawa.plan.pins import Pins
from tawa.plan.plan import ArefPlan, LoopPlan, OperandPlan, Plan, RolePlan, Split, StorePlan
from tawa.plan.planner import rings_of_walk
from tawa.plan.resources import LEAST_SLACK
from tawa.plan.text import parse_plan
from tawa.target import H200

_STAGE = "stage of "
_OF_ROLES = ("persistent", "cluster", "turns", "tiles", "walk")


def block_of(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """Return the argument that a part of a tensor of the program goes by: name and block."""
    return tensor.root.name, tuple(n for n in tensor.box if isinstance(n, int))


def _operand(call: Call) -> int:
    """Return which tensor of a product is its first operand."""
    held = [any(part.held.endswith(" A") for part in parts) for parts in call.spread.parts]
    return held.index(True)


def plan_of(
    events: Events,
    mapping: Mapping,
    names: dict[tuple[str, tuple[int, ...]], str],
    products: dict[int, str],
) -> tuple[Plan | Pins, tuple[tuple[str, int], ...]]:
    """Return the plan that a mapping says, and the buffers in shared memory."""
    block = events.block
    groups = warpgroups(events)
    copies = list(copies_of(events.body))
    stores = [event for event, _ in copies if isinstance(event, CopyOut)]
    loaded = [event for event, _ in copies if isinstance(event, CopyIn)]
    loads = [(e, loop) for e, loop in copies if isinstance(e, CopyIn) and not e.direct]
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
    split = _split(events)
    moved = [call for call in calls(events.body) if id(call) in products]
    if isinstance(block.pipeline, Auto):
        if block.plan:
            raise block.error(
                " gives lines of the plan, and leaves pipeline to the planner",
                remedy="say the depth of the rings, or leave the lines out",
            )
        places = Pins(
            shared=tuple(slot.name for slot in events.shared) or None,
            direct=tuple(event.slot.name for event in loaded if event.direct) or None,
            operands=tuple((products[id(call)], call.a) for call in moved if call.a) or None,
        )
        return _pins(block, groups, stores, split, places), ()
    rings = _rings(block, loads)
    buffers = [
        (f"A of {products[id(call)]}", _bytes(call.slots[_operand(call)]))
        for call in moved
        if call.a == "shared"
    ]
    buffers += [(slot.name, _bytes(slot) * block.tiles) for slot in events.shared]
    room = mapping.ceiling - sum(size for _, size in (*buffers, *_held(rings, loads)))
    parts, places, stages = _stages(stores, room // block.tiles, beside=block.tiles > 1)
    stages = [(name, size * block.tiles) for name, size in stages]
    # Of last resort: a tile that leaves takes the place of one that was read before.
    slots: dict[str, str] = {}
    if sum(size for _, size in stages) > room and block.specialize:
        slots = _slots(stores, loads, rings)
        stages = [(name, size) for name, size in stages if name.removeprefix(_STAGE) not in slots]
        buffers += [(f"{_STAGE}{store}, in {tile}", 0) for store, tile in slots.items()]
    buffers += stages
    if block.specialize:
        needed = sum(size for _, size in (*buffers, *_held(rings, loads)))
        rings = _aliased(rings, loads, needed - mapping.ceiling)
    buffers = [*_held(rings, loads), *buffers]
    _check_ceiling(events, mapping, buffers)
    roles = _roles(groups, block) if block.specialize else ()
    _check_registers(events, groups, roles[1].registers if roles else _registers(groups))
    depth = {
        name: ring.depth // _filled(ring, loads)
        for ring in rings
        for each in (ring.payload, *ring.also)
        for name in each
    }
    if not block.specialize:
        rings = _own_rings(rings, loads)
    ahead = {name for ring in rings for each in (ring.payload, *ring.also) for name in each}
    coarse = block.schedule == "coarse"
    planned: list[LoopPlan] = []
    for loop in loops(events.body):
        shared = [slot for slot in loop.carried if slot in events.shared]
        multiplies = any(isinstance(e, Call) and e.facts.products for e in loop.body)
        if multiplies or shared or not block.specialize:
            turns = bool(_loaded(loop) & ahead)
            schedule = ("coarse" if coarse else "fine") if turns else "none"
            flying = _in_flight(loop, depth, shared) if turns else 1
            kept = tuple(slot.name for slot in shared)
            planned.append(LoopPlan(loop.name, schedule, flying, pins=coarse, shared=kept))
    guards = {
        (
            names[block_of(event.source)],
            names[block_of(store.target)],
        )
        for event in loaded
        for store in stores
    }
    plan = Plan(
        roles=roles,
        arefs=(*rings, *rings_of_walk(block.walk)),
        walk=block.walk,
        arrangement="pingpong" if block.turns or block.tiles > 1 else "cooperative",
        loops=tuple(planned),
        stores=tuple(
            StorePlan(
                f"{store.name}_out",
                "tma" if store.staged else "registers",
                parts if store.staged and store.name not in slots else 1,
                eviction=_eviction(store),
                stage=slots.get(store.name, ""),
                places=places if store.staged and store.name not in slots else 1,
            )
            for store in stores
        ),
        direct=tuple(event.slot.name for event in loaded if event.direct),
        operands=tuple(OperandPlan(products[id(call)], call.a) for call in moved if call.a),
        warps=4 * (groups * block.tiles + 1) if block.specialize else 4 * groups,
        persistent=block.persistent,
        group=block.group if block.persistent else 0,
        cluster=block.cluster,
        guards=tuple(sorted(guards)) if block.specialize else (),
        split=split,
    )
    return edited(plan, block.plan), tuple(buffers)


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
        for first, *rest in filter(None, call.spread.parts if call.facts.products else ()):
            if rest and rest[-1].held.endswith(" C") and first.extent > 1:
                found["columns" if first.dims == (1,) else "rows"] = call.spread.leaf
    if len(found) > 1:
        raise MappingError(
            f'"{found["rows"].name}" shares out rows, "{found["columns"].name}" columns',
            place=found["columns"].place,
            why="the warpgroups of a block have one or the other of all products",
            remedy="part both alike",
        )
    return "columns" if "columns" in found else "rows"


def _eviction(store: CopyOut) -> Literal["", "first"]:
    """Return what the L2 cache is told: no block reads what another one writes."""
    return "first" if store.staged else ""


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


def _held(
    rings: tuple[ArefPlan, ...], loads: list[tuple[CopyIn, For | None]]
) -> list[tuple[str, int]]:
    """Return the shared memory that rings take, by what lies in it."""
    slots = {event.slot.name: event.slot for event, _ in loads}
    roots = {event.slot.name: event.source.root.name for event, _ in loads}
    found: list[tuple[str, int]] = []
    for ring in rings:
        for tiles in zip(ring.payload, *ring.also, strict=True):
            several = dict.fromkeys(map(roots.__getitem__, tiles))
            label = ", ".join(several) if len(several) > 1 else tiles[0]
            found.append((f"{label} x {ring.depth} slots", ring.depth * _bytes(slots[tiles[0]])))
    return found


def _filled(ring: ArefPlan, loads: list[tuple[CopyIn, For | None]]) -> int:
    """Return how many slots of a ring an iteration fills, of the loop that fills most."""
    around = {event.slot.name: id(loop) for event, loop in loads}
    return max(Counter(around[payload[0]] for payload in (ring.payload, *ring.also)).values())


def _aliased(
    rings: tuple[ArefPlan, ...], loads: list[tuple[CopyIn, For | None]], excess: int
) -> tuple[ArefPlan, ...]:
    """Return the rings with so many bytes less, as far as these can be had: equal tiles of the same
    loops turn through one ring, of as many slots as there is room for and an iteration fills.
    """
    events = {event.slot.name: event for event, _ in loads}
    around = {event.slot.name: loop for event, loop in loads}
    alike: dict[object, list[ArefPlan]] = {}
    for ring in rings:
        inside = {around[payload[0]] for payload in (ring.payload, *ring.also)}
        tiles = [(block_of(events[n].source)[1], events[n].slot.element) for n in ring.payload]
        if None not in inside:  # what is loaded outside of a loop keeps its slot all through it
            alike.setdefault((*tiles, frozenset(map(id, inside))), []).append(ring)
    for group in alike.values():
        sites = [payload for ring in group for payload in (ring.payload, *ring.also)]
        slot = sum(_bytes(events[name].slot) for name in sites[0])
        had = sum(ring.depth for ring in group)
        one = ArefPlan(sites[0], had - max(0, -(-excess // slot)), tuple(sites[1:]))
        one = replace(one, depth=max(one.depth, _filled(one, loads)))
        if one.depth < had and len(group) > 1:
            excess -= (had - one.depth) * slot
            rings = tuple(one if r is group[0] else r for r in rings if r not in group[1:])
    return rings


def _own_rings(
    rings: tuple[ArefPlan, ...], loads: list[tuple[CopyIn, For | None]]
) -> tuple[ArefPlan, ...]:
    """Return the rings of a block without a producer: what stands outside of loops, or in loops of
    fewer iterations than a ring has slots, or is one slot deep, is loaded where it is wanted.
    """
    iterations = {event.slot.name: most(loop.extent) for event, loop in loads if loop is not None}
    found: list[ArefPlan] = []
    for ring in rings:
        long = {name for name, count in iterations.items() if count is None or count >= ring.depth}
        turning = [names for names in (ring.payload, *ring.also) if long.issuperset(names)]
        if turning and ring.depth > 1:
            found.append(ArefPlan(turning[0], ring.depth, tuple(turning[1:])))
    return tuple(found)


def _loaded(loop: For) -> set[str]:
    return {e.slot.name for e in loop.body if isinstance(e, CopyIn) and not e.direct}


def _in_flight(loop: For, depth: dict[str, int], shared: list[Slot]) -> int:
    """Return how many products are under way: one where others of the loop use what they make, or
    it is stored, else one less than the slots, and two are enough.
    """
    inside = [each for each in loop.body if isinstance(each, Call)]
    made = {slot for each in inside if each.facts.products for slot in each.outputs}
    used = {slot for each in inside if not each.facts.products for slot in each.slots}.union(shared)
    least = min(map(depth.__getitem__, _loaded(loop)), default=1)
    return 1 if not made or made & used else max(1, min(2, least - 1))


def _roles(groups: int, block: Instance) -> tuple[RolePlan, ...]:
    """Return the roles. A coarse schedule keeps two iterations' values: it takes what there is."""
    needed = 240 if block.schedule == "coarse" else 0
    budgets = split_registers(groups * block.tiles, needed, H200)
    mma = RolePlan("mma", 4 * groups, budgets.consumer, block.tiles)
    return RolePlan("load", 4, budgets.producer), mma


def _registers(groups: int) -> int:
    """Return the registers of a thread without roles: 255 are all that an instruction can name."""
    return min(255, H200.registers_per_block // (128 * groups))


def _bytes(slot: Slot) -> int:
    return prod(slot.shape) * slot.element.primitive_bitwidth // 8


def _stages(
    stores: list[CopyOut], room: int, *, beside: bool
) -> tuple[int, int, list[tuple[str, int]]]:
    """Return in how many parts staged tiles leave, through how many places in turn, and the stages:
    of what the room allows that in which the fewest parts wait for another one's place. `beside`
    the products of another tile they may wait: the most parts through the fewest places.
    """
    found: list[tuple[int, int, list[tuple[str, int]]]] = []
    choices = [(parts, places) for parts in range(1, 5) for places in range(1, parts + 1)]
    choices.sort(key=lambda each: (each[1], -each[0]) if beside else (each[0] - each[1], *each))
    for parts, places in choices:
        stages: list[tuple[str, int]] = []
        for store in stores:
            bits = store.target.root.element.primitive_bitwidth
            *rows, columns = store.slot.shape
            widths = split_columns(columns, bits, parts)
            if store.staged and widths is not None:
                # Parts of one width take turns in a place; another width has another buffer there.
                held = sum(sum(set(widths[place::places])) for place in range(places))
                stages.append((f"{_STAGE}{store.name}", prod(rows) * held * bits // 8))
        if len(stages) == sum(store.staged for store in stores):
            found.append((parts, places, stages))
    fits = (each for each in found if sum(size for _, size in each[2]) <= room)
    return next(fits, found[-1])


def _slots(
    stores: list[CopyOut], loads: list[tuple[CopyIn, For | None]], rings: tuple[ArefPlan, ...]
) -> dict[str, str]:
    """Return for staged tiles the tile like each, alone in its ring and outside of loops."""
    alone = {ring.payload[0] for ring in rings if len(ring.payload) == 1 and not ring.also}
    able = [event for event, loop in loads if loop is None and event.slot.name in alone]
    found: dict[str, str] = {}
    for store in stores:
        alike = (
            event.slot.name
            for event in able
            if block_of(event.source)[1] == block_of(store.target)[1]
            and event.slot.element == store.target.root.element
            and event.slot.name not in found.values()
        )
        if store.staged and (name := next(alike, "")):
            found[store.name] = name
    return found


def _check_registers(events: Events, groups: int, budget: int) -> None:
    """Refuse what cannot be: what a loop carries stays in registers all along."""
    for loop in loops(events.body):
        kept = [slot for slot in loop.carried if slot not in events.shared]
        held = [(slot.name, -(-_bytes(slot) // (4 * 128 * groups))) for slot in kept]
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


def _check_ceiling(events: Events, mapping: Mapping, buffers: list[tuple[str, int]]) -> None:
    needed = sum(size for _, size in buffers)
    if needed > mapping.ceiling:
        raise OverBudget(
            f"the block needs {needed:,} bytes of SHARED, the ceiling is {mapping.ceiling:,}",
            place=events.block.place,
            why=", ".join(f"{name}: {size:,}" for name, size in buffers),
            remedy="make the tiles smaller, or pipeline less deep",
        )


def copies_of(body: tuple[Event, ...]) -> list[tuple[CopyIn | CopyOut, For | None]]:
    """Return the copies of a body, each with the innermost loop around it."""
    return [(e, loop) for e, loop in walk(body) if isinstance(e, CopyIn | CopyOut)]
