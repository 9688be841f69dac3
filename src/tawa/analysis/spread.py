"""Whether the pointers of a tile are all different: a proof from their address arithmetic."""

from __future__ import annotations

from math import inf

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.analysis.affine import affine_of, trip_count
from tawa.analysis.polynomial import keeps_number, keeps_sum
from tawa.analysis.remember import remembered
from tawa.ir import hopper, tile
from tawa.ir.types import shape_of

_ANY = 0
"""The step of a dimension along a stride known only at launch."""


def is_spread(pointer: SSAValue, loop: scf.ForOp | None = None) -> bool:
    """Tell whether all pointers of a tile are provably different; with a `loop` those of different
    trips too, but for the same element's.

    Addresses must be linear in the indices. Strides known at launch only are taken to be those of
    a tensor whose elements do not overlap; known ones must leave room for the smaller ones.
    """
    steps = _steps(pointer, {})
    if steps is None:
        return False
    moving: list[tuple[int | None, float]] = [
        (step, extent) for step, extent in zip(steps, shape_of(pointer.type)) if extent > 1
    ]
    if loop is not None and (moved := _moved(pointer, loop)) != 0:
        if any(step == _ANY for step, _ in moving):  # trips may walk from row to row
            return False
        moving.append((moved, trip_count(loop) or inf))
    if any(step is None for step, _ in moving):
        return False
    reach = 0.0
    for step, extent in sorted((abs(step or _ANY), extent) for step, extent in moving):
        if step == _ANY:
            continue
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _moved(value: SSAValue, loop: scf.ForOp) -> int | None:
    """Return by how much every element grows from one trip of a loop to the next; None: unknown."""
    if not loop.is_ancestor(value.owner):
        return 0
    match value.owner:
        case tile.PtrAdd(pointer=first, offset=second):
            return _summed(_moved(first, loop), _moved(second, loop), 1)
        case _ if not shape_of(value.type):
            return _number_moved(value, loop)
        case tile.Constant() | tile.Arange():
            return 0
        case tile.Cast() as cast if not keeps_number(cast):
            return None
        case tile.Splat() | tile.Broadcast() | tile.ExpandDims() | tile.Cast() as same:
            return _moved(same.operands[0], loop)
        case hopper.ConvertLayout(value=inner):
            return _moved(inner, loop)
        case tile.Elementwise(inputs=[first, second]) as element if keeps_sum(element):
            moved = _moved(first, loop), _moved(second, loop)
            match element.function.data:
                case "add" | "sub":
                    return _summed(*moved, 1 if element.function.data == "add" else -1)
                case "mul" if moved[1] == 0:
                    return _times(moved[0], _uniform(second))
                case "mul" if moved[0] == 0:
                    return _times(moved[1], _uniform(first))
                case _:
                    return None
        case _:
            return None


def _number_moved(number: SSAValue, loop: scf.ForOp) -> int | None:
    form, step = affine_of(number), affine_of(loop.step).known
    terms = dict(form.terms)
    factor = terms.pop(loop.body.block.args[0], 0)
    return None if any(loop.is_ancestor(each.owner) for each in terms) else _times(step, factor)


def _summed(first: int | None, second: int | None, sign: int) -> int | None:
    return None if first is None or second is None else first + sign * second


def _times(moved: int | None, factor: int | None) -> int | None:
    return moved if moved == 0 else None if moved is None or factor is None else moved * factor


_Steps = tuple[int | None, ...]


_Known = dict[SSAValue, _Steps | None]


@remembered
def _steps(value: SSAValue, known: _Known) -> _Steps | None:
    """Return the step along each dimension, None where there is none; None: not linear."""
    rank = len(shape_of(value.type))
    if rank == 0:
        return ()
    match value.owner:
        case tile.Constant() | tile.Splat():
            return (None,) * rank
        case tile.Arange():
            return (1,)
        case tile.ExpandDims() as expand:
            inner = _steps(expand.value, known)
            axis = expand.axis.data
            return None if inner is None else (*inner[:axis], None, *inner[axis:])
        case tile.Cast() as cast if not keeps_number(cast):
            return None
        case tile.Broadcast() | tile.Cast() | hopper.ConvertLayout() as same:
            return _steps(same.operands[0], known)
        case tile.PtrAdd() as move:
            return _sum(move.pointer, move.offset, 1, known)
        case tile.Elementwise() as element if keeps_sum(element):
            return _element(element, known)
        case _:
            return None


def _element(element: tile.Elementwise, known: _Known) -> _Steps | None:
    inputs = list(element.inputs)
    match element.function.data:
        case "add":
            return _sum(inputs[0], inputs[1], 1, known)
        case "sub":
            return _sum(inputs[0], inputs[1], -1, known)
        case "mul":
            first, second = _steps(inputs[0], known), _steps(inputs[1], known)
            if first is None or second is None:
                return None
            if _still(second):
                return _scaled(first, _uniform(inputs[1]))
            return _scaled(second, _uniform(inputs[0])) if _still(first) else None
        case _:
            return None


def _sum(a: SSAValue, b: SSAValue, sign: int, known: _Known) -> _Steps | None:
    first, second = _steps(a, known), _steps(b, known)
    if first is None or second is None:
        return None
    if any(x is not None and y is not None for x, y in zip(first, second)):
        return None
    return tuple(
        x if x is not None else None if y is None else y * sign for x, y in zip(first, second)
    )


def _still(steps: _Steps) -> bool:
    return all(step is None for step in steps)


def _scaled(steps: _Steps, factor: int | None) -> _Steps | None:
    if factor == 0:
        return None
    return tuple(
        None if step is None else _ANY if factor is None else step * factor for step in steps
    )


def _uniform(value: SSAValue) -> int | None:
    """Return the constant that fills a tensor."""
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return number.data
        case tile.Splat() | tile.Broadcast() | tile.Cast() | tile.ExpandDims() as inner:
            return _uniform(inner.operands[0])
        case _:
            return None
