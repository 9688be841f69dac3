"""Which dimension of a tile of pointers runs along memory: a reading of its address arithmetic."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import BlockArgument, SSAValue

from tawa.ir import tile
from tawa.ir.types import shape_of

_UNKNOWN = 1 << 40
_DEPTH = 64


def contiguous_axis(pointer: SSAValue) -> int:
    """Return the dimension along which the addresses of a pointer tile step least, but do step.

    The last one when nothing is known. The answer decides speed, never meaning.
    """
    shape = shape_of(pointer.type)
    steps = _steps(pointer, _DEPTH)
    moving = [dim for dim, step in enumerate(steps) if step and shape[dim] > 1]
    return min(moving, key=lambda dim: (abs(steps[dim]), -dim), default=len(shape) - 1)


def _steps(value: SSAValue, depth: int) -> tuple[int, ...]:
    """Return how much `value` grows along each dimension; `_UNKNOWN` where that is not constant."""
    rank = len(shape_of(value.type))
    zero = (0,) * rank
    if depth == 0 or rank == 0:
        return zero if rank == 0 else (_UNKNOWN,) * rank
    if isinstance(value, BlockArgument):
        loop = value.owner.parent_op()
        if isinstance(loop, scf.ForOp) and value.index:
            return _steps(loop.iter_args[value.index - 1], depth - 1)
        return (_UNKNOWN,) * rank
    match value.owner:
        case tile.Constant() | tile.Splat():
            return zero
        case tile.Arange():
            return (1,)
        case tile.ExpandDims() as expand:
            inner = _steps(expand.value, depth - 1)
            axis = expand.axis.data
            return (*inner[:axis], 0, *inner[axis:])
        case tile.Broadcast() | tile.Cast() as same:
            return _steps(same.value, depth - 1)
        case tile.Transpose() as transpose:
            inner = _steps(transpose.value, depth - 1)
            return tuple(inner[dim.data] for dim in transpose.permutation)
        case tile.PtrAdd() as move:
            return _add(_steps(move.pointer, depth - 1), _steps(move.offset, depth - 1))
        case tile.Elementwise() as element:
            return _element_steps(element, depth - 1)
        case _:
            return (_UNKNOWN,) * rank


def _add(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        _UNKNOWN if abs(x) >= _UNKNOWN or abs(y) >= _UNKNOWN else x + y for x, y in zip(a, b)
    )


def _element_steps(element: tile.Elementwise, depth: int) -> tuple[int, ...]:
    parts = [_steps(operand, depth) for operand in element.inputs]
    match element.function.data:
        case "add":
            return _add(parts[0], parts[1])
        case "sub":
            return _add(parts[0], tuple(-step for step in parts[1]))
        case "mul":
            for index in (0, 1):
                if not any(parts[1 - index]):
                    return _scale(parts[index], _uniform(element.inputs[1 - index]))
            return (_UNKNOWN,) * len(parts[0])
        case "irem" | "min" | "max":
            # A wrapped or clamped index steps as the index does, except where it wraps.
            return parts[0]
        case "select":
            return parts[1]
        case _:
            return tuple(_UNKNOWN if step else 0 for step in parts[0])


def _scale(steps: tuple[int, ...], factor: int | None) -> tuple[int, ...]:
    return tuple(
        0
        if not step
        else _UNKNOWN
        if factor is None
        else max(-_UNKNOWN, min(_UNKNOWN, step * factor))
        for step in steps
    )


def _uniform(value: SSAValue) -> int | None:
    """Return the constant that fills a tensor."""
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return number.data
        case tile.Splat() | tile.Broadcast() | tile.Cast() | tile.ExpandDims() as inner:
            return _uniform(inner.value)
        case _:
            return None
