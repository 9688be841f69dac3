"""Atomic extrema of floats, which PTX has for integers only."""

from __future__ import annotations

from tawa.codegen.wrappers.core import Wrapper, asm

OPPOSITE = {"min": "max", "max": "min"}


def float_extremum(function: str, element: str, order: str, scope: str) -> Wrapper:
    """Return the read-modify-write `function` (min, max) of f32 or f64.

    Bits of floats that are not negative compare as signed integers, those of negative ones the
    other way round as unsigned.
    """
    single = element == "f32"
    kind, whole, letter, bits = ("float", "int", "r", 32) if single else ("double", "i64", "l", 64)
    to = "__float_as_int" if single else "__double_as_longlong"
    back = "__int_as_float" if single else "__longlong_as_double"

    def change(name: str, ptx: str) -> str:
        return asm(
            f"atom.{order}.{scope}.global.{name}.{ptx} %0, [%1], %2;",
            f'"={letter}"(old)',
            f'"l"(address), "{letter}"(bits)',
            memory=True,
        )

    return Wrapper(
        f"{kind} atomic_{function}_{element}_{order}_{scope}(u64 address, {kind} value)",
        f"const {whole} bits = {to}(value);\n{whole} old;\nif (bits >= 0) {{\n"
        + change(function, f"s{bits}")
        + "\n} else {\n"
        + change(OPPOSITE[function], f"u{bits}")
        + f"\n}}\nreturn {back}(old);",
        "atom",
        "global.atomic",
    )
