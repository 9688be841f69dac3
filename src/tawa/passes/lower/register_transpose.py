"""Tiles that are read in one order and written in another: each thread turns blocks of neighbours.

A thread that holds a block of a tile, neighbours along both dimensions, moves whole vectors on both
sides and turns the block by naming its registers otherwise. On one side at least that is shared
memory: what is read from global memory in one order and written in another is exchanged there as
soon as it is read, so that both sides move whole lines of global memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from xdsl.ir import Operation, SSAValue

from tawa.analysis.contiguity import Contiguity
from tawa.ir import hopper, tile
from tawa.ir.types import ViewType, bit_width, element_type, shape_of
from tawa.layouts.fragments import Span, blocks, permuted
from tawa.layouts.register import LANES, RegisterLayout
from tawa.passes.lower.access import contiguous_axis
from tawa.passes.lower.anchors import Assignment, coalesced
from tawa.passes.lower.relate import is_tensor

_SQUARE = 2  # of 32 bits: two are a vector either way, and no lanes meet in a bank
_WORD = 32  # bits of a bank of shared memory
_LINE = 128  # bytes
_VECTOR = 16  # bytes: the widest access of one thread


def transpose_seeds(
    chosen: Assignment, operations: list[Operation]
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Matrices of 32 bits that are transposed from shared memory to shared memory, in squares of
    two by two; tiles of narrower elements that are transposed from global memory to global memory.
    """
    facts = Contiguity()
    for operation in operations:
        match operation:
            case hopper.SharedStore() if is_tensor(operation.value):
                yield from _transpose_shared(chosen, operation)
            case tile.Store() if is_tensor(operation.value):
                yield from _transpose_global(chosen, operation, facts)
            case _:
                continue


def _transpose_shared(
    chosen: Assignment, store: hopper.SharedStore
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    read = next((r for r, _ in _reads(store.value) if isinstance(r, hopper.SharedLoad)), None)
    if read is None or bit_width(element_type(store.value.type)) != 32:
        return
    there, here = _order(read.view), _order(store.view)
    if there == here or len(there) != 2:
        return
    along, across = Span(there[-1], _SQUARE, 2), Span(there[0], _SQUARE, 4)
    found = blocks(shape_of(store.value.type), chosen.warps, along, across)
    if found is not None:
        yield read.result, found[0]
        chosen.at[store] = found[1]


def _order(view: SSAValue) -> tuple[int, ...]:
    kind = view.type
    assert isinstance(kind, ViewType), "shared memory is reached through views"
    return kind.within.data.order


def _transpose_global(
    chosen: Assignment, store: tile.Store, facts: Contiguity
) -> Iterator[tuple[SSAValue, RegisterLayout]]:
    """Where a store writes in another order than what it writes was read in, hold what was read as
    blocks, and all else as the store wants it.

    Elements of 32 bits are words of a bank already: to turn them one by one costs nothing.
    """
    reads = [(r, order) for r, order in _reads(store.value) if isinstance(r, tile.Load)]
    if any(read.result in chosen.of for read, _ in reads) or store in chosen.at:
        return
    dim = contiguous_axis(store.pointer)
    wanted = coalesced(chosen, store.pointer, facts.run(store.pointer, store.mask, dim))
    for read, order in reads:
        if not is_tensor(read.pointer) or order.index(contiguous_axis(read.pointer)) == dim:
            continue
        if min(_bits(read.result), _bits(store.value)) >= _WORD:
            continue
        held = _held(chosen, read, order[dim], facts)
        if held is not None:
            chosen.at[read] = held
            chosen.at[store] = wanted
            yield from ((value, held) for value in read.operands if is_tensor(value))
            yield read.result, permuted(wanted, tuple(map(order.index, range(len(order)))))


def _bits(value: SSAValue) -> int:
    return max(8, bit_width(element_type(value.type)))


def _held(
    chosen: Assignment, read: tile.Load, across: int, facts: Contiguity
) -> RegisterLayout | None:
    """Return the layout to read a tile in that is transposed along `across`: vectors, as many lanes
    as whole lines take, and in each thread what is a vector across. None where there are no
    vectors.
    """
    shape, size = shape_of(read.result.type), _bits(read.result) // 8
    along = contiguous_axis(read.pointer)
    share = prod(shape) // (LANES * chosen.warps)
    run = gcd(min(_VECTOR // size, facts.run(read.pointer, read.mask, along)), shape[along])
    inside = gcd(_VECTOR // size, shape[across])
    while run * inside > share and max(run, inside) > 1:
        if inside >= run:
            inside //= 2
        else:
            run //= 2
    if run == 1 or inside * size < _WORD // 8:
        return None
    lanes = gcd(LANES, max(1, min(shape[along], _LINE // size) // run))
    spans = Span(along, run, lanes), Span(across, inside, LANES // lanes)
    found = blocks(shape, chosen.warps, *spans, across_first=True)  # fewer meet in a bank
    return None if found is None else found[0]


def _reads(value: SSAValue) -> Iterator[tuple[hopper.SharedLoad | tile.Load, tuple[int, ...]]]:
    """Yield the reads that functions of single elements made a value of, each with the dimension
    of its own that each dimension of the value is; each pair once, by however many ways.
    """
    pending = [(value, tuple(range(len(shape_of(value.type)))))]
    seen: set[tuple[SSAValue, tuple[int, ...]]] = set()
    while pending:
        current, order = pending.pop()
        if (current, order) in seen:
            continue
        seen.add((current, order))
        match current.owner:
            case hopper.SharedLoad() | tile.Load() as read:
                yield read, order
            case tile.Transpose() as op:
                inner = tuple(op.permutation.data[dim].data for dim in order)
                pending.append((op.value, inner))
            case tile.Elementwise() | tile.Cast() | tile.Bitcast() as function:
                pending.extend(
                    (operand, order) for operand in function.operands if is_tensor(operand)
                )
            case _:
                pass
