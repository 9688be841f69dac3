"""How the operands of inline PTX lie in its registers.

The rule is Triton's: of `pack` elements that one instance of the text takes, as many as fit lie
side by side in a register of 32 bits, the first lowest; wider elements take a register each. A
result may be wider than its register, as those are that nobody reads: barriers between GPUs have
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tawa.ir.types import bit_width, element_type

WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
"""Bits of each class of registers (PTX ISA, "Fundamental Types")."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PLACE = re.compile(r"\$(?:\$|(\d+)|\{(\d+)\})")


_OF_THE_BLOCK = re.compile(
    r"\bbar(?:rier)?\.(?!warp\b)|%n?(?:tid|warpid)\b|\bsetmaxnreg\.|\b(?:exit|ret(?:\.uni)?)\s*;"
)


class AsmError(ValueError):
    """Inline PTX whose parts do not fit together; the text says how."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register of inline PTX: elements `first` to `first + count` of operand `value`.

    `tied`: the number of the result whose register this input begins in.
    """

    value: int
    first: int
    count: int
    letter: str
    tied: int | None = None


@dataclass(frozen=True, slots=True)
class Registers:
    """All registers of one instance, in the order in which the text numbers them."""

    outputs: tuple[Register, ...]
    inputs: tuple[Register, ...]
    memory: bool


def counts_threads(text: str) -> bool:
    """Tell whether PTX waits for all threads of the block, asks which of them this one is, takes
    registers of others, or ends the thread: those that load would wait for it for ever.
    """
    return _OF_THE_BLOCK.search(text) is not None


def plain_text(text: str) -> str:
    """Return PTX on one line, without comments; raises AsmError outside of ASCII."""
    plain = " ".join(_COMMENT.sub(" ", text).split())
    if not plain.isascii():
        raise AsmError("PTX is written in ASCII")
    return plain


def substituted(text: str, names: Sequence[str]) -> str:
    """Return PTX with the registers' names for ``$0``, ``$1`` ...; ``$$`` is ``$``."""

    def name(match: re.Match[str]) -> str:
        digits = match[1] or match[2]
        if digits is None:
            return "$"
        if int(digits) >= len(names):
            raise AsmError(f"${digits} names no register: the constraints list {len(names)}")
        return names[int(digits)]

    return _PLACE.sub(name, text)


def registers_of(
    constraints: str, pack: int, results: Sequence[SSAValue | object], inputs: Sequence[object]
) -> Registers:
    """Lay out operands, given by their IR types; raises AsmError where constraints do not fit."""
    if pack < 1 or pack & (pack - 1):
        raise AsmError(f"pack is {pack}, and a power of two is needed")
    words = [word.strip() for word in constraints.split(",") if word.strip()]
    clobbered = [word for word in words if word.startswith("~")]
    words = [word for word in words if not word.startswith("~")]
    made = [word for word in words if word.startswith("=")]
    taken = words[len(made) :]
    if any(word.startswith("=") for word in taken):
        raise AsmError("results stand before inputs in the constraints")
    out = _placed([word.lstrip("=&") for word in made], results, pack, "results", ())
    into = _placed(taken, inputs, pack, "inputs", out)
    return Registers(out, into, any("memory" in word for word in clobbered))


def _placed(
    words: Sequence[str], types: Sequence[object], pack: int, what: str, results: Sequence[Register]
) -> tuple[Register, ...]:
    places: list[tuple[int, int, int, int]] = []
    for value, kind in enumerate(types):
        bits = bit_width(element_type(kind))  # pyright: ignore[reportArgumentType]
        together = min(max(32 // bits, 1), pack)
        places += [(value, first, together, bits) for first in range(0, pack, together)]
    if len(places) != len(words):
        raise AsmError(
            f"the constraints list {len(words)} {what}, and {len(places)} registers are needed: "
            f"{len(types)} operands of {pack} elements each"
        )
    found: list[Register] = []
    for word, (value, first, together, bits) in zip(words, places):
        tied = int(word) if word.isdigit() else None
        if tied is not None and tied >= len(results):
            raise AsmError(f"the constraint {word!r} names no result")
        letter = word if tied is None else results[tied].letter
        if letter not in WIDTHS:
            raise AsmError(
                f"the constraint {word!r} is not known: the classes are {', '.join(WIDTHS)}"
            )
        wide = bits * together
        if what == "results" and together == 1 and letter == "r":
            wide = min(wide, WIDTHS[letter])  # what the register lacks is 0
        if wide > WIDTHS[letter] or (letter in "fd" and wide != WIDTHS[letter]):
            raise AsmError(
                f"a register of class {letter!r} has {WIDTHS[letter]} bits, and its operand {wide}"
            )
        found.append(Register(value, first, together, letter, tied))
    return tuple(found)
