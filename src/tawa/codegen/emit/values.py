"""What generated text knows of each SSA value: an expression, an array, or a place in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tawa.codegen.elements import Element
from tawa.layouts.indexing import Formula, fit, is_identity

_ATOM = re.compile(r"[\w.]+|-?\d+|[\w:<>]+\([^()]*\)")


def atom(text: str) -> str:
    """Return an expression in parentheses unless it binds tighter than any operator."""
    return text if _ATOM.fullmatch(text) else f"({text})"


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
        if self.element.packed == 1:
            return f"{self.name}[{_plain(r)}]"
        bits = f"{'half' if self.element.bits == 16 else 'byte'}_at({self.name}, {_plain(r)})"
        if self.element.is_small_float:
            return f"{self.element.name}_to_float({bits})"
        return f"({self.element.storage}){bits}" if self.element.is_signed else bits


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

    def index(self, r: str) -> str:
        """Return the inner register as an expression of `r`."""
        if r.isdigit():
            return str(self.table[int(r)])
        formula = fit(self.table)
        return formula.render(r) if formula is not None else f"{self.lookup}[{_plain(r)}]"


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


def _plain(r: str) -> str:
    """Drop parentheses around a whole index."""
    return r[1:-1] if r.startswith("(") and r.endswith(")") and ")" not in r[1:-1] else r


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
