"""Purpose: let the maximum under which exponentials are summed lag, so that sums are seldom scaled.

Before -> after (an online softmax; `lag` is 8 for powers of two)::

    %above = "max"(%top, %m)                     %above = "max"(%top, %m)
    %p = "exp2"("sub"(%x, %above))               %rises = "gt"(%above, %kept + lag)
    %r = "exp2"("sub"(%top, %above))       ->    %base = "select"(%rises, %above, %kept)
    %acc2 = tile.dot %p, %v, "mul"(%acc, %r)     %p = "exp2"("sub"(%x, %base))
    scf.yield %acc2, %above                      %r = "exp2"("sub"(%kept, %base))
                                                 %acc2 = tile.dot %p, %v, "mul"(%acc, %r)
                                                 scf.yield %acc2, %above, %base
                                               } // and %acc times exp2(%base - %above) after it

The factor %r then is one nearly always, and a product's accumulator is not touched
(`lower.untouched`). Why it is the same: what is computed from %p is linear in it, so a base lower
by d makes everything summed 2 ** d times as large, the carried sums with it; after the loop that
factor is taken out again. The pass proves the linearity statement by statement. Sums differ by
rounding: weights are at most 2 ** lag times theirs.
Requires: tile IR. Ensures: carried values and results as before, up to rounding.
Declines when: a value depends on the maximum otherwise, weights become a type without room for the
factor, or no carried sum is wide enough for it to pay. Not run under ``strict``.
"""

from __future__ import annotations

import math

from xdsl.dialects import scf
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Block, SSAValue

from tawa.analysis.effects import VIEWS
from tawa.ir import tile
from tawa.ir.control import terminator, yielded
from tawa.ir.types import element_type, shape_of
from tawa.ir.walk import all_of
from tawa.passes.degrees import Degrees, find_degrees
from tawa.passes.lower.emit import Emitter, append_operands, widen_for
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

LAG = 8.0
"""Binary orders by which the maximum may rise before sums follow it: 2 ** 8 of f16's 2 ** 15."""
LEAST_COLUMNS = 128
"""Columns of an accumulator from which it pays: 64 lose 1.5 percent, 128 gain 2, 256 gain 10 (H200,
attention by head dim).
"""


def lag_maxima(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Rewrite each loop that carries sums of exponentials under a running maximum."""
    notes: list[Declined] = []
    for loop in all_of(kernel, scf.ForOp):
        for index in range(len(loop.iter_args)):
            above = _running_maximum(loop.body.block, index)
            if above is None:
                continue
            degrees = find_degrees(loop, index, above)
            if reason := degrees.reason or _why_not_worth(degrees):
                name = loop.body.block.args[index + 1].name_hint or "a carried maximum"
                notes.append(Declined(f"letting {name} lag", reason))
                continue
            _rewrite(loop, index, above, degrees)
            break
    return tuple(notes)


def _running_maximum(block: Block, index: int) -> tile.Elementwise | None:
    """Return what carried value `index` becomes, if that is its maximum with something else."""
    argument, value = block.args[index + 1], yielded(block, index)
    row = isinstance(element_type(argument.type), Float32Type) and len(shape_of(argument.type)) == 1
    above = value.owner
    if not row or not isinstance(above, tile.Elementwise) or above.parent is not block:
        return None
    largest = above.function.data in ("max", "max_nan") and argument in above.inputs
    return above if largest else None


def _why_not_worth(degrees: Degrees) -> str:
    widest = max((shape_of(value.type)[-1] for value in degrees.sums if _is_wide(value)), default=0)
    if widest < LEAST_COLUMNS:
        return f"the widest sum that a product makes has {widest} columns, too few for it to pay"
    lift = LAG + degrees.lift
    if degrees.orders is not None and lift > degrees.orders:
        return f"weights of 2 ** {lift:g} do not fit the type they are multiplied in"
    return ""


def _is_wide(value: SSAValue) -> bool:
    """Tell whether a carried sum is the accumulator of a product."""
    return len(shape_of(value.type)) == 2


def _rewrite(loop: scf.ForOp, index: int, above: tile.Elementwise, degrees: Degrees) -> None:
    block = loop.body.block
    wide = widen_for(loop, [loop.iter_args[index]])
    top, kept = block.args[index + 1], block.args[-1]
    kept.name_hint = "kept"
    after = above.next_op
    assert after is not None, "a body ends with what it yields"
    emitter = Emitter.before(after)
    unit = 1.0 if degrees.function == "exp2" else math.log(2)
    limit = emitter.apply("add", kept, emitter.constant(LAG * unit, top.type))
    rises = emitter.apply("gt", above.result, limit)
    base = emitter.apply("select", rises, above.result, kept)
    base.name_hint = "base"
    choice = (rises.owner, base.owner)
    end = terminator(block)
    above.result.replace_uses_with_if(
        base, lambda use: use.operation is not end and use.operation not in choice
    )
    top.replace_uses_with_if(kept, lambda use: use.operation is not above)
    append_operands(end, [base])
    uses = [list(result.uses) for result in wide.results]
    results = _settled(Emitter.after(wide), wide, index, degrees)
    for old, new, users in zip(wide.results, results, uses, strict=True):
        if new is not old:
            new.name_hint, old.name_hint = old.name_hint, None
        for use in users:
            use.operation.operands[use.index] = new


def _settled(emitter: Emitter, loop: scf.ForOp, index: int, degrees: Degrees) -> list[SSAValue]:
    """Return the results of the loop as they were: sums under the maximum itself."""
    top, base = loop.results[index], loop.results[-1]
    same = emitter.apply("eq", base, top)  # both may be infinite
    lower = emitter.apply("sub", base, top)
    scale = emitter.apply(degrees.function, lower)
    one = emitter.constant(1.0, top.type)
    factor = emitter.apply("select", same, one, scale)
    results: list[SSAValue] = list(loop.results)
    assert degrees.ratio is not None, "a sum is multiplied by it"
    for argument, multiplier in degrees.sums.items():
        number = argument.index - 1
        spread = _like(emitter, multiplier, degrees.ratio, factor)
        results[number] = emitter.apply("mul", loop.results[number], spread)
    return results


def _like(emitter: Emitter, value: SSAValue, ratio: SSAValue, factor: SSAValue) -> SSAValue:
    """Return `factor` spread as `value` is spread from `ratio`."""
    if value is ratio:
        return factor
    view = value.owner
    assert isinstance(view, (tile.Broadcast, *VIEWS)), "a factor is a view of the ratio"
    inner = _like(emitter, view.operands[0], ratio, factor)
    again = view.clone()
    again.operands[0] = inner
    return emitter.put(again).results[0]
