"""Purpose: make one program for each role: a copy of the whole, less what is not the role's.

Before -> after::

    scf.for %k .. {                   aref.role "load" {         aref.role "mma" {
      %slot = aref.put_enter %ab        scf.for %k .. {            scf.for %k .. (%acc) {
      %a = tile.desc_load ..              %slot = aref.put_enter     %a = aref.get_enter %ab
      aref.put_exit %slot(%a)     ->      %a = tile.desc_load ..     %acc2 = tile.dot %a ..
      %a2 = aref.get_enter %ab            aref.put_exit %slot(%a)    aref.get_exit %ab
      %acc2 = tile.dot %a2, ..          }                          }
      aref.get_exit %ab               }                            tile.desc_store ..
    }                                                            }
    tile.desc_store ..

The producer keeps puts, and atomics whose result it sends; the role "transpose" what takes tiles
from one ring and puts them to another (the producer, where there is no such role); the consumer
everything else that has an effect. Dead-code elimination then keeps what these need in each copy:
indices, bounds and conditions stand in all, carried values only where they are used.

Requires: the output of `insert_arefs`. Ensures: aref IR; both copies have the same control flow
around puts and gets of a ring, so each put meets one get. Descriptors made from arguments stand
before the roles, once.
Declines: never; a plan that is not specialized leaves the kernel as it is.

Purpose: let instances of the consumer compute tiles of their own, in turns.

Before -> after, with R instances::

    aref.role "mma" {                        aref.role "mma" {instances = R} ^(%instance):
      scf.for %program = %block                aref.get_skip %ab, %loads of %instance tiles
          to %tiles step %blocks {     ->      scf.for %program = %block + %instance * %blocks
        scf.for %k .. {                            to %tiles step R * %blocks {
          %a, %b = aref.get_enter %ab            scf.if (a tile before this one) {aref.turn "take"}
          tile.dot ..                            scf.for %k .. { .. }
        }                                        scf.if (a tile after it) {aref.turn "pass"}
        tile.desc_store ..                       tile.desc_store ..
      }                                          aref.get_skip %ab, %loads of the tiles in between
    }                                          }

Tile number i of a block, counted from 0, is instance i mod R's. The producer goes through all tiles
as ever, so a slot belongs to the one instance whose tile it was loaded for, and each instance skips
the loads of the others: as many as their loops make iterations, which must be the same for all
tiles, before its first tile and after each one, whether or not there are more. The turn spans all a
tile waits for and multiplies; while one instance holds it, others store. It is also what lets a
wait tell its phase: an instance comes to a ring only after the others have seen all that was put
there before.

Requires: the output of `distribute` for a persistent plan; loops around gets with bounds that no
tile changes (the planner has checked it). Ensures: takes and passes of all instances balance for
every number of tiles from 0.
Declines: never; a plan without instances leaves the kernel as it is.

Purpose: free a slot as soon as its tile has been read for the last time, within branches too.

Before -> after::

    %q = aref.get_enter %q_ring             %q = aref.get_enter %q_ring
    scf.if %some {                          scf.if %some {
      scf.for .. { .. %q .. }                 scf.for .. { .. %q .. }
      %x2 = tile.dot %p, %v, %x        ->     aref.get_exit %q_ring
    } else {                                  %x2 = tile.dot %p, %v, %x
    }                                       } else {
    aref.get_exit %q_ring                     aref.get_exit %q_ring
                                            }

A pipelined loop ends with statements of its last iterations that no longer read what the whole
loop read; while they run, the next tile may be loaded.
Requires: aref IR, roles distributed, loops pipelined. Ensures: each path frees what it freed
before, in the same order.
Declines when: never; an exit stays where another of its ring would be overtaken, where a branch has
one side only, or where a side gives the tile itself, which is read when the side ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.analysis.hardware import is_host_made
from tawa.analysis.liveness import Keep, needed_by
from tawa.analysis.stages import borrowed
from tawa.analysis.statements import ATOMICS, VIEWS, has_effect, views_of
from tawa.errors import InternalError, PlanError
from tawa.ir import aref, hopper, tile
from tawa.ir.types import ArefType, i32, shape_of
from tawa.ir.walk import all_of, has, reach, terminator, walk
from tawa.passes.dead import sweep
from tawa.passes.lower.emit import Emitter, erase, new_region
from tawa.plan.plan import Declined, Plan, RolePlan
from tawa.plan.staging import is_staged
from tawa.target import Target


def distribute(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Split the one program into the plan's roles."""
    if not plan.specialized:
        return ()
    body = kernel.body.block
    _hoist_descriptors(kernel)
    setup = _setup(body)
    program = [operation for operation in body.ops if operation not in setup]
    alone = any(role.label == "transpose" for role in plan.roles)
    links = _links(program, alone)
    roles = [_make_role(role, program) for role in plan.roles]
    _short_circuit(roles[0].body.block, frozenset() if alone else links.taken)
    for operation in reversed(program):
        erase(operation)
    for index, (role, planned) in enumerate(zip(roles, plan.roles, strict=True)):
        body.add_op(role)
        sweep(role.body.block, links.keeps(index, planned))
    _check(roles[0])
    return ()


