"""Inline PTX of the kind that libraries wrap, and what each text gives by PTX's definitions.

The expected values are computed here element by element, with Python's integers and floats.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tawa
import tawa.language as tl

COUNT = 256
KINDS = {
    "i8": tl.int8, "u8": tl.uint8, "i16": tl.int16, "u16": tl.uint16, "i32": tl.int32,
    "u32": tl.uint32, "i64": tl.int64, "u64": tl.uint64, "f16": tl.float16, "bf16": tl.bfloat16,
    "f32": tl.float32, "f64": tl.float64, "e4m3": tl.float8e4nv, "e5m2": tl.float8e5,
}  # fmt: skip
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@tawa.jit
def apply(
    x, y, z, p, q, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, KIND: tl.constexpr,
    INPUTS: tl.constexpr, RESULTS: tl.constexpr, PACK: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    o = tl.arange(0, B)
    args = [tl.load(x + o), tl.load(y + o), tl.load(z + o)]
    made = tl.inline_asm_elementwise(
        asm=ASM, constraints=CONSTRAINTS, args=args[:INPUTS], dtype=[KIND] * RESULTS,
        is_pure=True, pack=PACK,
    )  # fmt: skip
    tl.store(p + o, made[0])
    if RESULTS == 2:
        tl.store(q + o, made[1])


@dataclass(frozen=True)
class Case:
    """A text of `inputs` operands, `expected` element by element; `rel` where PTX approximates."""

    name: str
    asm: str
    constraints: str
    taken: str
    given: str
    inputs: int
    expected: Callable[..., Any]
    pack: int = 1
    results: int = 1
    rel: float = 0.0


def numpy_of(kind: str) -> Any:
    return np.dtype(NUMPY.get(kind) or f"{'u' if kind[0] == 'u' else ''}int{kind[1:]}")


def values(kind: str, seed: int) -> Any:
    """Numbers of a type, with those at its edges among them."""
    draw = np.random.default_rng(seed)
    dtype = numpy_of(kind)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = draw.integers(info.min, info.max, COUNT, dtype=dtype, endpoint=True)
        edges = [0, 1, info.min, info.max, 2, 31, 32, 33]
        found[: len(edges)] = [edges[(i + seed) % 8] for i in range(8)]
        return found
    found = (draw.standard_normal(COUNT) * 4).astype(dtype)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.5]
    found[: len(edges)] = [edges[(i + 3 * seed) % 8] for i in range(8)]
    return found


def arguments(case: Case) -> tuple[list[Any], list[Any]]:
    """Three inputs and two results."""
    taken = [values(case.taken, seed) for seed in range(3)]
    return taken, [np.zeros(COUNT, numpy_of(case.given)) for _ in range(2)]


def meta(case: Case) -> dict[str, Any]:
    return {
        "ASM": case.asm, "CONSTRAINTS": case.constraints, "KIND": KINDS[case.given],
        "INPUTS": case.inputs, "RESULTS": case.results, "PACK": case.pack, "B": COUNT,
    }  # fmt: skip


def check(case: Case, taken: list[Any], made: list[Any]) -> None:
    """Compare results with the definition, element by element."""
    for i in range(COUNT):
        inputs = [each[i].item() for each in taken[: case.inputs]]
        expected = case.expected(*inputs)
        for result, want in zip(made, expected if isinstance(expected, tuple) else (expected,)):
            have = result[i].item()
            if case.rel:
                close = math.isclose(have, want, rel_tol=case.rel, abs_tol=case.rel)
                assert close or (math.isnan(have) and math.isnan(want)), (inputs, have, want)
            elif isinstance(want, float):
                want = numpy_of(case.given).type(want).item()
                same = have == want and math.copysign(1, have) == math.copysign(1, want)
                assert same or (math.isnan(have) and math.isnan(want)), (inputs, have, want)
            else:
                width = 8 * result.dtype.itemsize
                assert (have - want) % (1 << width) == 0, (inputs, have, want)


def signed(value: int, bits: int = 32) -> int:
    return (value & ((1 << bits) - 1)) - (value >> (bits - 1) & 1) * (1 << bits)


def lop3(table: int) -> Callable[[int, int, int], int]:
    def one(a: int, b: int, c: int) -> int:
        rows = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1) for i in range(32))
        return sum((table >> row & 1) << i for i, row in enumerate(rows))

    return one


def prmt(a: int, b: int, chosen: int) -> int:
    whole = struct.pack("<II", a, b)
    made = []
    for place in range(4):
        each = chosen >> 4 * place & 15
        byte = whole[each & 7]
        made.append((0xFF if byte >> 7 else 0) if each & 8 else byte)
    return int.from_bytes(bytes(made), "little")


def bfe(value: int, start: int, length: int) -> int:
    start, length = start & 255, length & 255
    return value >> start & ((1 << length) - 1) if start < 32 else 0


def f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def flushed(value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < 2.0**-126 else value


def below(a: float, b: float) -> float:
    return min((a, b), key=lambda v: (v, math.copysign(1, v)))


def to_tf32(value: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", (bits + 0x1000) & 0xFFFFE000))[0]


def towards_zero(value: float) -> float:
    near = np.float16(value)
    return float(np.nextafter(near, np.float16(0)) if abs(float(near)) > abs(value) else near)


def to_e4m3(value: float) -> float:
    return float(ml_dtypes.float8_e4m3fn(max(-448.0, min(448.0, value))))


_TANH = "tanh.approx.f32 $0, $1;"
_TIED = "add.s32 $0, $1, $2;"
_SCOPED = """
{ // the larger of two, by a predicate
    .reg .pred p, q;
    setp.gt.s32 p|q, $1, $2;
    mov.b32 $0, $2;
    @p mov.b32 $0, $1;
}
"""
_HALVES = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; }"

CASES = [
    Case("add", "add.u32 $0, $1, $2;", "=r,r,r", "i32", "i32", 2, lambda a, b: a + b),
    Case("tied", _TIED, "=r,0,r", "i32", "i32", 2, lambda a, b: a + b),
    Case("early", "sub.s32 $0, $1, 0x10;", "=&r, r", "i32", "i32", 1, lambda a: a - 16),
    Case("named", "sub.s32 ${0}, 7, ${1};", "=r,r", "i32", "i32", 1, lambda a: 7 - a),
    Case("wide", "mul.wide.s32 $0, $1, $2;", "=l,r,r", "i32", "i64", 2, lambda a, b: a * b),
    Case("hi", "mul.hi.u32 $0, $1, $2;", "=r,r,r", "u32", "u32", 2, lambda a, b: a * b >> 32),
    Case("hi64", "mul.hi.s64 $0, $1, $2;", "=l,l,l", "i64", "i64", 2, lambda a, b: a * b >> 64),
    Case("mad", "mad.lo.s32 $0, $1, $2, $3;", "=r,r,r,r", "i32", "i32", 3,
         lambda a, b, c: a * b + c),
    Case("shl", "shl.b32 $0, $1, $2;", "=r,r,r", "u32", "u32", 2, lambda a, b: a << min(b, 32)),
    Case("shr", "shr.s32 $0, $1, $2;", "=r,r,r", "i32", "i32", 2,
         lambda a, b: a >> min(b & 0xFFFFFFFF, 31)),
    Case("funnel", "shf.l.wrap.b32 $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    Case("funnel right", "shf.r.clamp.b32 $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    Case("lop3", "lop3.b32 $0, $1, $2, $3, 0xEA;", "=r,r,r,r", "u32", "u32", 3, lop3(0xEA)),
    Case("lop3 96", "lop3.b32 $0, $1, $2, $3, 150;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: a ^ b ^ c),
    Case("prmt", "prmt.b32 $0, $1, $2, 0x5746;", "=r,r,r", "u32", "u32", 2,
         lambda a, b: prmt(a, b, 0x5746)),
    Case("prmt any", "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3, prmt),
    Case("bfe", "bfe.u32 $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3, bfe),
    Case("popc", "popc.b64 $0, $1;", "=r,l", "u64", "i32", 1, int.bit_count),
    Case("clz", "clz.b32 $0, $1;", "=r,r", "u32", "i32", 1, lambda a: 32 - a.bit_length()),
    Case("brev", "brev.b32 $0, $1;", "=r,r", "u32", "u32", 1, lambda a: int(f"{a:032b}"[::-1], 2)),
    Case("bfind", "bfind.s32 $0, $1;", "=r,r", "i32", "i32", 1,
         lambda a: (~a if a < 0 else a).bit_length() - 1),
    Case("shiftamt", "bfind.shiftamt.u32 $0, $1;", "=r,r", "u32", "u32", 1,
         lambda a: 32 - a.bit_length() if a else 0xFFFFFFFF),
    Case("slct", "slct.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", "i32", "i32", 3,
         lambda a, b, c: a if c >= 0 else b),
    Case("bytes from one on", "prmt.b32.f4e $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: (b << 32 | a) >> 8 * (c & 3)),
    Case("bytes from one back", "prmt.b32.b4e $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: prmt(a, b, (0x5670, 0x6701, 0x7012, 0x0123)[c & 3])),
    Case("a byte", "prmt.b32.rc8 $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: (a >> 8 * (c & 3) & 255) * 0x01010101),
    Case("clamped left", "prmt.b32.ecl $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: prmt(a, b, (0x3210, 0x3211, 0x3222, 0x3333)[c & 3])),
    Case("clamped right", "prmt.b32.ecr $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: prmt(a, b, (0x0000, 0x1110, 0x2210, 0x3210)[c & 3])),
    Case("a half", "prmt.b32.rc16 $0, $1, $2, $3;", "=r,r,r,r", "u32", "u32", 3,
         lambda a, b, c: prmt(a, b, (0x1010, 0x3232, 0x1010, 0x3232)[c & 3])),
    Case("scoped", _SCOPED, "=r,r,r", "i32", "i32", 2, max),
    Case("two", "min.s32 $0, $2, $3; max.s32 $1, $2, $3;", "=r,=r,r,r", "i32", "i32", 2,
         lambda a, b: (min(a, b), max(a, b)), results=2),
    Case("bytes", "and.b32 $0, $1, 0x7f7f7f7f;", "=r,r", "u8", "u8", 1, lambda a: a & 0x7F, pack=4),
    Case("byte", "add.u32 $0, $1, 1;", "=r,r", "u8", "u8", 1, lambda a: a + 1),
    Case("pair of bytes", "xor.b16 $0, $1, 0x0101;", "=h,h", "u8", "u8", 1, lambda a: a ^ 1,
         pack=2),
    Case("half", "neg.f16 $0, $1;", "=h,h", "f16", "f16", 1, lambda a: -a),
    Case("halves", "add.f16x2 $0, $1, $2;", "=r,r,r", "f16", "f16", 2, lambda a, b: a + b, pack=2),
    Case("eight",
         "xor.b32 $0, $4, $8; xor.b32 $1, $5, $9; xor.b32 $2, $6, $10; xor.b32 $3, $7, $11;",
         "=r,=r,=r,=r,r,r,r,r,r,r,r,r", "i16", "i16", 2, lambda a, b: a ^ b, pack=8),
    Case("bf16", "fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r", "bf16", "bf16", 3,
         lambda a, b, c: a * b + c, pack=2),
    Case("relu", "fma.rn.relu.f16x2 $0, $1, $2, $3;", "=r,r,r,r", "f16", "f16", 3,
         lambda a, b, c: max(a * b + c, 0.0), pack=2),
    Case("tanh", _TANH, "=f,f", "f32", "f32", 1, math.tanh, rel=2**-10),
    Case("tanh halves", "tanh.approx.f16x2 $0, $1;", "=r,r", "f16", "f16", 1, math.tanh, pack=2,
         rel=2**-9),
    Case("tanh bits", _TANH, "=r,r", "f32", "f32", 1, math.tanh, rel=2**-10),
    Case("ex2", "ex2.approx.ftz.f32 $0, $1;", "=f,f", "f32", "f32", 1, lambda a: 2**a, rel=2**-21),
    Case("lg2", "abs.f32 $0, $1; add.f32 $0, $0, 0f3F800000; lg2.approx.f32 $0, $0;", "=f,f", "f32",
         "f32", 1, lambda a: math.log2(abs(a) + 1), rel=2**-20),
    Case("sin", "sin.approx.f32 $0, $1;", "=f,f", "f32", "f32", 1, math.sin, rel=2**-16),
    Case("cos", "cos.approx.ftz.f32 $0, $1;", "=f,f", "f32", "f32", 1, math.cos, rel=2**-16),
    Case("rsqrt", "abs.f32 $0, $1; add.f32 $0, $0, 1.0; rsqrt.approx.ftz.f32 $0, $0;", "=f,f",
         "f32", "f32", 1, lambda a: 1 / math.sqrt(abs(a) + 1), rel=2**-21),
    Case("min", "min.f32 $0, $1, $2;", "=f,f,f", "f32", "f32", 2, below),
    Case("sat", "mul.ftz.sat.f32 $0, $1, $2;", "=f,f,f", "f32", "f32", 2,
         lambda a, b: max(flushed(f32(a * b)), 0.0) + 0.0 if a * b < 1 else 1.0),
    Case("double", "fma.rn.f64 $0, $1, $2, 0d3FF0000000000000;", "=d,d,d", "f64", "f64", 2,
         lambda a, b: a * b + 1.0, rel=2**-52),
    Case("rounding", "cvt.rni.s32.f32 $0, $1;", "=r,f", "f32", "i32", 1, round),
    Case("floor", "cvt.rmi.s32.f32 $0, $1;", "=r,f", "f32", "i32", 1, math.floor),
    Case("narrow", "cvt.sat.s8.s32 $0, $1;", "=r,r", "i32", "i32", 1,
         lambda a: max(-128, min(127, a))),
    Case("pair", "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", "f32", "f16", 1, float, pack=2),
    Case("fp8", "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", "f32", "e4m3", 1, to_e4m3,
         pack=2),
    Case("from fp8", "cvt.rn.f16x2.e5m2x2 $0, $1;", "=r,h", "e5m2", "f16", 1, float, pack=2),
    Case("swap", _HALVES, "=r,r", "u32", "u32", 1, lambda a: (a >> 16 | a << 16)),
    Case("tf32", "cvt.rna.tf32.f32 $0, $1;", "=r,f", "f32", "f32", 1, to_tf32),
    Case("towards zero", "cvt.rz.f16.f32 $0, $1;", "=h,f", "f32", "f16", 1, towards_zero),
    Case("widened", "cvt.f32.bf16 $0, $1;", "=f,h", "bf16", "f32", 1, float),
    Case("whole", "cvt.rn.f32.u32 $0, $1;", "=f,r", "u32", "f32", 1, float),
    Case("rcp", "abs.f32 $0, $1; add.f32 $0, $0, 1.0; rcp.approx.ftz.f32 $0, $0;", "=f,f", "f32",
         "f32", 1, lambda a: 1 / (abs(a) + 1), rel=2**-22),
    Case("root", "abs.f32 $0, $1; sqrt.rn.f32 $0, $0;", "=f,f", "f32", "f32", 1,
         lambda a: math.sqrt(abs(a))),
    Case("divided", "abs.f32 $0, $2; add.f32 $0, $0, 1.0; div.rn.f32 $0, $1, $0;", "=&f,f,f",
         "f32", "f32", 2, lambda a, b: a / f32(abs(b) + 1)),
    Case("tested", "{ .reg .pred p; testp.normal.f32 p, $1; selp.f32 $0, $1, 0f40000000, p; }",
         "=f,f", "f32", "f32", 1, lambda a: a if abs(a) >= 2.0**-126 or a == 0 else 2.0),
    Case("sad", "sad.s32 $0, $1, $2, $3;", "=r,r,r,r", "i32", "i32", 3,
         lambda a, b, c: abs(a - b) + c),
    Case("bfi", "bfi.b32 $0, $1, $2, 4, 8;", "=r,r,r", "u32", "u32", 2,
         lambda a, b: (b & ~0xFF0) | (a & 0xFF) << 4),
    Case("dp4a", "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", "i32", "i32", 3,
         lambda a, b, c: c + sum(signed(a >> 8 * i, 8) * signed(b >> 8 * i, 8) for i in range(4))),
    Case("copysign", "copysign.f32 $0, $1, $2;", "=f,f,f", "f32", "f32", 2,
         lambda a, b: math.copysign(b, a)),
]  # fmt: skip
