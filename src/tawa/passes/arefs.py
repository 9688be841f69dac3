"""Purpose: put an asynchronous reference between each load of the producer and its uses.

Before -> after::

    scf.for %k = .. {                      %ab = aref.create "a+b" {depth = 3}
      %a = tile.desc_load ..               scf.for %k = .. {
      %b = tile.desc_load ..                 %slot = aref.put_enter %ab
      %acc2 = tile.dot %a, %b, %acc    ->    %a = tile.desc_load ..
    }                                        %b = tile.desc_load ..
                                             aref.put_exit %slot(%a, %b)
                                             %a2, %b2 = aref.get_enter %ab
                                             %acc2 = tile.dot %a2, %b2, %acc
                                             aref.get_exit %ab
                                           }

The program is still one sequence. Each slot is put, got and freed before it is put again, so the
sequence runs with one slot; two roles that each keep their part of it cannot block one another.

Requires: tile IR (persistent or not) and a plan whose rings name loads the partition allows.
Ensures: no use of a loaded tile outside get_enter .. get_exit; a tile used in inner loops is got
before the first and freed after the last. A slot that a store goes through is freed after it.
Declines: never.

Purpose: bring a load that cp.async shall do into the one form the lowering copies.

Before -> after::

    %b = tile.load %p (K x N, neighbours along K)      %q = tile.transpose %p
                                                  ->   %t = tile.load %q {contiguous = 8} (N x K)
                                                       %b = tile.transpose %t

Requires: a load that `tawa.analysis.hardware` accepts. Ensures: its addresses run along the last
dimension, in runs of `contiguous` elements that are aligned and masked alike; the tile is the same.
Declines: never; a load that cannot be copied is a `PlanError`.

Purpose: hand loaded tiles on through a second ring, transposed on the way.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from tawa.analysis.hardware import copy_run
from tawa.analysis.roles import places
from tawa.analysis.statements import VIEWS, name_of, name_statements
from tawa.analysis.transposed import Transposed, plane, transposed
from tawa.errors import PlanError
from tawa.ir import aref, tile
from tawa.ir.types import ArefType, SlotType, element_type, shape_of, with_shape
from tawa.ir.walk import home_of, walk
from tawa.passes.lower.emit import Emitter, erase, replace
from tawa.plan.plan import ArefPlan, Declined, Plan
from tawa.target import Target


def insert_arefs(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Connect the loads named by the plan's rings to their uses."""
    statements = name_statements(kernel)
    if (first := kernel.body.block.first_op) is None:
        return ()  # a kernel that does nothing
    seconds = {(ring.payload, ring.also): ring for ring in plan.arefs if ring.via == "transpose"}
    for ring in [each for each in plan.arefs if each.via != "transpose"]:
        sites = [_find(names, statements) for names in (ring.payload, *ring.also)]
        if ring.via == "copy_async":
            sites = [list(map(prepare_copy, loads)) for loads in sites]
        create = _create(ring, sites)
        kernel.body.block.insert_op_before(create, first)
        second = _second(seconds.get((ring.payload, ring.also)), sites)
        if second is not None:
            kernel.body.block.insert_op_before(second.create, first)
        for loads in sites:
            _connect(create, loads, second, [statements[name] for name in _stored(plan, loads)])
    return ()


def _stored(plan: Plan, loads: list[Operation]) -> list[str]:
    """Return the stores that go through the slots of `loads`: they are lent until then."""
    return [store.store for store in plan.stores if store.stage in map(name_of, loads)]


@dataclass(frozen=True, slots=True)
class _Second:
    """The second ring of tiles that are transposed on the way."""

    create: aref.Create
    interleaved: bool


def _second(ring: ArefPlan | None, sites: list[list[Operation]]) -> _Second | None:
    if ring is None:
        return None
    create = ring_of_transposed(ring.label, ring.depth, sites[0])
    names = "_".join(name.split("@")[0].split("#")[0] for name in ring.payload)
    create.result.name_hint = f"{names}_transposed"
    return _Second(create, ring.interleaved)


def _find(names: Sequence[str], statements: Mapping[str, Operation]) -> list[Operation]:
    """Return the loads of one payload, in the plan's order."""
    missing = [name for name in names if name not in statements]
    if missing:
        raise PlanError(
            f"the plan speaks of {', '.join(missing)}",
            why=f"the kernel has: {', '.join(statements)}",
        )
    return [statements[name] for name in names]


def _create(ring: ArefPlan, sites: list[list[Operation]]) -> aref.Create:
    payloads = [tuple(load.results[0].type for load in loads) for loads in sites]
    if any(payload != payloads[0] for payload in payloads):
        raise PlanError(
            f"ring {ring.label} has payloads of different types",
            why="payloads that go through one ring fill the same slots",
            remedy="give the payloads rings of their own",
        )
    create = aref.Create.make(
        results=[ArefType(ArrayAttr(list(payloads[0])))], label=ring.label, depth=ring.depth
    )
    create.result.name_hint = "_".join(name.split("@")[0].split("#")[0] for name in ring.payload)
    create.location = sites[0][0].location
    return create


