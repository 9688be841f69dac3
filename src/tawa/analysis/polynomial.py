"""Integer polynomials over the scalars of a kernel: the algebra behind addresses and bounds.

A polynomial is a sum of integer coefficients times products of *atoms*. An atom is a scalar that is
not itself a sum or product: an argument, a program id, the iteration number of a loop, a quotient.
Atoms compare by structure, so two spellings of one expression are one polynomial without CSE.

Index arithmetic is taken not to overflow, as everywhere in the tile language: a kernel whose i32
indices wrap addresses memory it does not mean. That is not taken of unsigned and of narrower types.

Polynomials as text: what a launcher computes to check the conditions of a kernel.

Numbers that a launch can list: what loops count whose bounds the launch knows.

A kernel that walks over its tiles itself (``for tile in range(program, tiles, programs)``) computes
where a tile lies from the loop's number. No local analysis shows that such a number is not
negative, say; a launch knows every program and every iteration, and evaluates it for all of them
(`tawa.runtime.guards`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, TypeAlias, cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import DictionaryAttr, IntAttr, IntegerType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tawa.analysis.ranges import may_wrap, range_of, range_of_type
from tawa.ir import hopper, tile
from tawa.ir.functions import OPPOSITE
from tawa.ir.types import bit_width, element_type, is_signed
from tawa.ir.walk import around, home_of, is_inside, yielded


@dataclass(frozen=True, slots=True)
class Leaf:
    """An opaque scalar: a kernel argument, an id, a loaded value, compared by identity."""

    value: SSAValue = field(compare=True)

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class Iteration:
    """The number of the current iteration of a loop, from 0."""

    loop: scf.ForOp

    def __hash__(self) -> int:
        return id(self.loop)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of polynomials that is not a polynomial: idiv, irem, min, max, select ..."""

    function: str
    inputs: tuple[Polynomial, ...]
    value: SSAValue = field(compare=False, hash=False)


Atom: TypeAlias = Leaf | Iteration | Call
Monomial: TypeAlias = tuple[Atom, ...]


def _order(atoms: Iterable[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=hash))


@dataclass(frozen=True)
class Polynomial:
    """A sum of terms (monomial -> integer coefficient); zero coefficients are absent.

    Terms stand in the order in which they were added up; polynomials are equal in any order.
    """

    terms: Mapping[Monomial, int]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    @staticmethod
    def make(terms: Mapping[Monomial, int]) -> Polynomial:
        """Return the polynomial with these terms."""
        return Polynomial({monomial: number for monomial, number in terms.items() if number})

    @staticmethod
    def constant(number: int) -> Polynomial:
        """Return a constant."""
        return Polynomial.make({(): number})

    @staticmethod
    def atom(atom: Atom) -> Polynomial:
        """Return a single atom."""
        return Polynomial.make({(atom,): 1})

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Polynomial.make(terms)

    def __neg__(self) -> Polynomial:
        return self.scaled(-1)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = _order(left + right)
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Polynomial.make(terms)

    def scaled(self, number: int) -> Polynomial:
        """Return this times a number."""
        return Polynomial.make({m: c * number for m, c in self.terms.items()})

    def parted(self, which: Callable[[Monomial, int], bool]) -> tuple[Polynomial, Polynomial]:
        """Return (the terms of which `which` is true, the others)."""
        chosen = {m: c for m, c in self.terms.items() if which(m, c)}
        rest = {m: c for m, c in self.terms.items() if m not in chosen}
        return Polynomial(chosen), Polynomial(rest)

    @property
    def is_zero(self) -> bool:
        """Whether this is 0."""
        return not self.terms

    @property
    def as_constant(self) -> int | None:
        """The number this is, or None."""
        return self.terms.get((), 0) if self.terms.keys() <= {()} else None

    @cached_property
    def leaves(self) -> frozenset[Leaf | Iteration]:
        """Every leaf and iteration number the value depends on, also inside calls."""
        found: set[Leaf | Iteration] = set()
        for monomial in self.terms:
            for atom in monomial:
                if isinstance(atom, Call):
                    found.update(*(item.leaves for item in atom.inputs))
                else:
                    found.add(atom)
        return frozenset(found)

    @cached_property
    def size(self) -> int:
        """How many atoms stand in it, those inside calls as often as they are written."""
        calls = [atom for monomial in self.terms for atom in monomial if isinstance(atom, Call)]
        inside = sum(item.size for call in calls for item in call.inputs)
        return inside + sum(max(1, len(monomial)) for monomial in self.terms)

    def divide(self, by: Monomial, number: int = 1) -> tuple[Polynomial, Polynomial]:
        """Return (quotient, rest): the terms that `number` times the atoms of `by` divide, less
        these factors, and the others.
        """
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            left = _without(monomial, by) if coefficient % number == 0 else None
            if left is None:
                rest[monomial] = coefficient
            else:
                quotient[left] = coefficient // number
        return Polynomial.make(quotient), Polynomial.make(rest)


