"""Conversions, packing, special functions, shuffles and pins: all within a thread or a warp."""

from __future__ import annotations

from tawa.codegen.wrappers.core import CONSTRAINT, Wrapper, asm, giving, instruction


def _computed(head: str, result: str, code: str, section: str) -> Wrapper:
    """Return a wrapper of asm that computes a value of the head's type, and does nothing else."""
    return instruction(head, code, section, "pure", result=result, volatile=False)


def _of_two(name: str, code: str, section: str) -> Wrapper:
    return _computed(f"float {name}(float x, float y)", "z", f"{code}.f32 %0, %1, %2;", section)


def _approx(name: str, code: str) -> Wrapper:
    return _computed(f"float {name}_approx(float x)", "y", f"{code}.approx.ftz.f32 %0, %1;", code)


EXP2_APPROX = _approx("exp2", "ex2")
LOG2_APPROX = _approx("log2", "lg2")
SQRT_APPROX = _approx("sqrt", "sqrt")
DIVIDE_FULL = _of_two("divide_full", "div.full", "div")
DIVIDE_RN = Wrapper("float divide_rn(float x, float y)", "return __fdiv_rn(x, y);", "div", "pure")
MIN_NAN = _of_two("min_nan", "min.NaN", "min")
MAX_NAN = _of_two("max_nan", "max.NaN", "max")
ANY_LANE = Wrapper(
    "bool any_lane(bool x)", "return __any_sync(0xffffffffu, x);", "vote.sync", "convergent"
)

# Lane l counts 32 j + l in `counts[j]`: the votes on each bit of the values tell who has which.
COUNT_BINS = Wrapper(
    "void count_bins(int* counts, int value, bool live, int lane)",
    "u32 mine = __ballot_sync(0xFFFFFFFFu, live), upper[32];\n"
    "#pragma unroll\n"
    "for (int bit = 0; 1 << bit < bins; ++bit) {\n"
    "  const u32 ones = __ballot_sync(0xFFFFFFFFu, value >> bit & 1);\n"
    "  if (bit < 5) mine &= lane >> bit & 1 ? ones : ~ones;\n"
    "  else upper[bit - 5] = ones;\n"
    "}\n"
    "#pragma unroll\n"
    "for (int j = 0; j < (bins + 31) / 32; ++j) {\n"
    "  u32 here = mine;\n"
    "#pragma unroll\n"
    "  for (int bit = 5; 1 << bit < bins; ++bit)\n"
    "    here &= j >> (bit - 5) & 1 ? upper[bit - 5] : ~upper[bit - 5];\n"
    "  counts[j] += __popc(here);\n"
    "}",
    "vote.sync",
    "convergent",
    template="int bins",
)

# The reciprocal of a divisor that no turn of a loop changes leaves the loop. It is low by less than
# one in 2^32, so that the quotient is right or one too small.
_BY_RECIPROCAL = (
    "const u32 quotient = __umulhi(x, 0xFFFFFFFFu / d);\nconst u32 rest = x - quotient * d;\n"
)
DIVIDE_NATURAL = Wrapper(
    "int divide_natural(u32 x, u32 d)",
    _BY_RECIPROCAL + "return (int)(rest < d ? quotient : quotient + 1);",
    "mul",
    "pure",
)
REMAINDER_NATURAL = Wrapper(
    "int remainder_natural(u32 x, u32 d)",
    _BY_RECIPROCAL + "return (int)(rest < d ? rest : rest - d);",
    "mul",
    "pure",
)
# For a divisor that is nearly always `most`.
DIVIDE_MOST = Wrapper(
    "int divide_most(u32 x, u32 d)",
    "return (int)(d == most ? x / most : x / d);",
    "",
    "pure",
    template="u32 most",
)
REMAINDER_MOST = Wrapper(
    "int remainder_most(u32 x, u32 d)",
    "return (int)(d == most ? x % most : x % d);",
    "",
    "pure",
    template="u32 most",
)


def mulhi(kind: str) -> Wrapper:
    """Return the high half of a product of C type `kind`."""
    builtin = {"int": "__mulhi", "u32": "__umulhi", "i64": "__mul64hi", "u64": "__umul64hi"}[kind]
    return Wrapper(f"{kind} mulhi({kind} x, {kind} y)", f"return {builtin}(x, y);", "mul", "pure")


FUNCTIONS = {
    wrapper.name: wrapper
    for wrapper in (EXP2_APPROX, LOG2_APPROX, SQRT_APPROX, DIVIDE_FULL, DIVIDE_RN, MIN_NAN, MAX_NAN)
}
"""Wrappers that expressions in `tawa.ir.functions` name."""

