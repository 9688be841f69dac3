"""Programs of arithmetic: special functions at arguments where they are exact, bits, the warp."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from instructions import Program
from tawa.codegen.wrappers import arithmetic, memory
from tawa.codegen.wrappers import barriers as b
from tawa.codegen.wrappers.core import Wrapper


def unary(wrapper: Wrapper, given: np.ndarray, expected: np.ndarray) -> Program:
    name = wrapper.name
    body = f"((float*)result)[lane] = {name}(((const float*)given)[lane]);\n"
    return Program(name, (wrapper,), body, given.astype(np.float32), expected.astype(np.float32))


def binary(wrapper: Wrapper, x: Any, y: Any, expected: Any) -> Program:
    """NaNs are equal whatever their bits."""
    pairs = np.stack([np.resize(x, 32), np.resize(y, 32)]).astype(np.float32)
    body = f"""\
const float* in = (const float*)given;
((float*)result)[lane] = {wrapper.name}(in[lane], in[32 + lane]);
"""
    want = np.resize(expected, 32).astype(np.float32)
    return Program(wrapper.name, (wrapper,), body, pairs, want, nan=True)


def bytes_of_words() -> Program:
    """Elements of packed words, and words of elements."""
    given = (np.arange(64, dtype=np.uint64) * 0x9E3779B1 & 0xFFFFFFFF).astype(np.uint32)
    body = """\
const u32 x = ((const u32*)given)[lane], y = ((const u32*)given)[32 + lane];
u32* out = (u32*)result + 4 * lane;
const u32 words[2] = {x, y};
out[0] = half_at(words, 3) << 16 | half_at(words, 0);
out[1] = byte_at(words, 6) << 8 | byte_at(words, 1);
out[2] = permute_bytes(x, y, 0x6240);
out[3] = permute_bytes(x, y, 0x1537);
"""
    pair = np.stack([given[:32], given[32:]], 1)
    as_bytes, halves = pair.view(np.uint8), pair.view(np.uint16).astype(np.uint32)
    wide = as_bytes.astype(np.uint32)

    def chosen(*places: int) -> np.ndarray:
        return sum(wide[:, place] << np.uint32(8 * i) for i, place in enumerate(places))

    expected = np.stack([
        halves[:, 3] << 16 | halves[:, 0], wide[:, 6] << 8 | wide[:, 1],
        chosen(0, 4, 2, 6), chosen(7, 3, 5, 1),
    ], 1).astype(np.uint32)  # fmt: skip
    wrappers = (arithmetic.HALF, arithmetic.BYTE, memory.PERMUTE_BYTES)
    return Program("bytes of words", wrappers, body, given, expected)


def packed(element: str, kind: Any) -> Program:
    """Two floats round to a pair, the first in the low half."""
    values = np.linspace(-3, 3, 64).astype(np.float32)
    wrapper = arithmetic.pack(element)
    body = f"""\
const float* in = (const float*)given;
((u32*)result)[lane] = {wrapper.name}(in[2 * lane], in[2 * lane + 1]);
"""
    expected = values.astype(kind).view(np.uint16).view(np.uint32)
    return Program(wrapper.name, (wrapper,), body, values, expected)


def paired(function: str, element: str, kind: Any) -> Program:
    """Two floats of 16 bits a word, rounded each; from below the normal numbers to large ones."""
    wrapper = arithmetic.paired(function, element)
    rng = np.random.default_rng(3)
    values = rng.normal(size=128) * 2.0 ** rng.integers(-12, 8, 128)
    values[:4] = 2.0**-24, 3 * 2.0**-24, -(2.0**-15), 0.0
    x, y = values.astype(kind).reshape(2, 64)
    given = np.stack([x, y]).view(np.uint32)
    body = f"""\
const u32* in = (const u32*)given;
((u32*)result)[lane] = {wrapper.name}(in[lane], in[32 + lane]);
"""
    wide = (item.astype(np.float64) for item in (x, y))
    exact = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[function](*wide)
    expected = exact.astype(np.float32).astype(kind).view(np.uint32)
    return Program(wrapper.name, (wrapper,), body, given, expected)


def high_products() -> Program:
    """The high halves of products, signed and not."""
    given = (np.arange(64, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> 32).astype(np.uint32)
    body = """\
const u32 x = ((const u32*)given)[lane], y = ((const u32*)given)[32 + lane];
((u32*)result)[2 * lane] = mulhi(x, y);
((int*)result)[2 * lane + 1] = mulhi((int)x, (int)y);
"""
    x, y = given[:32], given[32:]
    unsigned = (x.astype(np.uint64) * y.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
    signed = x.view(np.int32).astype(np.int64) * y.view(np.int32).astype(np.int64) >> 32
    expected = np.stack([unsigned, signed.astype(np.int32).view(np.uint32)], 1)
    wrappers = (arithmetic.mulhi("u32"), arithmetic.mulhi("int"))
    return Program("mulhi", wrappers, body, given, expected)


def divisions() -> Program:
    """Quotients and remainders of natural numbers, at the ends of their ranges."""
    most = 2**31 - 1
    pairs = [(x, d) for d in (1, 2, 3, 7, 8, 43, 65535, most) for x in (0, d - 1, d, most)]
    given = np.array(pairs, np.uint32)
    body = """\