def _connect(
    create: aref.Create, loads: list[Operation], second: _Second | None, stored: list[Operation]
) -> None:
    block = home_of(loads[0])
    if any(load.parent is not block for load in loads):
        names = ", ".join(map(name_of, loads))
        raise PlanError(f"one payload holds {names}", why="they stand in different blocks")
    uses = {place for load in loads for place in places(load)} | set(stored)
    ways = [way_of(load) for load in loads] if second is not None else []
    ordered = sorted(uses, key=block.get_operation_index)
    put_exit = _put(create, loads, block)
    _delay(loads, put_exit, block)
    ordered.sort(key=block.get_operation_index)
    if not ordered:
        ordered = [put_exit]
    elif not put_exit.is_before_in_block(ordered[0]):
        raise _used_early(loads, ordered[0])
    if second is None:
        values = _get(create, loads, put_exit, ordered, block)
        for load, value in zip(loads, values.results, strict=True):
            _replace_but(load.results[0], value, put_exit)
        return
    flag = second.interleaved
    last = hand_on(create, second.create, loads, put_exit, interleaved=flag)
    ordered = [last if each is put_exit else each for each in ordered]
    borrowed = _get(second.create, loads, last, ordered, block)
    for way, value in zip(ways, borrowed.results, strict=True):
        use_transposed(way, value, borrowed, interleaved=flag)


def _put(create: aref.Create, loads: list[Operation], block: Block) -> Operation:
    """Do all loads of a payload where the last one stands, between put_enter and put_exit."""
    last = max(loads, key=block.get_operation_index)
    anchor = last.next_op
    assert anchor is not None, "a load is followed by a use of its tile"
    enter = aref.PutEnter.make(create.result, results=[SlotType(_payload(create))])
    enter.slot.name_hint = "slot"
    exit_ = aref.PutExit.make(enter.slot, [load.results[0] for load in loads])
    for load in loads:
        load.detach()
    for operation in (enter, *loads, exit_):
        if operation.parent is None:
            block.insert_op_before(operation, anchor)
    enter.location = exit_.location = last.location
    return exit_


def _delay(loads: list[Operation], put_exit: Operation, block: Block) -> None:
    """Compute what needs a tile of the payload after the last of them: casts, transposes.

    Statements with effects stay where they are. Raises PlanError where one of them needs what is
    moved.
    """
    early: set[SSAValue] = {load.results[0] for load in loads}
    after = put_exit
    for operation in list(block.ops):
        if operation is loads[0].prev_op:
            return
        used = any(value in early for inner in walk(operation) for value in inner.operands)
        if used and not is_side_effect_free(operation):
            raise _used_early(loads, operation)
        if used:
            early.update(operation.results)
            operation.detach()
            block.insert_op_after(operation, after)
            after = operation


def _used_early(loads: list[Operation], operation: Operation) -> PlanError:
    return PlanError(
        f"payload {'+'.join(map(name_of, loads))}",
        why=f"{operation.name} uses a tile before the last of them is loaded",
    )


def _get(
    create: aref.Create,
    loads: list[Operation],
    put_exit: Operation,
    uses: list[Operation],
    block: Block,
) -> aref.GetEnter:
    """Borrow the slot from before the first to after the last statement that uses its tiles.

    A scalar is copied to a register when it is got: its slot is free again at once, and the value
    may go anywhere.
    """
    enter = aref.GetEnter.make(create.result, results=[list(_payload(create))])
    exit_ = aref.GetExit.make(create.result)
    enter.location, exit_.location = uses[0].location, uses[-1].location
    if uses[0] is put_exit or _is_scalar(create):
        block.insert_op_after(enter, put_exit)
        block.insert_op_after(exit_, enter)
    else:
        block.insert_op_before(enter, uses[0])
        block.insert_op_after(exit_, uses[-1])
    for load, value in zip(loads, enter.values, strict=True):
        value.name_hint = load.results[0].name_hint
    return enter


def _is_scalar(create: aref.Create) -> bool:
    return not any(shape_of(kind) for kind in _payload(create))


def _replace_but(old: SSAValue, new: SSAValue, keeper: Operation) -> None:
    old.replace_uses_with_if(new, lambda use: use.operation is not keeper)


def _payload(create: aref.Create) -> ArrayAttr:  # pyright: ignore[reportMissingTypeArgument]
    return create.result.type.payload  # pyright: ignore


# --- copies ---------------------------------------------------------------------------------------


def prepare_copy(load: Operation) -> Operation:
    """Return the load that takes the place of `load`, with its run as an attribute."""
    if not isinstance(load, tile.Load):
        raise PlanError(f"{name_of(load)} via=copy_async", why="cp.async goes through pointers")
    run = copy_run(load)
    if isinstance(run, str):
        raise PlanError(f"{name_of(load)} via=copy_async", why=run)
    if run.axis != len(shape_of(load.result.type)) - 1:
        load = _turn(load)
    load.attributes["contiguous"] = IntAttr(run.elements)
    return load


def _turn(load: tile.Load) -> tile.Load:
    """Load a matrix transposed, and transpose the tile: in shared memory that costs nothing."""
    emitter = Emitter.before(load)
    operands = [
        None if value is None else emitter.transpose(value, (1, 0))
        for value in (load.pointer, load.mask, load.other)
    ]
    shape = shape_of(load.result.type)[::-1]
    kind = with_shape(shape, element_type(load.result.type))
    transposed = tile.Load.make(*operands, results=[kind], attributes=load.attributes)
    emitter.put(transposed, load.result.name_hint)
    replace(load, [emitter.transpose(transposed.result, (1, 0))])
    return transposed


# --- the role that transposes ---------------------------------------------------------------------


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
