"""Purpose: ask a launch that indices do not wrap, where quotients of them are then alike in a tile,
comparisons of them decided, or loops of products known to make an iteration.

Before -> after::

    %i = "add"(%first, %arange)           %i = "add"(%first, %arange) {within = [0, 2147483647]}
    %q = "idiv"(%i, 128)            ->    %q = "idiv"(%i, 128)
                                          kernel {bounds = ["128*grid(0) <= 2147483648"]}

Of 128 numbers that rise from a multiple of 128 all have one quotient, unless they wrap: threads
then load one scale, or a vector; and none of them is below 0, whatever an early return asks. How
many programs there are, and what arguments are, a launch knows: the conditions are in `bounds`, for
`tawa.runtime.guards`; where one does not hold the launcher runs the kernel compiled without this
pass. What a kernel's own loop over tiles counts is asked in every iteration.
Requires: tile IR, whose dead arithmetic is gone. Ensures: the same IR, with attributes. Declines
when: nothing would be more regular or decided, ranges know the answer, or the numbers are not
functions of 32-bit arguments and programs.

Purpose: loops count as Python's `range` does, whatever their steps are at run time.

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

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tawa.analysis.contiguity import Contiguity, Regularity
from tawa.analysis.index import index_form
from tawa.analysis.polynomial import (
    ONE,
    Iteration,
    Leaf,
    Monomial,
    Polynomial,
    asked,
    asked_not_zero,
    asked_to_end,
    bounds_of,
    is_argument,
    is_listed,
    leaves_of,
    polynomial,
)
from tawa.analysis.ranges import Range, compare, may_wrap, range_of, range_of_type
from tawa.ir import line_of, tile
from tawa.ir.functions import ORDERS, TURNED
from tawa.ir.types import bit_width, element_type, i32, i64, int_array, scalar, shape_of
from tawa.ir.walk import all_of, has, walk, yielded
from tawa.passes.fold import constant_of
from tawa.passes.lower.emit import Emitter, ask_launch
from tawa.passes.simplify import simplify
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_WHOLE = range_of_type(i32)
_NATURAL = Range(0, _WHOLE.high)
_HOST = 1 << 63
_SUMS = frozenset({"add", "sub", "mul", "neg"})
_CHOICES = frozenset({"min", "max"})
_QUOTIENTS = frozenset({"idiv", "irem"})


def guard_bounds(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Note on dividends what a launch is asked, and on the kernel the conditions."""
    conditions: list[str] = []
    decided: list[str] = []
    for op in [op for op in walk(kernel) if isinstance(op, tile.Elementwise)]:
        if op.function.data in _QUOTIENTS:
            conditions += _ask(kernel, op)
        elif op.function.data in ORDERS and not shape_of(op.result.type):
            decided += _ask_order(kernel, op)
    for loop in [op for op in walk(kernel) if isinstance(op, scf.ForOp) and has(op, tile.Dot)]:
        decided += _ask_iteration(kernel, loop)
    ask_launch(kernel, "bounds", (*conditions, *decided))
    return simplify(kernel, plan, target) if decided else ()


def _ask(kernel: tile.Kernel, quotient: tile.Elementwise) -> list[str]:
    dividend = _computed(quotient.inputs[0])
    if not shape_of(quotient.result.type) or dividend is None:
        return []
    if element_type(dividend.result.type) != i32 or range_of(dividend.result).is_natural:
        return []
    conditions = _conditions(kernel, dividend)
    if conditions is None:
        return []
    before = Contiguity().of(quotient.result)
    dividend.attributes["within"] = int_array((_NATURAL.low, _NATURAL.high))
    if _gains(before, Contiguity().of(quotient.result)):
        return conditions
    del dividend.attributes["within"]
    return []


