"""What random kernels call: helpers of several statements, some with branches and loops."""

import tawa
import tawa.language as tl


@tawa.jit
def clamped(x, low: tl.constexpr, high: tl.constexpr):
    """Values are kept small, so that sums in any order are exact."""
    return tl.minimum(tl.maximum(x, low), high)


@tawa.jit
def near(x):
    if x.dtype.is_floating():
        return clamped(x, -8.0, 8.0)
    else:
        return clamped(x, -8, 8)


@tawa.jit
def tile_of(base, rows, columns, stride, last_row, last_column):
    """A tile through pointers, zero outside."""
    inside = (rows[:, None] < last_row) & (columns[None, :] < last_column)
    inside &= (rows[:, None] >= 0) & (columns[None, :] >= 0)
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=inside, other=0)


@tawa.jit
def product(acc, a, b, NEGATED: tl.constexpr):
    if NEGATED:
        acc -= tl.dot(a, b, out_dtype=acc.dtype)
    else:
        acc = tl.dot(a, b, acc, out_dtype=acc.dtype)
    return acc


@tawa.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@tawa.jit
def total(a, b):
    return a + b


@tawa.jit
def after(a, b, c, d):
    """The map x -> a x + b, then c x + d: of whole numbers modulo 7, and in no other order."""
    return (a * c) % 7, (b * c + d) % 7


@tawa.jit
def steps(x, COUNT: tl.constexpr):
    for i in tl.static_range(COUNT):
        x = near(x * 2 - i)
    return x


@tawa.jit
def halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The even and the odd columns of a tile."""
    return tl.split(tl.reshape(x, (ROWS, COLUMNS // 2, 2)))


@tawa.jit
def sweep(acc, a_desc, b_desc, row, col, first, last, BK: tl.constexpr):
    """Products along K; how many there were."""
    iterations = 0
    for k in range(first, last, BK):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, col]), acc, out_dtype=acc.dtype)
        iterations += 1
    return acc, iterations


@tawa.jit
def later(a, i, b, j):
    """Of two pairs the one with the larger value, the later one of equals."""
    second = (b > a) | ((b == a) & (j > i))
    return tl.where(second, b, a), tl.where(second, j, i)


@tawa.jit
def ordered(a, b):
    return tl.minimum(a, b), tl.maximum(a, b)


@tawa.jit
def bounded(x, low: tl.constexpr, high: tl.constexpr, number):
    """A value as it is or clamped, and a number of either sign: two returns."""
    if number % 2 == 1:
        return x, -number // 2
    y = clamped(x, low, high)
    return y, (number - 5) % 3


@tawa.jit
def by_mode(x, low: tl.constexpr, high: tl.constexpr, MODE: tl.constexpr):
    if MODE == 0:
        return x
    elif MODE == 1:
        return clamped(x, low, high)
    y = x - 1
    return clamped(larger(x, -y), low, high)
