"""The operands that say which slot of a ring, and which phase, an operation means."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.counting import is_scalar

RING = (
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.TmaLoad,
    hopper.CopyAsyncArrive,
    hopper.Slot,
)


def ring_operands(census: Census) -> list[tuple[Operation, SSAValue, str]]:
    """Return the operands that say which slot and which phase an operation means."""
    found: list[tuple[Operation, SSAValue, str]] = []
    for operation in census.of(*RING):
        match operation:
            case hopper.Wait():
                found += [
                    (operation, operation.slot, "slot"),
                    (operation, operation.phase, "phase"),
                ]
            case hopper.Arrive() | hopper.Expect() | hopper.TmaLoad() | hopper.CopyAsyncArrive():
                found.append((operation, operation.slot, "slot"))
            case hopper.Slot():
                found.append((operation, operation.index, "slot"))
    return [item for item in found if is_scalar(item[1])]
