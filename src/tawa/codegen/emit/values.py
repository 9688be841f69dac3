"""What generated text knows of each SSA value: an expression, an array, or a place in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tawa.codegen.elements import Element
from tawa.layouts.indexing import Formula, fit, is_identity

_HEAD = re.compile(r"[\w.:]+(<[\w, ]*>)?")
_CLOSING = {"(": ")", "[": "]"}


def _closed(text: str, start: int) -> int:
    """Return the place after the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([") - (text[place] in ")]")
        if depth == 0:
            return place + 1
    return len(text) + 1


def is_primary(text: str) -> bool:
    """Tell whether an expression binds tighter than any operator: a name, number, call, element."""
    head = _HEAD.match(text)
    place = head.end() if head is not None else 0
    while place < len(text) and text[place] in _CLOSING:
        place = _closed(text, place)
    return place == len(text) and place > 0


def atom(text: str) -> str:
    """Return an expression in parentheses unless it binds tighter than any operator."""
    return text if is_primary(text) else f"({text})"


def bare(text: str) -> str:
    """Return an expression without parentheses around the whole of it."""
    while text.startswith("(") and _closed(text, 0) == len(text):
        text = text[1:-1]
    return text


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar: a C++ expression in the element's compute type.

    `reads` names the variables the expression mentions that later statements may change.
    """

    text: str
    element: Element
    reads: frozenset[str] = frozenset()


class Tensor(Protocol):
    """A tensor in registers: `count` elements a thread, the r-th given by `at`."""

    @property
    def element(self) -> Element:
        """Element type."""
        ...

    @property
    def count(self) -> int:
        """Elements a thread holds."""
        ...

    def at(self, r: str) -> str:
        """Return the element of register `r` (an atom) in the element's compute type."""
        ...


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor with an array of its own; packed words where the element is narrow."""

    name: str
    element: Element
    count: int

    @property
    def words(self) -> int:
        """Entries of the array."""
        return self.element.words(self.count)

    def at(self, r: str) -> str:
        """Return element `r`; unpacked and widened where the array is packed."""
        bits = self.bits_at(r)
        if self.element.packed == 1:
            return bits
        if self.element.is_small_float:
            return f"{self.element.name}_to_float({bits})"
        return f"({self.element.storage}){bits}" if self.element.is_signed else bits

    def bits_at(self, r: str) -> str:
        """Return the bits of element `r`, not widened."""
        if self.element.packed == 1:
            return f"{self.name}[{bare(r)}]"
        return f"{'half' if self.element.bits == 16 else 'byte'}_at({self.name}, {bare(r)})"


@dataclass(frozen=True, slots=True)
class Uniform:
    """A tensor of one value."""

    text: str
    element: Element
    count: int

    def at(self, r: str) -> str:
        """Return the value."""
        return self.text


@dataclass(frozen=True, slots=True)
class Affine:
    """A tensor of integers: a scalar expression plus a formula of the register."""

    base: str
    offset: Formula
    element: Element
    count: int

    def at(self, r: str) -> str:
        """Return the sum for register `r`."""
        offset = self.offset.render(r)
        return self.base if offset == "0" else f"{self.base} + {offset}"


@dataclass(frozen=True, slots=True)
class Mapped:
    """Another tensor's registers under other numbers: register r is the inner one's `table[r]`."""

    inner: Tensor
    table: tuple[int, ...]
    lookup: str = ""

    @property
    def element(self) -> Element:
        """Element type, of the inner tensor."""
        return self.inner.element

    @property
    def count(self) -> int:
        """Registers of the view."""
        return len(self.table)

    def at(self, r: str) -> str:
        """Return the inner tensor's element for register `r`."""
        return self.inner.at(atom(self.index(r)))

    def bits_at(self, r: str) -> str | None:
        """Return the bits of the element for register `r`; None where no array holds them."""
        return self.inner.bits_at(atom(self.index(r))) if isinstance(self.inner, Array) else None

    def index(self, r: str) -> str:
        """Return the inner register as an expression of `r`."""
        if r.isdigit():
            return str(self.table[int(r)])
        formula = fit(self.table)
        return formula.render(r) if formula is not None else f"{self.lookup}[{bare(r)}]"


def mapped(inner: Tensor, table: Sequence[int], lookup: str = "") -> Tensor:
    """Return `inner` under other register numbers, as simply as possible."""
    while isinstance(inner, Mapped):
        table = [inner.table[register] for register in table]
        inner = inner.inner
    if isinstance(inner, Uniform):
        return Uniform(inner.text, inner.element, len(table))
    if isinstance(inner, Affine):
        values = [inner.offset(register) for register in table]
        formula = fit(values)
        if formula is not None:
            return Affine(inner.base, formula, inner.element, len(table))
    if len(table) == inner.count and is_identity(table):
        return inner
    return Mapped(inner, tuple(table), lookup)


@dataclass(frozen=True, slots=True)
class View:
    """A tile in shared memory: an expression for its first byte's shared address."""

    address: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A ring of tiles: the names of its first byte's offset and of the bytes from slot to slot.

    A ring of one slot has no `slot_bytes`: its index can only be 0.
    """

    at: str
    slot_bytes: str


@dataclass(frozen=True, slots=True)
class BarrierArray:
    """An array of mbarriers: the name of its byte offset."""

    at: str
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map: the name of a pointer to it."""

    name: str


RegisterValue = Array | Uniform | Affine | Mapped
Value = Scalar | RegisterValue | View | Buffer | BarrierArray | Map
