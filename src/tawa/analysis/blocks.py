"""Pointer accesses as descriptor accesses: is a tensor of pointers a block of a strided array?

`describe` answers with a `Block` (extents, strides and offsets as polynomials, and what the
launcher must check), or with the reason why not. The address of element (i_0, i_1, ...) must be
``base + sum_d stride_d * (offset_d + i_d)`` and the mask exactly ``offset_d + i_d < extent_d``, and
``offset_d + i_d >= 0`` where an index may be negative; a dimension without a mask gets an extent no
access exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from xdsl.ir import Attribute, SSAValue

from tawa.analysis.coordinates import (
    LEAST,
    UNBOUNDED,
    Dim,
    divisor,
    is_multiple,
    limits_of,
    starts_of,
    surely_nonnegative,
)
from tawa.analysis.index import IndexForm, PointerForm, Wrapped, pointer_form
from tawa.analysis.masks import Bounds, Refusal, bounds_of
from tawa.analysis.polynomial import (
    ONE,
    ZERO,
    Atom,
    Leaf,
    Monomial,
    Polynomial,
    is_argument,
    is_host_value,
    place_of,
)
from tawa.ir.types import DescType, PtrType, bit_width, element_type, shape_of


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


def describe(pointer: SSAValue, mask: SSAValue | None, least: int = 2) -> Block | Refusal:
    """Return the block that a masked tensor of pointers addresses, or the reason it is none; one
    of fewer than `least` dimensions is none.
    """
    form = pointer_form(pointer)
    if form is None or not is_argument(form.base):
        return Refusal("the addresses are not affine in the tile's coordinates")
    shape = shape_of(pointer.type)
    if sum(extent > 1 for extent in shape) < least:
        return Refusal("a tile of fewer than two dimensions: an ordinary load is as fast")
    strides = _strides(form.index, shape)
    if isinstance(strides, Refusal):
        return strides
    bounds = bounds_of(mask, shape) if mask is not None else {}
    if isinstance(bounds, Refusal):
        return bounds
    offsets = _offsets(form, strides, bounds)
    if isinstance(offsets, Refusal):
        return offsets
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
    (monomial, number) = next(iter(stride.terms.items()))
    return (monomial, number) if all(isinstance(atom, Leaf) for atom in monomial) else None


def _offsets(
    form: PointerForm, strides: dict[int, Polynomial], bounds: dict[int, Bounds]
) -> tuple[dict[int, Polynomial], dict[Leaf, Polynomial]] | Refusal:
    """Split the scalar part of the address over the strides: per dimension, and extra dimensions.

    The mask of a dimension says where in it the tile begins. Any other term goes to the
    dimension whose stride divides it; terms with another stride-like argument (one the launcher
    knows to be a multiple of 8) make a dimension of their own, such as a batch; what is left counts
    single elements.
    """
    rest = form.index.offset
    wrapped = {term.dim for term in form.index.wrapped}
    offsets = {dim: _begin(bounds.get(dim)) if dim not in wrapped else ZERO for dim in strides}
    for dim, stride in strides.items():
        rest -= stride * offsets[dim]
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
        quotient, rest = rest.divide(*factors[dim])
        offsets[dim] += quotient
    extra: dict[Leaf, Polynomial] = {}
    # What more terms share first: (i - i // n * n) * stride is steps of a stride, and not of n.
    for atom in sorted(_stride_like(rest), key=lambda atom: (-_shares(rest, atom), place_of(atom))):
        quotient, others = rest.divide((atom,))
        if not quotient.is_zero and not is_host_value(quotient):
            extra[atom], rest = quotient, others
    unit = next(dim for dim, stride in strides.items() if stride == ONE)
    offsets[unit] += rest
    return offsets, {atom: extra[atom] for atom in sorted(extra, key=place_of)}


def _shares(poly: Polynomial, atom: Leaf) -> int:
    return sum(atom in monomial for monomial in poly.terms)


def _begin(bound: Bounds | None) -> Polynomial:
    """Return the index with which a tile begins, as its mask counts: 0 where there is none."""
    if bound is None:
        return ZERO
    if bound.first is not None:
        return -bound.first
    end = ZERO if bound.end is None else bound.end
    return -end.parted(lambda term, _: is_host_value(Polynomial({term: 1})))[1]


def _stride_like(poly: Polynomial) -> set[Leaf]:
    """Return the arguments known to be multiples of 8 that multiply something in `poly`."""
    found: set[Leaf] = set()
    for monomial in poly.terms:
        for atom in monomial:
            if isinstance(atom, Leaf) and is_argument(atom.value) and divisor(atom.value) >= 8:
                found.add(atom)
    return found


def _assemble(
    form: PointerForm,
    shape: tuple[int, ...],
    strides: dict[int, Polynomial],
    split: tuple[dict[int, Polynomial], dict[Leaf, Polynomial]],
    bounds: dict[int, Bounds],
) -> Block | Refusal:
    offsets, extra = split
    wrapped = {w.dim: w for w in form.index.wrapped}
    repeated = {r.dim: r.count for r in form.index.repeated}
    apart = [Dim(None, Polynomial.atom(atom), part, UNBOUNDED, 1) for atom, part in extra.items()]
    dims: list[Dim] = []
    # Slowest first: the dimension of stride 1 is last, the others keep the program's order.
    for dim in sorted(strides, key=lambda dim: (strides[dim] == ONE, dim)):
        repeat, bound, offset = repeated.get(dim, 1), bounds.get(dim, Bounds()), offsets[dim]
        if dim in bounds and repeat > 1:
            return Refusal(f"the mask bounds dimension {dim}, whose indices stand several times")
        if (term := wrapped.get(dim)) is not None:
            if not offset.is_zero:  # a batch or a head: its rows are wrapped, and not the others
                apart.append(Dim(None, strides[dim], offset, UNBOUNDED, 1))
            offset = term.start
        elif (part := _uncounted(offset, bound)) is not None:
            apart.append(Dim(None, strides[dim] * part.unit, part.count, UNBOUNDED, 1))
            offset -= part.unit * part.count
        item = Dim(dim, strides[dim], offset, UNBOUNDED, shape[dim] // repeat, repeat=repeat)
        item = _bounded(item, bound, term)
        if isinstance(item, Refusal):
            return item
        dims.append(item)
    if any(dim not in strides for dim in bounds):
        return Refusal("the mask bounds a dimension of extent 1")
    return _checked(form, [*apart, *dims])


def _bounded(item: Dim, bound: Bounds, wrapped: Wrapped | None) -> Dim | Refusal:
    """Return a dimension with what the mask and a wrapped index say of its extent."""
    wrap = wrapped.bound if wrapped is not None else None
    extent = wrap if wrap is not None else item.extent
    if bound.end is not None:
        extent = item.offset + bound.end
        if wrap is not None and extent != wrap:
            return Refusal(f"dimension {item.dim} is wrapped and masked with different bounds")
    if not is_host_value(extent):
        return Refusal(f"the bound of dimension {item.dim} is not a function of the arguments")
    least, natural = ZERO, ZERO
    if bound.first == -item.offset:
        least = LEAST
    elif bound.first is not None:
        # Where this is never negative the bound hides nothing; where it falls it may well be.
        natural = -bound.first
        if any(number < 0 for number in natural.terms.values()):
            return Refusal(f"the mask bounds dimension {item.dim} from another index than 0 on")
    return replace(item, extent=extent, wrap=wrap, least=least, natural=natural)


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of an offset: `count` times `unit`, which is a function of the arguments."""

    count: Polynomial
    unit: Polynomial


