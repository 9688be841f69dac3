"""The fence of wgmma, as a rule of the text: on every path one stands before each product.

A wgmma takes registers that threads have read or written only after a wgmma_fence that stands after
these accesses (PTX ISA, "wgmma.fence"). Which registers an accumulator gets is the compiler's
choice, so any access counts to registers that some product uses: between the last of them, or the
start of the role, and the next wgmma every path through loops and conditions has a fence. The rule
does not ask how many trips a loop makes, or which conditions hold together: what it accepts is
fenced for every input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper, line_of, tile
from tawa.simulator.proof.rules import Violation

Open: TypeAlias = "Operation | None"
"""The access (or role, for its start) that no fence follows on some path; None where all do."""


@dataclass(frozen=True, slots=True)
class Fences:
    """The registers of a role's products: threads that read tensors of `running` or make ones of
    `tracked` access them, which operations that are `touching` do.
    """

    label: str
    running: set[SSAValue]
    tracked: set[SSAValue]
    touching: set[Operation]

    def check(self, role: hopper.Role) -> None:
        """Raise Violation where a path leads to a wgmma without a fence."""
        self._block(role.body.block, role)

    def _block(self, block: Block, before: Open) -> Open:
        """Return what is open at the end of a block, given what is before it."""
        for operation in block.ops:
            if type(operation) in _KNOWN:
                before = self._operation(operation, before)
            elif self._accesses(operation):
                before = operation
        return before

    def _operation(self, operation: Operation, before: Open) -> Open:
        match operation:
            case hopper.WgmmaFence():
                return None
            case hopper.Wgmma() if before is not None:
                raise self._unfenced(operation, before)
            case hopper.Wgmma() | hopper.WgmmaCommit() | hopper.WgmmaWait():
                return before
            case scf.YieldOp() | tile.Yield() | scf.ConditionOp():
                return before
            case scf.ForOp():
                return self._for(operation, operation if self._fills(operation) else before)
            case scf.WhileOp():
                return self._while(operation, before)
            case scf.IfOp():
                ends = [
                    self._block(side.block, before) for side in operation.regions if side.blocks
                ]
                return _either(*ends) if len(ends) > 1 else _either(before, *ends)
            case _:  # one thread makes no fence of its warpgroup
                inside = [self._block(part.block, before) for part in operation.regions]
                return _either(before, *inside)

    def _for(self, loop: scf.ForOp, before: Open) -> Open:
        body = loop.body.block
        end = self._block(body, before)
        if before is None and end is not None:
            self._block(body, end)
        return _either(before, end)

    def _while(self, loop: scf.WhileOp, before: Open) -> Open:
        test, body = loop.before_region.block, loop.after_region.block
        passed = self._block(test, before)
        end = self._block(body, passed)
        if before is None and end is not None:
            passed = self._block(test, end)
            self._block(body, passed)
        return passed

    def _fills(self, loop: scf.ForOp) -> bool:
        """Tell whether a carried tensor starts as a constant, with which threads fill registers."""
        return any(
            carried in self.tracked and isinstance(first.owner, tile.Constant)
            for carried, first in zip(loop.body.block.args[1:], loop.iter_args, strict=True)
        )

    def _accesses(self, operation: Operation) -> bool:
        """Tell whether threads read or write registers of products."""
        return operation in self.touching or (
            bool(operation.regions) and not self.running.isdisjoint(operands_of(operation))
        )

    def _unfenced(self, wgmma: hopper.Wgmma, access: Operation) -> Violation:
        line = f" on line {line_of(access)}" if line_of(access) else ""
        start = isinstance(access, hopper.Role)
        what = "the start of the role" if start else f"{access.name}{line}, which touches registers"
        sentence = f"{self.label} starts a wgmma with no wgmma_fence on a path to it from {what}."
        return Violation("wgmma fence", sentence, wgmma)


_KNOWN = frozenset(
    (
        *(hopper.WgmmaFence, hopper.Wgmma, hopper.WgmmaCommit, hopper.WgmmaWait, hopper.OneThread),
        *(scf.ForOp, scf.WhileOp, scf.IfOp, scf.YieldOp, scf.ConditionOp, tile.Yield),
    )
)


def operands_of(operation: Operation) -> Sequence[SSAValue]:
    """Return the operands of an operation and of what stands in its regions (reduce, scan)."""
    if not operation.regions:
        return operation.operands
    return [value for inner in operation.walk() for value in inner.operands]


def _either(*found: Open) -> Open:
    """Return what is open at the end of some path."""
    return next((access for access in found if access is not None), None)
