"""Scalars that are carried round loops: what they start from, and which of them count trips."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr, IntegerType, TensorType
from xdsl.ir import BlockArgument, Operation, SSAValue

from tawa.analysis.polynomial import Atom, Call, Known, Leaf, Polynomial, Trip, polynomial
from tawa.ir import hopper, tile
from tawa.ir.control import terminator, yielded
from tawa.ir.types import BarriersType, BufferType, TensorMapType, ViewType
from tawa.simulator.proof.functions import spelled

Loop: TypeAlias = scf.ForOp | scf.WhileOp


def recurrence_of(value: BlockArgument) -> tuple[SSAValue, SSAValue] | None:
    """Return the first value of a carried scalar, and the one a trip hands back."""
    loop = value.owner.parent_op()
    match loop:
        case scf.ForOp() if value.index:
            return loop.iter_args[value.index - 1], yielded(value.owner, value.index - 1)
        case scf.WhileOp() if value.owner is loop.before_region.block:
            end = terminator(loop.after_region.block)
            return loop.arguments[value.index], end.operands[value.index]
        case _:
            return None


def counts(value: BlockArgument, back: SSAValue) -> int:
    """Return by how much a carried scalar counts a trip, 0 where it does anything else."""
    match back.owner:
        case tile.Elementwise(function=function, inputs=(one, other)) if function.data == "add":
            if _same(one, value):
                return constant_of(other) or 0
            return (constant_of(one) or 0) if _same(other, value) else 0
        case _:
            return 0


def _same(value: SSAValue, argument: BlockArgument) -> bool:
    """Tell whether a value is a carried scalar, perhaps passed on by the test of a while loop."""
    if value is argument:
        return True
    loop = argument.owner.parent_op()
    if not isinstance(loop, scf.WhileOp) or not isinstance(value, BlockArgument):
        return False
    passed = terminator(loop.before_region.block).operands
    return value.owner is loop.after_region.block and passed[value.index + 1] is argument


def constant_of(value: SSAValue) -> int | None:
    """Return an integer constant's value."""
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return number.data
        case _:
            return None


def negated(value: SSAValue) -> SSAValue | None:
    """Return the condition of which a value is the negation, None where it is none."""
    match value.owner:
        case tile.Elementwise(function=function) as operation if function.data == "xor":
            one, other = operation.operands
            return one if constant_of(other) == 1 and spelled(value.type) == "i1" else None
        case _:
            return None


_NO_SCALARS = frozenset((TensorType, ViewType, BufferType, BarriersType, TensorMapType))


def is_scalar(value: SSAValue) -> bool:
    """Tell whether a value is a number, an address or a descriptor."""
    return type(value.type) not in _NO_SCALARS


def carries_scalar(value: SSAValue) -> bool:
    """Tell whether a value is a scalar, or the tensor of one element as which it passes memory."""
    kind = value.type
    return is_scalar(value) or (isinstance(kind, TensorType) and prod(kind.get_shape()) == 1)


# a OP b in the region where it is true, as (the larger side, how much larger it is at least).
_TRUE = {"lt": (1, 1), "le": (1, 0), "gt": (0, 1), "ge": (0, 0)}
_FALSE = {"lt": (0, 0), "le": (0, 1), "gt": (1, 0), "ge": (1, 1)}
_FEW = 8

_COUNTS = (
    *(hopper.BlockId, hopper.NumBlocks, hopper.GridExtent, hopper.ClusterRank, hopper.NextProgram),
    *(tile.ProgramId, tile.NumPrograms),
)


def most_trips(loop: scf.ForOp, known: Known) -> int | None:
    """Return how many trips a loop makes at most, where its bounds or the conditions around it say;
    `known` are the polynomials that were worked out so far.

    A part of a longer loop: ``for k in range(low, min(low + 64, K), 16)``; one from the number of a
    program to a constant; a loop that is run where another would not be worth while:
    ``if 2 * step < n: .. else: for``.
    """
    span = polynomial(loop.ub, known) - polynomial(loop.lb, known)
    found = [_most_in(loop, length, known) for length in _capped(span)]
    return min((count for count in found if count is not None), default=None)


