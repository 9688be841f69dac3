"""The meaning of operators and statements, as Triton has it: C's integers, promotion, branches and
loops on run-time values, compile-time Python, locks and counters in memory.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import tawa
import tawa.language as tl
from idiom_case import Idiom, blank, fixed, idiom, integers, normal
from tawa.language.extra import libdevice

CASES: dict[str, Idiom] = {}
case = partial(idiom, CASES)

SCALE: tl.constexpr = tl.constexpr(3)
MODES = {"relu": 1}


def truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    quotient = np.abs(x.astype(object)) // np.abs(y.astype(object))
    return (quotient * np.sign(x).astype(object) * np.sign(y).astype(object)).astype(x.dtype)


def division_reference(x, y, **_):
    quotient = truncated(x, y)
    floats = np.fmod(x.astype(np.float32) / np.float32(3), y.astype(np.float32))
    return {"quotient": quotient, "rest": x - quotient * y, "ceiling": truncated(x + y - 1, y),
            "floats": floats}  # fmt: skip


Y = np.where(np.arange(64) % 2, 7, -5)


def division_case(dtype):
    return case(
        (1,), division_reference, 1e-6, np.dtype(dtype).name, x=integers(-100, 100, 64,
              dtype=dtype),
        y=fixed(Y.astype(dtype)), quotient=blank(64, dtype=dtype), rest=blank(64, dtype=dtype),
        ceiling=blank(64, dtype=dtype), floats=blank(64), B=64,
    )  # fmt: skip


@division_case(np.int32)
@division_case(np.int64)
@division_case(np.int8)
@tawa.jit
def divide(x, y, quotient, rest, ceiling, floats, B: tl.constexpr):
    at = tl.arange(0, B)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(quotient + at, a // b)
    tl.store(rest + at, a % b)
    tl.store(ceiling + at, tl.cdiv(a, b))
    tl.store(floats + at, (a.to(tl.float32) / 3) % b.to(tl.float32))


def wrapped_reference(x, y, **_):
    with np.errstate(over="ignore"):
        u = x.view(np.uint32)
        shifted = (x >> 3) ^ (u >> np.uint32(3)).view(np.int32)
        return {
            "sums": x + y, "products": x * y, "shifts": shifted, "unsigned": u // np.uint32(7),
            "bytes": (x.astype(np.int8).astype(np.int32) + x.astype(np.uint8)).astype(np.int32),
            "long": x.astype(np.int64) * y,
        }  # fmt: skip


@case((1,), wrapped_reference, x=integers(-(2**31), 2**31, 128), y=integers(-(2**31), 2**31, 128),
      sums=blank(128, dtype=np.int32), products=blank(128, dtype=np.int32),
      shifts=blank(128, dtype=np.int32), unsigned=blank(128, dtype=np.uint32),
      bytes=blank(128, dtype=np.int32), long=blank(128, dtype=np.int64), B=128)  # fmt: skip
@tawa.jit
def wrap(x, y, sums, products, shifts, unsigned, bytes, long, B: tl.constexpr):
    at = tl.arange(0, B)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(sums + at, a + b)
    tl.store(products + at, a * b)
    u = a.to(tl.uint32, bitcast=True)
    tl.store(shifts + at, (a >> 3) ^ (u >> 3).to(tl.int32, bitcast=True))
    tl.store(unsigned + at, u // 7)
    tl.store(bytes + at, a.to(tl.int8).to(tl.int32) + a.to(tl.uint8).to(tl.int32))
    tl.store(long + at, a.to(tl.int64) * b)


def bits_reference(x, **_):
    bits = x.view(np.int32)
    rounded = (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    sign = np.where(bits < 0, -1.0, 1.0)
    return {"exponents": (bits >> 23 & 255) - 127, "halves": rounded, "signs": sign,
            "cleared": (bits & -8192).view(np.float32)}  # fmt: skip


@case((1,), bits_reference, x=normal(64), exponents=blank(64, dtype=np.int32),
      halves=blank(64, dtype=np.uint16), signs=blank(64), cleared=blank(64), B=64)  # fmt: skip
@tawa.jit
def take_bits(x, exponents, halves, signs, cleared, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    bits = tl.cast(v, tl.int32, bitcast=True)
    tl.store(exponents + at, ((bits >> 23) & 0xFF) - 127)
    tl.store(halves + at, (v.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16))
    tl.store(signs + at, tl.where(bits < 0, -1.0, 1.0))
    tl.store(cleared + at, (bits & -8192).to(tl.float32, bitcast=True))


def collatz(n):
    steps = 0
    while n != 1 and steps < 200:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@case((6,), lambda starts, **_: {"out": np.array([collatz(int(n)) for n in starts])},
      starts=fixed(np.array([1, 7, 27, 97, 2**20, 871], np.int64)),
      out=blank(6, dtype=np.int32))  # fmt: skip
@tawa.jit
def count_steps(starts, out):
    """A while loop whose condition is two, with a branch inside, on scalars from memory."""
    pid = tl.program_id(0)
    n = tl.load(starts + pid)
    steps = 0
    while (n != 1) & (steps < 200):
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(out + pid, steps)


def python_reference(x, n, LOW, **_):
    inside = (np.arange(len(x)) > LOW) & (np.arange(len(x)) < n)
    value = np.maximum(x, 0) * 3 + (4 + 2)
    return {"out": np.where(inside, value, -1)}


@tawa.jit
def activate(x, kind: tl.constexpr = "relu", *, slope: tl.constexpr = None):
    if kind == "relu":
        return tl.where(x > 0, x, 0.0)
    if slope is None:
        return x
    return tl.where(x > 0, x, slope * x)


@tawa.jit
def total_of(items):
    total = 0
    for i in tl.static_range(len(items)):
        total += items[i]
    return total


@case((2,), python_reference, 1e-6, x=normal(96), out=blank(96), n=90, LOW=3, B=64, NAME="relu")
@tawa.jit
def compile_time_python(x, out, n, LOW: tl.constexpr, B: tl.constexpr, NAME: tl.constexpr,
                        EXTRA: tl.constexpr = (4, 2)):  # fmt: skip
    tl.static_assert(B >= 32, f"a block of {B} is too small")
    tl.static_print("block", B, NAME)
    assert NAME in ("relu", "none"), "an unknown activation"
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.assume(n > 0)
    at = tl.max_contiguous(tl.multiple_of(at, B), B)
    v = tl.load(x + at, mask=at < 96, other=0.0)
    v = activate(v, kind=NAME)
    v *= SCALE
    v += total_of(EXTRA)
    inside = (at > LOW) & (at < n)
    first, rest = EXTRA[0], EXTRA[1:]
    if len(rest) == 1 and first == 4:
        v = tl.where(inside, v, -1.0)
    tl.store(out + at, v, mask=at < 96)


def promoted_reference(x, h, i, **_):
    return {"a": (h * np.float16(2.5)).astype(np.float32), "b": x + 1, "c": i / 2 + x,
            "d": np.where(i > 0, x, h.astype(np.float32)), "e": -i, "f": (i > 3) * 2 + (~i & 15),
            "g": np.minimum(np.maximum(x, -0.5), 0.5) ** 2}  # fmt: skip


@case((1,), promoted_reference, 1e-6, x=normal(64), h=normal(64, dtype=np.float16),
      i=integers(-9, 9, 64), a=blank(64), b=blank(64), c=blank(64), d=blank(64),
      e=blank(64, dtype=np.int32), f=blank(64, dtype=np.int32), g=blank(64), B=64)  # fmt: skip
@tawa.jit
def promote(x, h, i, a, b, c, d, e, f, g, B: tl.constexpr):
    at = tl.arange(0, B)
    vx, vh, vi = tl.load(x + at), tl.load(h + at), tl.load(i + at)
    tl.store(a + at, vh * 2.5)
    tl.store(b + at, 1 + vx)
    tl.store(c + at, vi / 2 + vx)
    tl.store(d + at, tl.where(vi > 0, vx, vh))
    tl.store(e + at, -vi)
    tl.store(f + at, (vi > 3) * 2 + (~vi & 15))
    clipped = min(max(vx, -0.5), 0.5)
    tl.store(g + at, clipped * clipped)


def locked_reference(x, B, G, **_):
    groups = [x.reshape(-1, B)[g::G] for g in range(G)]
    return {"sums": np.concatenate([rows.sum(0) for rows in groups]),
            "counts": np.array([len(rows) for rows in groups])}  # fmt: skip


@case((8,), locked_reference, 1e-5, x=normal(8 * 64), locks=fixed(np.zeros(2, np.int32)),
      counts=fixed(np.zeros(2, np.int32)), sums=blank(128), n=8, B=64, G=2)  # fmt: skip
@tawa.jit
def sums_behind_locks(x, locks, counts, sums, n, B: tl.constexpr, G: tl.constexpr):
    """Programs add to one of G rows: a lock by compare-and-swap, the first one stores."""
    pid = tl.program_id(0)
    group = pid % G
    at = tl.arange(0, B)
    partial_sum = tl.load(x + pid * B + at)
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    count = tl.load(counts + group)
    if count != 0:
        partial_sum += tl.load(sums + group * B + at)
    tl.store(sums + group * B + at, partial_sum)
    tl.store(counts + group, count + 1)
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0)


def last_reference(x, B, **_):
    return {"out": np.array([x.astype(np.float64).sum()]), "tickets": np.array([0])}


@case((6,), last_reference, 1e-5, x=normal(6 * 128), partial_sums=blank(8), out=blank(1),
      tickets=fixed(np.zeros(1, np.int32)), B=128, MOST=8)  # fmt: skip
@tawa.jit
def last_program_finishes(x, partial_sums, out, tickets, B: tl.constexpr, MOST: tl.constexpr):
    """Who draws the last ticket sums up what the others left."""
    pid = tl.program_id(0)
    count = tl.num_programs(0)
    at = tl.arange(0, B)
    tl.store(partial_sums + pid, tl.sum(tl.load(x + pid * B + at)))
    ticket = tl.atomic_add(tickets, 1, sem="acq_rel")
    if ticket == count - 1:
        slots = tl.arange(0, MOST)
        tl.store(out, tl.sum(tl.load(partial_sums + slots, mask=slots < count, other=0.0)))
        tl.store(tickets, 0)


def shapes_reference(x, **_):
    m = x.reshape(16, 32)
    left, right = m[:, 0::2], m[:, 1::2]
    return {"out": np.concatenate([(left - right).T.ravel(), (m[::-1] * 2).ravel()]),
            "sums": m.reshape(4, 4, 32).transpose(1, 0, 2).sum(2).ravel(),
            "one": np.array([m.max()])}  # fmt: skip


@case((1,), shapes_reference, 1e-6, x=normal(512), out=blank(768), sums=blank(16), one=blank(1))
@tawa.jit
def many_shapes(x, out, sums, one):
    i, j = tl.arange(0, 16), tl.arange(0, 32)
    m = tl.load(x + i[:, None] * 32 + j)
    left, right = tl.split(m.reshape(16, 16, 2))
    difference = tl.trans(left - right)
    tl.store(out + tl.arange(0, 256), tl.ravel(difference))
    tl.store(out + 256 + i[:, None] * 32 + j[None, :], tl.flip(m, 0) * 2)
    four = tl.permute(tl.core.reshape(m, (4, 4, 32), can_reorder=False), (1, 0, 2))
    rows = tl.squeeze(tl.unsqueeze(tl.sum(four, -1), 0), 0)
    tl.store(sums + tl.arange(0, 16), tl.reshape(rows, 16))
    best = tl.max(m)
    if best > -1e30:
        tl.store(one, best)


def special_reference(x, y, **_):
    return {"a": np.power(np.abs(x), y), "b": np.log1p(np.abs(x)), "c": np.floor(x) + np.ceil(y),
            "d": x * y + 1, "e": np.isnan(np.where(x > 0, np.nan, x)),
                  "f": np.rint(3 * x)}  # fmt: skip


@case((1,), special_reference, 1e-5, x=normal(64), y=normal(64), a=blank(64), b=blank(64),
      c=blank(64), d=blank(64), e=blank(64, dtype=np.bool_), f=blank(64), B=64)  # fmt: skip
@tawa.jit
def library_functions(x, y, a, b, c, d, e, f, B: tl.constexpr):
    at = tl.arange(0, B)
    u, v = tl.load(x + at), tl.load(y + at)
    tl.store(a + at, libdevice.pow(tl.abs(u), v))
    tl.store(b + at, libdevice.log1p(abs(u)))
    tl.store(c + at, tl.floor(u) + tl.math.ceil(v))
    tl.store(d + at, tl.fma(u, v, 1.0))
    tl.store(e + at, libdevice.isnan(tl.where(u > 0, float("nan"), u)))
    tl.store(f + at, libdevice.nearbyint(3 * u))


def scanned_reference(a, b, N, **_):
    state, want = np.zeros(a.shape[0] // N), np.empty_like(a).reshape(-1, N)
    for t in range(N):
        state = state * a.reshape(-1, N)[:, t] + b.reshape(-1, N)[:, t]
        want[:, t] = state
    running = np.maximum.accumulate(a.reshape(-1, N)[:, ::-1], 1)[:, ::-1]
    return {"out": want.ravel(), "most": running.ravel()}


@tawa.jit
def first_order(fl, xl, fr, xr):
    return fr * fl, fr * xl + xr


@tawa.jit
def larger(a, b):
    return tl.maximum(a, b)


@case((3,), scanned_reference, 1e-5, a=normal(3 * 128), b=normal(3 * 128), out=blank(384),
      most=blank(384), N=128)  # fmt: skip
@tawa.jit
def linear_recurrence(a, b, out, most, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    f, v = tl.load(a + at), tl.load(b + at)
    _, states = tl.associative_scan((f, v), axis=0, combine_fn=first_order)
    tl.store(out + at, states)
    tl.store(most + at, tl.associative_scan(f, 0, larger, reverse=True))


def advanced_reference(flags, **_):
    first = flags[0]
    return {"out": np.array([first, np.flatnonzero(flags != first)[0]])}


@case((1,), advanced_reference, flags=fixed(np.array([4, 4, 4, 9, 4], np.int32)),
      out=blank(2, dtype=np.int32))  # fmt: skip
@tawa.jit
def wait_for_change(flags, out):
    """A loop whose test alone reads what its body writes, as spinning on a flag does."""
    place = 0
    previous = tl.load(flags)
    current = previous
    while current == previous:
        place += 1
        current = tl.load(flags + place)
    tl.store(out, previous)
    tl.store(out + 1, place)


def met_reference(x, **_):
    return {"out": np.full(len(x), x.astype(np.float64).sum())}


@case((1,), met_reference, 1e-5, x=normal(32), sums=blank(4), out=blank(32),
      semaphore=fixed(np.zeros(1, np.int32)), B=32)  # fmt: skip
@tawa.jit
def grid_barrier(x, sums, out, semaphore, B: tl.constexpr):
    """All programs meet: the last to come changes the sign of a counter, the others wait for it.

    One program here: the simulator runs them one after the other.
    """
    pid = tl.program_id(0)
    at = tl.arange(0, B)
    tl.store(sums + pid, tl.sum(tl.load(x + pid * B + at)))
    tl.debug_barrier()
    count = tl.num_programs(0)
    step = tl.where(pid == 0, (-2147483648) - (count - 1), 1)
    old = tl.atomic_add(semaphore, step, sem="release")
    now = old
    while ((now ^ old) & (-2147483648)) == 0:
        now = tl.atomic_add(semaphore, 0, sem="acquire")
    parts = tl.arange(0, 4)
    total = tl.sum(tl.load(sums + parts, mask=parts < count, other=0.0))
    tl.store(out + pid * B + at, tl.zeros((B,), tl.float32) + total)


@case((1,), lambda x, **_: {"out": np.argsort(-x, kind="stable")[:1]}, x=normal(16),
      out=blank(1, dtype=np.int32), B=16)  # fmt: skip
@tawa.jit
def names_of_the_standard_library(x, out, B: tl.constexpr):
    """What sorts of a library take from the insides of the language."""
    log: tl.constexpr = tl.standard._log2(B)
    bits: tl.constexpr = tl.core.get_int_dtype(bitwidth=x.dtype.element_ty.primitive_bitwidth,
                                               signed=True)  # fmt: skip
    at = tl.arange(0, 2**log)
    values = tl.load(x + at)
    top = tl.max(values, 0).to(bits, bitcast=True)
    same = values.to(bits, bitcast=True) == top
    tl.store(out, tl.min(tl.where(same, at, B), 0))
