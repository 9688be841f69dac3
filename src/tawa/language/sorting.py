"""Sorting networks over the last dimension: K. E. Batcher, "Sorting networks and their
applications", 1968. Written in the language itself.

A tensor of 2**n elements is seen as n dimensions of extent 2; elements that differ in one of them
are compared, and swapped as bits, so that nothing is lost: NaN stays, wherever it comes to stand.
"""

# The bodies are tile code, which pyright cannot type: it is typed where it is compiled.
# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false, reportOptionalMemberAccess=false, reportAssignmentType=false

from __future__ import annotations

from tawa.language import primitives as tl
from tawa.language.constant import constexpr_function
from tawa.language.dtypes import dtype
from tawa.language.written import Written


@constexpr_function
def _bits_of(element):
    """Return the signed integer type as wide as `element`."""
    return dtype(f"int{max(element.primitive_bitwidth, 8)}")


@constexpr_function
def get_int_dtype(bitwidth, signed):
    """Return the integer type of so many bits."""
    return dtype(f"{'' if signed or bitwidth == 1 else 'u'}int{bitwidth}")


@constexpr_function
def _log2(number):
    """Return the logarithm of a power of two; raises ValueError for another number."""
    if number < 1 or number & (number - 1):
        raise ValueError(f"{number} is not a power of two")
    return number.bit_length() - 1


@constexpr_function
def _is_power(number):
    """Tell whether a number is a power of two."""
    return isinstance(number, int) and number > 0 and not number & (number - 1)


@constexpr_function
def _dimension(dim, rank):
    """Return the dimension that `dim` names, counted from the front; the last without it.

    One outside of 0 to `rank` - 1 is none: users ask.
    """
    if dim is None:
        return rank - 1
    return dim + rank if dim < 0 else dim


@Written
def _other_half(x, axis: tl.constexpr):
    """Exchange the two halves along an axis of extent 2."""
    as_bits: tl.constexpr = x.dtype != tl.int1  # a bool is 0 or 1 in a byte
    bits = x.to(_bits_of(x.dtype), bitcast=as_bits)
    return (bits ^ tl.xor_sum(bits, axis, keep_dims=True)).to(x.dtype, bitcast=as_bits)


@Written
def _digit(x, axis: tl.constexpr):
    """Give the index along an axis of extent 2, in the shape of `x` but for the other axes."""
    rank: tl.constexpr = len(x.shape)
    return tl.arange(0, 2).reshape([1] * axis + [2] + [1] * (rank - axis - 1)) == 1


@Written
def _merge(x, steps: tl.constexpr, descending):
    """Sort the bitonic runs of 2**`steps` elements of a tensor of extents 2."""
    rank: tl.constexpr = len(x.shape)
    for step in tl.static_range(steps):
        axis: tl.constexpr = rank - steps + step
        other = _other_half(x, axis)
        upper = _digit(x, axis)
        # Both of a pair ask the same question: with NaN its two answers may not contradict.
        left, right = tl.where(upper, other, x), tl.where(upper, x, other)
        x = tl.where((left > right) != descending, other, x)
    return x


@Written
def _sort_runs(x, steps: tl.constexpr, whole: tl.constexpr, descending: tl.constexpr):
    """Sort runs of 2**`steps` elements, up and down in turns if they are less than `whole`."""
    for done in tl.static_range(1, steps + 1):
        if done < whole:
            x = _merge(x, done, _digit(x, len(x.shape) - done - 1))
        else:
            x = _merge(x, done, tl.full([1] * len(x.shape), descending, tl.int1))
    return x


@Written
def sort(x, dim: tl.constexpr = None, descending: tl.constexpr = False):
    """Sort along `dim`, the last dimension, of 2**n elements."""
    rank: tl.constexpr = len(x.shape)
    tl.static_assert(_dimension(dim, rank) == rank - 1, "tl.sort sorts along the last dimension")
    tl.static_assert(_is_power(x.numel), "tl.sort takes 2**n elements along each dimension")
    steps: tl.constexpr = _log2(x.shape[rank - 1])
    cube = tl.reshape(x, [2] * _log2(x.numel))
    return tl.reshape(_sort_runs(cube, steps, steps, descending), x.shape)


@Written
def topk(x, k: tl.constexpr, dim: tl.constexpr = None, descending: tl.constexpr = True):
    """Give the `k` (2**m) largest elements along `dim`, the last dimension, largest first; without
    `descending` the smallest, smallest first.
    """
    rank: tl.constexpr = len(x.shape)
    tl.static_assert(_dimension(dim, rank) == rank - 1, "tl.topk works along the last dimension")
    tl.static_assert(_is_power(x.numel), "tl.topk takes 2**n elements along each dimension")
    tl.static_assert(_is_power(k), "the k of tl.topk is a power of two: 1, 2, 4 ...")
    tl.static_assert(k <= x.shape[rank - 1], "the k of tl.topk is at most the last extent")
    whole: tl.constexpr = _log2(x.shape[rank - 1])
    steps: tl.constexpr = _log2(k)
    cube = _sort_runs(tl.reshape(x, [2] * _log2(x.numel)), steps, whole, descending)
    for left in tl.static_range(whole - steps):
        # The larger (or smaller) half of two runs, one up and one down, is bitonic again.
        axis: tl.constexpr = len(cube.shape) - 1 - steps
        cube = tl.max(cube, axis) if descending else tl.min(cube, axis)
        if left + 1 < whole - steps:
            cube = _merge(cube, steps, _digit(cube, len(cube.shape) - 1 - steps))
        else:
            cube = _merge(cube, steps, tl.full([1] * len(cube.shape), descending, tl.int1))
    return tl.reshape(cube, [*x.shape[: rank - 1], k]).to(x.dtype)


@Written
def bitonic_merge(x, dim: tl.constexpr = None, descending: tl.constexpr = False):
    """Sort bitonic rows along `dim`, the last dimension, of 2**n elements."""
    rank: tl.constexpr = len(x.shape)
    tl.static_assert(_dimension(dim, rank) == rank - 1, "the last dimension is merged")
    tl.static_assert(_is_power(x.numel), "runs of 2**n elements are merged")
    cube = tl.reshape(x, [2] * _log2(x.numel))
    order = tl.full([1] * len(cube.shape), descending, tl.int1)
    return tl.reshape(_merge(cube, _log2(x.shape[rank - 1]), order), x.shape)


@Written
def flip(x, dim: tl.constexpr = None):
    """Turn the order of the elements along `dim` (2**n of them) round; the last without it."""
    rank: tl.constexpr = len(x.shape)
    at: tl.constexpr = _dimension(dim, rank)
    tl.static_assert(0 <= at < rank, "tl.flip turns one of the tensor's dimensions round")
    tl.static_assert(_is_power(x.shape[at]), "tl.flip turns 2**n elements round")
    steps: tl.constexpr = _log2(x.shape[at])
    cube = tl.reshape(x, [*x.shape[:at], *([2] * steps), *x.shape[at + 1 :]])
    for step in tl.static_range(steps):
        cube = _other_half(cube, at + step)
    return tl.reshape(cube, x.shape)