HALF = Wrapper(
    "u16 half_at(const u32* x, int r)", "return (u16)(x[r / 2] >> (r % 2 * 16));", "", "pure"
)
BYTE = Wrapper(
    "u8 byte_at(const u32* x, int r)", "return (u8)(x[r / 4] >> (r % 4 * 8));", "", "pure"
)
PACK_HALVES = Wrapper(
    "u32 pack_halves(u32 x0, u32 x1)", "return (x0 & 0xFFFF) | x1 << 16;", "", "pure"
)
PACK_BYTES = Wrapper(
    "u32 pack_bytes(u32 x0, u32 x1, u32 x2, u32 x3)",
    "return (x0 & 0xFF) | (x1 & 0xFF) << 8 | (x2 & 0xFF) << 16 | x3 << 24;",
    "",
    "pure",
)


def packer(bits: int) -> Wrapper:
    """Return the wrapper that packs elements of 8 or 16 bits into a word."""
    return PACK_HALVES if bits == 16 else PACK_BYTES


def widen(element: str) -> Wrapper:
    """Return the exact conversion of a small float's bits to float."""
    if element == "bf16":
        return Wrapper(
            "float bf16_to_float(u16 x)", "return __uint_as_float((u32)x << 16);", "", "pure"
        )
    if element == "f16":
        return _computed("float f16_to_float(u16 x)", "y", "cvt.f32.f16 %0, %1;", "cvt")
    kind = {"f8e4m3": "e4m3x2", "f8e5m2": "e5m2x2"}[element]
    code = (
        "{\n.reg .b32 pair;\n.reg .b16 low, high;\n"
        f"cvt.rn.f16x2.{kind} pair, %1;\n"
        "mov.b32 {low, high}, pair;\ncvt.f32.f16 %0, low;\n}"
    )
    body = giving("float y", code, '"h"((u16)x)', volatile=False)
    return Wrapper(f"float {element}_to_float(u8 x)", body, "cvt", "pure")


def narrow(element: str) -> Wrapper:
    """Return the rounding (nearest even; fp8 saturates) of a float to a small float's bits."""
    if element in ("bf16", "f16"):
        head = f"u16 float_to_{element}(float x)"
        return _computed(head, "y", f"cvt.rn.{element}.f32 %0, %1;", "cvt")
    return Wrapper(
        f"u8 float_to_{element}(float x)",
        f"return (u8)pack_{element}(x, 0.0f);",
        "cvt",
        "pure",
        (pack(element),),
    )


PAIRED = ("add", "sub", "mul")
"""Functions of two floats of 16 bits that a word's pair takes at once."""


def paired(function: str, element: str) -> Wrapper:
    """Return a function of `PAIRED` of two packed pairs, each rounded to the nearest even.

    The same as rounding the function of the widened numbers: 24 bits are 2 more than twice 11.
    """
    head, code = f"u32 {function}_{element}x2(u32 x, u32 y)", f"{function}.rn.{element}x2"
    return _computed(head, "z", f"{code} %0, %1, %2;", function)


def pack(element: str) -> Wrapper:
    """Return the rounding of two floats to a packed pair, `x0` in the low half."""
    result, kind = {
        "bf16": ("u32 y", "rn.bf16x2"),
        "f16": ("u32 y", "rn.f16x2"),
        "f8e4m3": ("u16 y", "rn.satfinite.e4m3x2"),
        "f8e5m2": ("u16 y", "rn.satfinite.e5m2x2"),
    }[element]
    body = giving(result, f"cvt.{kind}.f32 %0, %1, %2;", '"f"(x1), "f"(x0)', volatile=False)
    return Wrapper(f"u32 pack_{element}(float x0, float x1)", body, "cvt", "pure")


UNIFORM = Wrapper(
    "u32 uniform(u32 x)", "return __shfl_sync(0xFFFFFFFFu, x, 0);", "shfl", "convergent"
)


def shuffle(kind: str, mode: str) -> Wrapper:
    """Return a warp shuffle of C type `kind`; `mode` xor (by a mask) or from (a lane)."""
    builtin = {"xor": "__shfl_xor_sync", "from": "__shfl_sync"}[mode]
    return Wrapper(
        f"{kind} shuffle_{mode}({kind} x, int lane)",
        f"return {builtin}(0xFFFFFFFFu, x, lane);",
        "shfl",
        "convergent",
    )


def pin(kind: str) -> Wrapper:
    """Return the empty asm that makes a value exist at this place in the program."""
    return Wrapper(
        f"void pin({kind}& x)", asm("", f'"+{CONSTRAINT[kind]}"(x)', memory=True), "", "pin"
    )
