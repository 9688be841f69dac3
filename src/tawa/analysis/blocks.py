"""Pointer accesses as descriptor accesses: is a tensor of pointers a block of a strided array?

`describe` answers with a `Block` (extents, strides and offsets as polynomials, and what the
launcher must check), or with the reason why not. The address of element (i_0, i_1, ...) must be
``base + sum_d stride_d * (offset_d + i_d)`` and the mask exactly ``offset_d + i_d < extent_d``; a
dimension without a mask gets an extent no access exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from xdsl.dialects.builtin import DictionaryAttr, IntAttr
from xdsl.ir import SSAValue

from tawa.analysis.index import IndexForm, PointerForm, pointer_form
from tawa.analysis.polynomial import (
    ONE,
    ZERO,
    Atom,
    Call,
    Leaf,
    Monomial,
    Polynomial,
    Trip,
    is_argument,
    is_host_value,
    is_program_value,
    place_of,
)
from tawa.analysis.ranges import range_of
from tawa.analysis.rows import conjuncts, upper_bound
from tawa.analysis.walked import is_listed
from tawa.ir import tile
from tawa.ir.types import bit_width, element_type, shape_of

# The extent of a dimension the kernel does not bound: within what a tensor map and i32 hold.
UNBOUNDED = Polynomial.constant((1 << 31) - 1)
LAST = Polynomial.constant((1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension in memory: the tensor's dimension (None: a single index), and its numbers.

    `wrap` is the bound of a wrapped index that must be shown harmless, else None. Each of the
    `block` indices stands `repeat` times in the tile.
    """

    dim: int | None
    stride: Polynomial
    offset: Polynomial
    extent: Polynomial
    block: int
    wrap: Polynomial | None = None
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """A block access: dimensions slowest first, the last with stride 1.

    `nonnegative` are polynomials the launcher must find >= 0 over all programs, `multiples` those
    it must find to be multiples of a number.
    """

    base: SSAValue
    dims: tuple[Dim, ...]
    nonnegative: tuple[Polynomial, ...]
    multiples: tuple[tuple[Polynomial, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an access stays a pointer access."""

    reason: str


def describe(pointer: SSAValue, mask: SSAValue | None) -> Block | Refusal:
    """Return the block that a masked tensor of pointers addresses, or the reason it is none."""
    form = pointer_form(pointer)
    if form is None:
        return Refusal("the addresses are not affine in the tile's coordinates")
    shape = shape_of(pointer.type)
    if sum(extent > 1 for extent in shape) < 2:
        return Refusal("a tile of fewer than two dimensions: an ordinary load is as fast")
    strides = _strides(form.index, shape)
    if isinstance(strides, Refusal):
        return strides
    offsets = _offsets(form, strides)
    if isinstance(offsets, Refusal):
        return offsets
    bounds = _bounds(mask, len(shape)) if mask is not None else {}
    if isinstance(bounds, Refusal):
        return bounds
    return _assemble(form, shape, strides, offsets, bounds)


def _strides(index: IndexForm, shape: tuple[int, ...]) -> dict[int, Polynomial] | Refusal:
    """Return the stride of each dimension that moves; exactly one must be 1."""
    strides: dict[int, Polynomial] = {}
    for dim, extent in enumerate(shape):
        terms = [w.coefficient for w in (*index.wrapped, *index.repeated) if w.dim == dim]
        terms += [index.steps[dim]] if not index.steps[dim].is_zero else []
        if extent == 1:
            continue
        if len(terms) != 1:
            return Refusal(f"dimension {dim} repeats elements or mixes two indices")
        strides[dim] = terms[0]
    if sum(stride == ONE for stride in strides.values()) != 1:
        return Refusal("no dimension has a stride that is known to be 1 when compiling")
    for dim, stride in strides.items():
        if not is_host_value(stride):
            return Refusal(f"the stride of dimension {dim} is not a function of the arguments")
    return strides


def _single_term(stride: Polynomial) -> tuple[Monomial, int] | None:
    """Return the atoms of a product of arguments, and its number; None where it is none."""
    if len(stride.terms) != 1:
        return None
    (monomial, number) = next(iter(stride.terms))
    return (monomial, number) if all(isinstance(atom, Leaf) for atom in monomial) else None


def _offsets(
    form: PointerForm, strides: dict[int, Polynomial]
) -> tuple[dict[int, Polynomial], dict[Leaf, Polynomial]] | Refusal:
    """Split the scalar part of the address over the strides: per dimension, and extra dimensions.

    A term goes to the dimension whose stride divides it; terms with another stride-like argument
    (one the launcher knows to be a multiple of 8) make a dimension of their own, such as a batch;
    what is left counts single elements.
    """
    rest = form.index.offset
    offsets: dict[int, Polynomial] = {}
    factors: dict[int, tuple[Monomial, int]] = {}
    for dim, stride in strides.items():
        if stride == ONE:
            continue
        factor = _single_term(stride)
        if factor is None or factor[1] < 1:
            return Refusal(f"the stride of dimension {dim} is a compound expression")
        factors[dim] = factor
    # What a longer product divides, its factors divide as well.
    for dim in sorted(factors, key=lambda dim: -len(factors[dim][0])):
        offsets[dim], rest = rest.divide(*factors[dim])
    extra: dict[Leaf, Polynomial] = {}
    for atom in sorted(_stride_like(rest), key=place_of):
        quotient, others = rest.divide((atom,))
        if not quotient.is_zero and not is_host_value(quotient):
            extra[atom], rest = quotient, others
    unit = next(dim for dim, stride in strides.items() if stride == ONE)
    offsets[unit] = rest
    return offsets, extra


def _stride_like(poly: Polynomial) -> set[Leaf]:
    """Return the arguments known to be multiples of 8 that multiply something in `poly`."""
    found: set[Leaf] = set()
    for monomial, _ in poly.terms:
        for atom in monomial:
            if isinstance(atom, Leaf) and is_argument(atom.value) and divisor(atom.value) >= 8:
                found.add(atom)
    return found


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


def _bounds(mask: SSAValue, rank: int) -> dict[int, tuple[Polynomial, Polynomial]] | Refusal:
    """Return for each bounded dimension (scalar part of the index, bound)."""
    bounds: dict[int, tuple[Polynomial, Polynomial]] = {}
    for part in conjuncts(mask):
        found = upper_bound(part)
        if found is None:
            return Refusal("the mask is not a conjunction of upper bounds")
        low, high = found
        dim = low.single_dim
        if dim is None or not high.is_scalar or len(low.steps) != rank:
            return Refusal("a bound of the mask does not follow one dimension of the tile")
        if dim in bounds and bounds[dim] != (low.offset, high.offset):
            return Refusal(f"the mask bounds dimension {dim} twice")
        bounds[dim] = (low.offset, high.offset)
    return bounds


def _assemble(
    form: PointerForm,
    shape: tuple[int, ...],
    strides: dict[int, Polynomial],
    split: tuple[dict[int, Polynomial], dict[Leaf, Polynomial]],
    bounds: dict[int, tuple[Polynomial, Polynomial]],
) -> Block | Refusal:
    offsets, extra = split
    wrapped = {w.dim: w for w in form.index.wrapped}
    repeated = {r.dim: r.count for r in form.index.repeated}
    dims: list[Dim] = []
    for atom, offset in extra.items():
        dims.append(Dim(None, Polynomial.atom(atom), offset, UNBOUNDED, 1))
    # Slowest first: the dimension of stride 1 is last, the others keep the program's order.
    for dim in sorted(strides, key=lambda dim: (strides[dim] == ONE, dim)):
        wrap, repeat = None, repeated.get(dim, 1)
        offset, extent = offsets[dim], UNBOUNDED
        if (term := wrapped.get(dim)) is not None:
            if not offset.is_zero:
                return Refusal(f"dimension {dim} adds to a wrapped index")
            offset, extent, wrap = term.start, term.bound, term.bound
        if dim in bounds and repeat > 1:
            return Refusal(f"the mask bounds dimension {dim}, whose indices stand several times")
        if dim in bounds:
            low, high = bounds[dim]
            limit = high - low + offset
            if wrap is not None and limit != wrap:
                return Refusal(f"dimension {dim} is wrapped and masked with different bounds")
            extent = limit
        if not is_host_value(extent):
            return Refusal(f"the bound of dimension {dim} is not a function of the arguments")
        dims.append(Dim(dim, strides[dim], offset, extent, shape[dim] // repeat, wrap, repeat))
    if any(dim not in strides for dim in bounds):
        return Refusal("the mask bounds a dimension of extent 1")
    return _checked(form, dims)


def _checked(form: PointerForm, dims: Sequence[Dim]) -> Block | Refusal:
    """Apply TMA's static rules and collect what the launcher must check."""
    if len(dims) > 5:
        return Refusal("more than five dimensions")
    if divisor(form.base) % 16:
        return Refusal("the base address is not known to be a multiple of 16 bytes")
    size = bit_width(element_type(form.base.type).element) // 8  # pyright: ignore
    for item in dims[:-1]:
        if not _multiple_of(item.stride, 16 // min(size, 16)):
            return Refusal("a stride is not known to be a multiple of 16 bytes")
    if dims[-1].block * size % 16:
        return Refusal(f"rows of {dims[-1].block * size} bytes are not a multiple of 16")
    checks: list[Polynomial] = []
    for item in dims:
        limits = _limits(item)
        if isinstance(limits, Refusal):
            return limits
        checks.extend(limit for limit in limits if not _surely_nonnegative(limit))
    multiples = _starts(dims[-1].offset, 16 // min(size, 16))
    if multiples is None:
        return Refusal("a box may begin at an address that is no multiple of 16 bytes")
    return Block(form.base, tuple(dims), tuple(dict.fromkeys(checks)), multiples)


def _limits(item: Dim) -> list[Polynomial] | Refusal:
    """Return what must not be negative for TMA to take the coordinates of a dimension.

    What a loop hides in a quotient, or adds an argument at a time, is listed trip by trip.
    """
    parts, highest = _without_trips(_unsettled(item.offset)), _before_loops(item.offset)
    if (parts is None or _grows_unboundedly(item.offset)) and is_listed(item.offset):
        parts = [item.offset]
        highest = item.offset
    elif parts is None:
        return Refusal("an index is not affine in a loop")
    elif _grows_unboundedly(item.offset):
        return Refusal("an index grows by a run-time amount in a loop")
    # TMA takes coordinates of 32 bits, extents and strides that count upwards.
    room = LAST - Polynomial.constant(item.block) - highest
    return [*parts, room, item.stride - ONE, item.extent]


def ends_whole(block: Block) -> bool:
    """Tell whether the columns of a block surely end at a multiple of 16 bytes, or without bound.

    A store by TMA writes 16 bytes where it writes the first of them (seen on an H200: with 92
    columns of 16 bits, columns 92 to 95 became zero).
    """
    last = block.dims[-1].extent
    size = bit_width(element_type(block.base.type).element) // 8  # pyright: ignore
    return last == UNBOUNDED or _multiple_of(last, 16 // min(size, 16))


def _starts(offset: Polynomial, unit: int) -> tuple[tuple[Polynomial, int], ...] | None:
    """Return what must be multiples for boxes to begin at multiples of `unit` elements.

    None where one surely does not. PTX names no such rule for tiled copies; an H200 stops with an
    illegal instruction.
    """
    found: list[tuple[Polynomial, int]] = []
    unsettled = _unsettled(offset)
    if not _multiple_of(offset - unsettled, unit):
        return None
    for part in _without_trips(unsettled) or (unsettled,):
        open_terms = Polynomial(
            frozenset(term for term in part.terms if not _is_multiple(term, unit))
        )
        if (number := open_terms.as_constant) is not None and number % unit:
            return None
        if not open_terms.is_zero:
            found.append((open_terms, unit))
    return tuple(dict.fromkeys(found))


def _multiple_of(stride: Polynomial, unit: int) -> bool:
    return all(_is_multiple(term, unit) for term in stride.terms)


def _is_multiple(term: tuple[Monomial, int], unit: int) -> bool:
    monomial, coefficient = term
    known = (
        divisor(atom.value)
        for atom in monomial
        if isinstance(atom, Leaf) and is_argument(atom.value)
    )
    return prod(known, start=coefficient) % unit == 0


def _without_trips(poly: Polynomial) -> list[Polynomial] | None:
    """Return polynomials without loops that are all >= 0 only if `poly` is in every iteration."""
    trips = sorted(
        {atom for monomial, _ in poly.terms for atom in monomial if isinstance(atom, Trip)},
        key=place_of,
    )
    if not trips:
        return [poly] if is_program_value(poly) and not poly_has_trip(poly) else None
    quotient, rest = poly.divide((trips[0],))
    first, second = _without_trips(quotient), _without_trips(rest)
    return None if first is None or second is None else first + second


def _unsettled(poly: Polynomial) -> Polynomial:
    """Return an index without the terms that hide a trip number (in a quotient, say) and are surely
    not negative: of these there is nothing that a launch could check.
    """
    return Polynomial(
        frozenset(
            term
            for term in poly.terms
            if not _hides_trip(term[0]) or not _surely_nonnegative(Polynomial(frozenset({term})))
        )
    )


def _hides_trip(monomial: Monomial) -> bool:
    return any(
        isinstance(atom, Call)
        and any(isinstance(leaf, Trip) for leaf in Polynomial.atom(atom).leaves)
        for atom in monomial
    )


def _moves(atom: Atom) -> bool:
    """Tell whether an atom changes from trip to trip."""
    return isinstance(atom, Trip) or _hides_trip((atom,))


def _grows_unboundedly(poly: Polynomial) -> bool:
    """Tell whether a loop moves an index by more than a constant, so that 32 bits may not do."""
    return any(any(map(_moves, monomial)) and len(monomial) > 1 for monomial, _ in poly.terms)


def _before_loops(poly: Polynomial) -> Polynomial:
    """Return the part of an index that no loop moves; what loops add is a 32-bit number."""
    rest = {m: c for m, c in poly.terms if not any(map(_moves, m))}
    return Polynomial.make(rest)


def poly_has_trip(poly: Polynomial) -> bool:
    """Tell whether a trip number occurs anywhere in `poly`."""
    return any(isinstance(leaf, Trip) for leaf in poly.leaves)


def _surely_nonnegative(poly: Polynomial) -> bool:
    """Tell whether a polynomial is a sum of products of what is never negative."""
    return all(
        coefficient > 0 and all(map(_is_natural, monomial)) for monomial, coefficient in poly.terms
    )


def _is_natural(atom: Atom) -> bool:
    return isinstance(atom, Trip) or range_of(atom.value).is_natural


__all__ = ["UNBOUNDED", "ZERO", "Block", "Dim", "Refusal", "describe", "divisor"]
