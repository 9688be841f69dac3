"""Reductions and scans: their bodies on whole arrays where they can be, else by elements.

Functions of elements, as NumPy computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.functions import FUNCTIONS
from tawa.simulator.decode import Decoder, Frame, Rule, Step
from tawa.simulator.values import F32, NARROW, Array, DType, convert, dtype_of

_VECTOR = (tile.Elementwise, tile.Constant, tile.Cast, tile.Bitcast, tile.Yield)


def _combiner(
    decoder: Decoder, operation: tile.Reduce | tile.Scan | hopper.CarryIn
) -> Callable[[Frame, list[Any], list[Any]], list[Any]]:
    """Return the function (frame, left tuple, right tuple) -> combined tuple, on whole arrays.

    A body of element functions acts on arrays as it stands; one with control flow is run once for
    each element.
    """
    body = decoder.body(operation.body.block)
    if body.step.blocking:
        raise InternalError(f"{operation.name} has a body that waits")

    def vector(frame: Frame, left: list[Any], right: list[Any]) -> list[Any]:
        values = frame.values
        for number, value in zip(body.arguments, [*left, *right]):
            values[number] = value
        body.step.run(frame)
        return [np.broadcast_to(values[r], np.shape(old)) for r, old in zip(body.results, left)]

    def single(frame: Frame, left: list[Any], right: list[Any]) -> list[Any]:
        out = [np.empty_like(item) for item in left]
        for where in np.ndindex(np.shape(left[0])):
            parts = vector(frame, [x[where] for x in left], [x[where] for x in right])
            for target, part in zip(out, parts):
                target[where] = part
        return out

    simple = all(isinstance(op, _VECTOR) for op in operation.body.block.ops)
    return vector if simple else single


def _halve(
    combine: Callable[[Frame, list[Any], list[Any]], list[Any]], frame: Frame, items: list[Array]
) -> list[Array]:
    """Combine neighbours along the last axis, an odd one at the end staying as it is."""
    even = items[0].shape[-1] // 2 * 2
    pairs = combine(frame, [x[..., 0:even:2] for x in items], [x[..., 1:even:2] for x in items])
    return [np.concatenate([pair, x[..., even:]], axis=-1) for pair, x in zip(pairs, items)]


def decode_reduce(decoder: Decoder, operation: tile.Reduce) -> Step:
    """tile.reduce: neighbours first, a tree of ceil(log2 n) levels that keeps the order."""
    readers = [decoder.reader(value, operation) for value in operation.inputs]
    outputs = decoder.numbered(operation.res)
    combine, axis = _combiner(decoder, operation), operation.axis.data

    def run(frame: Frame) -> None:
        items = [np.moveaxis(read(frame.values), axis, -1) for read in readers]
        while items[0].shape[-1] > 1:
            items = _halve(combine, frame, items)
        for out, item in zip(outputs, items):
            frame.values[out] = item[..., 0][()]

    return Step(run)


def decode_scan(decoder: Decoder, operation: tile.Scan) -> Step:
    """tile.scan: one element after the other along the axis."""
    readers = [decoder.reader(value, operation) for value in operation.inputs]
    outputs = decoder.numbered(operation.res)
    combine, axis = _combiner(decoder, operation), operation.axis.data
    backwards = operation.reverse is not None and bool(operation.reverse.value.data)

    def run(frame: Frame) -> None:
        items = [np.array(np.moveaxis(read(frame.values), axis, 0)) for read in readers]
        order = range(items[0].shape[0])
        places = list(reversed(order) if backwards else order)
        for before, at in pairwise(places):
            parts = combine(frame, [x[before] for x in items], [x[at] for x in items])
            for item, part in zip(items, parts):
                item[at] = part
        for out, item in zip(outputs, items):
            frame.values[out] = np.moveaxis(item, 0, axis)

    return Step(run)


def decode_carry_in(decoder: Decoder, operation: hopper.CarryIn) -> Step:
    """hopper.carry_in: each part but the first with its neighbour's end."""
    ends, parts = (
        [decoder.reader(value, operation) for value in values]
        for values in (operation.ends, operation.parts)
    )
    outputs = decoder.numbered(operation.res)
    combine, axis = _combiner(decoder, operation), operation.axis.data
    backwards = operation.reverse is not None and bool(operation.reverse.value.data)
    taken, given = (slice(1, None), slice(-1)) if not backwards else (slice(-1), slice(1, None))

    def run(frame: Frame) -> None:
        items = [np.array(np.moveaxis(read(frame.values), axis, 0)) for read in parts]
        before = [np.moveaxis(read(frame.values), axis, 0)[given] for read in ends]
        before = [
            np.broadcast_to(np.expand_dims(end, axis + 1), item[taken].shape)
            for end, item in zip(before, items)
        ]
        made = combine(frame, before, [item[taken] for item in items])
        for out, item, part in zip(outputs, items, made):
            item[taken] = part
            frame.values[out] = np.moveaxis(item, 0, axis)

    return Step(run)


REDUCTIONS: dict[type[Operation], Rule] = {
    tile.Reduce: decode_reduce,
    tile.Scan: decode_scan,
    hopper.CarryIn: decode_carry_in,
}


# --- functions of elements ------------------------------------------------------------------------


def element_function(name: str, inputs: DType, result: DType) -> Callable[..., Any]:
    """Return a row of the table as a function of arrays or scalars of dtype `inputs`.

    16- and 8-bit floats are computed in f32 and rounded once. `inputs` is the type of the operands
    computed with (of a select: the two it chooses between).
    """
    apply = FUNCTIONS[name].numpy
    if inputs in NARROW and name != "select":

        def narrow(*operands: Any) -> Any:
            wide = apply(np, *[operand.astype(F32) for operand in operands])
            return convert(np.asarray(wide), result)[()]

        return narrow

    def native(*operands: Any) -> Any:
        value = apply(np, *operands)
        return value if value.dtype == result else value.astype(result)

    def plain(*operands: Any) -> Any:
        return native(*operands)[()]

    return plain


def elementwise(operation: tile.Elementwise) -> Callable[..., Any]:
    """Return the function that an operation applies; it checks what is promised of the result."""
    name = operation.function.data
    result = dtype_of(operation.result.type)
    apply = element_function(name, dtype_of(operation.inputs[-1].type), result)
    return apply if operation.within is None else _bounded(operation, apply)


def _bounded(operation: tile.Elementwise, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose results must lie in a range: something was compiled upon that."""
    assert operation.within is not None
    low, high = (bound.data for bound in operation.within.data)

    def run(*operands: Any) -> Any:
        found = apply(*operands)
        if not (low <= np.min(found) and np.max(found) <= high):
            raise InternalError(
                f"{operation.name} gives {found}",
                why=f"it is said to lie within {low} and {high}",
                remedy="this is a fault of the compiler: please report it with the kernel",
            )
        return found

    return run
