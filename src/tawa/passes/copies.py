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
from xdsl.ir import Operation

from tawa.analysis.copies import copy_run
from tawa.analysis.naming import name_of
from tawa.errors import PlanError
from tawa.ir import tile
from tawa.ir.types import element_type, shape_of, with_shape
from tawa.passes.lower.emit import Emitter, replace


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
    emitter = Emitter.before(load)
    operands = [
        [] if value is None else [emitter.transpose(value, (1, 0))]
        for value in (load.pointer, load.mask, load.other)
    ]
    shape = shape_of(load.result.type)[::-1]
    turned = tile.Load.build(
        operands=operands,
        attributes=dict(load.attributes),
        result_types=[with_shape(shape, element_type(load.result.type))],
    )
    emitter.put(turned, load.result.name_hint)
    replace(load, [emitter.transpose(turned.result, (1, 0))])
    return turned
