"""Purpose: let a block compute many tiles, one after the other, in an order that is kind to L2.

Before -> after::

    %m = tile.program_id 0            %tiles = grid extents multiplied
    %n = tile.program_id 1            scf.for %program = %block to %tiles step %blocks {
    ...                         ->      %m, %n = place of %program in groups of `group` rows
    tile.desc_store ..                  ...
                                        tile.desc_store ..
                                      }

With `walk` "serpentine" every other round of blocks takes its tiles backwards. With "dynamic" the
loop is an scf.while: the next tile is the one that `hopper.next_program` gives.

Requires: tile IR; a plan with `persistent` (the planner has checked the licence: programs do not
communicate). Ensures: each program of the user's grid runs exactly once, whatever the number of
blocks launched along axis 0; `tile.program_id` and `tile.num_programs` are gone.
Declines: never; a plan that is not persistent leaves the kernel as it is.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tawa.analysis.statements import has_effect
from tawa.ir import hopper, tile
from tawa.ir.types import i32, int_array
from tawa.ir.walk import home_of, marked_pure, move_before, terminator, walk
from tawa.passes.dead import sweep
from tawa.passes.fold import elementwise
from tawa.passes.lower.emit import Emitter, erase
from tawa.plan.plan import Declined, Plan
from tawa.target import PROGRAMS, Target


def persist(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Wrap the program in a loop over the tiles of this block."""
    if not plan.persistent:
        return ()
    body = kernel.body.block
    program = list(body.ops)
    setup = _at_end(body)
    extents: list[SSAValue] = [
        setup.put(hopper.GridExtent.make(results=[i32], axis=axis), f"grid_{axis}").result
        for axis in range(3)
    ]
    first: SSAValue = setup.put(hopper.BlockId.make(results=[i32], axis=0), "block").result
    stride: SSAValue = setup.put(hopper.NumBlocks.make(results=[i32], axis=0), "blocks").result
    walked = extents
    if plan.cluster > 1:
        # A cluster walks groups of `cluster` rows; each of its blocks computes one of them.
        size = setup.constant(plan.cluster, hint="cluster")
        first, stride = (setup.apply("idiv", value, size) for value in (first, stride))
        most = setup.apply("add", extents[0], setup.constant(plan.cluster - 1))
        walked = [setup.apply("idiv", most, size, hint="cluster_rows"), *extents[1:]]
    tiles = setup.apply("mul", setup.apply("mul", *walked[:2]), walked[2], hint="tiles")

    inner = Block(arg_types=[i32])
    inner.args[0].name_hint = "program"
    emit = _at_end(inner)
    program_id = inner.args[0]
    if plan.walk == "serpentine":
        program_id = _serpentine(emit, program_id, first, stride, tiles)
    ids = _ordered(emit, program_id, walked, plan)
    if plan.cluster > 1:
        rank = emit.put(hopper.ClusterRank.make(results=[i32]), "rank").result
        row = emit.apply("add", emit.apply("mul", ids[0], emit.constant(plan.cluster)), rank)
        row.name_hint = "pid_0"
        ids[0] = row
        _forget_bounds(program)
    else:
        _bound(ids[0], 0)
    for axis in (1, 2):
        _bound(ids[axis], axis)
    for operation in program:
        operation.detach()
        inner.add_op(operation)
    _replace_ids(program, ids, extents)
    if plan.cluster > 1:
        _guard_effects(program, ids[0], extents[0])
    if plan.walk == "dynamic":
        body.add_op(_while_tiles(setup, inner, first, tiles))
    else:
        inner.add_op(scf.YieldOp())
        body.add_op(scf.ForOp(first, tiles, stride, [], Region(inner)))
    sweep(body, has_effect)
    return ()


def _bound(program_id: SSAValue, axis: int) -> None:
    """Note on what computes a number of a program how many there are at most along an axis: what
    users compute from it is then known not to wrap, as where the hardware gives the number.
    """
    assert isinstance(program_id.owner, tile.Elementwise), "computed from the number of a tile"
    program_id.owner.attributes["within"] = int_array((0, PROGRAMS[axis] - 1))


def _forget_bounds(program: list[Operation]) -> None:
    """Forget what a launch was asked: blocks of a cluster may lie past the last row it knows of."""
    for top in program:
        for operation in walk(top):
            operation.attributes.pop("within", None)


def _while_tiles(setup: Emitter, inner: Block, first: SSAValue, tiles: SSAValue) -> scf.WhileOp:
    """Return the loop that takes tile after tile while there are any."""
    counter = setup.put(hopper.Counter.make(results=[i32]), "counter").result
    test = Block(arg_types=[i32])
    test.args[0].name_hint = "program"
    more = _at_end(test).apply("lt", test.args[0], tiles, hint="more")
    test.add_op(scf.ConditionOp(more, test.args[0]))
    following = hopper.NextProgram.make(counter, tiles, results=[i32])
    inner.add_op(scf.YieldOp(_at_end(inner).put(following, "next_program").result))
    loop = scf.WhileOp([first], [i32], Region(test), Region(inner))
    loop.attributes[hopper.PROGRAMS] = UnitAttr()
    return loop


