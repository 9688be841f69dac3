"""What a plan is made for: a kernel, a target and pins, with the facts found once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tawa.analysis.roles import Partition
from tawa.analysis.transposed import Transposed
from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.plan.pins import Pins
from tawa.plan.plan import Declined
from tawa.plan.resources import carried_in_shared as carried
from tawa.target import Target


@dataclass(frozen=True, slots=True)
class Problem:
    """All that the decisions of one plan read.

    `transposed` are the loads whose tiles a role of its own transposes for the products. `blocks`
    share a multiprocessor: the target is what one of them has of it.
    """

    kernel: tile.Kernel
    target: Target
    pins: Pins
    statements: Mapping[str, Operation]
    partition: Partition
    transposed: Mapping[Operation, Transposed] = field(default_factory=dict[Operation, Transposed])
    blocks: int = 1

    @property
    def dots(self) -> list[tile.Dot]:
        """The products, in program order."""
        return [op for op in self.statements.values() if isinstance(op, tile.Dot)]

    @property
    def loops(self) -> list[scf.ForOp]:
        """The counted loops, in program order."""
        return [op for op in self.statements.values() if isinstance(op, scf.ForOp)]

    @property
    def kept(self) -> list[SSAValue]:
        """The tensors that loops are to carry in shared memory."""
        names = self.pins.shared or ()
        return [each for loop in self.statements.values() for each in carried(loop, names)]

    @property
    def declined(self) -> tuple[Declined, ...]:
        """The loads the partition leaves with the consumer."""
        return tuple(Declined(what, why) for what, why in self.partition.declined)

    @property
    def rows(self) -> list[int]:
        """The rows M of each product."""
        return [shape_of(dot.result.type)[-2] for dot in self.dots]

    @property
    def hints(self) -> dict[str, int]:
        """Triton's options that are set to numbers."""
        found: dict[str, int] = {}
        for key, value in self.kernel.options.data.items():
            if (number := number_of(value)) is not None:
                found[key] = number
        return found


def number_of(value: Attribute | None) -> int | None:
    """Return the number an attribute holds."""
    match value:
        case IntAttr():
            return value.data
        case IntegerAttr():
            return value.value.data
        case _:
            return None
