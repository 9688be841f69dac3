"""Purpose: store whole vectors where only a launch knows that they are aligned.

Before -> after, the base of an array being read from a table::

                                      %fits = (%base % 16 == 0) and (%stride % 8 == 0)    scalars
    tile.store %p, %v       ->        scf.if %fits {
                                        tile.store %p {multiple_of = [1, 16]}, %v
                                      } else {
                                        tile.store %p, %v
                                      }

What a launch passes is known when a kernel is compiled (the specialization of its arguments); what
a kernel reads is not. Arrays whose addresses and strides lie in memory mostly are aligned.
Requires: tile IR. Ensures: the same stores. Declines when: no vector would be wider if the scalars
that were read from memory, or made addresses of numbers, were multiples of its length, or the tile
is small (a branch costs more than it saves).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm, prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tawa.analysis.contiguity import Contiguity, promised_numbers
from tawa.ir import tile
from tawa.ir.types import PtrType, bit_width, element_type, i64, shape_of
from tawa.passes.lower.emit import Emitter, erase
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_SMALLEST = 2048
"""Elements of a tile worth a branch: sixteen a thread of a warpgroup."""
_VECTOR = 16  # bytes: the widest access of one thread


@dataclass(frozen=True, slots=True)
class _Gain:
    """A store that could move `run` neighbours along `dim` at once if `scalars` were multiples."""

    store: tile.Store
    dim: int
    run: int
    scalars: tuple[SSAValue, ...]


def version_alignment(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Ask before stores of tiles whether their vectors are aligned, where memory decides."""
    for operation in list(kernel.walk()):
        if isinstance(operation, tile.Store) and (found := _find(operation)) is not None:
            _ask(found)
    return ()


def _find(store: tile.Store) -> _Gain | None:
    shape = shape_of(store.pointer.type)
    if prod(shape) < _SMALLEST or not isinstance(store.pointer.owner, Operation):
        return None
    scalars = tuple(dict.fromkeys(_read_scalars(store)))
    if not scalars:
        return None
    runs = [_run(store, dim, scalars) for dim in range(len(shape))]
    run = max(runs)
    dim = runs.index(run)
    if run <= _run(store, dim, ()):
        return None
    for each in scalars:
        fewer = tuple(other for other in scalars if other is not each)
        if _run(store, dim, fewer) == run:
            scalars = fewer
    return _Gain(store, dim, run, scalars)


def _run(store: tile.Store, dim: int, scalars: tuple[SSAValue, ...]) -> int:
    """Return how many neighbours one access moves if `scalars` are multiples of a vector."""
    facts = Contiguity({scalar: _multiple(store, scalar) for scalar in scalars})
    return min(facts.run(store.pointer, store.mask, dim), _VECTOR // _size(store.pointer))


def _multiple(store: tile.Store, scalar: SSAValue) -> int:
    """Return what a scalar shall be a multiple of, addresses in elements."""
    return _VECTOR // _size(scalar if isinstance(scalar.type, PtrType) else store.pointer)


def _size(pointer: SSAValue) -> int:
    kind = element_type(pointer.type)
    assert isinstance(kind, PtrType), "a store goes through pointers"
    return max(8, bit_width(kind.element)) // 8


def _read_scalars(store: tile.Store) -> Iterator[SSAValue]:
    """Yield the numbers read from memory, and the numbers taken for addresses, that decide where a
    store goes.
    """
    pending = [store.pointer] if store.mask is None else [store.pointer, store.mask]
    seen: set[SSAValue] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        match value.owner:
            case tile.Load() if not shape_of(value.type) and _is_whole(value):
                yield value
            case tile.Bitcast() if isinstance(value.type, PtrType):
                yield value
            case Operation() as op if not op.regions:
                pending.extend(op.operands)
            case _:
                pass


def _is_whole(value: SSAValue) -> bool:
    kind: Attribute = value.type
    return isinstance(kind, IntegerType) and bit_width(kind) >= 32  # pyright: ignore


def _ask(found: _Gain) -> None:
    store = found.store
    block = store.parent
    assert block is not None, "an operation of a kernel stands in a block"
    branch = scf.IfOp(
        _fits(Emitter.before(store), found),
        [],
        Region(Block(_again(store, found.dim, found.run))),
        Region(Block(_again(store, found.dim, 1))),
    )
    branch.location = store.location
    block.insert_op_before(branch, store)
    erase(store)


def _again(store: tile.Store, dim: int, run: int) -> list[Operation]:
    """Return a branch with the store, its pointers and its mask, whose vectors are of `run`."""
    again = store.clone()
    pointer = _promised(store.pointer, dim, "multiple_of", run * _size(store.pointer))
    again.operands[0] = pointer.results[0]
    made = [pointer]
    if store.mask is not None and isinstance(store.mask.owner, Operation):
        mask = _promised(store.mask, dim, "max_constancy", run)
        again.operands[2] = mask.results[0]
        made.append(mask)
    made.append(again)
    for each in made:
        each.location = store.location
    return [*made, scf.YieldOp()]


def _promised(value: SSAValue, dim: int, hint: str, number: int) -> Operation:
    """Return what makes a tensor once more, with a promise along `dim` beside those it has."""
    owner = value.owner
    assert isinstance(owner, Operation), "found so"
    again = owner.clone()
    again.results[0].name_hint = value.name_hint
    if number == 1:
        return again
    numbers = promised_numbers(owner.attributes.get(hint), len(shape_of(value.type)))
    numbers[dim] = lcm(numbers[dim], number)
    again.attributes[hint] = ArrayAttr([IntAttr(each) for each in numbers])
    return again


def _fits(emitter: Emitter, found: _Gain) -> SSAValue:
    """Compute whether all scalars are the multiples they shall be."""
    total: SSAValue | None = None
    for scalar in found.scalars:
        unit = _multiple(found.store, scalar)
        number = scalar
        if isinstance(scalar.type, PtrType):
            unit *= _size(scalar)
            number = emitter.made(tile.Bitcast, [scalar], i64)
        rest = emitter.apply("and", number, emitter.constant(unit - 1, number.type))
        fits = emitter.apply("eq", rest, emitter.constant(0, number.type))
        total = fits if total is None else emitter.apply("and", total, fits)
    assert total is not None, "a vector is wider for some scalars"
    return total
