"""Which scalars are the same in all blocks of a cluster.

Blocks of a cluster are neighbours along axis 0, so what depends on their index differs; but a
kernel that orders its own tiles (``tile // per_group``, ``tile % per_group // rows``) computes from
neighbouring indices values that agree. Here an index is the cluster's *base*, a multiple of the
number of blocks, plus the block's rank. Dividing it by what is itself a multiple of that number
forgets the rank; the remainder keeps it. Where a divisor is a multiple only for some arguments (the
number of rows of tiles must be even), that is assumed, and `assumed` says what a launch must check.
"""

from __future__ import annotations

from functools import reduce
from math import gcd

from xdsl.ir import Operation, SSAValue

from tawa.analysis.cluster import influenced
from tawa.analysis.polynomial import (
    Atom,
    Call,
    Iteration,
    Leaf,
    Polynomial,
    is_argument,
    is_host_value,
    polynomial,
)
from tawa.analysis.spelling import render
from tawa.ir import hopper, tile
from tawa.ir.walk import walk

_CHOICES = ("min", "max")


class Neighbours:
    """The scalars of `kernel`, in hopper IR, that may differ between `blocks` neighbours.

    With `assume`, divisors computed from arguments alone may be taken to be multiples of `blocks`;
    `assumed` holds them afterwards.
    """

    def __init__(self, kernel: tile.Kernel, blocks: int, *, assume: bool = False) -> None:
        self.assumed: dict[Polynomial, None] = {}
        self._blocks = blocks
        self._assume = assume
        sources = (value for op in walk(kernel) if _differs(op) for value in op.results)
        self.differing: set[SSAValue] = influenced(sources, cut=self._agrees)

    def conditions(self, kernel: tile.Kernel) -> list[str]:
        """Return what a launch must find true (`tawa.runtime.guards`), over argument names."""
        names = kernel.argument_names

        def spell(leaf: Leaf | Iteration) -> str:
            assert isinstance(leaf, Leaf), "what is assumed is free of loops"
            assert is_argument(leaf.value), "what is assumed holds for all programs"
            return names[leaf.value.index]  # pyright: ignore

        return [f"always_multiple({render(each, spell)}, {self._blocks})" for each in self.assumed]

    def _agrees(self, operation: Operation) -> bool:
        """Tell whether this is a quotient that is the same for all neighbours."""
        match operation:
            case tile.Elementwise() if operation.function.data == "idiv":
                dividend, divisor = map(polynomial, operation.inputs)
                return self._forgets_rank(dividend, divisor)
            case _:
                return False

    def _forgets_rank(self, dividend: Polynomial, divisor: Polynomial) -> bool:
        return self._is_index(dividend) and self._is_same(divisor) and self._is_even(divisor)

    def _is_index(self, poly: Polynomial) -> bool:
        """Tell whether this is a base that is not negative plus the rank."""
        match _alone(poly):
            case Leaf(value=value):
                return isinstance(value.owner, hopper.BlockId) and value.owner.axis.data == 0
            case Call(function="irem", inputs=(index, size)):
                return self._forgets_rank(index, size)
            case _:
                pass
        ranks = [leaf for leaf in poly.leaves if _is_rank(leaf)]
        if len(ranks) != 1:
            return False
        times, base = poly.divide((ranks[0],))
        if times.as_constant != 1 or not self._is_same(base) or not _never_negative(base):
            return False
        return _factor(base) % self._blocks == 0

    def _is_same(self, poly: Polynomial) -> bool:
        return all(self._is_same_atom(atom) for monomial in poly.terms for atom in monomial)

    def _is_same_atom(self, atom: Atom) -> bool:
        match atom:
            case Leaf(value=value):
                return is_argument(value) or _is_launch_size(value.owner)
            case Iteration(loop=loop):
                return all(map(self._is_same, map(polynomial, (loop.lb, loop.ub, loop.step))))
            case Call(function="idiv", inputs=(dividend, divisor)):
                if self._forgets_rank(dividend, divisor):
                    return True
                return self._is_same(dividend) and self._is_same(divisor)
            case Call(inputs=inputs):
                return all(map(self._is_same, inputs))

    def _is_even(self, poly: Polynomial) -> bool:
        """Tell whether a divisor is a multiple of the number of blocks, or assume it."""
        if _factor(poly) % self._blocks == 0:
            return True
        if not self._assume:
            return False
        match _alone(poly):
            case Call(function=function, inputs=inputs) if function in _CHOICES:
                return all(map(self._is_even, inputs))
            case _:
                pass
        host, rest = poly.parted(lambda term, _: is_host_value(Polynomial({term: 1})))
        if host.is_zero or _factor(rest) % self._blocks:
            return False
        self.assumed[host] = None
        return True


def _differs(operation: Operation) -> bool:
    """Tell whether the results depend on the block's rank, its index, or on memory."""
    match operation:
        case hopper.BlockId():
            return operation.axis.data == 0
        case hopper.ClusterRank() | hopper.SharedLoad() | hopper.SharedGather():
            return True
        case tile.Load() | tile.Atomic() | tile.CompareExchange():
            return True
        case _:
            return False


def _alone(poly: Polynomial) -> Atom | None:
    """Return the atom that a polynomial is, if it is no more."""
    if len(poly.terms) != 1:
        return None
    ((monomial, coefficient),) = poly.terms.items()
    return monomial[0] if len(monomial) == 1 and coefficient == 1 else None


def _is_rank(leaf: Leaf | Iteration) -> bool:
    return isinstance(leaf, Leaf) and isinstance(leaf.value.owner, hopper.ClusterRank)


def _is_launch_size(owner: object) -> bool:
    """Tell whether a value is the grid's, or the block's place along another axis than 0."""
    match owner:
        case hopper.GridExtent() | hopper.NumBlocks():
            return True
        case hopper.BlockId():
            return owner.axis.data != 0
        case _:
            return False


def _never_negative(poly: Polynomial) -> bool:
    """Tell whether a sum of sizes, ids and iteration numbers, and quotients of them, is never below
    0.

    Loops run upwards here: the bounds of one that does not are no such sums.
    """
    return all(
        coefficient > 0 and all(map(_never_negative_atom, monomial))
        for monomial, coefficient in poly.terms.items()
    )


def _never_negative_atom(atom: Atom) -> bool:
    match atom:
        case Leaf(value=value):
            return _is_launch_size(value.owner) or isinstance(value.owner, hopper.BlockId)
        case Iteration():
            return True
        case Call(function="irem", inputs=(dividend, _)):
            return _never_negative(dividend)
        case Call(function="idiv" | "min" | "max", inputs=inputs):
            return all(map(_never_negative, inputs))
        case _:
            return False


def _factor(poly: Polynomial) -> int:
    """Return a number that divides a polynomial, 0 for zero."""
    factors = (
        reduce(lambda product, atom: product * _atom_factor(atom), monomial, coefficient)
        for monomial, coefficient in poly.terms.items()
    )
    return reduce(gcd, factors, 0)


def _atom_factor(atom: Atom) -> int:
    match atom:
        case Call(function="irem" | "min" | "max", inputs=(first, second)):
            return gcd(_factor(first), _factor(second))
        case _:
            return 1
