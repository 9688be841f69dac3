"""Which dimension of a tile of pointers runs along memory: a reading of its address arithmetic."""

from __future__ import annotations

from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, SSAValue

from tawa.ir import tile
from tawa.ir.types import shape_of
from tawa.passes.fold import integer_of

_UNKNOWN = 1 << 40
_DEPTH = 64

_Steps: TypeAlias = tuple[int, ...]
_Known: TypeAlias = dict[SSAValue, _Steps]
"""What one question has found so far: a value that is used twice is looked at once."""


def contiguous_axis(pointer: SSAValue) -> int:
    """Return the dimension along which the addresses of a pointer tile step least, but do step.

    The last one when nothing is known. The answer decides speed, never meaning.
    """
    shape = shape_of(pointer.type)
    steps = _steps(pointer, _DEPTH, {})
    moving = [dim for dim, step in enumerate(steps) if step and shape[dim] > 1]
    return min(moving, key=lambda dim: (abs(steps[dim]), -dim), default=len(shape) - 1)


def _steps(value: SSAValue, depth: int, known: _Known) -> _Steps:
    """Return how much `value` grows along each dimension; `_UNKNOWN` where that is not constant."""
    if value not in known:
        known[value] = _found(value, depth, known)
    return known[value]


def _found(value: SSAValue, depth: int, known: _Known) -> _Steps:
    rank = len(shape_of(value.type))
    zero = (0,) * rank
    if depth == 0 or rank == 0:
        return zero if rank == 0 else (_UNKNOWN,) * rank
    if isinstance(value, BlockArgument):
        loop = value.owner.parent_op()
        if isinstance(loop, scf.ForOp) and value.index:
            return _steps(loop.iter_args[value.index - 1], depth - 1, known)
        return (_UNKNOWN,) * rank
    match value.owner:
        case tile.Constant() | tile.Splat():
            return zero
        case tile.Arange():
            return (1,)
        case tile.ExpandDims() as expand:
            inner = _steps(expand.value, depth - 1, known)
            axis = expand.axis.data
            return (*inner[:axis], 0, *inner[axis:])
        case tile.Broadcast() | tile.Cast() as same:
            return _steps(same.value, depth - 1, known)
        case tile.Transpose() as transpose:
            inner = _steps(transpose.value, depth - 1, known)
            return tuple(inner[dim.data] for dim in transpose.permutation)
        case tile.PtrAdd() as move:
            return _add(
                _steps(move.pointer, depth - 1, known), _steps(move.offset, depth - 1, known)
            )
        case tile.Elementwise() as element:
            return _element_steps(element, depth - 1, known)
        case _:
            return (_UNKNOWN,) * rank


def _add(a: _Steps, b: _Steps) -> _Steps:
    return tuple(
        _UNKNOWN if abs(x) >= _UNKNOWN or abs(y) >= _UNKNOWN else x + y for x, y in zip(a, b)
    )


def _element_steps(element: tile.Elementwise, depth: int, known: _Known) -> _Steps:
    parts = [_steps(operand, depth, known) for operand in element.inputs]
    match element.function.data:
        case "add":
            return _add(parts[0], parts[1])
        case "sub":
            return _add(parts[0], tuple(-step for step in parts[1]))
        case "mul":
            for index in (0, 1):
                if not any(parts[1 - index]):
                    return _scale(parts[index], integer_of(element.inputs[1 - index]))
            return (_UNKNOWN,) * len(parts[0])
        case "idiv" if not any(parts[1]):
            divisor = integer_of(element.inputs[1])
            return tuple(_quotient(step, divisor) for step in parts[0])
        case "irem" | "min" | "max":
            # A wrapped or clamped index steps as the index does, except where it wraps.
            return parts[0]
        case "select":
            return parts[1]
        case _:
            return tuple(_UNKNOWN if step else 0 for step in parts[0])


def _quotient(step: int, divisor: int | None) -> int:
    """Return the step of an index divided: none where it is less than the divisor, except at the
    ends of blocks, as where a remainder wraps. A divisor of the run is some extent, and wide.
    """
    if divisor is None:
        return step if step == _UNKNOWN else 0
    if divisor and abs(step) < _UNKNOWN and (step % divisor == 0 or abs(step) < abs(divisor)):
        return step // divisor if step % divisor == 0 else 0
    return _UNKNOWN if step else 0


def _scale(steps: _Steps, factor: int | None) -> _Steps:
    return tuple(
        0
        if not step
        else _UNKNOWN
        if factor is None
        else max(-_UNKNOWN, min(_UNKNOWN, step * factor))
        for step in steps
    )