@dataclass(frozen=True, slots=True)
class _Links:
    """Which rings tiles are taken from (`taken`) to be transposed and put to others (`given`).

    A role of its own does it (`alone`), else the producer.
    """

    taken: frozenset[SSAValue]
    given: frozenset[SSAValue]
    alone: bool

    def keeps(self, index: int, role: RolePlan) -> Keep:
        """Return which statements with an effect the role of a place in the plan keeps."""
        if index == 0:
            return self._is_producers
        return self._is_transposers if role.label == "transpose" else self._is_consumers

    def _is_producers(self, operation: Operation) -> bool:
        ring = _put_to(operation)
        if not self.alone and isinstance(operation, (aref.GetEnter, aref.GetExit)):
            return operation.aref in self.taken
        mine = ring is not None and (ring not in self.given or not self.alone)
        return mine or _is_sent(operation)

    def _is_transposers(self, operation: Operation) -> bool:
        """Its puts and gets, and the gets of scalars, which every role takes."""
        match operation:
            case aref.GetEnter() | aref.GetExit():
                return operation.aref in self.taken or _holds_scalars(operation.aref)
            case _:
                return _put_to(operation) in self.given

    def _is_consumers(self, operation: Operation) -> bool:
        match operation:
            case aref.PutEnter() | aref.PutExit():
                return False
            case aref.GetEnter() | aref.GetExit():
                return operation.aref not in self.taken
            case _:
                return not _is_sent(operation) and has_effect(operation)


def _put_to(operation: Operation) -> SSAValue | None:
    """Return the ring that a put goes to."""
    match operation:
        case aref.PutEnter():
            return operation.aref
        case aref.PutExit(slot=slot) if isinstance(slot.owner, aref.PutEnter):
            return slot.owner.aref
        case _:
            return None


def _holds_scalars(ring: SSAValue) -> bool:
    kind = ring.type
    assert isinstance(kind, ArefType)
    return not any(shape_of(item) for item in kind.payload)


def _links(program: list[Operation], alone: bool) -> _Links:
    """Find the rings whose tiles are handed on: what a put holds comes from a get."""
    taken: set[SSAValue] = set()
    given: set[SSAValue] = set()
    for operation in (inner for top in program for inner in walk(top)):
        if not isinstance(operation, aref.PutExit):
            continue
        for value in operation.values:
            while isinstance(value.owner, VIEWS):
                value = value.owner.operands[0]
            if isinstance(value.owner, aref.GetEnter):
                taken.add(value.owner.aref)
                ring = _put_to(operation)
                assert ring is not None, "a slot is entered before it is published"
                given.add(ring)
    return _Links(frozenset(taken), frozenset(given), alone)


def _hoist_descriptors(kernel: tile.Kernel) -> None:
    """Make descriptors that depend on arguments only at the top, where the host finds them."""
    body = kernel.body.block
    copies: dict[SSAValue, SSAValue] = {}
    for operation in walk(kernel):
        if not isinstance(operation, tile.MakeDesc) or operation.parent is body:
            continue
        if not is_host_made(operation.result):
            continue
        chain = _made_from(operation)
        for needed in [inner for inner in walk(kernel) if inner in chain]:
            if needed.results[0] in copies:
                continue
            _add_setup(body, needed.clone(copies))
        operation.result.replace_all_uses_with(copies[operation.result])


def _made_from(operation: Operation) -> Collection[Operation]:
    """Return a statement and those that its operands are computed from, wherever they stand."""

    def makers(made: Operation) -> list[Operation]:
        return [owner for v in made.operands if isinstance(owner := v.owner, Operation)]

    return reach([operation], makers)


def _add_setup(body: Block, operation: Operation) -> None:
    before = next((op for op in body.ops if isinstance(op, aref.Create)), body.first_op)
    assert before is not None, "a kernel with descriptors has statements"
    body.insert_op_before(operation, before)


