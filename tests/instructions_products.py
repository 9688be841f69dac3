"""Programs of the tensor cores and of conversions: fragments, descriptors, formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from instructions import BARRIER, ONE_BARRIER, Program, bits, load_box, tensor_map
from tawa.codegen.wrappers import arithmetic
from tawa.codegen.wrappers import tensor_cores as t

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "u8": np.uint8,
}
OUT = {"f32": np.float32, "i32": np.int32, "f16": np.float16}
MODES = {128: 1, 64: 2, 32: 3}
RANDOM = np.random.default_rng(6)


def accumulator_place(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of register r of thread t: PTX ISA, "wgmma", D fragment of m64nN."""
    thread, r = np.mgrid[0:128, 0 : n // 2]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (r // 2 % 2)
    return row, 8 * (r // 4) + 2 * (thread % 4) + r % 2


def operand_place(k: int, per_word: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of element e of thread t of operand A in registers, four words a thread."""
    thread, e = np.mgrid[0:128, 0 : 4 * per_word]
    word, inside = e // per_word, e % per_word
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (word % 2)
    return row, per_word * (thread % 4) + inside + 4 * per_word * (word // 2)


def wgmma(
    shape: t.WgmmaShape,
    span: int,
    *,
    values: np.ndarray | None = None,
    twice: bool = False,
    begin: int = 0,
) -> Program:
    """D = A B for one instruction, or D = `begin` + A B; operands come by TMA, swizzled by `span`.

    A tile whose K runs along memory is rows of `span` bytes, eight rows a group; one that runs
    along M or N is groups of eight K rows, panels of `span` bytes side by side.
    """
    m, n, k = 64, shape.n, shape.k
    a_kind, b_kind = DTYPES[shape.a], DTYPES[shape.b]
    a, b = bits(RANDOM, (m, k), a_kind), bits(RANDOM, (k, n), b_kind)
    if values is not None:
        b = np.resize(values, (k, n)).astype(b_kind)
        a = np.zeros((m, k), a_kind)
        a[np.arange(m), np.arange(m) % k] = 1
        if shape.from_registers:  # the values go through A instead
            a = np.resize(values, (m, k)).astype(a_kind)
            b = np.zeros((k, n), b_kind)
            b[np.arange(k), np.arange(k)] = 1
    lines: list[str] = []
    tiles: list[np.ndarray] = []
    maps = []
    place = size = 0

    def stage(label: str, tile: np.ndarray, along_k: bool, kind: str) -> str:
        """Lay a tile out for TMA, load it; return its descriptor. `tile` is [MN, K]."""
        nonlocal place, size
        item = tile.dtype.itemsize
        wide = span // item
        rows = tile if along_k else tile.T
        panels = -(-rows.shape[1] // wide)
        padded = np.zeros((rows.shape[0], panels * wide), tile.dtype)
        padded[:, : rows.shape[1]] = rows
        start = sum(each.size for each in tiles)
        height = padded.shape[0]
        stacked = np.concatenate([padded[:, i * wide : (i + 1) * wide] for i in range(panels)])
        tiles.append(stacked.view(np.uint8).reshape(-1, span))
        box = tensor_map(label, "given", "u8", (height, span), swizzle=span)
        maps.append(box)
        for panel in range(panels):
            at = place + panel * height * span
            lines.append(
                f"  tma_load_2d(shared + {at}, &{label}, shared + 31744, 0, "
                f"{start // span + panel * height});"
            )
        size += panels * height * span
        leading = 16 if along_k else height * span
        text = f"descriptor<{MODES[span]}>(shared + {place}, {leading}, {8 * span})"
        place += -(-panels * height * span // 1024) * 1024
        return text

    fills = str(begin) if begin else "1" if not twice else "0"
    b_text = stage("b_map", b.T, not shape.transposed_b, shape.b)
    words: np.ndarray = np.zeros((128, 4), np.uint32)
    if shape.from_registers:
        row, column = operand_place(k, 4 // a.dtype.itemsize)
        words = np.ascontiguousarray(a[row, column]).view(np.uint32)
        a_text = "a"
    else:
        a_text = stage("a_map", a, not shape.transposed_a, shape.a)
    given = np.concatenate([*tiles, words.view(np.uint8).reshape(-1, span)])
    first_word = sum(each.size for each in tiles)
    wrapper = t.wgmma(shape)
    kind = wrapper.head.split("(")[1].split("*")[0]
    count = shape.registers
    exact = truncated if shape.a == "f32" else (lambda x: x)
    product = exact(a.astype(np.float32)).astype(np.float64) @ exact(b.astype(np.float32)).astype(
        np.float64
    )
    product = product * (2 if twice else 1) + begin
    if shape.d == "i32":  # PTX ISA, "wgmma": without .satfinite sums wrap
        product = (product + 2**31) % 2**32 - 2**31
    row, column = accumulator_place(n)
    body = (
        ONE_BARRIER
        + "if (thread == 0) {\n"
        + f"  barrier_expect(shared + 31744, {size});\n"
        + "\n".join(lines)
        + "\n}\nbarrier_wait(shared + 31744, 0);\n"
        + f"""\
u32 a[4];
for (int i = 0; i < 4; ++i) a[i] = ((const u32*)(given + {first_word}))[4 * thread + i];
{kind} d[{count}];
for (int i = 0; i < {count}; ++i) d[i] = {fills};
wgmma_fence();
{wrapper.name}(d, {a_text}, {b_text}, {int(begin != 0)});
"""
        + (f"{wrapper.name}(d, {a_text}, {b_text}, 1);\n" if twice else "")
        + f"""\
wgmma_commit();
wgmma_wait<0>();
for (int i = 0; i < {count}; ++i) (({kind}*)result)[{count} * thread + i] = d[i];
"""
    )
    from tawa.codegen.wrappers import tma

    return Program(
        f"{wrapper.name}, swizzle {span}"
        + (", accumulated" if twice else "")
        + (f", from {begin}" if begin else "")
        + ("" if values is None else ", values that are not tf32"),
        (*BARRIER, tma.tma_load(2), t.DESCRIPTOR, t.WGMMA_FENCE, t.WGMMA_COMMIT, t.WGMMA_WAIT,
         wrapper),
        body,
        given,
        product[row, column].astype(OUT[shape.d]),
        threads=128,
        maps=tuple(maps),
    )  # fmt: skip


def truncated(x: np.ndarray) -> np.ndarray:
    """What the tensor cores read of a float as tf32: its upper 19 bits."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)


# Between two tf32 numbers: below, at and above the middle, and with all lower bits set.
BETWEEN = (
    np.array([0x3F800001, 0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F801FFF, 0x3F803000, 0xBF801800,
              0x40002FFF], np.uint32).view(np.float32)
)  # fmt: skip


def wgmmas() -> list[Program]:
    shape = t.WgmmaShape
    made = [
        wgmma(shape(n, 16, "f32", "bf16", "bf16"), span)
        for n, span in ((8, 32), (16, 64), (64, 128), (24, 128))
    ]
    for span in (32, 64, 128):
        made.append(wgmma(shape(64, 16, "f32", "f16", "f16", transposed_b=True), span))
        made.append(wgmma(shape(32, 16, "f32", "f16", "f16", transposed_a=True), span))
        made.append(wgmma(shape(32, 16, "f32", "f16", "f16", True, transposed_b=True), span))
    made += [
        wgmma(shape(64, 16, "f16", "f16", "f16"), 128),
        wgmma(shape(64, 16, "f32", "f16", "f16"), 32, twice=True),
        wgmma(shape(32, 8, "f32", "f32", "f32"), 32),
        wgmma(shape(32, 8, "f32", "f32", "f32", True), 128),
        wgmma(shape(64, 32, "f32", "f8e4m3", "f8e5m2"), 32),
        wgmma(shape(64, 32, "f32", "f8e5m2", "f8e4m3", True), 128),
        wgmma(shape(32, 32, "i32", "i8", "i8"), 64),
        wgmma(shape(32, 32, "i32", "i8", "i8"), 64, begin=2**31 - 1),
        wgmma(shape(32, 32, "i32", "i8", "i8"), 64, begin=2 - 2**31),
        wgmma(shape(32, 32, "i32", "u8", "i8", True), 32),
        wgmma(shape(32, 8, "f32", "f32", "f32"), 32, values=BETWEEN),
        wgmma(shape(32, 8, "f32", "f32", "f32", True), 32, values=BETWEEN),
    ]
    return made


# Others that kernels of the tests and of the library use: N, K, D, A, B, and the forms of operands.
USED = """
 32 16 f32 bf16 bf16 ss      128 16 f32 bf16 bf16 ss      168 16 f32 bf16 bf16 ss
 64 16 f32 bf16 bf16 ss-tb   128 16 f32 bf16 bf16 ss-tb   192 16 f32 bf16 bf16 ss-tb
256 16 f32 bf16 bf16 ss-tb    16 16 f32 bf16 bf16 ss-ta    32 16 f32 bf16 bf16 ss-ta
128 16 f32 bf16 bf16 ss-ta   128 16 f32 bf16 bf16 ss-ta-tb
128 16 f32 bf16 bf16 rs-tb    64 16 f32 f16 f16 rs-tb     128 16 f32 f16 f16 rs-tb
256 16 f32 f16 f16 rs-tb     128 16 f32 f16 f16 ss        128 16 f32 f16 f16 ss-tb
128 32 f32 f8e4m3 f8e4m3 ss   64 32 f32 f8e4m3 f8e4m3 rs  128 32 f32 f8e4m3 f8e4m3 rs
 96 32 f32 f8e4m3 f8e4m3 ss  128 32 i32 i8 i8 ss           64 8 f32 f32 f32 ss
 64 8 f32 f32 f32 rs          128 8 f32 f32 f32 ss          8 16 f32 f16 f16 ss
  8 16 f32 f16 f16 ss-ta       128 16 f32 f16 f16 ss-ta-tb     64 16 f32 f16 f16 ss-ta-tb
 48 16 f32 f16 f16 ss
"""


def used() -> list[Program]:
    made: list[Program] = []
    words = iter(USED.split())
    for n, k, d, a, b, form in zip(*(words,) * 6, strict=True):
        shape = t.WgmmaShape(int(n), int(k), d, a, b, "rs" in form, "ta" in form, "tb" in form)
        made.append(wgmma(shape, 128))
    return made


def mma(shape: t.MmaShape, values: str = "") -> Program:
    """mma.sync m16n8: fragments of "Matrix Fragments for mma.m16n8k16" and its like."""
    k, per = shape.k, 4 // np.dtype(DTYPES[shape.a]).itemsize
    a, b = bits(RANDOM, (16, k), DTYPES[shape.a]), bits(RANDOM, (k, 8), DTYPES[shape.b])
    if values == "a":
        a, b = np.resize(BETWEEN, (16, k)), np.eye(k, 8, dtype=np.float32)
    if values == "b":
        a, b = np.eye(16, k, dtype=np.float32), np.resize(BETWEEN, (k, 8))
    lane, e = np.mgrid[0:32, 0 : shape.a_words * per]
    word, inside = e // per, e % per
    words_a = a[lane // 4 + 8 * (word % 2), per * (lane % 4) + inside + 4 * per * (word // 2)]
    lane, e = np.mgrid[0:32, 0 : shape.b_words * per]
    words_b = b[per * (lane % 4) + e % per + 4 * per * (e // per), lane // 4]
    given = np.concatenate(
        [np.ascontiguousarray(x).view(np.uint32).reshape(32, -1) for x in (words_a, words_b)], 1
    )
    lane, r = np.mgrid[0:32, 0:4]
    exact = truncated if shape.a == "f32" else (lambda x: x)
    product = exact(a).astype(np.float64) @ exact(b).astype(np.float64)
    one = 0 if values else 1
    expected = product[lane // 4 + 8 * (r // 2), 2 * (lane % 4) + r % 2] + one
    wrapper = t.mma(shape)
    kind = wrapper.head.split("(")[1].split("*")[0]
    words = ", ".join(f"w[{i}]" for i in range(given.shape[1]))
    body = f"""\
const u32* w = (const u32*)given + {given.shape[1]} * lane;
{kind} d[4] = {{{one}, {one}, {one}, {one}}};
{wrapper.name}(d, {words});
for (int i = 0; i < 4; ++i) (({kind}*)result)[4 * lane + i] = d[i];
"""
    name = f"{wrapper.name}, {values} not tf32" if values else wrapper.name
    return Program(name, (wrapper,), body, given, expected.astype(OUT[shape.d]))


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.5, 65504.0, 65520.0, 1e5, -1e9, 448.0, 464.0, 480.0, 57344.0, 61440.0,
     6e-8, 3e-8, 2.98e-8, 6.1e-5, 1.0 / 3, -2.0 / 3, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-9,
     2**-7, 2**-10, 3 * 2**-11, 2**-17, np.inf, -np.inf, 17.0, 18.0, 19.0, 1.0625]
).astype(np.float32)  # fmt: skip


def conversions() -> list[Program]:
    """Rounding to the nearest, ties to even; fp8 saturates, also infinities."""
    made: list[Program] = []
    for element in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        kind = DTYPES[element]
        x = SPECIAL
        if element.startswith("f8"):
            top = float(ml_dtypes.finfo(kind).max)
            x = np.clip(SPECIAL, -top, top)
        with np.errstate(over="ignore"):
            expected = x.astype(kind)
        wrapper = arithmetic.narrow(element)
        word = f"u{8 * expected.dtype.itemsize}"
        made.append(
            Program(
                wrapper.name,
                (wrapper,),
                f"(({word}*)result)[lane] = {wrapper.name}(((const float*)given)[lane]);",
                SPECIAL,
                expected,
            )
        )
        back = arithmetic.widen(element)
        count = 256 if expected.dtype.itemsize == 1 else 4096
        codes = np.arange(count).astype(f"u{expected.dtype.itemsize}")
        if count == 4096:
            codes = codes * np.uint16(16) + np.uint16(5)
        made.append(
            Program(
                back.name,
                (back,),
                f"for (u32 i = lane; i < {count}; i += 32) "
                f"((float*)result)[i] = {back.name}((({'const ' + word}*)given)[i]);",
                codes,
                codes.view(kind).astype(np.float32),
                nan=True,
            )
        )
    return made


PROGRAMS = [
    *wgmmas(),
    mma(t.MmaShape(16, "f32", "bf16", "bf16")),
    mma(t.MmaShape(8, "f32", "f32", "f32")),
    mma(t.MmaShape(8, "f32", "f32", "f32"), "a"),
    mma(t.MmaShape(8, "f32", "f32", "f32"), "b"),
    mma(t.MmaShape(32, "i32", "i8", "u8")),
    *conversions(),
    *used(),
    mma(t.MmaShape(16, "f32", "f16", "f16")),
    mma(t.MmaShape(32, "i32", "i8", "i8")),
]
assert load_box
