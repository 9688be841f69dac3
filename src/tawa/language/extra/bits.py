"""Functions of bits in the device library."""

# The bodies are tile code, which pyright cannot type: it is typed where it is compiled.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false

from __future__ import annotations

from tawa.language import dtypes
from tawa.language import primitives as tl
from tawa.language.written import Written


def _bits(name: str, source: str, target: dtypes.dtype, has: str) -> Written:
    """Make the function that reads the bits of one type as another."""

    def function(arg0):
        n = arg0
        return n.to(target, bitcast=True)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Read the bits of {source} as {has}."
    return Written(function)


float_as_int = _bits("float_as_int", "a float32", dtypes.int32, "an int32")
float_as_uint = _bits("float_as_uint", "a float32", dtypes.int32, "an int32")
int_as_float = _bits("int_as_float", "an int32", dtypes.float32, "a float32")
uint_as_float = _bits("uint_as_float", "a uint32", dtypes.float32, "a float32")
double_as_longlong = _bits("double_as_longlong", "a float64", dtypes.int64, "an int64")
longlong_as_double = _bits("longlong_as_double", "an int64", dtypes.float64, "a float64")


@Written
def popc(arg0):
    """Count the ones of an int32 or int64."""
    n = arg0
    if n.dtype.primitive_bitwidth == 64:
        x = n.to(tl.uint64, bitcast=True)
        m: tl.constexpr = 0x0000000100000001
    else:
        tl.static_assert(n.dtype.primitive_bitwidth == 32, "popc takes 32 or 64 bits")
        x = n.to(tl.uint32, bitcast=True)
        m: tl.constexpr = 1
    x = x - ((x >> 1) & (m * 0x55555555))
    x = (x & (m * 0x33333333)) + ((x >> 2) & (m * 0x33333333))
    x = (x + (x >> 4)) & (m * 0x0F0F0F0F)
    return ((x * (m * 0x01010101)) >> (n.dtype.primitive_bitwidth - 8)).to(tl.int32)


@Written
def clz(arg0):
    """Count the zeros of an int32 or int64 above its highest one; 32 or 64 of 0."""
    n = arg0
    x = n.to(tl.uint64 if n.dtype.primitive_bitwidth == 64 else tl.uint32, bitcast=True)
    x = x | (x >> 1)
    x = x | (x >> 2)
    x = x | (x >> 4)
    x = x | (x >> 8)
    x = x | (x >> 16)
    if n.dtype.primitive_bitwidth == 64:
        x = x | (x >> 32)
    return n.dtype.primitive_bitwidth - popc(x)


@Written
def ffs(arg0):
    """Give the place of the lowest one of an int32 or int64, counted from 1; 0 of 0."""
    n = arg0
    x = n.to(tl.uint64 if n.dtype.primitive_bitwidth == 64 else tl.uint32, bitcast=True)
    return n.dtype.primitive_bitwidth - clz(x & (0 - x))


@Written
def double2hiint(arg0):
    """Give the upper 32 bits of a float64 as an int32."""
    n = arg0
    return (n.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@Written
def double2loint(arg0):
    """Give the lower 32 bits of a float64 as an int32."""
    n = arg0
    return n.to(tl.int64, bitcast=True).to(tl.int32)


@Written
def hiloint2double(arg0, arg1):
    """Make a float64 of its upper and its lower 32 bits, both int32."""
    high, low = arg0, arg1
    low = low.to(tl.uint32, bitcast=True).to(tl.int64)
    return ((high.to(tl.int64) << 32) | low).to(dtypes.float64, bitcast=True)


@Written
def brev(arg0):
    """Turn the order of the bits of an int32 or int64 round."""
    n = arg0
    if n.dtype.primitive_bitwidth == 64:
        x = n.to(tl.uint64, bitcast=True)
        x = (x >> 32) | (x << 32)
        m: tl.constexpr = 0x0000000100000001
    else:
        tl.static_assert(n.dtype.primitive_bitwidth == 32, "brev takes 32 or 64 bits")
        x = n.to(tl.uint32, bitcast=True)
        m: tl.constexpr = 1
    x = ((x >> 16) & (m * 0xFFFF)) | ((x & (m * 0xFFFF)) << 16)
    x = ((x >> 8) & (m * 0x00FF00FF)) | ((x & (m * 0x00FF00FF)) << 8)
    x = ((x >> 4) & (m * 0x0F0F0F0F)) | ((x & (m * 0x0F0F0F0F)) << 4)
    x = ((x >> 2) & (m * 0x33333333)) | ((x & (m * 0x33333333)) << 2)
    x = ((x >> 1) & (m * 0x55555555)) | ((x & (m * 0x55555555)) << 1)
    return x.to(n.dtype, bitcast=True)


@Written
def byte_perm(arg0, arg1, arg2):
    """Choose four of the eight bytes of two int32, by the lowest three bits of each hexadecimal
    digit of a third."""
    one, other, choice = arg0, arg1, arg2
    low = one.to(tl.uint32, bitcast=True).to(tl.uint64)
    both = (other.to(tl.uint32, bitcast=True).to(tl.uint64) << 32) | low
    chosen = both & 0
    for i in tl.static_range(4):
        place = ((choice >> (4 * i)) & 7).to(tl.uint64) * 8
        chosen |= ((both >> place) & 0xFF) << (8 * i)
    return chosen.to(tl.uint32).to(tl.int32, bitcast=True)


@Written
def mulhi(arg0, arg1):
    """Give the high half of the product of two integers of 32 or 64 bits, signed as they are."""
    zero = (arg0 ^ arg1) & 0
    x, y = arg0 + zero, arg1 + zero
    if x.dtype.primitive_bitwidth == 32:
        wide: tl.constexpr = tl.int64 if x.dtype.is_int_signed() else tl.uint64
        high = ((x.to(wide) * y.to(wide)) >> 32).to(x.dtype)
    elif x.dtype.is_int_signed():
        # Read as unsigned a negative number is more by 2^64.
        more = tl.where(x < 0, y, 0) + tl.where(y < 0, x, 0)
        high = tl.umulhi(x, y).to(tl.int64) - more
    else:
        high = tl.umulhi(x, y)
    return high


@Written
def mul24(arg0, arg1):
    """Give the lower 32 bits of the product of the lower 24 bits of two integers of 32 bits."""
    product = ((arg0 << 8) >> 8) * ((arg1 << 8) >> 8)
    tl.static_assert(product.dtype.primitive_bitwidth == 32, "mul24 takes 32 bits")
    return product


@Written
def hadd(arg0, arg1):
    """Give the mean of two integers of 32 bits, rounded down."""
    return (arg0 & arg1) + ((arg0 ^ arg1) >> 1)


@Written
def rhadd(arg0, arg1):
    """Give the mean of two integers of 32 bits, rounded up."""
    return (arg0 | arg1) - ((arg0 ^ arg1) >> 1)


@Written
def sad(arg0, arg1, arg2):
    """Add a uint32 to the distance of two integers of 32 bits."""
    apart = tl.where(arg0 > arg1, arg0 - arg1, arg1 - arg0)
    return (apart.to(tl.uint32, bitcast=True) + arg2).to(apart.dtype, bitcast=True)