def _setup(body: Block) -> set[Operation]:
    """Return what stands before the roles: rings, and descriptors with what they are made from."""
    makers = [op for op in body.ops if isinstance(op, tile.MakeDesc) and is_host_made(op.result)]
    return {op for op in body.ops if isinstance(op, aref.Create)} | needed_by(*makers)


def _make_role(plan: RolePlan, program: list[Operation]) -> aref.Role:
    block = Block()
    copies: dict[SSAValue, SSAValue] = {}
    for operation in program:
        block.add_op(operation.clone(copies))
    return aref.Role.make(
        regions=[Region(block)],
        label=plan.label,
        warps=plan.warps,
        registers=plan.registers,
        instances=plan.instances if plan.instances > 1 else None,
    )


def _is_sent(operation: Operation) -> bool:
    return isinstance(operation, (*ATOMICS, hopper.NextProgram)) and any(
        isinstance(use.operation, aref.PutExit) for use in operation.results[0].uses
    )


def _short_circuit(block: Block, taken: frozenset[SSAValue]) -> None:
    """In the producer a value that was sent is the value it put: it never gets its own slots,
    but for the tiles it transposes (`taken`), which it reads there.
    """
    for operation in walk(block):
        match operation:
            case aref.GetEnter() | aref.GetExit() if operation.aref in taken:
                pass
            case aref.GetEnter():
                values = _put_before(operation)
                for result, value in zip(operation.values, values, strict=True):
                    result.replace_all_uses_with(value)
                erase(operation)
            case aref.GetExit():
                erase(operation)
            case _:
                pass


def _put_before(get: aref.GetEnter) -> list[SSAValue]:
    operation = get.prev_op
    while operation is not None:
        if isinstance(operation, aref.PutExit):
            enter = operation.slot.owner
            if isinstance(enter, aref.PutEnter) and enter.aref is get.aref:
                return list(operation.values)
        operation = operation.prev_op
    raise InternalError("a get of an aref has no put before it in its block")


def _check(producer: aref.Role) -> None:
    """Each put must hold what its own loads give: nothing the producer would have to compute."""
    for operation in walk(producer):
        if isinstance(operation, tile.Dot):
            raise InternalError("the producer computes a product: the partition is wrong")


# --- instances of a role --------------------------------------------------------------------------


_Gets = dict[SSAValue, list[aref.GetEnter]]


