"""Global memory: what a kernel writes, and whether a copy may run ahead of a store.

Two accesses to one argument, one of them a write, are checked where roles differ or TMA is one of
them: either one is known to be done before the other starts, or their boxes are apart. Offsets are
compared as linear forms over the unknowns; what is not linear counts as an unknown of its own.
The trips of the loop over programs that made a kernel persistent are independent of one another.
Accesses of one role by threads keep the order of the program. Different arguments are different
memory: a launch guard sees to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tawa.analysis.effects import is_volatile
from tawa.analysis.memory import roots_of
from tawa.ir import hopper, line_of, tile
from tawa.ir.types import TensorMapType, ViewType
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.expressions import Expr, Scalar
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.rules import Row, Violation
from tawa.simulator.proof.scalars import Scalars, itself

Roots = frozenset[int] | None
Box = tuple[tuple[Scalar, int], ...]
"""Offset and extent in each dimension, slowest first."""


def written_roots(census: Census) -> Roots:
    """Return the numbers of the arguments the kernel writes through; None: unknown ones."""
    found: frozenset[int] = frozenset()
    for operation in census.of(*_WRITES):
        roots = roots_at(operation)
        if roots is None:
            return None
        found |= roots
    return found


def is_write(operation: Operation) -> bool:
    """Tell whether an operation writes global memory."""
    return isinstance(operation, _WRITES)


def roots_at(operation: Operation) -> Roots:
    """Return the arguments an access to global memory may go through, none for other operations."""
    match operation:
        case tile.Load() | tile.Store() | tile.Atomic() | tile.CompareExchange():
            return pointer_roots(operation.pointer)
        case hopper.CopyAsync():
            return pointer_roots(operation.pointer)
        case hopper.TmaStore() | hopper.TmaLoad():
            owner = operation.map.owner
            return roots_of(owner.desc) if isinstance(owner, hopper.TensorMap) else None
        case _:
            return frozenset()


def pointer_roots(pointer: SSAValue) -> Roots:
    """Return the arguments a pointer may come from, in whatever registers it lies."""
    while isinstance(pointer.owner, hopper.ConvertLayout):
        pointer = pointer.owner.value
    return roots_of(pointer)


def may_change(operation: tile.Load | tile.Atomic | tile.CompareExchange, written: Roots) -> bool:
    """Tell whether two reads of one address may give different values."""
    if not isinstance(operation, tile.Load) or is_volatile(operation):
        return True
    roots = pointer_roots(operation.pointer)
    return roots is None or written is None or bool(roots & written)


def meet(first: Roots, second: Roots) -> bool:
    """Tell whether two sets of arguments have one in common."""
    return first is None or second is None or bool(first & second)


def followed_accesses(census: Census) -> dict[Operation, Roots]:
    """Return the accesses that must be ordered with another one, and what they go through."""
    accesses = [
        (operation, roots, role)
        for role in census.of(hopper.Role)
        for operation in census.of(*_ACCESSES, within=role)
        if (roots := roots_at(operation)) is None or roots
    ]
    found: dict[Operation, Roots] = {}
    for operation, roots, role in accesses:
        for other, others, owner in accesses:
            writes = is_write(operation) or is_write(other)
            if writes and meet(roots, others) and _unordered(operation, role, other, owner):
                found[operation] = roots
    return found


def _unordered(first: Operation, role: Operation, second: Operation, owner: Operation) -> bool:
    """Tell whether the program's order does not already order two accesses."""
    if isinstance(first, hopper.TmaStore) and isinstance(second, hopper.TmaStore):
        return False  # writes of one program to one place: the author's business
    return role is not owner or isinstance(first, _TMA) or isinstance(second, _TMA)


_TMA = (hopper.TmaLoad, hopper.TmaStore)
_WRITES = (tile.Store, tile.Atomic, tile.CompareExchange, hopper.TmaStore)
_ACCESSES = (*_WRITES, tile.Load, hopper.CopyAsync, hopper.TmaLoad)


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """One access: `event` is what the other must know (its completion), None box: anywhere."""

    operation: Operation
    roots: Roots
    write: bool
    asynchronous: bool
    agent: Agent
    event: int
    box: Box | None
    step: int
    program: int


