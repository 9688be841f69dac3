"""Loads through pointers that threads can start as asynchronous copies to shared memory (cp.async).

cp.async moves 4, 8 or 16 bytes a thread from an address aligned to its size, and fills with zeros
what is masked off (PTX ISA, "cp.async"). So a tile is copied where the addresses run along one of
its dimensions far enough, and the mask is one answer for each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.analysis.effects import is_volatile
from tawa.ir import tile
from tawa.ir.types import PtrType, Real, bit_width, element_type, shape_of

WIDTHS = (16, 8, 4)
"""Bytes that one cp.async moves, widest first."""
_THREADS = 128  # of the producer


@dataclass(frozen=True, slots=True)
class Run:
    """How a tile is copied: `elements` neighbours along dimension `axis` by each instruction."""

    axis: int
    elements: int


def copy_run(load: tile.Load) -> Run | str:
    """Return how cp.async copies the tile of a load, or the reason why it cannot."""
    shape, element = shape_of(load.result.type), element_type(load.result.type)
    if is_volatile(load):
        return "it is volatile"
    if load.mask is not None and load.other is not None and not is_zero(load.other):
        return "masked-off elements are not zero, which is what cp.async fills with"
    if isinstance(element, PtrType) or bit_width(element) < 8:
        return f"cp.async does not move tiles of {element}"
    size = bit_width(element) // 8
    facts = Contiguity()
    runs = [Run(axis, _width(facts, load, axis, size)) for axis in reversed(range(len(shape)))]
    along = facts.of(load.pointer)
    best = max(runs, key=lambda run: (run.elements, along[run.axis].contiguity))
    if best.elements * size < min(WIDTHS):
        return (
            f"only {best.elements * size} bytes are known to be neighbours in memory and masked "
            f"alike, cp.async moves {min(WIDTHS)} at least"
        )
    if prod(shape) < best.elements * _THREADS:
        return f"{prod(shape)} elements do not fill the producer's {_THREADS} threads"
    return best


def _width(facts: Contiguity, load: tile.Load, axis: int, size: int) -> int:
    """Return the neighbours along `axis` that one instruction moves; 1 where it cannot."""
    run = facts.of(load.pointer)[axis]
    limit = gcd(shape_of(load.result.type)[axis], run.contiguity)
    if load.mask is not None:
        limit = gcd(limit, facts.of(load.mask)[axis].constancy)
    counts = [width // size for width in WIDTHS if width % size == 0 and width >= size]
    return next(
        (count for count in counts if limit % count == 0 and run.starts(count) % count == 0), 1
    )


def is_zero(value: SSAValue) -> bool:
    """Tell whether a value is zero everywhere; the negative zero of floats is none."""
    match value.owner:
        case tile.Splat() | tile.Broadcast() | tile.Cast() | tile.ExpandDims() as op:
            return is_zero(op.value)
        case tile.Constant(value=IntAttr() as number):
            return number.data == 0
        case tile.Constant(value=Real() as number):
            return number.data == 0 and str(number.data)[0] != "-"
        case _:
            return False