def split_instances(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Give each instance of a role its own tiles."""
    counts = {role.label: role.instances for role in plan.roles if role.instances > 1}
    for role in [op for op in kernel.body.block.ops if isinstance(op, aref.Role)]:
        if (count := counts.get(role.label.data)) is not None:
            _split(role.body.block, count)
    return ()


def _split(body: Block, count: int) -> None:
    loop = _tile_loop(body)
    instance = body.insert_arg(i32, 0)
    instance.name_hint = "instance"
    gets: _Gets = {}
    for operation in walk(loop):
        if isinstance(operation, aref.GetEnter):
            gets.setdefault(operation.aref, []).append(operation)
    _place_turns(loop)  # first: its conditions read the loop's own bounds
    before = Emitter.before(loop)
    loads = {ref: _loads_of_tile(before, loop, ring) for ref, ring in gets.items()}
    all_but_one, stride = before.constant(count - 1), loop.step
    between = {ref: before.apply("mul", number, all_but_one) for ref, number in loads.items()}
    for ref, number in loads.items():
        before.put(aref.GetSkip.make(ref, before.apply("mul", number, instance)))
    first = before.apply("add", loop.lb, before.apply("mul", instance, stride))
    hop = before.apply("mul", stride, before.constant(count))
    loop.operands[0], loop.operands[2] = first, hop

    inner = Emitter.before(terminator(loop.body.block))
    for ref, number in between.items():
        inner.put(aref.GetSkip.make(ref, number))


def _tile_loop(body: Block) -> scf.ForOp:
    """Return the loop over tiles, which all gets of the role stand in."""
    gets = all_of(body, aref.GetEnter)
    loops = [
        op
        for op in body.ops
        if isinstance(op, scf.ForOp) and any(get in set(walk(op)) for get in gets)
    ]
    if len(loops) != 1 or loops[0].iter_args:
        raise InternalError("instances need one loop over tiles that carries nothing; report this")
    return loops[0]


def _loads_of_tile(emit: Emitter, loop: scf.ForOp, ring: list[aref.GetEnter]) -> SSAValue:
    """Emit how many slots of a ring one tile takes."""
    total = emit.constant(0)
    for get in ring:
        count = emit.constant(1)
        around = get.parent_op()
        while around is not loop:
            if not isinstance(around, scf.ForOp) or _changes(around, loop):
                raise PlanError(
                    "arrangement='pingpong'",
                    why="the number of loads differs from tile to tile, so an instance cannot tell "
                    "how many slots belong to the others",
                    remedy="leave arrangement out",
                )
            count = emit.apply("mul", count, _trips(emit, around))
            around = around.parent_op()
        total = emit.apply("add", total, count)
    return total


def _trips(emit: Emitter, loop: scf.ForOp) -> SSAValue:
    span = emit.apply("max", emit.apply("sub", loop.ub, loop.lb), emit.constant(0))
    more = emit.apply("sub", emit.apply("add", span, loop.step), emit.constant(1))
    return emit.apply("idiv", more, loop.step)


def _changes(inner: scf.ForOp, loop: scf.ForOp) -> bool:
    """Tell whether the bounds of a loop are computed in the tile loop."""
    inside = set(walk(loop.body))
    return any(
        value.owner in inside or value.owner in loop.body.blocks
        for value in (inner.lb, inner.ub, inner.step)
    )


def _place_turns(loop: scf.ForOp) -> None:
    """Take the turn before the first wait of a tile, pass it after its last wait or product."""
    block = loop.body.block
    program = block.args[0]

    first = next(op for op in block.ops if has(op, aref.GetEnter))
    last = [op for op in block.ops if has(op, aref.GetEnter, tile.Dot)][-1]
    assert last.next_op is not None
    take, hand_on = Emitter.before(first), Emitter.before(last.next_op)
    # Both conditions first: the lowering moves the pass up to where products have been issued.
    following = take.apply("add", program, loop.step)
    more = take.apply("lt", following, loop.ub)
    mine = take.apply("gt", program, loop.lb)
    for emit, condition, kind in ((take, mine, "take"), (hand_on, more, "pass")):
        turn = new_region(aref.Turn.make(kind=kind), scf.YieldOp())
        emit.put(scf.IfOp(condition, [], turn))


# --- slots that are freed early -------------------------------------------------------------------


def free_early(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Move each exit that follows a branch to the last readers in the branch."""
    for role in [op for op in kernel.body.block.ops if isinstance(op, aref.Role)]:
        for block in [b for op in [role, *walk(role)] for r in op.regions for b in r.blocks]:
            for exit_, get in borrowed(block).items():
                stages = frozenset(op for op in block.ops if is_staged(op, plan, _label(get)))
                _free(exit_, _names(get), stages)
    return ()


def _label(get: aref.GetEnter) -> str:
    create = get.aref.owner
    assert isinstance(create, aref.Create), "a ring is created before the roles"
    return create.label.data


def _names(get: aref.GetEnter) -> set[SSAValue]:
    """Return the borrowed values and all views of them."""
    return {view for value in get.values for view in views_of(value)}


def _free(
    exit_: aref.GetExit, names: set[SSAValue], stages: frozenset[Operation] = frozenset()
) -> None:
    """Move an exit into the branch that reads last, if nothing stands against it: no store of
    `stages` goes through the slot after that.
    """
    reader = exit_.prev_op
    while reader is not None and not _reads(reader, names):
        if reader in stages or _turns(reader, exit_.aref):
            return
        reader = reader.prev_op
    if not isinstance(reader, scf.IfOp) or _turns(reader, exit_.aref):
        return
    sides = [region.block for region in reader.regions if region.blocks]
    if len(sides) < 2 or any(_reads(terminator(side), names) for side in sides):
        return
    for side in sides:
        _place(exit_, side, names)
    erase(exit_)


def _place(exit_: aref.GetExit, block: Block, names: set[SSAValue]) -> None:
    """Put a copy of an exit into a block: after its last reader, at its start without one."""
    copy = exit_.clone()
    readers = [op for op in block.ops if _reads(op, names)]
    if readers:
        block.insert_op_after(copy, readers[-1])
    else:
        block.insert_op_before(copy, next(iter(block.ops)))
    _free(copy, names)


def _reads(operation: Operation, names: set[SSAValue]) -> bool:
    return any(not names.isdisjoint(inner.operands) for inner in walk(operation))


def _turns(operation: Operation, ring: SSAValue) -> bool:
    """Tell whether an operation gets or frees a slot of `ring`."""
    kinds = (aref.GetEnter, aref.GetExit, aref.GetSkip)
    return any(isinstance(inner, kinds) and inner.aref is ring for inner in walk(operation))