def _without(monomial: Monomial, by: Monomial) -> Monomial | None:
    """Return the atoms of `monomial` less those of `by`; None where it lacks one of them."""
    left = list(monomial)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


ZERO = Polynomial.constant(0)
ONE = Polynomial.constant(1)

_SUMS = frozenset({"add", "sub", "mul", "neg", "shl"})
# Functions kept as atoms; every other scalar is a leaf.
_CALLS = frozenset({"idiv", "irem", "min", "max", "select", "and", "or", "xor", "shl", "shr"})


_INDEX_BITS = 32
_LONGEST = 256
"""Atoms that go into one operation, at most: an address has a dozen."""

Known: TypeAlias = dict[SSAValue, Polynomial]
"""Polynomials that were worked out already; good as long as the program is not changed."""


def polynomial(value: SSAValue, known: Known | None = None) -> Polynomial:
    """Return the integer scalar `value` as a polynomial; never fails, an unknown one is a leaf.

    What is worked out on the way is looked up in `known`, and kept there.
    """
    known = {} if known is None else known
    found = known.get(value)
    if found is None:
        found = known[value] = _polynomial(value, known)
    return found


def _polynomial(value: SSAValue, known: Known) -> Polynomial:
    if isinstance(value, BlockArgument):
        return _block_argument(value, known)
    match value.owner:
        case tile.Constant() as op if isinstance(value.type, IntegerType):
            return Polynomial.constant(op.value.data)  # pyright: ignore
        case tile.Cast() as op if keeps_number(op):
            return polynomial(op.value, known)
        case tile.Elementwise() as op if isinstance(value.type, IntegerType):
            return _elementwise(op, known)
        case _:
            return Polynomial.atom(Leaf(value))


def keeps_number(cast: tile.Cast) -> bool:
    """Tell whether a cast gives the number it is given.

    Between signed integers it does: widening always, narrowing to 32 bits because index arithmetic
    does not overflow. Others keep their numbers where the type made has them all; a truth value or
    a rounded float is another number.
    """
    source, target = element_type(cast.value.type), element_type(cast.result.type)
    if not (_is_integer(source) and _is_integer(target)):
        return False
    if is_signed(source) and is_signed(target) and bit_width(target) >= _INDEX_BITS:
        return True
    if bit_width(source) == 1 or bit_width(target) == 1:
        return False
    return range_of_type(target).holds(range_of(cast.value))


def keeps_sum(op: tile.Elementwise) -> bool:
    """Tell whether a sum, difference or product is that of the numbers.

    Index arithmetic does not overflow: signed, of 32 bits or more. What is unsigned or narrower
    wraps, unless the ranges of its operands say otherwise.
    """
    kind = element_type(op.results[0].type)
    return (is_signed(kind) and bit_width(kind) >= _INDEX_BITS) or not may_wrap(op.result)


def _is_integer(kind: Attribute) -> bool:
    return isinstance(kind, IntegerType)


def _block_argument(value: BlockArgument, known: Known) -> Polynomial:
    loop = value.block.parent_op()
    if isinstance(loop, scf.ForOp) and value.index == 0:
        start, step = polynomial(loop.lb, known), polynomial(loop.step, known)
        return start + step * Polynomial.atom(Iteration(loop))
    if isinstance(loop, scf.ForOp) and isinstance(value.type, IntegerType):
        back = yielded(value.block, value.index - 1)
        if (each := _added(back, value, known)) is not None:
            start = polynomial(loop.iter_args[value.index - 1], known)
            return start + each * Polynomial.atom(Iteration(loop))
    return Polynomial.atom(Leaf(value))


