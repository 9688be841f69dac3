"""Where warpgroups may change turns: the work between the products of a block.

Warpgroups that take turns issue their products one after the other; while one does, the others do
the rest of their iteration. So a turn should span what stands close together, and leave out the
stretch of an iteration that holds the most other work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, Operation

from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.ir.walk import walk

IsProduct = Callable[[Operation], bool]

_WORK = (tile.Elementwise, tile.Reduce, tile.Cast)
"""Statements that cost instructions for each element; others name, move or repeat elements."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """The products directly in a block, and the elements computed after each of them.

    `work[i]` is what stands between product i and the next, `before` what stands before the first.
    In the body of a loop the stretch after the last product goes on with `before`.
    """

    products: tuple[Operation, ...]
    work: tuple[int, ...]
    before: int

    @property
    def rounds(self) -> tuple[int, ...]:
        """The work after each product where the block is the body of a loop."""
        return (*self.work[:-1], self.work[-1] + self.before)

    @property
    def widest(self) -> int:
        """The product of a loop's body that is followed by the most work."""
        return max(range(len(self.products)), key=lambda index: self.rounds[index])


def iteration(block: Block, is_product: IsProduct) -> Iteration | None:
    """Return the products directly in `block`; None where there are none."""
    products: list[Operation] = []
    work = [0]
    for operation in block.ops:
        if is_product(operation):
            products.append(operation)
            work.append(0)
        else:
            work[-1] += _elements(operation)
    return Iteration(tuple(products), tuple(work[1:]), work[0]) if products else None


def takes_turns(loop: scf.ForOp, is_product: IsProduct) -> Iteration | None:
    """Return the iteration of a loop whose warpgroups gain by turns; None for any other loop.

    Its products stand in it directly, and at least one is followed by other work.
    """
    for operation in loop.body.block.ops:
        if operation.regions and any(is_product(inner) for inner in walk(operation)):
            return None
    found = iteration(loop.body.block, is_product)
    return found if found is not None and max(found.rounds) > 0 else None


def _elements(operation: Operation) -> int:
    """Return how many elements an operation computes, with its regions."""
    if isinstance(operation, tile.Reduce):
        return prod(shape_of(operation.operands[0].type))
    inner = sum(
        _elements(op) for region in operation.regions for block in region.blocks for op in block.ops
    )
    if isinstance(operation, _WORK):
        shape = shape_of(operation.results[0].type)
        return prod(shape) if shape else 0
    return inner
