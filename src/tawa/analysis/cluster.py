"""Whether the programs of neighbouring rows may run as the blocks of one cluster.

Blocks of a cluster send each other tiles, so they must take the same turns of every ring: each loop
and condition around an asynchronous load must come out the same in all of them. They compute
programs that differ in program_id(0) only, so that is what nothing of this may depend on; nor on
memory, which another program may have changed between two reads. Where the grid has an odd number
of rows, the last cluster of a persistent kernel computes one program that does not exist: its
stores are left out, its descriptor loads give zeros, but a load through a pointer may leave its
array. (The grid of a kernel that is not persistent is launched in whole clusters or not at all.)

Which scalars are the same in all blocks of a cluster.

Blocks of a cluster are neighbours along axis 0, so what depends on their index differs; but a
kernel that orders its own tiles (``tile // per_group``, ``tile % per_group // rows``) computes from
neighbouring indices values that agree. Here an index is the cluster's *base*, a multiple of the
number of blocks, plus the block's rank. Dividing it by what is itself a multiple of that number
forgets the rank; the remainder keeps it. Where a divisor is a multiple only for some arguments (the
number of rows of tiles must be even), that is assumed, and `assumed` says what a launch must check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from math import gcd

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tawa.analysis.polynomial import (
    Atom,
    Call,
    Iteration,
    Leaf,
    Polynomial,
    is_argument,
    is_host_value,
    polynomial,
    render,
)
from tawa.analysis.statements import enclosing, name_of
from tawa.ir import hopper, tile
from tawa.ir.walk import decisive, handed_on, reach, walk


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a kernel cannot run in clusters, and what its author can do."""

    reason: str
    remedy: str


def influenced(
    values: Iterable[SSAValue], cut: Callable[[Operation], bool] = lambda _: False
) -> set[SSAValue]:
    """Return all values that depend on `values`, which are among them.

    Through data, and through the control that decides which data: what a branch on such a value
    gives, and what a loop of such a number of iterations carries. Operations that `cut` accepts
    give values that do not depend on their operands.
    """

    def following(value: SSAValue) -> Iterator[SSAValue]:
        for use in value.uses:
            if not cut(use.operation):
                yield from _reached(use.operation, use.index)

    return set(reach(values, following))


def _reached(operation: Operation, index: int) -> list[SSAValue]:
    """Return the values that an operand of an operation flows into."""
    if after := handed_on(operation, index):
        return after
    match operation:
        case scf.ForOp() if index == 1:  # another trip count: everything carried
            return [*_arguments(operation)[1:], *operation.results]
        case scf.YieldOp() | scf.ConditionOp() if (loop := operation.parent_op()) is not None:
            decided = _arguments(loop) if isinstance(operation, scf.ConditionOp) else ()
            return [*decided, *loop.results]
        case _:
            return [*operation.results, *_arguments(operation)]


def _arguments(operation: Operation) -> list[SSAValue]:
    return [arg for region in operation.regions for block in region.blocks for arg in block.args]


# --- the licence --------------------------------------------------------------------------------


def obstacles(
    kernel: tile.Kernel, loads: Iterable[Operation], persistent: bool
) -> Iterator[Obstacle]:
    """Yield what keeps `kernel`, whose asynchronous loads are `loads`, from running in clusters."""
    rows = [op.result for op in walk(kernel) if isinstance(op, tile.ProgramId) and not op.axis.data]
    if not rows:
        yield Obstacle(
            "the blocks of a cluster compute neighbours along program_id(0), which the kernel "
            "does not use",
            "let axis 0 of the grid be one along which programs load the same tiles",
        )
        return
    of_row = influenced(rows)
    memory = (tile.Load, tile.DescLoad, tile.Atomic, tile.CompareExchange)
    read = (v for op in walk(kernel) if isinstance(op, memory) for v in op.results)
    of_memory = influenced(read)
    for load in loads:
        for control in enclosing(load):
            for source, values in (("program_id(0)", of_row), ("memory", of_memory)):
                if any(value in values for value in decisive(control)):
                    yield _uneven(load, control, source)
    for load in walk(kernel):
        if persistent and isinstance(load, tile.Load) and load.pointer in of_row:
            yield Obstacle(
                f"{name_of(load)} reads through a pointer that depends on program_id(0); where "
                "the grid has an odd number of rows one program past the last runs, and would read "
                "outside its array",
                "load it through a tensor descriptor; or pin persistent=False, for even grids",
            )


def _uneven(load: Operation, control: Operation, source: str) -> Obstacle:
    if isinstance(control, scf.IfOp):
        what = f"the condition under which {name_of(load)} runs"
    else:
        what = f"the trip count of {name_of(control)}, which turns the ring of {name_of(load)},"
    return Obstacle(
        f"{what} depends on {source}: the blocks of a cluster would not stay in step",
        "leave cluster unset"
        if source == "memory"
        else "let axis 0 of the grid be one that no such bound or condition depends on",
    )


# --- what neighbours agree in ---------------------------------------------------------------------


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
