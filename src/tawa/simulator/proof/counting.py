"""Scalars that are carried round loops: what they start from, and which of them count trips."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
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
        case scf.ForOp() if value.index:  # its bounds and step are operands before the carried ones
            return loop.operands[value.index + 2], yielded(value.owner, value.index - 1)
        case scf.WhileOp() if value.owner is loop.before_region.block:
            end = terminator(loop.after_region.block)
            return loop.operands[value.index], end.operands[value.index]
        case _:
            return None


def counts(value: BlockArgument, back: SSAValue) -> int:
    """Return by how much a carried scalar counts a trip, 0 where it does anything else."""
    owner = back.owner
    if not isinstance(owner, tile.Elementwise) or owner.function.data != "add":
        return 0
    one, other = owner.operands
    if _same(one, value):
        return constant_of(other) or 0
    return (constant_of(one) or 0) if _same(other, value) else 0


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
    owner = value.owner
    if not isinstance(owner, tile.Constant):
        return None
    match owner.value:
        case IntAttr() as number:
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
    if type(kind) not in _NO_SCALARS:
        return True
    return isinstance(kind, TensorType) and prod(kind.get_shape()) == 1


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
    step = polynomial(loop.step, known)
    by = step.as_constant or 0
    found: list[int] = []
    spares: list[Polynomial] | None = None
    for length in _capped(span):
        if by > 0 and (most := _at_most(length)) is not None:
            found.append(max(0, -(-most // by)))
            continue
        spares = list(_spares(loop, known)) if spares is None else spares
        if (few := _few_in(length, step, spares)) is not None:
            found.append(few)
    return min(found, default=None)


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


def _spares(loop: scf.ForOp, known: Known) -> Iterator[Polynomial]:
    """Yield what is never negative in a loop because of the conditions and loops around it."""
    inner: Operation = loop
    while isinstance(around := inner.parent_op(), (scf.IfOp, scf.ForOp)):
        spare = _at_least_zero(around, inner, known)
        if spare is not None:
            yield spare
        inner = around


def _few_in(span: Polynomial, step: Polynomial, spares: list[Polynomial]) -> int | None:
    """Return how many trips a loop makes at most over a span, where it is no longer than so many
    steps: by itself, or by what one of `spares` is at least, some times; None for many.
    """
    # All are sums of the same products: only their factors are worked with.
    terms = [dict(each.terms) for each in (span, step, *spares)]
    products = list(dict.fromkeys(chain(((),), *terms)))
    whole, by, *others = [[each.get(product, 0) for product in products] for each in terms]
    natural = [all(map(_not_negative, product)) for product in products]

    def is_at_most_zero(factors: list[int]) -> bool:
        return factors[0] <= 0 and not any(
            factor > 0 or (factor < 0 and not sure)
            for factor, sure in zip(factors[1:], natural[1:])
        )

    for count in range(_FEW):
        more = [one - count * other for one, other in zip(whole, by)]
        if is_at_most_zero(more):
            return count
        for spare in others:
            for times in _multiples(more, spare):
                if is_at_most_zero([one + times * other for one, other in zip(more, spare)]):
                    return count
    return None


def _multiples(value: list[int], spare: list[int]) -> set[int]:
    """Return by what `spare` is to be taken for a term of a value to vanish in their sum."""
    return {1, *(-one // by for one, by in zip(value, spare) if one and by and -one // by > 1)}


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