def _uncounted(offset: Polynomial, bound: Bounds) -> _Part | None:
    """Return the part of an offset that a dimension's mask does not count: a batch or a head,
    whose rows the mask numbers from 0. It becomes a dimension of its own.
    """
    side = bound.end if bound.end is not None else bound.first
    if side is None:
        return None
    open_terms = (offset + side).terms.items() & offset.terms.items()
    excess = {m: c for m, c in open_terms if not is_host_value(Polynomial.make({m: c}))}
    if not excess:
        return None
    known, *others = ([atom for atom in m if _is_host_atom(atom)] for m in excess)
    for each in others:
        known = _shared(known, each)
    number = gcd(*excess.values())
    if number == 1 and not known:
        return None
    unit = Polynomial.constant(number)
    for atom in known:
        unit *= Polynomial.atom(atom)
    if min(excess.values()) < 0:  # what falls may be no less than 0 by a number beside it
        excess[()] = offset.terms.get((), 0)
    count, _ = Polynomial.make(excess).divide(tuple(known), number)
    return _Part(count, unit)


def _is_host_atom(atom: Atom) -> bool:
    return is_host_value(Polynomial.atom(atom))


def _shared(one: list[Atom], other: list[Atom]) -> list[Atom]:
    """Return the atoms that both products have, as often as both have them."""
    left, found = list(other), list[Atom]()
    for atom in one:
        if atom in left:
            left.remove(atom)
            found.append(atom)
    return found


def _checked(form: PointerForm, dims: Sequence[Dim]) -> Block | Refusal:
    """Apply TMA's static rules and collect what the launcher must check."""
    if len(dims) > 5:
        return Refusal("more than five dimensions")
    if divisor(form.base) % 16:
        return Refusal("the base address is not known to be a multiple of 16 bytes")
    size = bit_width(element_type(form.base.type).element) // 8  # pyright: ignore
    for item in dims[:-1]:
        if not is_multiple(item.stride, 16 // min(size, 16)):
            return Refusal("a stride is not known to be a multiple of 16 bytes")
    if dims[-1].block * size % 16:
        return Refusal(f"rows of {dims[-1].block * size} bytes are not a multiple of 16")
    limits: list[Polynomial] = []
    for item in dims:
        found = limits_of(item)
        if isinstance(found, Refusal):
            return found
        limits += found
    checks = [limit for limit in limits if not surely_nonnegative(limit)]
    multiples = starts_of(dims[-1].offset, 16 // min(size, 16))
    if multiples is None:
        return Refusal("a box may begin at an address that is no multiple of 16 bytes")
    return Block(form.base, tuple(dims), tuple(dict.fromkeys(checks)), multiples)


def ends_whole(block: Block) -> bool:
    """Tell whether the columns of a block surely end at a multiple of 16 bytes, or without bound.

    A store by TMA writes 16 bytes where it writes the first of them (seen on an H200: with 92
    columns of 16 bits, columns 92 to 95 became zero).
    """
    last = block.dims[-1].extent
    return last == UNBOUNDED or is_multiple(last, columns_of_piece(block.base.type))


def columns_of_piece(kind: Attribute) -> int:
    """Return how many elements of a pointer's or descriptor's type TMA writes whole: 16 bytes."""
    assert isinstance(kind, PtrType | DescType), "rows are reached through a pointer or descriptor"
    return max(1, 16 * 8 // max(8, bit_width(kind.element)))