const u32 x = ((const u32*)given)[2 * lane], d = ((const u32*)given)[2 * lane + 1];
int* out = (int*)result + 4 * lane;
out[0] = divide_natural(x, d);
out[1] = remainder_natural(x, d);
out[2] = divide_most<8>(x, d);
out[3] = remainder_most<8>(x, d);
"""
    quotient, rest = given[:, 0] // given[:, 1], given[:, 0] % given[:, 1]
    expected = np.stack([quotient, rest, quotient, rest], 1).astype(np.uint32)
    wrappers = (
        arithmetic.DIVIDE_NATURAL, arithmetic.REMAINDER_NATURAL, arithmetic.DIVIDE_MOST,
        arithmetic.REMAINDER_MOST,
    )  # fmt: skip
    return Program("divisions", wrappers, body, given, expected)


def of_the_warp() -> Program:
    """What lane 0 has, and whether any lane has something."""
    given = np.arange(40, 72, dtype=np.uint32)
    body = """\
u32* out = (u32*)result + 3 * lane;
out[0] = uniform(((const u32*)given)[lane]);
out[1] = any_lane(lane == 17);
out[2] = any_lane(lane > 31);
"""
    expected = np.tile(np.array([40, 1, 0], np.uint32), (32, 1))
    wrappers = (arithmetic.UNIFORM, arithmetic.ANY_LANE)
    return Program("of the warp", wrappers, body, given, expected)


def counts() -> Program:
    """How often each number stands in a warp: in 4 bins, and in 64; lane 7 does not vote."""
    given = (np.arange(32, dtype=np.uint32) * 13 % 64).astype(np.uint32)
    body = """\
const int value = ((const int*)given)[lane];
int few[1] = {0}, many[2] = {0, 100};
count_bins<4>(few, value % 4, lane != 7, lane);
count_bins<64>(many, value, lane != 7, lane);
int* out = (int*)result + 3 * lane;
out[0] = few[0];
out[1] = many[0];
out[2] = many[1];
"""
    voted = np.delete(given, 7)
    few, many = np.bincount(voted % 4, minlength=4), np.bincount(voted, minlength=64)
    expected = np.stack([few[np.arange(32) % 4], many[:32], many[32:] + 100], 1).astype(np.uint32)
    return Program("counts", (arithmetic.COUNT_BINS,), body, given, expected)


def groups() -> Program:
    """Warpgroups meet at a barrier of their own, named by a register."""
    body = """\
const u32 group = thread / 128;
u32 word = 7 * thread;
shared_store_u32x1(shared + 4 * thread, &word);
if (thread % 128 < 64) named_arrive_of_group<128>(1 + group);
else {
  named_sync_of_group<128>(1 + group);
  shared_load_u32x1(&word, shared + 4 * (128 * group + 127 - thread % 128));
}
((u32*)result)[thread] = word;
"""
    thread = np.arange(256)
    taken = thread // 128 * 128 + 127 - thread % 128
    expected = np.where(thread % 128 < 64, 7 * thread, 7 * taken).astype(np.uint32)
    wrappers = (
        b.NAMED_SYNC_OF_GROUP, b.NAMED_ARRIVE_OF_GROUP, memory.shared_store("u32", 1),
        memory.shared_load("u32", 1),
    )  # fmt: skip
    return Program("named barriers of groups", wrappers, body, expected[:4], expected, threads=256)


POWERS = np.arange(-16, 16)
THIRDS = np.arange(1, 33, dtype=np.float32)
PROGRAMS = [
    unary(arithmetic.EXP2_APPROX, POWERS, 2.0**POWERS),
    unary(arithmetic.LOG2_APPROX, 2.0**POWERS, POWERS),
    unary(arithmetic.SQRT_APPROX, 4.0**POWERS, 2.0**POWERS),
    binary(arithmetic.DIVIDE_RN, THIRDS, 3, THIRDS / np.float32(3)),
    binary(arithmetic.DIVIDE_FULL, np.arange(-16, 16), 4, np.arange(-16, 16) / 4),
    binary(arithmetic.MIN_NAN, [1, np.nan, 3, -2], [2, 5, np.nan, -3], [1, np.nan, np.nan, -3]),
    binary(arithmetic.MAX_NAN, [1, np.nan, 3, -2], [2, 5, np.nan, -3], [2, np.nan, np.nan, -2]),
    *(paired(name, *kind) for name in arithmetic.PAIRED
      for kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16))),
    packed("f16", np.float16), packed("bf16", ml_dtypes.bfloat16), bytes_of_words(),
    high_products(), divisions(), of_the_warp(), counts(), groups(),
]  # fmt: skip
