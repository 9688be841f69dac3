"""Threads of a role agree on what they do together.

A scalar is a number in each thread of a role. Threads that compute from the same numbers agree.
Threads that each read memory which may change between two reads need not, nor do lanes that combine
what they have in different orders, nor those that did not make an atomic themselves. Such a value
may decide nothing that threads do together: no loop or condition around it, no slot, phase or scale
of a product. What they read in shared memory agrees again: its stores and loads are ordered.

Differences spread from where they begin, through scalars, tiles of which several threads hold an
element, and control flow, until nothing changes: a finite set that only grows.

A rule beside it: what an atomic gave is one thread's, and reaches others through shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.analysis.memory import roots_of
from tawa.analysis.statements import CONTROL, is_volatile
from tawa.ir import hopper, line_of, tile
from tawa.ir.types import LayoutAttr
from tawa.ir.walk import all_of, decisive, terminator
from tawa.layouts.convert import is_replicated
from tawa.layouts.register import RegisterLayout
from tawa.verify.forwarded import written_arguments
from tawa.verify.rules import Refused, rule

_BY_ONE = (tile.Atomic, tile.CompareExchange, tile.AsmEffect, hopper.NextProgram)
_SYMMETRIC = frozenset(
    {"add", "mul", "and", "or", "xor", "eq", "ne", "min", "max", "min_nan", "max_nan"}
)
"""Functions that give two lanes the same, whichever of the two numbers comes first."""

_ALONE = frozenset(
    (
        *(*CONTROL, scf.YieldOp, scf.ConditionOp, tile.Yield, tile.Constant, tile.ProgramId),
        *(tile.NumPrograms, tile.DescExtent, tile.Arange, tile.Splat, tile.ExpandDims),
        *(tile.Broadcast, tile.Reshape, tile.Transpose, tile.Split, tile.Join, tile.Elementwise),
        *(tile.Cast, tile.Bitcast, tile.PtrAdd, tile.Asm, tile.AsmEffect, tile.Load, tile.Store),
        *(tile.Atomic, tile.CompareExchange, tile.Assume, tile.Print, tile.Assert),
        *(hopper.Columns, hopper.Uninitialized, hopper.Pin, hopper.BlockId, hopper.NumBlocks),
        *(hopper.GridExtent, hopper.ClusterRank, hopper.Counter),
    )
)
"""What a thread does without the others: it may stand where they do not come."""

_TOGETHER = (
    *(hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive, hopper.Slot),
    *(hopper.Wgmma, hopper.SharedTranspose),
)


def check_threads(kernel: tile.Kernel) -> None:
    """Raise Refused where threads that may differ in a value do together what it decides."""
    _check_owners(kernel)
    written = written_arguments(kernel)
    for role in all_of(kernel, hopper.Role):
        if any(_begins(each, written) for each in all_of(role, tile.Load, tile.Reduce, *_BY_ONE)):
            _Agreement(role, written).check()


def _begins(operation: Operation, written: frozenset[int] | None) -> bool:
    """Tell whether threads that agree in all operands may differ in what they get."""
    match operation:
        case tile.Load():
            pointer = operation.pointer
            while isinstance(pointer.owner, hopper.ConvertLayout):
                pointer = pointer.owner.value
            roots = roots_of(pointer)
            if is_volatile(operation) or roots is None or written is None:
                return True
            return bool(roots & written)
        case tile.Reduce():
            return _crosses_lanes(operation) and not _is_symmetric(operation)
        case _:
            return isinstance(operation, _BY_ONE)


class _Agreement:
    """The values of a role that may differ among its threads, and where each difference begins."""

    def __init__(self, role: hopper.Role, written: frozenset[int] | None) -> None:
        self._role = role
        self._written = written
        self._apart: dict[SSAValue, Operation] = {}

    def check(self) -> None:
        before = -1
        while len(self._apart) != before:
            before = len(self._apart)
            self._spread(self._role)
        for operation in _all_threads(self._role):
            if isinstance(operation, CONTROL):
                origin = self._origin(decisive(operation))
                inside = (each for each in _all_threads(operation) if type(each) not in _ALONE)
                if origin is not None and (first := next(inside, None)) is not None:
                    self._refuse(f"whether threads come to {_told(first)}", origin, operation)
            elif isinstance(operation, _TOGETHER):
                scalars = [each for each in operation.operands if _is_scalar(each)]
                if (origin := self._origin(scalars)) is not None:
                    self._refuse(
                        f"with which numbers threads do {_told(operation)}", origin, operation
                    )

    def _refuse(self, what: str, origin: Operation, operation: Operation) -> None:
        raise Refused(
            rule("threads agree"),
            f"in {self._role.label.data}, {what} is decided by {_told(origin)}, in which its "
            f"threads may differ: {_why(origin)}",
            operation,
        )

    def _origin(self, values: Iterable[SSAValue]) -> Operation | None:
        return next((self._apart[value] for value in values if value in self._apart), None)

    def _spread(self, around: Operation) -> None:
        """Carry differences once through what stands in the regions of an operation."""
        for region in around.regions:
            for block in region.blocks:
                for operation in block.ops:
                    self._operation(operation)

    def _operation(self, operation: Operation) -> None:
        match operation:
            case hopper.OneThread():
                return  # one thread agrees with itself, and gives no values
            case scf.ForOp():
                body, end = operation.body.block, terminator(operation.body.block)
                index, *carried = body.args
                self._mark(index, operation.lb, operation.step)
                for argument, first, back in zip(
                    carried, operation.iter_args, end.operands, strict=True
                ):
                    self._mark(argument, first, back)
                self._spread(operation)
                for result, argument in zip(operation.results, carried, strict=True):
                    self._mark(result, argument, *decisive(operation))
            case scf.WhileOp():
                self._while(operation)
            case scf.IfOp():
                self._spread(operation)
                ends = [terminator(region.block) for region in operation.regions if region.blocks]
                for index, result in enumerate(operation.results):
                    self._mark(result, operation.cond, *(end.operands[index] for end in ends))
            case _:
                begins = bool(operation.results) and _begins(operation, self._written)
                for result in operation.results:
                    if begins:
                        self._put(result, operation)
                    self._mark(result, *operation.operands)

    def _while(self, loop: scf.WhileOp) -> None:
        before, after = loop.before_region.block, loop.after_region.block
        test, end = terminator(before), terminator(after)
        for argument, first, back in zip(before.args, loop.arguments, end.operands, strict=True):
            self._mark(argument, first, back)
        for argument, passed in zip(after.args, test.operands[1:], strict=True):
            self._mark(argument, passed)
        self._spread(loop)
        for result, passed in zip(loop.results, test.operands[1:], strict=True):
            self._mark(result, passed, *decisive(loop))

    def _mark(self, value: SSAValue, *sources: SSAValue) -> None:
        """Note that a value may differ where one of its sources may."""
        if (origin := self._origin(sources)) is not None:
            self._put(value, origin)

    def _put(self, value: SSAValue, origin: Operation) -> None:
        layout = _layout(value)
        threads = 32 * self._role.warps.data
        if layout is None or threads * layout.register_count != prod(layout.shape):
            self._apart.setdefault(value, origin)


def _all_threads(around: Operation) -> list[Operation]:
    """Return what stands in an operation, but for what one thread executes."""
    found: list[Operation] = []
    for region in around.regions:
        for block in region.blocks:
            for operation in block.ops:
                found.append(operation)
                if not isinstance(operation, hopper.OneThread):
                    found += _all_threads(operation)
    return found


def _check_owners(kernel: tile.Kernel) -> None:
    """Only who has what an atomic gave uses it: others read it from shared memory."""
    for role in all_of(kernel, hopper.Role):
        for operation in _all_threads(role):
            if not isinstance(operation, tile.Atomic | tile.CompareExchange | hopper.NextProgram):
                continue
            users = [use.operation for use in operation.result.uses]
            layout = _layout(operation.result)
            owned = layout is not None and (
                not is_replicated(layout, role.warps.data)
                or all(isinstance(u, hopper.SharedStore) and bool(u.owners) for u in users)
            )
            if users and not owned:
                raise Refused(
                    rule("one owner"),
                    f"all threads of {role.label.data} use what {operation.name} gave to one of "
                    "them",
                    operation,
                )


def _layout(value: SSAValue) -> RegisterLayout | None:
    kind = value.type
    if isinstance(kind, TensorType) and isinstance(kind.encoding, LayoutAttr):
        return kind.encoding.data
    return None


def _is_scalar(value: SSAValue) -> bool:
    return not isinstance(value.type, TensorType)


def _told(operation: Operation) -> str:
    line = line_of(operation)
    return f"{operation.name} on line {line}" if line else operation.name


def _why(origin: Operation) -> str:
    if isinstance(origin, tile.Reduce):
        return "lanes combine in different orders"
    if isinstance(origin, _BY_ONE):
        return "it is not done by one of them and told to the others"
    return "each reads for itself what may change meanwhile"


def _crosses_lanes(reduce: tile.Reduce) -> bool:
    layout, axis = _layout(reduce.inputs[0]), reduce.axis.data
    if layout is None:
        return True
    return any(lanes.step[axis] and lanes.extent > 1 for lanes in layout.lanes)


def _is_symmetric(reduce: tile.Reduce) -> bool:
    first = reduce.body.block.first_op
    if not isinstance(first, tile.Elementwise) or not isinstance(first.next_op, tile.Yield):
        return False
    return first.function.data in _SYMMETRIC
