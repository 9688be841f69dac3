"""The words of memory that a run reads, by their addresses: an address that was open when a word
was read may turn out to be that of another one.

A word is looked at again only when something that its address depends on was bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tawa.ir import hopper
from tawa.simulator.proof.expressions import Expr, Scalar

Value: TypeAlias = Callable[[Scalar], "int | None"]
"""The number of a scalar, None while it is open."""


@dataclass(frozen=True, slots=True)
class Address:
    """What an address is made of: the array, and `offsets`, numbers or computed from `unknowns` and
    from those in the addresses of these.
    """

    base: tuple[object, ...]
    offsets: tuple[Scalar, ...]
    unknowns: tuple[Expr, ...]


class Words:
    """The words that were read so far, and what those wait for whose addresses are open in part."""

    def __init__(self) -> None:
        self._words: dict[tuple[object, ...], Expr] = {}  # by their address as far as it is known
        self._waiting: dict[Expr, list[Expr]] = {}  # by an unknown that their addresses depend on
        self._moved: list[Expr] = []

    def bound(self, unknowns: Iterable[Expr]) -> None:
        """Note that unknowns are numbers now."""
        self._moved += [item for item in unknowns if item in self._waiting]

    def assigned(self) -> None:
        """Note that some expression is a number now, whatever its parts are."""
        self._moved = [*self._waiting]

    def find(self, word: Expr, value: Value) -> Expr:
        """Return the word at an address: one that was read before, where an address that was open
        then is the same number now.
        """
        if self._moved:
            self._look_again(value)
        return self._put(word, value)

    def at(self, address: tuple[object, ...]) -> Expr | None:
        """Return the word that was read at an address (see `placed`)."""
        return self._words.get(address)

    def _look_again(self, value: Value) -> None:
        moved, self._moved = self._moved, []
        again = {word for unknown in moved for word in self._waiting.pop(unknown, ())}
        for word in sorted(again, key=lambda item: item.serial):
            self._put(word, value)

    def _put(self, word: Expr, value: Value) -> Expr:
        """Return the word at the address of one, which waits for what is open in its own."""
        address = _address_of(word)
        numbers = [value(part) for part in address.offsets]
        if None not in numbers:
            return self._words.setdefault((address.base, *numbers), word)
        found = self._words.setdefault(placed(word, value), word)
        if found is word:
            for unknown in address.unknowns:
                if value(unknown) is None:
                    self._waiting.setdefault(unknown, []).append(word)
        return found


def placed(word: Expr, value: Value) -> tuple[object, ...]:
    """Return the address of a word, with numbers for what is known of it."""
    address = _address_of(word)
    parts: list[object] = [address.base]
    for part in address.offsets:
        known = value(part)
        if isinstance(part, Expr) and known is None:
            parts.append(placed(part, value) if part.unknown else part)
        else:
            parts.append(known)
    return tuple(parts)


def name_of(item: Expr, value: Value) -> tuple[object, ...]:
    """Return what an unknown is called in every run: numbers for what is known of its parts."""
    if not item.parts:
        return (item.function, *item.args)
    parts: list[object] = [item.function]
    for part in item.args:
        known = value(part) if isinstance(part, Expr) else part
        unnamed = known is None and isinstance(part, Expr) and part.unknown
        parts.append(name_of(part, value) if unnamed else known)  # pyright: ignore[reportArgumentType]
    return tuple(parts)


def _address_of(word: Expr) -> Address:
    """Return the address of a word. Where an array begins is the first part of a pointer, and of
    the pointer that this one is computed from.
    """
    if word.address is None:
        base: list[object] = []
        offsets: list[Scalar] = []
        item: object = word
        while isinstance(item, Expr) and item.unknown:
            base.append(item.function)
            # A number may be what another computes: it is no part of the base.
            for part in item.args[1:]:
                if isinstance(part, (int, Expr)):
                    offsets.append(part)
                else:
                    base.append(part)
            item = next(iter(item.args), None)
        if isinstance(item, Expr):
            offsets.append(item)
        base.append(None if isinstance(item, Expr) else item)
        word.address = Address(tuple(base), tuple(offsets), _unknowns_of(offsets))
    return word.address


def _unknowns_of(offsets: Iterable[Scalar]) -> tuple[Expr, ...]:
    """Return the unknowns in offsets, and in the addresses of these."""
    found: dict[Expr, None] = {}
    work = [item for item in offsets if isinstance(item, Expr)]
    while work:
        item = work.pop()
        if item not in found:
            found[item] = None
            work += item.parts
    return tuple([item for item in found if item.unknown])


def least_of(unknown: Expr) -> int | None:
    """Return what an unknown is at least, None where it may be anything."""
    match unknown.function:
        case "block_id" | "cluster_id":
            return 0
        case "num_blocks" | "num_clusters" | "grid_extent":
            return 1
        case "value" if isinstance(unknown.args[0], hopper.NextProgram):
            return 0
        case _:
            return None


def preference(item: Expr) -> tuple[int, int]:
    """Order unknowns to choose: arguments and memory first, then extents of the grid by axis."""
    match item.function:
        case "grid_extent":
            (axis,) = item.args
            assert isinstance(axis, int)
            return (1, axis)
        case "num_blocks" | "num_clusters" | "block_id" | "cluster_id":
            return (2, 0)
        case _:
            return (0, 0)