def _added(end: SSAValue, start: BlockArgument, known: Known) -> Polynomial | None:
    """Return what an iteration adds to a number carried by a loop, if it is the same in every
    iteration.
    """
    if end is start:
        return ZERO
    if not isinstance(op := end.owner, tile.Elementwise) or not keeps_sum(op):
        return None
    match op.function.data, tuple(op.inputs):
        case "add", (a, b) if _outside(b, start.block):
            so_far, more = _added(a, start, known), polynomial(b, known)
        case "add", (a, b) if _outside(a, start.block):
            so_far, more = _added(b, start, known), polynomial(a, known)
        case "sub", (a, b) if _outside(b, start.block):
            so_far, more = _added(a, start, known), -polynomial(b, known)
        case _:
            return None
    return None if so_far is None else so_far + more


def _outside(value: SSAValue, body: Block) -> bool:
    """Tell whether a value is a constant or stands before the loop with this body."""
    loop = body.parent_op()
    assert loop is not None, "what a loop carries is an argument of its body"
    return isinstance(value.owner, tile.Constant) or not is_inside(value, loop)


def _elementwise(op: tile.Elementwise, known: Known) -> Polynomial:
    """Return what an operation gives; where that grows too long to compare or print, a leaf."""
    inputs = tuple([polynomial(item, known) for item in op.operands])
    name = op.function.data
    terms = prod([len(item.terms) for item in inputs]) if name == "mul" else 0
    if terms + sum([item.size for item in inputs]) > _LONGEST:
        return Polynomial.atom(Leaf(op.result))
    if name in _SUMS and not keeps_sum(op):
        return Polynomial.atom(Leaf(op.result))
    match name, inputs:
        case "add", (a, b):
            return a + b
        case "sub", (a, b):
            return a - b
        case "mul", (a, b):
            return a * b
        case "neg", (a,):
            return -a
        case "shl", (a, b) if (bits := b.as_constant) is not None and 0 <= bits < _INDEX_BITS:
            return a.scaled(1 << bits)
        case _ if name in _CALLS:
            return Polynomial.atom(Call(name, inputs, op.result))
        case _:
            return Polynomial.atom(Leaf(op.result))


