"""What a launch of a kernel must be asked: conditions that passes and the plan left behind."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, StringAttr

from tawa.ir import tile
from tawa.plan.plan import Plan
from tawa.runtime.compiled import Demand, Guard

_REASONS = {
    "guards": "pointer accesses became descriptor accesses",
    "steps": "loops with steps of the run were taken to count upwards",
    "row_ends": "TMA writes rows of a store in whole pieces of 16 bytes",
    "bounds": "numbers of elements were taken not to wrap",
    "cluster_guards": "the blocks of a cluster share loads",
}
"""Attributes of a kernel that hold conditions of its launch, and why."""


def guards_of(kernel: tile.Kernel, plan: Plan) -> tuple[Guard, ...]:
    """Return what only a launch can decide, as conditions over its arguments and grid."""
    found = [
        Guard(
            f"disjoint({first}, {stored})",
            f"{first} is accessed out of order with stores to {stored}",
        )
        for first, stored in plan.guards
    ]
    for name, reason in _REASONS.items():
        match kernel.attributes.get(name):
            case ArrayAttr() as texts:
                found += [
                    Guard(text.data, reason) for text in texts if isinstance(text, StringAttr)
                ]
            case _:
                pass
    return tuple(found)


def demands_of(kernel: tile.Kernel) -> tuple[Demand, ...]:
    """Return what a launch must hold to: pairs of a condition and what is said otherwise."""
    found: list[Demand] = []
    match kernel.attributes.get("demands"):
        case ArrayAttr() as pairs:
            for pair in pairs:
                match pair:
                    case ArrayAttr(data=(StringAttr(data=condition), StringAttr(data=refusal))):
                        found.append(Demand(condition, refusal))
                    case _:
                        pass
        case _:
            pass
    return tuple(found)
