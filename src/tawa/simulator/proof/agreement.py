"""What threads compute for themselves is one value in the proof: where it decides, it must be one.

A scalar of a role is a number in each of its threads. Threads that compute from the same numbers
agree. Threads that each read memory which may change between two reads need not, nor do lanes that
combine what they have in different orders. The proof has one value for them, so such a value may
decide nothing that threads do together: no loop or condition around it, no slot, phase or scale of
a product. What threads read in shared memory agrees again: stores and loads of it are ordered, or
a race.

The rule is one of the text: differences spread from where they begin, through scalars, tiles of
which several threads hold an element, and control flow, until nothing changes.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, line_of, tile
from tawa.ir.control import decisive, terminator
from tawa.ir.types import LayoutAttr
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.counting import is_scalar
from tawa.simulator.proof.globals import Roots, may_change
from tawa.simulator.proof.rules import Unproved

_RULE = "threads agree"
_CONTROL = (scf.ForOp, scf.IfOp, scf.WhileOp)
_ENDS = (scf.YieldOp, scf.ConditionOp, tile.Yield)
_BY_ONE = (tile.Atomic, tile.CompareExchange, tile.AsmEffect, hopper.NextProgram)
_SYMMETRIC = frozenset(
    {"add", "mul", "and", "or", "xor", "eq", "ne", "min", "max", "min_nan", "max_nan"}
)
"""Functions that give two lanes the same, whichever of the two numbers comes first."""

_ALONE = frozenset(
    (
        *(*_CONTROL, *_ENDS, tile.Constant, tile.ProgramId, tile.NumPrograms, tile.DescExtent),
        *(tile.Arange, tile.Splat, tile.ExpandDims, tile.Broadcast, tile.Reshape, tile.Transpose),
        *(tile.Split, tile.Join, tile.Elementwise, tile.Cast, tile.Bitcast, tile.PtrAdd),
        *(tile.Asm, tile.AsmEffect),
        *(tile.Load, tile.Store, tile.Atomic, tile.CompareExchange),
        *(tile.Assume, tile.Print, tile.Assert, hopper.Columns, hopper.Uninitialized, hopper.Pin),
        *(hopper.BlockId, hopper.NumBlocks, hopper.GridExtent, hopper.ClusterRank, hopper.Counter),
    )
)
"""What a thread does without the others: it may stand where they do not come."""


class Agreement:
    """The values of a role that may differ among its threads, and where each difference begins."""

    def __init__(self, census: Census, role: hopper.Role, written: Roots) -> None:
        self._census = census
        self._role = role
        self._written = written
        self._warps = role.warps.data
        self._apart: dict[SSAValue, Operation] = {}

    def check(self) -> None:
        """Raise Unproved where threads that may differ in a value do together what it decides."""
        if not any(map(self._begins, self._census.of(*_BEGIN, within=self._role))):
            return
        before = -1
        while len(self._apart) != before:
            before = len(self._apart)
            self._spread(self._role)
        self._refuse(self._role)

    # --- differences ----------------------------------------------------------------------------

    def _begins(self, operation: Operation) -> bool:
        """Tell whether threads that agree in all operands may differ in what they get."""
        match operation:
            case tile.Load():
                return may_change(operation, self._written)
            case tile.Reduce():
                return _crosses_lanes(operation) and not _is_symmetric(operation)
            case _:
                return isinstance(operation, _BY_ONE)

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
                self._for(operation)
            case scf.IfOp():
                self._spread(operation)
                ends = [terminator(region.block) for region in operation.regions if region.blocks]
                for index, result in enumerate(operation.results):
                    self._mark(result, operation.cond, *(end.operands[index] for end in ends))
            case scf.WhileOp():
                self._while(operation)
            case _:
                begins = self._begins(operation)
                for result in operation.results:
                    if begins:
                        self._put(result, operation)
                    self._mark(result, *operation.operands)

    def _for(self, loop: scf.ForOp) -> None:
        body, end = loop.body.block, terminator(loop.body.block)
        index, *carried = body.args
        self._mark(index, loop.lb, loop.step)
        for argument, first, back in zip(carried, loop.iter_args, end.operands, strict=True):
            self._mark(argument, first, back)
        self._spread(loop)
        for result, argument in zip(loop.results, carried, strict=True):
            self._mark(result, argument, *decisive(loop))

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
        for source in sources:
            if (origin := self._apart.get(source)) is not None:
                self._put(value, origin)
                return

    def _put(self, value: SSAValue, origin: Operation) -> None:
        if value not in self._apart and self._is_held_twice(value):
            self._apart[value] = origin

    def _is_held_twice(self, value: SSAValue) -> bool:
        """Tell whether a value, or an element of it, is in more registers than one."""
        kind = value.type
        if not isinstance(kind, TensorType) or not isinstance(kind.encoding, LayoutAttr):
            return True
        layout = kind.encoding.data
        return 32 * self._warps * layout.register_count != prod(layout.shape)

    # --- what must agree ------------------------------------------------------------------------

    def _refuse(self, around: Operation) -> None:
        for operation in self._all_threads(around):
            if isinstance(operation, _CONTROL):
                self._control(operation)
            elif type(operation) not in _ALONE:
                self._operands(operation)

    def _all_threads(self, around: Operation) -> list[Operation]:
        """Return what stands in an operation, but for what one thread executes."""
        found: list[Operation] = []
        for region in around.regions:
            for block in region.blocks:
                for operation in block.ops:
                    found.append(operation)
                    if not isinstance(operation, hopper.OneThread):
                        found += self._all_threads(operation)
        return found

    def _control(self, control: Operation) -> None:
        """A loop or condition in which threads may part: each does only what it does alone."""
        origin = next((self._apart[v] for v in decisive(control) if v in self._apart), None)
        if origin is None:
            return
        for inner in self._all_threads(control):
            if type(inner) not in _ALONE:
                what = f"which of its threads come to {_told(inner)} is decided by"
                raise self._unproved(what, origin, control)

    def _operands(self, operation: Operation) -> None:
        """What threads do together, or tell an engine, they do with the same numbers."""
        if not isinstance(operation, _TOGETHER):
            return
        for operand in operation.operands:
            if operand in self._apart and is_scalar(operand):
                what = f"{_told(operation)} is done with"
                raise self._unproved(what, self._apart[operand], operation)

    def _unproved(self, what: str, origin: Operation, operation: Operation) -> Unproved:
        label = self._role.label.data
        return Unproved(
            f"in {label}, {what} {_told(origin)}, in which its threads may differ: {_why(origin)}.",
            operation,
            _RULE,
        )


_BEGIN = (tile.Load, tile.Reduce, *_BY_ONE)
_TOGETHER = (
    *(hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive, hopper.Slot),
    *(hopper.Wgmma, hopper.SharedTranspose),
)


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
    kind, axis = reduce.inputs[0].type, reduce.axis.data
    if not isinstance(kind, TensorType) or not isinstance(kind.encoding, LayoutAttr):
        return True
    return any(lanes.step[axis] and lanes.extent > 1 for lanes in kind.encoding.data.lanes)


def _is_symmetric(reduce: tile.Reduce) -> bool:
    first = reduce.body.block.first_op
    if not isinstance(first, tile.Elementwise) or not isinstance(first.next_op, tile.Yield):
        return False
    return first.function.data in _SYMMETRIC
