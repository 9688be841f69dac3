"""Descriptor loads outside rings: a one-slot buffer that the role itself fills and waits for.

Purpose: lower each `tile.desc_load` of a role that both loads and computes.
Before -> after:
    %x = tile.desc_load %d[..]      hopper.proxy_fence; hopper.named_barrier  (buffer is free)
                              ->    hopper.one_thread { hopper.expect; hopper.tma_load }
                                    hopper.wait %loaded[0], %phase; %x = hopper.shared_load
Requires: rings lowered. Ensures: the phase runs through all enclosing control flow.
Declines when: never (what TMA cannot move is expanded to pointers before).
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.naming import name_of
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, shape_of
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Carrier, Emitter, State, new_region, replace
from tawa.passes.lower.puts import check_box, issue_copy
from tawa.passes.lower.views import load_view, slot_view


def lower_loads(lowering: Lowering, role: hopper.Role) -> None:
    """Replace the descriptor loads of `role` by TMA copies into buffers of its own."""
    loads = [op for op in role.walk() if isinstance(op, tile.DescLoad)]
    if not loads:
        return
    first = next(op for op in role.body.block.ops if not isinstance(op, hopper.SetRegisters))
    zero = Emitter.before(first).constant(0, hint="zero")
    state: State = {(load, "phase"): zero for load in loads}

    def touched(operation: Operation) -> list[tuple[Operation, str]]:
        return [(operation, "phase")] if isinstance(operation, tile.DescLoad) else []

    def visit(operation: Operation, state: State) -> None:
        if isinstance(operation, tile.DescLoad):
            _lower_load(lowering, role, operation, zero, state)

    Carrier(touched, visit, _nothing, _nothing).run(role.body.block, state)


def _nothing(_where: Operation | Block, _state: State) -> None:
    return


def _lower_load(
    lowering: Lowering, role: hopper.Role, load: tile.DescLoad, zero: SSAValue, state: State
) -> None:
    shape, element = shape_of(load.result.type), element_type(load.result.type)
    layout = lowering.placement(shape, element)
    check_box(lowering, load, layout)
    name = name_of(load)
    buffer = lowering.new_buffer(name, layout, element)
    loaded = lowering.new_barriers(f"{name} loaded", 1, "loaded")
    emitter = Emitter.before(load)
    # Reads by threads come before a write by TMA only through a proxy fence of each reader.
    emitter.put(hopper.ProxyFence())
    emitter.put(lowering.role_barrier(role))
    one = Emitter.at_end(emitter.put(hopper.OneThread(regions=[new_region()])).body.block)
    one.put(
        hopper.Expect(operands=[loaded.result, zero], attributes={"bytes": IntAttr(layout.bytes)})
    )
    issue_copy(lowering, one, load, slot_view(one, buffer, zero), loaded, zero)
    phase = state[load, "phase"]
    emitter.put(hopper.Wait(operands=[loaded.result, zero, phase]))
    view = slot_view(emitter, buffer, zero)
    value = load_view(emitter, view, load.result.type, load.result.name_hint)
    state[load, "phase"] = emitter.apply("xor", phase, emitter.constant(1), hint="next_phase")
    replace(load, [value])
