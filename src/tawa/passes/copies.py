"""Purpose: bring a load that cp.async shall do into the one form the lowering copies.

Before -> after::

    %b = tile.load %p (K x N, neighbours along K)      %q = tile.transpose %p
                                                  ->   %t = tile.load %q {contiguous = 8} (N x K)
                                                       %b = tile.transpose %t

Requires: a load that `tawa.analysis.copies` accepts. Ensures: its addresses run along the last
dimension, in runs of `contiguous` elements that are aligned and masked alike; the tile is the same.
Declines: never; a load that cannot be copied is a `PlanError`.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tawa.analysis.copies import copy_run
from tawa.analysis.naming import name_of
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import element_type, int_array, shape_of, with_shape


def prepare_copy(load: Operation) -> Operation:
    """Return the load that takes the place of `load`, with its run as an attribute."""
    if not isinstance(load, tile.Load):
        raise PlanError(f"{name_of(load)} via=copy_async", why="cp.async goes through pointers")
    run = copy_run(load)
    if isinstance(run, str):
        raise PlanError(f"{name_of(load)} via=copy_async", why=run)
    if run.axis != len(shape_of(load.result.type)) - 1:
        load = _turn(load)
    load.attributes["contiguous"] = IntAttr(run.elements)
    return load


def _turn(load: tile.Load) -> tile.Load:
    """Load a matrix transposed, and transpose the tile: in shared memory that costs nothing."""
    pointer = _transposed(load.pointer, load)
    mask = [_transposed(load.mask, load)] if load.mask is not None else []
    other = [_transposed(load.other, load)] if load.other is not None else []
    turned = tile.Load(
        operands=[pointer, mask, other],
        attributes=dict(load.attributes),
        result_types=[_flipped(load.result)],
    )
    _insert(turned, load)
    value = _transposed(turned.result, load)
    turned.result.name_hint = value.name_hint = load.result.name_hint
    load.result.replace_all_uses_with(value)
    load.detach()
    load.erase()
    return turned


def _transposed(value: SSAValue, before: Operation) -> SSAValue:
    turn = tile.Transpose(
        operands=[value],
        attributes={"permutation": int_array([1, 0])},
        result_types=[_flipped(value)],
    )
    _insert(turn, before)
    return turn.result


def _flipped(value: SSAValue) -> Attribute:
    return with_shape(shape_of(value.type)[::-1], element_type(value.type))


def _insert(operation: Operation, before: Operation) -> None:
    block = before.parent
    assert block is not None, "a load stands in a block"
    operation.location = before.location
    block.insert_op_before(operation, before)
