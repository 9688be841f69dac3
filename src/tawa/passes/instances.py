"""Purpose: let instances of the consumer compute tiles of their own, in turns.

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
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tawa.errors import InternalError, PlanError
from tawa.ir import aref, tile
from tawa.ir.control import terminator
from tawa.ir.types import i32
from tawa.ir.walk import all_of, has, walk
from tawa.passes.fold import constant, elementwise
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

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
    before = _Emitter(loop)
    loads = {ref: _loads_of_tile(before, loop, ring) for ref, ring in gets.items()}
    all_but_one, stride = before.number(count - 1), loop.step
    between = {ref: before.apply("mul", number, all_but_one) for ref, number in loads.items()}
    for ref, number in loads.items():
        before.skip(ref, before.apply("mul", number, instance))
    first = before.apply("add", loop.lb, before.apply("mul", instance, stride))
    hop = before.apply("mul", stride, before.number(count))
    loop.operands[0], loop.operands[2] = first, hop

    inner = _Emitter(terminator(loop.body.block))
    for ref, number in between.items():
        inner.skip(ref, number)


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


def _loads_of_tile(emit: _Emitter, loop: scf.ForOp, ring: list[aref.GetEnter]) -> SSAValue:
    """Emit how many slots of a ring one tile takes."""
    total = emit.number(0)
    for get in ring:
        count = emit.number(1)
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


def _trips(emit: _Emitter, loop: scf.ForOp) -> SSAValue:
    span = emit.apply("max", emit.apply("sub", loop.ub, loop.lb), emit.number(0))
    more = emit.apply("sub", emit.apply("add", span, loop.step), emit.number(1))
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

    def holds(operation: Operation, kinds: tuple[type[Operation], ...]) -> bool:
        return has(operation, *kinds)

    first = next(op for op in block.ops if holds(op, (aref.GetEnter,)))
    last = [op for op in block.ops if holds(op, (aref.GetEnter, tile.Dot))][-1]
    assert last.next_op is not None
    take, hand_on = _Emitter(first), _Emitter(last.next_op)
    # Both conditions first: the lowering moves the pass up to where products have been issued.
    following = take.apply("add", program, loop.step)
    more = take.apply("lt", following, loop.ub)
    take.turn(take.apply("gt", program, loop.lb), "take")
    hand_on.turn(more, "pass")


class _Emitter:
    """Inserts scalar statements before an operation."""

    def __init__(self, before: Operation) -> None:
        self._before = before

    def _put(self, operation: Operation) -> None:
        block = self._before.parent
        assert block is not None
        operation.location = self._before.location
        block.insert_op_before(operation, self._before)

    def number(self, value: int) -> SSAValue:
        made = constant(value, i32)
        self._put(made)
        return made.result

    def apply(self, function: str, *inputs: SSAValue) -> SSAValue:
        made = elementwise(function, *inputs)
        self._put(made)
        return made.result

    def skip(self, ref: SSAValue, count: SSAValue) -> None:
        self._put(aref.GetSkip(operands=[ref, count]))

    def turn(self, condition: SSAValue, kind: str) -> None:
        turn = aref.Turn(attributes={"kind": StringAttr(kind)})
        self._put(scf.IfOp(condition, [], Region(Block([turn, scf.YieldOp()]))))
