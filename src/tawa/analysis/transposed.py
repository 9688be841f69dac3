"""Loaded tiles that lie the wrong way round for the products they go into.

wgmma reads 8-bit operands only with the reduction dimension K contiguous (PTX ISA,
"wgmma.mma_async", "Strides"; 16-bit ones it takes either way). A tile whose every use is as an
operand that lies the other way round can be transposed once, on its way through shared memory, by
warps of their own; a tile with other uses as well stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tawa.analysis.hardware import Run, copy_run
from tawa.analysis.statements import VIEWS, name_of
from tawa.ir import line_of, tile
from tawa.ir.types import bit_width, element_type, shape_of, spell
from tawa.layouts.transpose import COLUMNS, ROWS, share_blocks

TRANSPOSERS = 4
"""Warps of the role that transposes: one warpgroup, which setmaxnreg moves registers of."""


@dataclass(frozen=True, slots=True)
class Use:
    """A product that takes a tile through views: operand `index` (0 is a) is the tile's value."""

    dot: tile.Dot
    index: int


@dataclass(frozen=True, slots=True)
class Transposed:
    """A load whose tile [R, C] is wanted as [C, R], in all of its `uses`.

    `interleaved`: the other operand of each product is computed in registers, whose fragments hold
    K in the order of an accumulator's columns; the transposition can bring R into that order.
    """

    load: Operation
    uses: tuple[Use, ...]
    interleaved: bool


def transposed(load: Operation) -> Transposed | str:
    """Return how a load's tile is transposed, or why it is not: "" where nothing asks for it."""
    value = load.results[0]
    element = element_type(value.type)
    if bit_width(element) != 8:
        return ""
    uses = list(_uses(value))
    dots = [use for use in uses if isinstance(use, Use)]
    wrong = [use for use in dots if not _is_contiguous(load, use)]
    if not wrong:
        return ""
    if len(wrong) < len(uses):
        return f"its tile is also read as it lies, by {_other(uses, wrong)}"
    shape = stored_plane(load)
    if share_blocks(shape, TRANSPOSERS) is None:
        listed = "x".join(map(str, shape))
        return (
            f"{TRANSPOSERS} warps cannot share {listed} elements of {spell(element)} in blocks of "
            f"{ROWS} x {COLUMNS}"
        )
    small = next((use.dot for use in dots if not fills_wgmma(use.dot)), None)
    if small is not None:
        return f"{name_of(small)} is too small for wgmma"
    return Transposed(load, tuple(dots), all(map(_meets_registers, dots)))


def plane(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without its unit dimensions."""
    return tuple(extent for extent in shape if extent != 1)


def stored_plane(load: Operation) -> tuple[int, ...]:
    """Return the shape of a load's tile in memory order, without unit dimensions."""
    shape = plane(shape_of(load.results[0].type))
    return shape if _contiguous(load) == _last(load) else shape[::-1]


def _last(load: Operation) -> int:
    """Return the last dimension of a load's tile that is no unit."""
    shape = shape_of(load.results[0].type)
    return max((dim for dim, extent in enumerate(shape) if extent != 1), default=0)


def _contiguous(load: Operation) -> int:
    """Return the dimension of a load's tile that its slot has contiguous."""
    run = copy_run(load) if isinstance(load, tile.Load) else ""
    return run.axis if isinstance(run, Run) else _last(load)


def _uses(value: SSAValue) -> Iterator[Use | Operation]:
    for use in value.uses:
        match use.operation:
            case tile.Dot() if use.index < 2:
                yield Use(use.operation, use.index)
            case _ if isinstance(use.operation, VIEWS):
                yield from _uses(use.operation.results[0])
            case _:
                yield use.operation


def _other(uses: list[Use | Operation], wrong: list[Use]) -> str:
    other = next(use for use in uses if use not in wrong)
    if isinstance(other, Use):
        return name_of(other.dot)
    return f"{other.name} at line {line_of(other)}"  # not all that reads a tile has a name in plans


def _is_contiguous(load: Operation, use: Use) -> bool:
    """Tell whether the reduction dimension of an operand is the last of the load's tile."""
    value = use.dot.operands[use.index]
    k = 1 - use.index
    while value is not load.results[0]:
        match value.owner:
            case tile.Transpose() as transpose:
                k = transpose.permutation.data[k].data
                value = transpose.value
            case tile.Reshape() | tile.ExpandDims() as reshape:
                found = _through(shape_of(value.type), shape_of(reshape.value.type), k)
                if found is None:
                    return False
                k, value = found, reshape.value
            case _:
                return False
    return k == _contiguous(load)


def _through(after: tuple[int, ...], before: tuple[int, ...], dim: int) -> int | None:
    """Return which dimension of a reshape's operand `dim` of its result is, if it is one."""
    if plane(after) != plane(before) or after[dim] == 1:
        return None
    rank = sum(extent != 1 for extent in after[:dim])
    return [index for index, extent in enumerate(before) if extent != 1][rank]


def fills_wgmma(dot: tile.Dot) -> bool:
    """Tell whether a product, or its transpose, has the 64 rows of a warpgroup."""
    rows, columns = shape_of(dot.result.type)[-2:]
    return rows % 64 == 0 or columns % 64 == 0


def _meets_registers(use: Use) -> bool:
    """Tell whether a transposed operand b meets an operand a that registers hold."""
    if use.index != 1 or shape_of(use.dot.result.type)[-2] % 64:
        return False
    value = use.dot.a
    while isinstance(value.owner, VIEWS):
        value = value.owner.operands[0]
    in_runs = 0 <= use.dot.max_imprecise.data <= shape_of(use.dot.a.type)[-1]
    return isinstance(value.owner, (tile.Cast, tile.Elementwise)) and not in_runs
