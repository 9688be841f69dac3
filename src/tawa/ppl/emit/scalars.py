"""LLVM IR of scalars: types, constants, conversions, and whole numbers as the language has them."""

from __future__ import annotations

import math
import struct

from tawa.ppl.emit.threads import Lines
from tawa.ppl.ir.core import Kind

LLVM = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64", "bool": "i1"}


def cast(lines: Lines, source: Kind, target: Kind, given: str) -> str:
    """Append a conversion between kinds; from reals it saturates."""
    if source == target:
        return given
    from_, to = LLVM[source], LLVM[target]
    if target == "bool":
        if source in ("f32", "f64"):
            return lines.line(f"fcmp une {from_} {given}, 0.0")
        return lines.line(f"icmp ne {from_} {given}, 0")
    if source == "bool":
        return lines.line(f"{'uitofp' if target in ('f32', 'f64') else 'zext'} i1 {given} to {to}")
    if source in ("f32", "f64"):
        if target in ("f32", "f64"):
            word = "fpext" if target == "f64" else "fptrunc"
            return lines.line(f"{word} {from_} {given} to {to}")
        name = f"@llvm.fptosi.sat.{target}.{source}"
        lines.intrinsic(f"declare {to} {name}({from_})")
        return lines.line(f"call {to} {name}({from_} {given})")
    if target in ("f32", "f64"):
        return lines.line(f"sitofp {from_} {given} to {to}")
    return lines.line(f"{'sext' if target == 'i64' else 'trunc'} {from_} {given} to {to}")


def divide(lines: Lines, code: str, type_: str, given: list[str]) -> str:
    """Append `floordiv` or `mod`, toward minus infinity; by 0 they give 0 and the number."""
    line = lines.line
    a, b = given
    zero = line(f"icmp eq {type_} {b}, 0")
    # The least number by -1 overflows in hardware: there the quotient is -a, the rest 0.
    less = line(f"icmp eq {type_} {b}, -1")
    risky = line(f"or i1 {zero}, {less}")
    safe = line(f"select i1 {risky}, {type_} 1, {type_} {b}")
    quotient = line(f"sdiv {type_} {a}, {safe}")
    rest = line(f"srem {type_} {a}, {safe}")
    mixed = line(f"xor {type_} {rest}, {safe}")
    negative = line(f"icmp slt {type_} {mixed}, 0")
    some = line(f"icmp ne {type_} {rest}, 0")
    down = line(f"and i1 {negative}, {some}")
    if code == "floordiv":
        lower = line(f"sub {type_} {quotient}, 1")
        chosen = line(f"select i1 {down}, {type_} {lower}, {type_} {quotient}")
        minus = line(f"sub {type_} 0, {a}")
        chosen = line(f"select i1 {less}, {type_} {minus}, {type_} {chosen}")
        return line(f"select i1 {zero}, {type_} 0, {type_} {chosen}")
    moved = line(f"add {type_} {rest}, {safe}")
    chosen = line(f"select i1 {down}, {type_} {moved}, {type_} {rest}")
    chosen = line(f"select i1 {less}, {type_} 0, {type_} {chosen}")
    return line(f"select i1 {zero}, {type_} {a}, {type_} {chosen}")


def shift(lines: Lines, code: str, type_: str, given: list[str]) -> str:
    """Append `shl` or `lshr`; by the width or more it gives 0."""
    width = 32 if type_ == "i32" else 64
    shifted = lines.line(f"{code} {type_} {given[0]}, {given[1]}")
    inside = lines.line(f"icmp ult {type_} {given[1]}, {width}")
    return lines.line(f"select i1 {inside}, {type_} {shifted}, {type_} 0")


def literal(kind: Kind, number: float | int | bool) -> str:
    """Return a constant of LLVM IR."""
    if kind == "bool":
        return "true" if number else "false"
    if kind in ("i32", "i64"):
        return str(int(number))
    given = float(number)
    if kind == "f32" and math.isfinite(given):
        try:
            (given,) = struct.unpack("<f", struct.pack("<f", given))
        except OverflowError:
            given = math.copysign(math.inf, given)
    if math.isnan(given):
        return "0x7FF8000000000000"
    return "0x" + struct.pack(">d", given).hex().upper()