def trip_count(loop: scf.ForOp) -> int | None:
    """Return how often a loop runs, when its bounds differ by a known number."""
    span = (polynomial(loop.ub) - polynomial(loop.lb)).as_constant
    step = polynomial(loop.step).as_constant
    if span is None or step is None or step <= 0:
        return None
    return max(0, -(-span // step))


def is_host_value(poly: Polynomial) -> bool:
    """Tell whether only kernel arguments occur: the launcher can compute it."""
    return all(isinstance(leaf, Leaf) and is_argument(leaf.value) for leaf in poly.leaves)


def place_of(atom: Atom) -> tuple[Any, ...]:
    """Return a key that orders atoms as they stand in the kernel: the same in every process.

    Polynomials themselves are kept by identity of their atoms; what becomes text is put in order.
    """
    match atom:
        case Iteration(loop=loop):
            return (2, *_position(loop))
        case Call(function=function, inputs=inputs):
            parts = (sorted(map(_term_place, item.terms.items())) for item in inputs)
            return (3, function, *map(tuple, parts))
        case Leaf(value=BlockArgument() as value):
            parent = value.block.parent_op()
            return (0, *(() if parent is None else _position(parent)), value.index)
        case Leaf(value=value):
            assert isinstance(value.owner, Operation)
            return (1, *_position(value.owner))


def _term_place(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    monomial, coefficient = term
    return tuple(sorted(map(place_of, monomial))), coefficient


def _position(operation: Operation) -> tuple[int, ...]:
    """Return where an operation stands: its index in its block, after those around it."""
    path = [each for each in (operation, *around(operation)) if each.parent is not None]
    return tuple([home_of(each).get_operation_index(each) for each in path][::-1])


def is_argument(value: SSAValue) -> bool:
    """Tell whether `value` is an argument of the kernel."""
    return isinstance(value, BlockArgument) and isinstance(value.block.parent_op(), tile.Kernel)


def divisor(argument: SSAValue) -> int:
    """Return what divides an argument (of an address, bytes), as the specialization key says."""
    kernel = argument.owner.parent_op()  # pyright: ignore
    if not isinstance(kernel, tile.Kernel):
        return 1
    facts = cast("DictionaryAttr", kernel.arguments.data[argument.index])  # pyright: ignore
    match facts.data.get("divisible"):
        case IntAttr(data=int() as known):
            return known
        case _:
            return 1


def is_program_value(poly: Polynomial) -> bool:
    """Tell whether only arguments and program ids occur (iteration numbers only outside calls)."""
    return all(
        isinstance(leaf, Iteration)
        or is_argument(leaf.value)
        or isinstance(leaf.value.owner, tile.ProgramId | tile.NumPrograms | hopper.GridExtent)
        for leaf in poly.leaves
    )


# --- polynomials as text --------------------------------------------------------------------------


_PYTHON: dict[str, str] = {
    "idiv": "divide({0}, {1})",
    "irem": "remainder({0}, {1})",
    "min": "minimum({0}, {1})",
    "max": "maximum({0}, {1})",
    "select": "where({0}, {1}, {2})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "shl": "({0} << {1})",
    "shr": "({0} >> {1})",
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def render(poly: Polynomial, name_leaf: Callable[[Leaf | Iteration], str]) -> str:
    """Return Python text for `poly`; `name_leaf` spells leaves and iteration numbers.

    Functions used: divide and remainder (C rules), minimum, maximum, where.
    """

    def spell_atom(atom: Atom) -> str:
        if isinstance(atom, Call):
            return _PYTHON[atom.function].format(*(render(item, name_leaf) for item in atom.inputs))
        return name_leaf(atom)

    texts: list[str] = []
    for monomial, coefficient in poly.terms.items():
        factors = sorted(spell_atom(atom) for atom in monomial)
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        texts.append("*".join(factors))
    return "(" + (" + ".join(sorted(texts)) or "0") + ")"


def spelled(kernel: tile.Kernel, poly: Polynomial) -> str:
    """Return Python over argument names and program(0), program(1), program(2), grid(0) ..; the
    iterations of the loops it depends on (`loops_of`) are iteration(0),
    iteration(1) ... What is ours is called, as no argument is: an argument may have any name.
    """
    return _spelled(kernel, poly, _names_of(loops_of(poly)))


def asked(kernel: tile.Kernel, function: str, poly: Polynomial, *numbers: int) -> str:
    """Return the condition that a number holds to in every program and every iteration, for a
    launch (`tawa.runtime.guards`): a call with the number, what it is compared with, and start, end
    and step of the loops that count iteration(0), iteration(1) ...
    """
    return _asked(kernel, function, spelled(kernel, poly), loops_of(poly), numbers)


def asked_natural(kernel: tile.Kernel, poly: Polynomial, op: Operation) -> str:
    """Return the condition that a number of an operation is never negative, as `asked` does, in the
    programs that reach it: a branch on a comparison of what a launch knows leaves the others out.
    """
    text = spelled(kernel, poly)
    if not is_host_value(poly) and (branches := _branches(kernel, op)):
        text = f"where({' & '.join(branches)}, {text}, 0)"
    return _asked(kernel, "never_negative", text, loops_of(poly), ())


def _branches(kernel: tile.Kernel, op: Operation) -> list[str]:
    """Return the comparisons, without iterations, that hold in the branches around an operation."""
    found: list[str] = []
    while isinstance(branch := op.parent_op(), Operation) and branch is not kernel:
        if isinstance(branch, scf.IfOp) and isinstance(branch.cond.owner, tile.Elementwise):
            test = branch.cond.owner
            function, inputs = test.function.data, [*map(polynomial, test.inputs)]
            if op.parent_region() is not branch.true_region:
                function = OPPOSITE.get(function, "")
            known = all(map(_is_exact, test.inputs)) and all(map(is_listed, inputs))
            if function in _COMPARED and known:
                left, right = (spelled(kernel, each) for each in inputs)
                found.append(f"({left} {_COMPARED[function]} {right})")
        op = branch
    return found


def _is_exact(value: SSAValue) -> bool:
    """Tell whether a launch knows a signed integer, with nothing on the way that may wrap."""
    if not is_signed(value.type):
        return False
    match value.owner:
        case tile.Constant() | tile.ProgramId() | tile.NumPrograms():
            return True
        case tile.Elementwise() as op:
            return not may_wrap(value) and all(map(_is_exact, op.inputs))
        case tile.Cast(value=inner):
            return range_of_type(value.type).holds(range_of(inner)) and _is_exact(inner)
        case _:
            return is_argument(value)


def asked_not_zero(kernel: tile.Kernel, poly: Polynomial) -> str:
    """Return the condition that a number is never 0, as `asked` does."""
    text = f"({spelled(kernel, poly)} == 0)"
    return _asked(kernel, "always_within", text, loops_of(poly), (0, 0))


def asked_to_end(kernel: tile.Kernel, loop: scf.ForOp, most: int) -> str:
    """Return the condition that what a loop counts, upwards, never passes `most`, also after its
    last iteration. In 64 bits nothing is computed that 64 bits do not hold: room for a whole step,
    max(end, 0) + step - 1 <= most.
    """
    loops = loops_of(*bounds_of(loop))
    start, end, step = (_spelled(kernel, each, _names_of(loops)) for each in bounds_of(loop))
    last = f"{start} - ({start} - {end}) // {step} * {step} > {most}"
    if most >> 32:
        last = f"maximum({end}, 0) - {most} + ({step} - 1) > 0"
    text = f"(({end} > {start}) & ({last}))"
    return _asked(kernel, "always_within", text, loops, (0, 0))


def _asked(
    kernel: tile.Kernel,
    function: str,
    text: str,
    loops: tuple[scf.ForOp, ...],
    numbers: tuple[int, ...],
) -> str:
    names = _names_of(loops)
    walks = [", ".join(_spelled(kernel, each, names) for each in bounds_of(loop)) for loop in loops]
    return f"{function}({', '.join([text, *map(str, numbers), *(f'({walk})' for walk in walks)])})"


def _names_of(loops: tuple[scf.ForOp, ...]) -> dict[Iteration, str]:
    return {Iteration(loop): f"iteration({place})" for place, loop in enumerate(loops)}


def _spelled(kernel: tile.Kernel, poly: Polynomial, iterations: dict[Iteration, str]) -> str:
    names = kernel.argument_names

    def spell(leaf: Leaf | Iteration) -> str:
        if isinstance(leaf, Iteration):
            return iterations[leaf]
        match leaf.value.owner:
            case tile.ProgramId() as op:
                return f"program({op.axis.data})"
            case tile.NumPrograms() as op:
                return f"grid({op.axis.data})"
            case _:
                return names[leaf.value.index]  # pyright: ignore

    return render(poly, spell)


def bounds_of(loop: scf.ForOp) -> tuple[Polynomial, Polynomial, Polynomial]:
    """Return start, end and step of a loop."""
    return polynomial(loop.lb), polynomial(loop.ub), polynomial(loop.step)


def loops_of(*polys: Polynomial) -> tuple[scf.ForOp, ...]:
    """Return the loops whose iterations numbers depend on, also through their bounds, outer
    first.
    """
    found: dict[Iteration, None] = {}
    pending = [*polys]
    while pending:
        for leaf in pending.pop().leaves:
            if isinstance(leaf, Iteration) and leaf not in found:
                found[leaf] = None
                pending += bounds_of(leaf.loop)
    return tuple(iteration.loop for iteration in sorted(found, key=place_of))


def leaves_of(poly: Polynomial) -> frozenset[Leaf | Iteration]:
    """Return all that a number depends on, also through the bounds of loops."""
    parts = [poly, *(bound for loop in loops_of(poly) for bound in bounds_of(loop))]
    return frozenset(leaf for part in parts for leaf in part.leaves)


def is_listed(poly: Polynomial) -> bool:
    """Tell whether a launch can list the numbers: arguments, programs and their iterations make
    them.
    """
    return all(map(_is_known, leaves_of(poly)))


def _is_known(leaf: Leaf | Iteration) -> bool:
    if isinstance(leaf, Iteration) or is_argument(leaf.value):
        return True
    return isinstance(leaf.value.owner, tile.ProgramId | tile.NumPrograms)
