"""Inline PTX as NumPy computes it: registers are arrays, one entry for each instance of the text.

What an instruction means is in `ptx_table`. Here its text is taken apart: scopes, registers that it
declares, predicates, operands. What is not known is refused by name before anything runs: jumps,
memory, and registers that tell threads apart, of which the oracle has none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tawa.errors import LaunchError
from tawa.ir import tile
from tawa.ir.inline_asm import WIDTHS, Register, registers_of, substituted
from tawa.simulator.ptx_table import TYPES, Meaning, Unknown, decode, read_as, written_as
from tawa.simulator.values import Array, dtype_of, place_of

_DECLARED = re.compile(r"^\.reg\s+\.(\w+)\s+(.*)$")
_NAMES = re.compile(r"^([\w$%]+)(?:<(\d+)>)?$")
_NUMBER = re.compile(r"^-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_BITS = re.compile(r"^0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
_REAL = re.compile(r"^-?\d*\.\d+([eE][-+]?\d+)?$")
_SPECIAL: dict[str, Callable[[], int]] = {
    "%smid": lambda: 0,
    "%globaltimer": time.time_ns,
    "%clock64": time.perf_counter_ns,
    "%clock": lambda: time.perf_counter_ns() & 0xFFFFFFFF,
}
"""Special registers of which a machine with one multiprocessor and no threads can tell."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A register of the text: its number, and its type as declared."""

    number: int
    bits: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a wider register, lowest first; none: the sink, written ``_``."""

    items: tuple[_Operand, ...]


_Operand: TypeAlias = "_Place | int | float | Callable[[], int] | _Parts"


@dataclass(frozen=True, slots=True)
class _Instruction:
    name: str
    meaning: Meaning
    to: tuple[_Operand, ...]
    operands: tuple[_Operand, ...]
    guard: _Place | None = None
    guard_is: bool = True


class _Reader:
    """Takes a text apart; `widths` are the bits of all its registers, by number."""

    def __init__(self) -> None:
        self.widths: list[int] = []
        self.instructions: list[_Instruction] = []
        self._scopes: list[dict[str, _Place]] = [{}]

    def declare(self, name: str, bits: int) -> _Place:
        """Add a register to the innermost scope; predicates have 1 bit."""
        place = _Place(len(self.widths), bits)
        self.widths.append(bits)
        self._scopes[-1][name] = place
        return place

    def read(self, text: str) -> None:
        """Read all statements; raises Unknown for what has no meaning here."""
        while text := text.strip():
            if text[0] in "{}":
                if text[0] == "{":
                    self._scopes.append({})
                elif len(self._scopes) > 1:
                    self._scopes.pop()
                text = text[1:]
                continue
            statement, _, text = text.partition(";")
            self._statement(statement.strip())

    def _statement(self, text: str) -> None:
        if (declared := _DECLARED.match(text)) is not None:
            for item in declared[2].split(","):
                self._declaration(declared[1], item.strip())
            return
        guard, holds = None, True
        if text.startswith("@"):
            word, _, text = text[1:].partition(" ")
            holds, word = not word.startswith("!"), word.lstrip("!")
            place = self._operand(word)
            if not isinstance(place, _Place):
                raise Unknown(f"the predicate {word}")
            guard = place
        if not text:
            return
        name, _, rest = text.strip().partition(" ")
        meaning = decode(name)
        operands = _split(rest, ",")
        to = tuple(self._operand(part) for part in _split("".join(operands[:1]), "|"))
        taken = tuple(self._operand(part) for part in operands[1:])
        if len(taken) != len(meaning.operands):
            raise Unknown(f"the instruction {name} of {len(taken)} operands")
        self.instructions.append(_Instruction(name, meaning, to, taken, guard, holds))

    def _declaration(self, kind: str, item: str) -> None:
        found = _NAMES.match(item)
        if kind not in TYPES or found is None:
            raise Unknown(f".reg .{kind} {item}")
        bits = TYPES[kind].bits
        names = [f"{found[1]}{i}" for i in range(int(found[2]))] if found[2] else [found[1]]
        for name in names:
            self.declare(name, bits)

    def _operand(self, text: str) -> _Operand:
        text = text.strip()
        if text == "_":
            return _Parts(())
        if text.startswith("{"):
            return _Parts(tuple(self._operand(part) for part in _split(text[1:-1], ",")))
        for scope in reversed(self._scopes):
            if text in scope:
                return scope[text]
        if text in _SPECIAL:
            return _SPECIAL[text]
        if (bits := _BITS.match(text)) is not None:
            kind = np.float32 if bits[1] in "fF" else np.float64
            whole = np.uint32 if bits[1] in "fF" else np.uint64
            return float(np.array(int(bits[2], 16), whole).view(kind))
        if _NUMBER.match(text):
            digits = text.rstrip("U").lstrip("-")
            octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
            number = int(digits, 8 if octal else 0)
            return -number if text.startswith("-") else number
        if _REAL.match(text):
            return float(text)
        raise Unknown(f"the operand {text}")


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark outside of braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == mark and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def inline_asm(operation: tile.Asm | tile.AsmEffect) -> Callable[..., Sequence[Any]]:
    """Return the function of an operation's inputs; raises LaunchError for unknown PTX."""
    pack = operation.pack.data
    laid = registers_of(
        operation.constraints.data,
        pack,
        [result.type for result in operation.results],
        [value.type for value in operation.inputs],
    )
    reader = _Reader()
    names = [f"_operand{i}" for i in range(len(laid.outputs) + len(laid.inputs))]
    out = [reader.declare(n, WIDTHS[r.letter]) for n, r in zip(names, laid.outputs)]
    into = [
        reader.declare(n, WIDTHS[r.letter]) if r.tied is None else out[r.tied]
        for n, r in zip(names[len(out) :], laid.inputs)
    ]
    for name, place in zip(names[len(out) :], into):
        reader._scopes[0][name] = place  # pyright: ignore[reportPrivateUsage]
    try:
        reader.read(substituted(operation.text.data, names))
    except Unknown as error:
        raise LaunchError(
            f"the simulator does not know this inline PTX: {error}",
            place=place_of(operation),
            why="it knows arithmetic and conversions of registers; a GPU runs all PTX",
            remedy="run the kernel on a GPU, or write it with functions of tl",
        ) from None
    kinds = [dtype_of(result.type) for result in operation.results]

    def run(*inputs: Any) -> Sequence[Any]:
        shape = np.shape(inputs[0]) if inputs else ()
        count = int(np.prod(shape, dtype=np.int64))
        groups = -(-count // pack)
        registers: list[Any] = [
            np.zeros(groups, bool if bits == 1 else f"u{bits // 8}") for bits in reader.widths
        ]
        rows = [_rows(value, groups, pack) for value in inputs]
        for register, place in zip(laid.inputs, into):
            registers[place.number] = _packed(rows[register.value], register, place.bits)
        with np.errstate(all="ignore"):
            for instruction in reader.instructions:
                _execute(instruction, registers, groups)
        made = [np.zeros((groups, pack), kind) for kind in kinds]
        for register, place in zip(laid.outputs, out):
            _unpack(registers[place.number], register, made[register.value])
        return [value.reshape(-1)[:count].reshape(shape)[()] for value in made]

    if len(kinds) == 1:
        return lambda *inputs: run(*inputs)[0]
    return run


def _rows(value: Any, groups: int, pack: int) -> Array:
    """Return elements in rows of `pack`, filled up with the last one."""
    flat = np.ravel(np.asarray(value))
    short = groups * pack - len(flat)
    return np.concatenate([flat, np.repeat(flat[-1:], short)]).reshape(groups, pack)


def _bits(array: Array) -> Array:
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _packed(rows: Array, register: Register, bits: int) -> Array:
    parts = _bits(rows)[:, register.first : register.first + register.count]
    whole, step = np.zeros(len(rows), np.uint64), 8 * parts.dtype.itemsize
    for index in range(register.count):
        whole |= parts[:, index].astype(np.uint64) << np.uint64(index * step)
    return whole.astype(f"u{bits // 8}")


def _unpack(whole: Array, register: Register, made: Array) -> None:
    size = made.dtype.itemsize
    for index in range(register.count):
        part = (whole.astype(np.uint64) >> np.uint64(8 * size * index)).astype(f"u{size}")
        if made.dtype.kind == "b":
            made[:, register.first + index] = part & 1
        else:
            made[:, register.first + index] = part.view(made.dtype)


def _execute(instruction: _Instruction, registers: list[Any], count: int) -> None:
    meaning = instruction.meaning

    def bits(operand: _Operand, wide: int) -> Any:
        match operand:
            case _Place():
                return registers[operand.number]
            case _Parts(items=parts):
                each = wide // len(parts)
                whole = np.zeros(count, np.uint64)
                for index, part in enumerate(parts):
                    piece = bits(part, each).astype(np.uint64) & np.uint64((1 << each) - 1)
                    whole |= piece << np.uint64(index * each)
                return whole
            case int() | float():
                return operand
            case _:
                return operand()

    values = [
        read_as(bits(operand, kind.bits), kind, count)
        for operand, kind in zip(instruction.operands, meaning.operands, strict=True)
    ]
    found: Any = meaning.run(*values)
    results: Sequence[Any] = found if len(meaning.results) > 1 else (found,)
    for place, kind, value in zip(instruction.to, meaning.results, results):
        parts = place.items if isinstance(place, _Parts) else (place,)
        whole = written_as(value, kind)
        for index, part in enumerate(parts):
            assert isinstance(part, _Place)
            piece = whole
            if len(parts) > 1:
                shift = np.uint64(index * (kind.bits // len(parts)))
                piece = whole.astype(np.uint64) >> shift
            elif kind.signed:
                piece = value.astype(np.int64)
            old = registers[part.number]
            piece = np.broadcast_to(piece.astype(old.dtype), old.shape)
            if instruction.guard is not None:
                holds = registers[instruction.guard.number] == instruction.guard_is
                piece = np.where(holds, piece, old)
            registers[part.number] = piece
