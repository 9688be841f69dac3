"""Random numbers from a counter: Philox 4x32-10, the numbers that Triton gives.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
SC 2011, section 4.3: ten rounds on a counter of four 32-bit words under a key of two. The counter
is `offset` and three zeros, the key the 64 bits of `seed`; so a number depends on its offset alone,
not on tiles, warps or the order of execution.
"""

# The bodies are tile code, which pyright cannot type: it is typed where it is compiled.
# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from tawa.language import primitives as tl
from tawa.language.written import Written


@Written
def philox(seed, c0, c1, c2, c3, n_rounds: tl.constexpr = 10):
    """Encrypt four uint32 counters under a 64-bit seed; returns four uint32 tensors."""
    key = seed.to(tl.uint64)
    k0 = (key & 0xFFFFFFFF).to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    c0, c1, c2, c3 = c0.to(tl.uint32), c1.to(tl.uint32), c2.to(tl.uint32), c3.to(tl.uint32)
    a, b = tl.full((), 0xD2511F53, tl.uint64), tl.full((), 0xCD9E8D57, tl.uint64)
    for _ in tl.static_range(n_rounds):
        even, odd = c0.to(tl.uint64) * a, c2.to(tl.uint64) * b
        c0, c2 = (odd >> 32).to(tl.uint32) ^ c1 ^ k0, (even >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = odd.to(tl.uint32), even.to(tl.uint32)
        k0 = (k0 + 0x9E3779B9).to(tl.uint32)
        k1 = (k1 + 0xBB67AE85).to(tl.uint32)
    return c0, c1, c2, c3


@Written
def randint4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Give four tensors of uint32, uniform, from a scalar seed and a tensor of int32 offsets."""
    zero = offset * 0
    return philox(tl.to_tensor(seed), offset, zero, zero, zero, n_rounds)


@Written
def randint(seed, offset, n_rounds: tl.constexpr = 10):
    """Give a tensor of uint32, uniform, from a scalar seed and a tensor of int32 offsets."""
    first, _, _, _ = randint4x(seed, offset, n_rounds)
    return first


@Written
def uint_to_uniform_float(x):
    """Turn uniform integers of 32 or 64 bits into float32, uniform in [0, 1)."""
    signed = x.to(tl.int64 if x.dtype.primitive_bitwidth == 64 else tl.int32, bitcast=True)
    # 2**-63 or 2**-31 less a hair: the largest integer must stay under 1 when rounded.
    if x.dtype.primitive_bitwidth == 64:
        return tl.where(signed < 0, -signed - 1, signed) * 1.0842020432385337e-19
    return tl.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10


@Written
def _cos_and_sin_of_turns(u):
    """Give the cosine and the sine of 2 pi `u`, a float32 tensor, each within 2e-7.

    What is left of the nearest quarter turn, at most 1/8, is exact, so that nothing has to be
    reduced by pi; for that the series of both functions are short.
    """
    quarters = tl.floor(4.0 * u + 0.5)
    angle = 6.283185307179586 * (u - 0.25 * quarters)
    square = angle * angle
    sine = square * (1 / 362880) - 1 / 5040
    sine = square * (square * sine + 1 / 120) - 1 / 6
    sine = angle * square * sine + angle
    cosine = square * (-1 / 3628800) + 1 / 40320
    cosine = square * (square * cosine - 1 / 720) + 1 / 24
    cosine = square * (square * cosine - 1 / 2) + 1.0
    turn = quarters.to(tl.int32)
    odd = turn & 1 != 0
    first, second = tl.where(odd, sine, cosine), tl.where(odd, cosine, sine)
    first = tl.where((turn + 1) & 2 != 0, -first, first)
    return first, tl.where(turn & 2 != 0, -second, second)


@Written
def pair_uniform_to_normal(u1, u2):
    """Turn two uniform float32 tensors into two normal ones (Box and Muller, 1958).

    They are within 3e-6 of what exact arithmetic makes of the same `u1` and `u2`.
    """
    radius = tl.sqrt(-2.0 * tl.log(tl.maximum(u1, 1.0e-7)))
    cosine, sine = _cos_and_sin_of_turns(u2)
    return radius * cosine, radius * sine


@Written
def rand(seed, offset, n_rounds: tl.constexpr = 10):
    """Give a tensor of float32, uniform in [0, 1), from a scalar seed and int32 offsets."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@Written
def rand4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Give four tensors of float32, uniform in [0, 1), for the price of one."""
    i0, i1, i2, i3 = randint4x(seed, offset, n_rounds)
    u0, u1 = uint_to_uniform_float(i0), uint_to_uniform_float(i1)
    return u0, u1, uint_to_uniform_float(i2), uint_to_uniform_float(i3)


@Written
def randn(seed, offset, n_rounds: tl.constexpr = 10):
    """Give a tensor of float32, normal (mean 0, deviation 1), from a scalar seed and offsets."""
    i0, i1, _, _ = randint4x(seed, offset, n_rounds)
    first, _ = pair_uniform_to_normal(uint_to_uniform_float(i0), uint_to_uniform_float(i1))
    return first


@Written
def randn4x(seed, offset, n_rounds: tl.constexpr = 10):
    """Give four tensors of float32, normal (mean 0, deviation 1), for the price of one."""
    u0, u1, u2, u3 = rand4x(seed, offset, n_rounds)
    n0, n1 = pair_uniform_to_normal(u0, u1)
    n2, n3 = pair_uniform_to_normal(u2, u3)
    return n0, n1, n2, n3