def _capped(value: Polynomial) -> Iterator[Polynomial]:
    """Yield what a polynomial never exceeds: itself, and the same with an operand of a minimum in
    place of it.
    """
    yield value
    for monomial, factor in value.terms:
        match monomial:
            case (Call(function="min", inputs=inputs),) if factor > 0:
                times = Polynomial.constant(factor)
                rest = value - times * Polynomial.atom(monomial[0])
                for each in inputs:
                    yield from _capped(rest + times * each)
                return
            case _:
                continue


def _most_in(loop: scf.ForOp, span: Polynomial, known: Known) -> int | None:
    """Return how many trips a loop makes at most over a span that it never exceeds."""
    step = polynomial(loop.step, known)
    if (length := _at_most(span)) is not None and (by := step.as_constant) is not None and by > 0:
        return max(0, -(-length // by))
    return next((n for n in range(_FEW) if _is_within(loop, span, n, step, known)), None)


def _is_within(
    loop: scf.ForOp, span: Polynomial, count: int, step: Polynomial, known: Known
) -> bool:
    """Tell whether a span is no longer than so many steps: by itself, or by what a condition or the
    end of a loop around it says.
    """
    more = span - Polynomial.constant(count) * step
    inner: Operation = loop
    if _is_at_most_zero(more):
        return True
    while isinstance(around := inner.parent_op(), (scf.IfOp, scf.ForOp)):
        spare = _at_least_zero(around, inner, known)
        if spare is not None and any(
            _is_at_most_zero(more + Polynomial.constant(times) * spare)
            for times in _multiples(more, spare)
        ):
            return True
        inner = around
    return False


def _multiples(value: Polynomial, spare: Polynomial) -> list[int]:
    """Return by what `spare` is to be taken for a term of a value to vanish in their sum."""
    factors = dict(value.terms)
    pairs = ((factors[monomial], by) for monomial, by in spare.terms if monomial in factors)
    return list(dict.fromkeys([1, *(-one // by for one, by in pairs if -one // by > 1)]))


def _is_at_most_zero(value: Polynomial) -> bool:
    most = _at_most(value)
    return most is not None and most <= 0


def _at_most(value: Polynomial) -> int | None:
    """Return a number that a polynomial never exceeds, None where nothing is known."""
    most = 0
    for monomial, factor in value.terms:
        if not monomial:
            most += factor
        elif factor > 0 or not all(_not_negative(atom) for atom in monomial):
            return None
    return most


def _not_negative(atom: Atom) -> bool:
    """Tell whether an atom is at least 0 whatever the input is."""
    match atom:
        case Trip():
            return True
        case Leaf(value=value):
            return isinstance(value.owner, _COUNTS)
        case Call(function="idiv" | "irem" | "min", inputs=(one, other)):
            return _all_not_negative(one) and _all_not_negative(other)
        case Call(function="max", inputs=(one, other)):
            return _all_not_negative(one) or _all_not_negative(other)
        case _:
            return False


def _all_not_negative(value: Polynomial) -> bool:
    return all(factor > 0 and all(map(_not_negative, atoms)) for atoms, factor in value.terms)


def _at_least_zero(
    around: scf.IfOp | scf.ForOp, inside: Operation, known: Known
) -> Polynomial | None:
    """Return what is >= 0 in a region because of the condition of a branch, or in a loop because
    its index is below its end: a step is positive.
    """
    if isinstance(around, scf.ForOp):
        index = polynomial(around.body.block.args[0], known)
        return polynomial(around.ub, known) - index - Polynomial.constant(1)
    condition = around.cond.owner
    if not isinstance(condition, tile.Elementwise) or not is_scalar(around.cond):
        return None
    holds = inside.parent_region() is around.true_region
    says = (_TRUE if holds else _FALSE).get(condition.function.data)
    if says is None or not isinstance(condition.inputs[0].type, IntegerType):
        return None
    larger, by = says
    sides = [polynomial(side, known) for side in condition.inputs]
    return sides[larger] - sides[1 - larger] - Polynomial.constant(by)
