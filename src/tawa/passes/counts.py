"""Purpose: loops count as Python's `range` does, whatever their steps are at run time.

Before -> after, where nobody knows the sign of the step::

                                       %iterations = max(0, ceil((%end - %start) / %step))    i64
    scf.for %k = %start to %end        scf.for %n = 0 to %iterations step 1 {
        step %step {             ->      %k = %start + %n * %step
      ..                                 ..
    }                                  }

On the GPU a loop counts upwards. A launch that knows the step is asked whether it is positive
(attribute `steps`, conditions for `tawa.runtime.guards`); where it is not, the kernel compiled
plainly runs, in which such loops are counted. A step of zero is refused: by the launch (attribute
`demands`, pairs of a condition and what is said where it does not hold), or by an assertion where
only the kernel knows it. So is a counter that passes the end of its type on its last step, and
would go on from the other end.
Requires: tile IR. Ensures: every `scf.for` has a positive step and ends, as far as the launch can
tell: bounds that are read from memory must leave room for a step. Declines: never.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from tawa.analysis.polynomial import (
    asked,
    asked_not_zero,
    asked_to_end,
    bounds_of,
    is_listed,
    polynomial,
)
from tawa.analysis.ranges import range_of, range_of_type
from tawa.ir import line_of, tile
from tawa.ir.types import bit_width, i64, scalar
from tawa.ir.walk import all_of
from tawa.passes.lower.emit import Emitter
from tawa.plan.plan import Declined, Plan
from tawa.target import Target


def count_loops(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Ask a launch whether steps are positive; count the loops whose steps it does not know."""
    return _count_each(kernel, ask=True)


def count_loops_plain(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Count the loops whose steps may be negative."""
    return _count_each(kernel, ask=False)


def _count_each(kernel: tile.Kernel, *, ask: bool) -> tuple[Declined, ...]:
    steps: list[Attribute] = []
    demands: list[Attribute] = []
    for loop in all_of(kernel, scf.ForOp):
        step, listed = polynomial(loop.step), is_listed(polynomial(loop.step))
        most = range_of_type(loop.lb.type).high
        steps_by = range_of(loop.step)
        if steps_by.low < 1:
            if listed and ask and steps_by.high > 0:
                steps.append(StringAttr(asked(kernel, "always_within", step, 1, most)))
            else:
                if listed and steps_by.high >= 0:
                    demands.append(_demand(asked_not_zero(kernel, step), loop, _ZERO))
                _count(loop, known=listed)
                continue
        if range_of(loop.ub).high + range_of(loop.step).high - 1 <= most:
            continue
        if all(map(is_listed, bounds_of(loop))):
            wraps = f"its counter passes {most}, the last number of int{bit_width(loop.lb.type)}"
            demands.append(_demand(asked_to_end(kernel, loop, most), loop, wraps))
    for name, found in (("steps", steps), ("demands", demands)):
        if found:
            kernel.attributes[name] = ArrayAttr(list(dict.fromkeys(found)))
    return ()


_U64 = scalar("u64")
_ZERO = "its step is 0"


def _demand(condition: str, loop: scf.ForOp, otherwise: str) -> Attribute:
    said = f"the loop at line {line_of(loop)} never ends: {otherwise}"
    return ArrayAttr([StringAttr(condition), StringAttr(said)])


def _count(loop: scf.ForOp, *, known: bool) -> None:
    """Let a loop count its iterations, and compute from that what it counted. `known`: a launch
    refuses a step of zero.
    """
    emitter, kind = Emitter.before(loop), loop.lb.type
    apply, number = emitter.apply, emitter.constant
    start, end, step = (emitter.cast(value, i64) for value in (loop.lb, loop.ub, loop.step))
    zero, one = number(0, i64), number(1, i64)
    if not known:
        message = StringAttr(f"the step of the loop at line {line_of(loop)} is 0")
        holds = apply("ne", step, zero)
        emitter.put(tile.Assert.make(holds, message=message))
    upwards = apply("gt", step, zero)
    low = apply("select", upwards, start, end)
    high = apply("select", upwards, end, start)
    # Two int64 are up to 2^64 apart, and the size of the least one is 2^63: without a sign.
    size = apply("select", upwards, step, apply("sub", zero, step))
    size = apply("max", emitter.cast(size, _U64), number(1, _U64))
    before_last = emitter.cast(apply("sub", apply("sub", high, low), one), _U64)
    iterations = apply("add", apply("idiv", before_last, size), number(1, _U64))
    iterations = emitter.cast(apply("min", iterations, number(range_of_type(i64).high, _U64)), i64)
    iterations = apply("select", apply("gt", high, low), iterations, zero)
    first, by = loop.lb, loop.step
    block = loop.body.block
    counter = block.args[0]
    iteration = block.insert_arg(i64, 0)
    inside = Emitter.at_start(block)
    index = inside.apply("add", first, inside.apply("mul", inside.cast(iteration, kind), by))
    index.name_hint = counter.name_hint
    counter.replace_all_uses_with(index)
    block.erase_arg(counter)
    for place, bound in enumerate((zero, iterations, one)):
        loop.operands[place] = bound