def _ask_order(kernel: tile.Kernel, comparison: tile.Elementwise) -> list[str]:
    """Return what is asked so that a scalar compares with a constant alike in all programs."""
    name, (one, other) = comparison.function.data, comparison.inputs
    for function, number, than in ((name, one, other), (TURNED[name], other, one)):
        op, limit = number.owner, constant_of(than)
        if not isinstance(op, tile.Elementwise) or not isinstance(limit, int):
            continue
        fixed = Range(limit, limit)
        if number.type != i32 or compare(function, range_of(number), fixed) is not None:
            continue
        if compare(function, _NATURAL, fixed) is None or not _grows_from_zero(polynomial(number)):
            continue
        if (conditions := _conditions(kernel, op)) is not None:
            op.attributes["within"] = int_array((_NATURAL.low, _NATURAL.high))
            return conditions
    return []


def _ask_iteration(kernel: tile.Kernel, loop: scf.ForOp) -> list[str]:
    """Return what is asked so that a loop surely makes an iteration, whose end grows with the
    programs: ``range(0, (program + 1) * 64)``. Where it is pipelined nothing stands for no
    iterations then.
    """
    first, end, op = constant_of(loop.lb), polynomial(loop.ub), loop.ub.owner
    if not isinstance(first, int) or not isinstance(op, tile.Elementwise) or loop.ub.type != i32:
        return []
    least = end.terms.get((), 0)
    if least <= first or range_of(loop.ub).low > first or not _grows_from_zero(end):
        return []
    if (conditions := _conditions(kernel, op)) is None:
        return []
    op.attributes["within"] = int_array((least, _NATURAL.high))
    return conditions


def _grows_from_zero(poly: Polynomial) -> bool:
    """Tell whether a number is negative only where it has wrapped: a sum of numbers of programs."""
    return all(
        factor >= 0 and all(isinstance(atom, Leaf) and _counts_programs(atom) for atom in monomial)
        for monomial, factor in poly.terms.items()
    )


def _counts_programs(leaf: Leaf) -> bool:
    return isinstance(leaf.value.owner, tile.ProgramId | tile.NumPrograms)


def _computed(value: SSAValue) -> tile.Elementwise | None:
    """Return what computes the elements that a value holds in some shape."""
    while isinstance(value.owner, tile.ExpandDims | tile.Broadcast | tile.Transpose):
        value = value.owner.operands[0]
    return value.owner if isinstance(value.owner, tile.Elementwise) else None


def _gains(before: Regularity, after: Regularity) -> bool:
    return any(
        new.contiguity > old.contiguity or new.constancy > old.constancy
        for old, new in zip(before, after)
    )


def _conditions(kernel: tile.Kernel, dividend: tile.Elementwise) -> list[str] | None:
    """Return what a launch must hold for a sum never to be negative and never to wrap."""
    form = index_form(dividend.result)
    if form is None or form.wrapped or form.repeated:
        return None
    least, most = 0, 0
    for step, extent in zip(form.steps, shape_of(dividend.result.type), strict=True):
        if (number := step.as_constant) is None:
            return None
        least += min(0, number * (extent - 1))
        most += max(0, number * (extent - 1))
    demands = [(form.offset, Range(-least, _WHOLE.high - most))]
    for number, inside in _exact(dividend):
        if number is None:
            return None
        demands.append((number, inside))
    conditions: list[str] = []
    for poly, inside in demands:
        if (number := poly.as_constant) is not None:
            if not inside.holds(Range(number, number)):
                return None
        elif (condition := _condition(kernel, poly, inside)) is None:
            return None
        else:
            conditions.append(condition)
    return conditions


def _exact(top: Operation) -> Iterator[tuple[Polynomial | None, Range]]:
    """Yield what a number must not have wrapped in for `top` to be what its polynomial says, and
    where it must lie; None where that cannot be said.

    Sums and products may wrap on the way: what they are in the end is right modulo 2^32. What is
    divided or compared must be right itself, and what it is divided by positive. Loops must make
    the iterations that their bounds say.
    """
    pending: list[Operation] = [top]
    seen: set[Operation] = {top}
    while pending:
        op = pending.pop()
        if isinstance(op, tile.Elementwise):
            if element_type(op.result.type) != i32:
                yield None, _WHOLE
            elif (name := op.function.data) in _QUOTIENTS:
                yield from _unless_known(op.inputs[0], _WHOLE)
                yield from _unless_known(op.inputs[1], Range(1, _WHOLE.high))
            elif name in _CHOICES:
                for value in op.inputs:
                    yield from _unless_known(value, _WHOLE)
            elif name not in _SUMS:
                yield None, _WHOLE
        elif isinstance(op, tile.Cast):
            yield None, _WHOLE
        elif isinstance(op, scf.ForOp):
            yield from _counted(op)
        for operand in _sources(op):
            owner = _maker(operand)
            if owner is not None and owner not in seen:
                seen.add(owner)
                pending.append(owner)


