"""What the units of a multiprocessor take: TMA, the tensor cores, cp.async.

What TMA can move: whose descriptors the host can encode, and which blocks.

Which products the tensor cores take, by types and precision (PTX ISA, wgmma and mma shapes).

Loads through pointers that threads can start as asynchronous copies to shared memory (cp.async).

cp.async moves 4, 8 or 16 bytes a thread from an address aligned to its size, and fills with zeros
what is masked off (PTX ISA, "cp.async"). So a tile is copied where the addresses run along one of
its dimensions far enough, and the mask is one answer for each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.analysis.statements import is_volatile
from tawa.ir import tile
from tawa.ir.types import (
    DescType,
    PtrType,
    Real,
    bit_width,
    element_type,
    is_float,
    shape_of,
    spell,
)
from tawa.target import H200, Target


def is_host_made(desc: SSAValue) -> bool:
    """Tell whether a descriptor depends on the kernel's arguments only: the host can encode it."""
    match desc.owner:
        case Block():
            return isinstance(desc.owner.parent_op(), tile.Kernel)
        case tile.MakeDesc():
            return all(map(_is_host_known, desc.owner.operands))
        case _:
            return False


def _is_host_known(value: SSAValue) -> bool:
    match value:
        case BlockArgument():
            return isinstance(value.owner.parent_op(), tile.Kernel)
        case _ if isinstance(
            value.owner, (tile.Constant, tile.Elementwise, tile.Cast, tile.PtrAdd, tile.DescExtent)
        ):
            return all(map(_is_host_known, value.owner.operands))
        case _:
            return False


def block_objection(kind: Attribute, target: Target = H200) -> str:
    """Return why TMA does not move blocks of a descriptor type, or nothing."""
    assert isinstance(kind, DescType), "blocks are those of descriptors"
    row = kind.block_shape[-1] * max(8, bit_width(kind.element)) // 8
    if row % target.tma_alignment:
        return f"rows of the block are {row} bytes, not a multiple of {target.tma_alignment}"
    if len(kind.block_shape) > target.tma_rank:
        return f"{len(kind.block_shape)} dimensions, TMA has {target.tma_rank}"
    return ""


def padding_of(desc: SSAValue) -> str:
    """Return what is read outside of a descriptor's tensor, "zero" or "nan"."""
    match desc.owner:
        case tile.MakeDesc() as made:
            return made.padding.data
        case Block() as block if isinstance(kernel := block.parent_op(), tile.Kernel):
            found = kernel.arguments.data[block.args.index(desc)].data.get("padding")
            return found.data if isinstance(found, StringAttr) else "zero"
        case _:
            return "zero"


# --- what the tensor cores take -------------------------------------------------------------------


K_BYTES = 32
"""Bytes of K one tensor-core step takes."""


def tensor_core_objection(
    a: Attribute, b: Attribute, acc: Attribute, k: int, precision: str
) -> str:
    """Return why no tensor-core instruction takes operands and a sum of these element types, `k`
    steps at a `precision`, or nothing.
    """
    bits, left, right = bit_width(a), spell(a), spell(b)
    if bits == 64 or (not is_float(a) and bits != 8):
        return f"{left} operands"
    mixed = bits == 16 or not is_float(a)
    if bits != bit_width(b) or (mixed and left != right):
        return f"operands of types {left} and {right}"
    if bits == 32 and precision != "tf32":
        return f"input_precision {precision}"
    step = K_BYTES * 8 // bits
    if k % step:
        return f"K = {k} is not a multiple of {step}"
    if is_float(acc) != is_float(a):
        return f"accumulator of type {spell(acc)}"
    return ""


def by_multiply_adds(dot: tile.Dot) -> bool:
    """Tell whether a product is one that threads make, whatever its rows and columns."""
    a, b, acc = (element_type(value.type) for value in (dot.a, dot.b, dot.acc))
    return bool(tensor_core_objection(a, b, acc, shape_of(dot.a.type)[-1], dot.precision.data))


# --- what cp.async copies -------------------------------------------------------------------------


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