def _guard_effects(program: list[Operation], row: SSAValue, rows: SSAValue) -> None:
    """Keep the blocks past the last row from writing: they run only to share loads."""
    effects = [op for top in program for op in walk(top) if not op.regions and has_effect(op)]
    for operation in effects:
        inside = elementwise("lt", row, rows)
        branch = scf.IfOp(inside.result, [], Region(Block([scf.YieldOp()])))
        block = home_of(operation)
        block.insert_ops_before([inside, branch], operation)
        move_before(operation, terminator(branch.true_region.block))
        _follow(operation)


def _follow(operation: Operation) -> None:
    """Move with a guarded effect what it alone needs of tensors: computed before the branch, these
    would be held in registers beside what they are computed from.
    """
    for value in operation.operands:
        owner = value.owner
        if not isinstance(owner, Operation) or owner.regions or isinstance(owner, tile.Dot):
            continue
        alone = all(use.operation is operation for result in owner.results for use in result.uses)
        if alone and marked_pure(owner) and isinstance(value.type, TensorType):
            move_before(owner, operation)
            _follow(owner)


def _at_end(block: Block) -> Emitter:
    """Return an emitter that appends to a block what stands at no place of the source."""
    return Emitter(InsertPoint.at_end(block))


def _natural(emit: Emitter, function: str, *inputs: SSAValue, hint: str = "") -> SSAValue:
    """Append a quotient or remainder of numbers that are not negative."""
    made = elementwise(function, *inputs)
    made.attributes["natural"] = UnitAttr()
    return emit.put(made, hint).result


def _serpentine(
    emit: Emitter, program: SSAValue, first: SSAValue, stride: SSAValue, tiles: SSAValue
) -> SSAValue:
    """Return the tile of a block's turn `program`: odd rounds run backwards.

    A round is the tiles that all blocks take in one turn; the last one may be shorter.
    """
    start = emit.apply("sub", program, first, hint="round")
    width = emit.apply("min", stride, emit.apply("sub", tiles, start), hint="width")
    last = emit.apply("sub", width, emit.constant(1))
    back = emit.apply("add", start, emit.apply("sub", last, first), hint="back")
    odd = emit.apply("and", emit.apply("idiv", start, stride), emit.constant(1))
    turned = emit.apply("eq", odd, emit.constant(1), hint="turned")
    return emit.apply("select", turned, back, program, hint="tile")


def _ordered(
    emit: Emitter, program: SSAValue, extents: list[SSAValue], plan: Plan
) -> list[SSAValue]:
    """Return the program ids of tile number `program` in the plan's order."""
    if plan.grouped == "rows":
        return _place(emit, program, extents, plan.group)
    rows, columns, planes = extents
    column, row, plane = _place(emit, program, [columns, rows, planes], plan.group)
    return [row, column, plane]


def _place(emit: Emitter, program: SSAValue, extents: list[SSAValue], group: int) -> list[SSAValue]:
    """Return the program ids of tile number `program`.

    `group` rows (axis 0) are walked column by column (axis 1), so that blocks that run at the same
    time share rows and columns of the operands; without groups axis 0 is fastest, as on the grid.
    """
    rows, columns = extents[0], extents[1]
    if not group:
        # One division for a kernel of one axis: consumers wait for it between two tiles.
        row = _natural(emit, "irem", program, rows, hint="pid_0")
        above = _natural(emit, "idiv", program, rows)
        column = _natural(emit, "irem", above, columns, hint="pid_1")
        return [row, column, _natural(emit, "idiv", above, columns, hint="pid_2")]
    plane = emit.apply("mul", rows, columns)
    inside = _natural(emit, "irem", program, plane)
    depth = _natural(emit, "idiv", program, plane, hint="pid_2")
    size = emit.constant(group, hint="group")
    span = emit.apply("mul", size, columns)
    first = emit.apply("mul", _natural(emit, "idiv", inside, span), size, hint="first_row")
    rest = _natural(emit, "irem", inside, span)
    height = emit.apply("min", size, emit.apply("sub", rows, first), hint="height")
    row = emit.apply("add", first, _natural(emit, "irem", rest, height), hint="pid_0")
    return [row, _natural(emit, "idiv", rest, height, hint="pid_1"), depth]


def _replace_ids(program: list[Operation], ids: list[SSAValue], extents: list[SSAValue]) -> None:
    for top in program:
        for operation in walk(top):
            match operation:
                case tile.ProgramId():
                    value = ids[operation.axis.data]
                case tile.NumPrograms():
                    value = extents[operation.axis.data]
                case _:
                    continue
            operation.result.replace_all_uses_with(value)
            erase(operation)
