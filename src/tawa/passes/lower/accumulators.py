"""Accumulators that are read after a product has taken their registers are copied before.

Purpose: a product adds to its accumulator in place; what the program still needs of the old value
must lie elsewhere, and be at rest when it is copied.
Before -> after:
    %y = hopper.wgmma %a, %b, %x          %kept = tile.cast %x
    tile.elementwise "sub"(%y, %x)   ->   %y = hopper.wgmma %a, %b, %kept
                                          tile.elementwise "sub"(%y, %x)
A value is handed on in its registers by loops, branches and pins as well, so the copy may stand
before a loop, or before the end of a branch; a transposed tile is a name of the same registers.
Requires: layouts assigned, no waits yet. Ensures: who uses a value after a product took its
registers uses other registers; what threads compute for a product is pinned before it.
Declines when: never.

An accumulator that its first product overwrites is not filled with zeros first.

Purpose: 96 to 128 moves a thread less between a tile and the first product of the next.
Before -> after:
    %acc = scf.for .. iter_args(%a = %zero) {     %acc = scf.for .. iter_args(%a = %any) {
      hopper.wgmma .., %a if %more                  hopper.wgmma .., %a if %more
    }                                             }
    %c = hopper.wgmma_wait of %acc                %d = hopper.wgmma_wait of %acc
    use %c                                        %c = scf.if %iterations > 0 { %d }
                                                       else { hopper.pin %zero }
Requires: waits placed. Ensures: zeros where the loop does not run.
Declines when: the accumulator is used otherwise than by that product, or read inside the loop; a
branch hands it on, whose other side gives another: ptxas would serialise the products (C7515).

Accumulators that are multiplied by ones are left alone: a warp asks whether all its factors are.

Before -> after, where no product is in flight:
    %acc2 = "mul"(%acc, %rows)      ->      %acc2 = "mul"(%acc, %rows) {skip_ones}
with %rows one factor a row (a rescaling that an online softmax seldom needs,
`passes.lazy_rescaling`). It is the same value, x * 1 = x for every x; what is saved are passes over
registers that the tensor cores use as well. Between issue and wait a branch would make ptxas
serialise the products. Requires: waits placed. Ensures: the same values. Declines when: a thread
holds fewer than `LEAST` elements, or a product may be in flight.
"""

from __future__ import annotations

from itertools import permutations

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float32Type, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue, Use

from tawa.analysis.hardware import is_zero
from tawa.analysis.liveness import all_names
from tawa.analysis.statements import VIEWS
from tawa.ir import hopper, tile
from tawa.ir.types import Real, element_type, is_tensor, layout_of, shape_of
from tawa.ir.walk import all_of, handed_on, has, walk
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter
from tawa.passes.lower.flight import lives_on, visible

_ACC = 2  # the operand of a wgmma
_FILLED = (tile.Constant, hopper.Uninitialized)  # written where they are used


def keep_accumulators(role: hopper.Role) -> None:
    """Copy each value of `role` that outlives the product that takes its registers."""
    if not has(role, hopper.Wgmma):
        return
    for operation in walk(role):
        for index, value in enumerate(operation.operands):
            if not is_tensor(value) or isinstance(value.owner, _FILLED):
                continue
            use = Use(operation, index)
            if _takes(use, set()) and any(
                lives_on(name, operation, index)
                for name in all_names(value)
                if visible(name, operation)
            ):
                copy = tile.Cast.make(value, results=[value.type])
                kept = Emitter.before(operation).put(copy).result
                kept.name_hint = value.name_hint
                operation.operands[index] = kept


def pin_computed(role: hopper.Role) -> None:
    """Pin what the threads of `role` compute for a product to add to, before its fence.

    Else the C++ compiler may leave copies of one value, or a choice between two, to where the
    product is, and ptxas serialises the product (C7520).
    """
    for product in all_of(role, hopper.Wgmma):
        if _is_computed(value := product.acc):
            pin = hopper.Pin.make([value], results=[[value.type]])
            product.operands[_ACC] = Emitter.before(product).put(pin).res[0]


def _is_computed(value: SSAValue) -> bool:
    """Tell whether an operation of threads gives a value, or a branch without products."""
    match value.owner:
        case scf.IfOp() as branch:
            return not has(branch, hopper.Wgmma)
        case hopper.Wgmma() | hopper.Pin() | scf.ForOp() | scf.WhileOp() | Block():
            return False
        case owner:
            return not isinstance(owner, _FILLED)


def _takes(use: Use, seen: set[SSAValue]) -> bool:
    """Tell whether the registers of an operand become those of a product's sum."""
    if isinstance(use.operation, hopper.Wgmma):
        return use.index == _ACC
    pinned = [use.operation.res[use.index]] if isinstance(use.operation, hopper.Pin) else []
    for value in (*handed_on(use.operation, use.index), *pinned):
        if value not in seen:
            seen.add(value)
            if any(_takes(further, seen) for further in value.uses):
                return True
    return False


