"""Scalars that a loop carries without counting: after how many trips they repeat.

A flag that tells the first trip from the others, or a place in a ring: what a trip hands back is a
function of what the loop carries alone, so its values repeat sooner or later.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from tawa.analysis.ranges import Range, range_of_type
from tawa.analysis.remember import remembered
from tawa.ir import tile
from tawa.ir.control import terminator
from tawa.simulator.proof.counting import constant_of, recurrence_of
from tawa.simulator.proof.course import LATEST
from tawa.simulator.proof.functions import FUNCTIONS, cast_name, name_of
from tawa.simulator.proof.rules import Unproved

_Values = dict[SSAValue, int | None]


class Cycles:
    """The cycles of what loops carry, each looked for once."""

    def __init__(self) -> None:
        self._found: dict[BlockArgument, tuple[int, int] | None] = {}

    def of(self, operation: Operation, value: BlockArgument) -> tuple[int, int]:
        """Return after how many trips a scalar that decides an operation repeats, and every how
        many then: (0, 2) where it depends on more than what its loop carries. Raises Unproved where
        it does not repeat in the trips that are run.
        """
        if value not in self._found:
            self._found[value] = cycle_of(value)
        trips, period = self._found[value] or (0, 2)
        if trips + period > LATEST:
            raise Unproved(
                f"{operation.name} guards synchronization by what a loop carries, of which it is "
                f"not seen that it repeats in the {LATEST} trips that are run",
                operation,
            )
        return trips, period


def cycle_of(value: BlockArgument) -> tuple[int, int] | None:
    """Return after how many trips a carried scalar repeats, and every how many then; None where it
    depends on more than what its loop carries; beyond the trips that are run, where it is not seen
    or something overflows, which no run computes as the machine does.
    """
    group = _group(value)
    starts = [_start(item) for item in group]
    if None in starts:
        return None
    state = tuple(starts)
    seen: dict[tuple[int | None, ...], int] = {}
    while state not in seen:
        seen[state] = len(seen)
        if len(seen) > LATEST:
            return LATEST, 1
        known: _Values = dict(zip(group, state, strict=True))
        state = tuple(_value(_back(item), known) for item in group)
        if any(map(_overflows, known.items())):
            return LATEST, 1
        if None in state:
            return None
    return seen[state], len(seen) - seen[state]


def _overflows(item: tuple[SSAValue, int | None]) -> bool:
    """Tell whether a number is none of its type."""
    value, number = item
    kind: Attribute = value.type
    if number is None or not isinstance(kind, IntegerType):
        return False
    held = range_of_type(value.type)
    return not held.holds(Range(number, number))


def _back(value: BlockArgument) -> SSAValue:
    recurrence = recurrence_of(value)
    return recurrence[1] if recurrence is not None else value


def _group(value: BlockArgument) -> list[BlockArgument]:
    """Return what the loop carries that the scalar depends on, itself first."""
    found: dict[BlockArgument, None] = {value: None}
    work: list[SSAValue] = [_back(value)]
    seen: set[SSAValue] = set()
    while work:
        item = work.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(item, BlockArgument):
            if item.owner is value.owner and recurrence_of(item) is not None:
                found[item] = None
                work.append(_back(item))
        else:
            work += _parts(item)
    return list(found)


def _parts(value: SSAValue) -> list[SSAValue]:
    match value.owner:
        case tile.Elementwise() | tile.Cast() as operation:
            return list(operation.operands)
        case scf.IfOp() as branch if isinstance(value, OpResult):
            ends = [terminator(region.block) for region in branch.regions if region.blocks]
            return [branch.cond, *(end.operands[value.index] for end in ends)]
        case _:
            return []


def _start(value: SSAValue) -> int | None:
    """Return the number a carried scalar starts from, perhaps handed in by loops around."""
    while isinstance(value, BlockArgument):
        recurrence = recurrence_of(value)
        if recurrence is None:
            return None
        value = recurrence[0]
    return constant_of(value)


@remembered
def _value(value: SSAValue, known: _Values) -> int | None:
    """Return a scalar at the end of a trip, None where it depends on anything else."""
    if (number := constant_of(value)) is not None:
        return number
    if not isinstance(value, OpResult):
        return None
    parts = _parts(value)
    match value.owner:
        case scf.IfOp():
            condition = _value(parts[0], known)
            return None if condition is None else _value(parts[1 if condition else 2], known)
        case tile.Cast(value=inner):
            return None if cast_name(inner.type, value.type) else _value(inner, known)
        case tile.Elementwise(function=function):
            inputs = [_value(part, known) for part in parts]
            name = name_of(function.data, parts[0].type)
            if name == "not":
                name, inputs = "xor", [*inputs, 1]
            if None in inputs or name not in FUNCTIONS:
                return None
            return FUNCTIONS[name](*inputs)
        case _:
            return None