def _sources(op: Operation) -> Iterator[SSAValue]:
    """Yield what an operation computes from; of a loop, its bounds and what its iterations
    carry.
    """
    yield from op.operands
    if isinstance(op, scf.ForOp):
        yield from (yielded(op.body.block, place) for place in range(len(op.iter_args)))


def _maker(value: SSAValue) -> Operation | None:
    """Return the operation or the loop that a value is made by; None for arguments."""
    if isinstance(value.owner, Operation):
        return value.owner
    around = value.owner.parent_op()
    return around if isinstance(around, scf.ForOp) else None


def _counted(loop: scf.ForOp) -> Iterator[tuple[Polynomial | None, Range]]:
    """Yield what makes a loop count as its bounds say: also the number after the last is one."""
    for bound in (loop.lb, loop.ub):
        yield from _unless_known(bound, _WHOLE)
    yield from _unless_known(loop.step, Range(1, _WHOLE.high))
    if range_of(loop.step) != Range(1, 1):
        yield polynomial(loop.ub) + polynomial(loop.step) - ONE, _WHOLE


def _unless_known(value: SSAValue, inside: Range) -> Iterator[tuple[Polynomial, Range]]:
    if not inside.holds(range_of(value)) or _may_differ(value):
        yield polynomial(value), inside


def _may_differ(value: SSAValue) -> bool:
    """Tell whether a number may have wrapped, in any of the sums it is made of."""
    op = value.owner
    if not isinstance(op, tile.Elementwise):
        return False
    return may_wrap(value) or (op.function.data in _SUMS and any(map(_may_differ, op.inputs)))


def _condition(kernel: tile.Kernel, poly: Polynomial, inside: Range) -> str | None:
    """Return the condition that a number lies in a range in every program and every iteration, if
    hosts can tell.
    """
    if not all(map(_is_of_32_bits, leaves_of(poly))):
        return None
    if not is_listed(poly) or _largest(poly) >= _HOST:
        return None
    if (text := _over_grid(poly, inside)) is not None:
        return text
    return asked(kernel, "always_within", poly, inside.low, inside.high)


def _is_of_32_bits(leaf: Leaf | Iteration) -> bool:
    if isinstance(leaf, Iteration):
        return leaf.loop.lb.type == i32
    return leaf.value.type == i32 and (
        not isinstance(leaf.value, BlockArgument) or is_argument(leaf.value)
    )


def _largest(poly: Polynomial) -> int:
    """Return how far from 0 a sum of products of 32-bit numbers can be."""
    return sum(abs(number) << _bits(monomial) for monomial, number in poly.terms.items())


def _bits(monomial: Monomial) -> int:
    """Return the bits of a product; iterations times their loop's step are no further than its
    end.
    """
    left = list(monomial)
    for iteration in (atom for atom in monomial if isinstance(atom, Iteration)):
        step, *others = polynomial(iteration.loop.step).terms
        left.remove(iteration)
        if not others:
            left = [atom for atom in left if atom not in step]
    return 33 * (len(monomial) - len(left)) + 31 * len(left)


def _over_grid(poly: Polynomial, inside: Range) -> str | None:
    """Return the condition where numbers grow with those of programs alone: it is on the last."""
    first, factors = 0, dict[int, int]()
    for monomial, number in poly.terms.items():
        match monomial:
            case ():
                first = number
            case (Leaf(value=value),) if isinstance(value.owner, tile.ProgramId) and number > 0:
                factors[value.owner.axis.data] = number
            case _:
                return None
    if not factors or first < inside.low:
        return None
    extents = " + ".join(f"{factors[axis]}*grid({axis})" for axis in sorted(factors))
    return f"{extents} <= {inside.high - first + sum(factors.values())}"


# --- loops that count upwards ---------------------------------------------------------------------


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