# --- zeros that a product overwrites --------------------------------------------------------------


def drop_zero_fills(lowering: Lowering, role: hopper.Role) -> None:
    """Leave accumulators of `role` that start from zero uninitialized."""
    for loop in all_of(role, scf.ForOp):
        for index, start in enumerate(loop.iter_args):
            if is_zero(start) and _is_overwritten(loop, index):
                _leave(lowering, loop, index)


def _is_overwritten(loop: scf.ForOp, index: int) -> bool:
    """Tell whether the first iteration's product is all that sees the carried value's start."""
    argument = loop.body.block.args[index + 1]
    use = argument.get_unique_use()
    if use is None or not isinstance(product := use.operation, hopper.Wgmma):
        return False
    # In the loop's own block it runs in every iteration; elsewhere the first iteration might pass
    # it by.
    return product.accumulate is not None and product.parent is loop.body.block and use.index == 2


def _leave(lowering: Lowering, loop: scf.ForOp, index: int) -> None:
    block = loop.body.block
    if block not in lowering.iterations:
        return
    zero, result = loop.iter_args[index], loop.results[index]
    ready = _ready(result)
    if ready is None or any(_is_chosen(use.operation) for use in ready.uses):
        return
    before = Emitter.before(loop)
    empty = before.put(hopper.Uninitialized.make(results=[result.type]))
    loop.operands[3 + index] = empty.result
    wait = ready.owner
    assert isinstance(wait, Operation)
    after = Emitter.after(wait)
    iterations = loop.results[lowering.iterations[block].index - 1]
    ran = after.apply("gt", iterations, after.constant(0), hint="ran")
    fill = tile.Constant.make(results=[zero.type], value=Real(0.0))
    # Pinned, the zeros stay in a branch of their own that is not taken; else the compiler would
    # choose between each register and zero, one instruction each, in every tile.
    pinned = hopper.Pin.make([fill.result], results=[[zero.type]])
    other = Block([fill, pinned, scf.YieldOp(pinned.res[0])])
    choice = scf.IfOp(ran, [result.type], Region(Block([scf.YieldOp(ready)])), Region(other))
    uses = [use for use in ready.uses if use.operation.parent_op() is not choice]
    after.put(choice)
    for use in uses:
        use.operation.operands[use.index] = choice.results[0]
    choice.results[0].name_hint = ready.name_hint


def _is_chosen(user: Operation) -> bool:
    """Tell whether a value leaves a branch here whose other side gives another."""
    return isinstance(user, scf.YieldOp) and isinstance(user.parent_op(), scf.IfOp)


def _ready(result: SSAValue) -> SSAValue | None:
    """Return the finished accumulator after the loop: its result, or what the drain gives."""
    use = result.get_unique_use()
    if use is not None and isinstance(wait := use.operation, hopper.WgmmaWait):
        return wait.res[use.index]
    return None


# --- multiplications by ones ----------------------------------------------------------------------


LEAST = 64
"""Elements a thread from which asking pays: 32 lost 1.5 percent of attention at head dim 64, 64 and
128 gained 2 and 10 at 128 and 256 (H200).
"""


def skip_rescaling(role: hopper.Role) -> None:
    """Mark the multiplications of accumulators by rows of factors."""
    for operation in walk(role):
        if isinstance(operation, tile.Elementwise) and _rescales(operation) and _drained(operation):
            operation.attributes["skip_ones"] = UnitAttr()


def _rescales(op: tile.Elementwise) -> bool:
    kind = op.result.type
    if op.function.data != "mul" or len(shape_of(kind)) < 2:
        return False
    if not isinstance(element_type(kind), Float32Type) or layout_of(kind).register_count < LEAST:
        return False
    return any(
        isinstance(scaled.owner, hopper.WgmmaWait) and _is_row(factor)
        for scaled, factor in permutations(op.inputs)
    )


def _is_row(value: SSAValue) -> bool:
    """Tell whether a tensor has one element a row."""
    while isinstance(value.owner, (tile.Broadcast, *VIEWS)):
        value = value.owner.operands[0]
    return sum(extent > 1 for extent in shape_of(value.type)) == 1


def _drained(op: Operation) -> bool:
    """Tell whether a wait for all products stands before an operation, and none is issued since."""
    before = op.prev_op
    while before is not None:
        if isinstance(before, hopper.WgmmaWait) and before.pending.data == 0:
            return True
        if has(before, hopper.Wgmma):
            return False
        before = before.prev_op
    return False