class GlobalMemory:
    """The accesses of a run that are followed."""

    def __init__(self, followed: dict[Operation, Roots], scalars: Scalars) -> None:
        self.followed = followed
        self.scalars = scalars
        self.accesses: dict[tuple[Operation, int, int], GlobalAccess] = {}

    def access(
        self, agent: Agent, operation: Operation, event: int, box: Box | None, program: int
    ) -> None:
        """Check an access of a program (a number of the loop over them) against the earlier ones,
        and keep it.
        """
        after = GlobalAccess(
            operation,
            self.followed[operation],
            is_write(operation),
            isinstance(operation, _TMA),
            agent,
            event,
            box,
            agent.world.steps,
            program,
        )
        replaced: list[tuple[Operation, int, int]] = []
        for key, before in self.accesses.items():
            if self._conflict(before, after):
                raise _violation(before, after)
            if _stands_for(after, before):
                replaced.append(key)
        for key in replaced:
            del self.accesses[key]
        self.accesses[operation, agent.number, event] = after

    def _conflict(self, before: GlobalAccess, after: GlobalAccess) -> bool:
        if not (before.write or after.write) or not meet(before.roots, after.roots):
            return False
        first, second = before.agent, after.agent
        same = first.role == second.role and first.block == second.block
        if first.block != second.block or before.program != after.program:
            return False  # programs are independent: the order of two is nobody's
        if same and not (before.asynchronous or after.asynchronous):
            return False
        if before.write and after.write and before.asynchronous == after.asynchronous:
            return (
                False  # writes of one program to one place by the same way: the author's business
            )
        # hopper.proxy_fence is one of shared memory: nothing brings what threads wrote to global
        # memory before TMA's eyes.
        across = before.write and after.asynchronous and not before.asynchronous
        if not across and self._ordered(before, after):
            return False
        return before.box is None or after.box is None or not self._apart(before.box, after.box)

    def _ordered(self, before: GlobalAccess, after: GlobalAccess) -> bool:
        return not before.event & ~after.agent.known

    def _apart(self, first: Box, second: Box) -> bool:
        if len(first) != len(second):
            return False
        return any(
            _beyond(self.scalars, a, extent, b, other)
            for (a, extent), (b, other) in zip(first, second, strict=True)
        )


def _stands_for(after: GlobalAccess, before: GlobalAccess) -> bool:
    """Tell whether who is ordered after an access is ordered after an earlier one as well, which it
    repeats: the earlier one was over before.
    """
    return (
        before.operation is after.operation
        and before.agent is after.agent
        and before.program == after.program
        and before.box == after.box
        and not before.event & ~after.agent.known
    )


def _violation(before: GlobalAccess, after: GlobalAccess) -> Violation:
    rows = tuple(
        Row(item.step, item.agent.label, line_of(item.operation), item.operation.name)
        for item in (before, after)
    )
    did = "write" if before.write else "read"
    does = "writes" if after.write else "reads"
    sentence = (
        f"{after.agent.label} {does} global memory by {after.operation.name} that "
        f"{before.operation.name} of {before.agent.label} may still {did}: nothing orders them."
    )
    return Violation("global order", sentence, after.operation, rows)


def box_of(
    operation: hopper.TmaLoad | hopper.TmaStore, env: list[Scalar], places: tuple[int, ...]
) -> Box | None:
    """Return the box of a copy: its offsets from the environment, the extents of its view.

    None for windows, whose pixels lie anywhere in the images.
    """
    kind, source = operation.view.type, operation.map.type
    assert isinstance(kind, ViewType)
    assert isinstance(source, TensorMapType)
    if len(places) > len(source.box_shape):
        return None
    extents = kind.shape
    if len(extents) != len(places):
        unit = (1,) * (len(places) - len(extents))
        extents = (*unit, *(extent for extent in extents))[-len(places) :]
    return tuple((env[place], extent) for place, extent in zip(places, extents, strict=True))


def offsets_of(operation: Operation) -> Iterator[SSAValue]:
    """Yield the offsets of a copy by TMA."""
    if isinstance(operation, _TMA):
        yield from operation.offsets


def _beyond(scalars: Scalars, a: Scalar, extent: int, b: Scalar, other: int) -> bool:
    """Tell whether [a, a + extent) and [b, b + other) are apart for all unknowns."""
    form: dict[Expr, int] = {}
    for item in (a, b):
        scalars.answered(itself, (item,), scalars.value(item))
    difference = _linear(scalars, a, 1, form) + _linear(scalars, b, -1, form)
    same = not any(form.values())
    return same and (difference >= other or -difference >= extent)


def _linear(scalars: Scalars, scalar: Scalar, factor: int, form: dict[Expr, int]) -> int:
    """Add factor * scalar to a linear form over unknowns; return its constant part."""
    known = scalars.value(scalar)
    if known is not None:
        return factor * known
    assert isinstance(scalar, Expr)
    args = [arg for arg in scalar.args if isinstance(arg, (int, Expr))]
    match scalar.function:
        case "add" | "sub" if len(args) == 2:
            sign = 1 if scalar.function == "add" else -1
            first = _linear(scalars, args[0], factor, form)
            return first + _linear(scalars, args[1], sign * factor, form)
        case "mul" if len(args) == 2:
            left, right = scalars.value(args[0]), scalars.value(args[1])
            if left is not None:
                return _linear(scalars, args[1], factor * left, form)
            if right is not None:
                return _linear(scalars, args[0], factor * right, form)
        case "neg":
            return _linear(scalars, args[0], -factor, form)
        case _:
            pass
    form[scalar] = form.get(scalar, 0) + factor
    return 0
