"""Descriptor loads outside rings: a one-slot buffer that the role itself fills and waits for.

Purpose: lower each `tile.desc_load` of a role that both loads and computes.
Before -> after:
    %x = tile.desc_load %d[..]      hopper.proxy_fence; hopper.named_barrier  (buffer is free)
                              ->    hopper.one_thread { hopper.expect; hopper.tma_load }
                                    hopper.wait %loaded[0], %phase; %x = hopper.shared_load
Where the plan says so (`sharing`), loads of one kind whose tiles are never needed at once fill one
buffer.
Requires: rings lowered. Ensures: the phase runs through all enclosing control flow.
Declines when: never (what TMA cannot move is expanded to pointers before).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tawa.analysis.statements import VIEWS, name_of
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, shape_of
from tawa.ir.walk import all_of, walk
from tawa.layouts.shared import SharedLayout
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Carrier, Emitter, State, replace
from tawa.passes.lower.puts import check_box, issue_copy
from tawa.passes.lower.views import load_view, slot_view


def lower_loads(lowering: Lowering, role: hopper.Role) -> None:
    """Replace the descriptor loads of `role` by TMA copies into buffers of its own."""
    loads = all_of(role, tile.DescLoad)
    if not loads:
        return
    first = next(op for op in role.body.block.ops if not isinstance(op, hopper.SetRegisters))
    zero = Emitter.before(first).constant(0, hint="zero")
    homes = {load: load for load in loads}
    if lowering.plan.sharing:
        homes = _shared_homes(lowering, role, loads)
    made = {home: _home(lowering, home) for home in dict.fromkeys(homes.values())}
    state: State = {(home, "phase"): zero for home in made}

    def touched(operation: Operation) -> list[tuple[Operation, str]]:
        return [(homes[operation], "phase")] if isinstance(operation, tile.DescLoad) else []

    def visit(operation: Operation, state: State) -> None:
        if isinstance(operation, tile.DescLoad):
            home = homes[operation]
            _lower_load(lowering, role, operation, made[home], zero, state, (home, "phase"))

    Carrier(touched, visit, _nothing, _nothing).run(role.body.block, state)


def _nothing(_where: Operation | Block, _state: State) -> None:
    return


def _shared_homes(
    lowering: Lowering, role: hopper.Role, loads: list[tile.DescLoad]
) -> dict[Operation, tile.DescLoad]:
    """Return whose buffer each load fills: that of an earlier one of its kind that is done with."""
    order = {operation: place for place, operation in enumerate(walk(role))}
    ends: dict[tuple[SharedLayout, Attribute], dict[tile.DescLoad, int]] = {}
    found: dict[Operation, tile.DescLoad] = {}
    for load in loads:
        free = ends.setdefault(_kind(lowering, load), {})
        home = next((home for home, end in free.items() if end < order[load]), load)
        found[load] = home
        free[home] = _last_use(load, order)
    return found


def _last_use(load: tile.DescLoad, order: dict[Operation, int]) -> int:
    """Return the place of the last statement that may read a tile where it lies."""
    block = load.parent
    assert block is not None, "a load stands in a block"
    last = order[load]
    work: list[SSAValue] = [load.result]
    while work:
        for use in work.pop().uses:
            user = block.find_ancestor_op_in_block(use.operation)
            assert user is not None, "a value is used where its definition is seen"
            last = max(last, *(order[inner] for inner in walk(user)))
            if isinstance(use.operation, VIEWS):
                work.append(use.operation.results[0])
    return last


def _kind(lowering: Lowering, load: tile.DescLoad) -> tuple[SharedLayout, Attribute]:
    shape, element = shape_of(load.result.type), element_type(load.result.type)
    return lowering.placement(shape, element), element


@dataclass(frozen=True, slots=True)
class _Home:
    """Where tiles are loaded to, and the barrier that says they are there."""

    buffer: hopper.Shared
    loaded: hopper.Barriers


def _home(lowering: Lowering, load: tile.DescLoad) -> _Home:
    layout, element = _kind(lowering, load)
    name = name_of(load)
    buffer = lowering.new_buffer(name, layout, element)
    return _Home(buffer, lowering.new_barriers(f"{name} loaded", 1, "loaded"))


def _lower_load(
    lowering: Lowering,
    role: hopper.Role,
    load: tile.DescLoad,
    home: _Home,
    zero: SSAValue,
    state: State,
    key: tuple[Operation, str],
) -> None:
    layout, _ = _kind(lowering, load)
    check_box(lowering, load, layout)
    buffer, loaded = home.buffer, home.loaded
    emitter = Emitter.before(load)
    # Reads by threads come before a write by TMA only through a proxy fence of each reader.
    emitter.put(hopper.ProxyFence())
    emitter.put(lowering.role_barrier(role))
    one = emitter.one_thread()
    one.put(hopper.Expect.make(loaded.result, zero, bytes=layout.bytes))
    issue_copy(lowering, one, load, slot_view(one, buffer, zero), loaded, zero)
    phase = state[key]
    emitter.put(hopper.Wait.make(loaded.result, zero, phase))
    view = slot_view(emitter, buffer, zero)
    value = load_view(emitter, view, load.result.type, load.result.name_hint)
    state[key] = emitter.apply("xor", phase, emitter.constant(1), hint="next_phase")
    replace(load, [value])
