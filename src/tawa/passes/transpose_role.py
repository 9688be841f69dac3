"""Purpose: hand loaded tiles on through a second ring, transposed on the way.

Before -> after (part of `insert_arefs`)::

    aref.put_exit %slot(%v)               aref.put_exit %slot(%v)
    %v2 = aref.get_enter %v_ring          %v2 = aref.get_enter %v_ring
    %acc2 = tile.dot %p, %v2, %acc   ->   %slot2 = aref.put_enter %vt_ring
    aref.get_exit %v_ring                 %t = tile.transpose %v2
                                          aref.put_exit %slot2(%t)
                                          aref.get_exit %v_ring
                                          %t2 = aref.get_enter %vt_ring
                                          %v3 = tile.transpose %t2
                                          %acc2 = tile.dot %p, %v3, %acc
                                          aref.get_exit %vt_ring

The role "transpose", or the producer, keeps what stands between the two rings. A transposed view of
a tile costs nothing, so the products read [K, N] and [M, K] as ever; their bytes lie with K
contiguous.

*Interleaved* tiles have K in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15 of each 16: the one in
which a thread holds an accumulator's columns. The other operand, computed in registers, is brought
into the same order, which for its fragments is a change of names; a sum does not mind its order.

Requires: loads that `tawa.analysis.transposed` accepts. Ensures: the same values.
Declines: never.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tawa.analysis.statements import VIEWS, name_of
from tawa.analysis.transposed import Transposed, plane, transposed
from tawa.errors import PlanError
from tawa.ir import aref
from tawa.ir.types import ArefType, SlotType, element_type, shape_of, with_shape
from tawa.passes.lower.emit import Emitter, erase


def ring_of_transposed(label: str, depth: int, loads: Sequence[Operation]) -> aref.Create:
    """Return a ring for the tiles of `loads`, transposed."""
    kinds = [_transposed_type(load) for load in loads]
    create = aref.Create.make(
        results=[ArefType(ArrayAttr(kinds))], label=f"{label} transposed", depth=depth
    )
    create.location = loads[0].location
    return create


def hand_on(
    source: aref.Create,
    target: aref.Create,
    loads: Sequence[Operation],
    put_exit: Operation,
    *,
    interleaved: bool,
) -> Operation:
    """After the slot of `source` is published, take its tiles and put them to `target`, transposed.

    Returns the statement that publishes them.
    """
    emit = Emitter.after(put_exit)
    payload = [load.results[0].type for load in loads]
    get = emit.put(aref.GetEnter.make(source.result, results=[payload]))
    kinds = ArrayAttr([_transposed_type(load) for load in loads])
    enter = emit.put(aref.PutEnter.make(target.result, results=[SlotType(kinds)]))
    enter.results[0].name_hint = "slot"
    tiles: list[SSAValue] = []
    for load, value in zip(loads, get.results, strict=True):
        value.name_hint = load.results[0].name_hint
        flat = emit.reshape(value, plane(shape_of(value.type)))
        made = emit.transpose(flat, (1, 0))
        tiles.append(_interleaved(emit, made, 1) if interleaved else made)
    exit_ = emit.put(aref.PutExit.make(enter.results[0], tiles))
    emit.put(aref.GetExit.make(source.result))
    return exit_


def way_of(load: Operation) -> Transposed:
    """Return how a load's tile is transposed. Raises `PlanError` where it cannot be."""
    how = transposed(load)
    if not isinstance(how, Transposed):
        raise PlanError(f"the plan transposes {name_of(load)}", why=how or "nothing asks for it")
    return how


def use_transposed(how: Transposed, tile_: SSAValue, get: Operation, *, interleaved: bool) -> None:
    """Let the products that used a load use `tile_`, its transposed copy, borrowed at `get`."""
    load = how.load
    if not interleaved:
        emit = Emitter.after(get)
        value = emit.transpose(tile_, (1, 0))
        shape = shape_of(load.results[0].type)
        tile_ = emit.reshape(value, shape)
        tile_.name_hint = load.results[0].name_hint
        users = _users(how, load)  # before the first use is replaced
        load.results[0].replace_uses_with_if(tile_, lambda use: use.operation in users)
        return
    for use in how.uses:
        emit = Emitter.before(use.dot)
        use.dot.operands[1] = emit.transpose(tile_, (1, 0))
        use.dot.operands[0] = _interleaved(emit, use.dot.a, 1)
    _drop_views(load)


def _users(how: Transposed, load: Operation) -> set[Operation]:
    """Return the statements through which the products see the tile: the first of each chain."""
    found: set[Operation] = set()
    for use in how.uses:
        user: Operation = use.dot
        value = use.dot.operands[use.index]
        while value is not load.results[0]:
            assert isinstance(value.owner, Operation)
            user, value = value.owner, value.owner.operands[0]
        found.add(user)
    return found


def _drop_views(load: Operation) -> None:
    """Remove the views of a tile that nothing reads any more."""
    for use in list(load.results[0].uses):
        if isinstance(use.operation, VIEWS):
            _drop_views(use.operation)
            if use.operation.results[0].first_use is None:
                erase(use.operation)


def _transposed_type(load: Operation) -> Attribute:
    kind = load.results[0].type
    rows, columns = plane(shape_of(kind))
    return with_shape((columns, rows), element_type(kind))


def _interleaved(emit: Emitter, value: SSAValue, dim: int) -> SSAValue:
    """Return a matrix with each 16 elements along `dim` in the order of fragments.

    Element 8 j + 2 q + b comes to stand at 4 q + 2 j + b.
    """
    shape = shape_of(value.type)
    runs = (shape[dim] // 16, 2, 4, 2)
    parts = emit.reshape(value, (*shape[:dim], *runs, *shape[dim + 1 :]))
    order = list(range(len(shape) + 3))
    order[dim + 1], order[dim + 2] = dim + 2, dim + 1
    return emit.reshape(emit.transpose(parts, order), shape)
