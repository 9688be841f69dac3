"""The words of memory that a run reads, by their addresses: an address that was open when a word
was read may turn out to be that of another one.

A word is looked at again only when something that its address depends on was bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tawa.simulator.proof.expressions import Expr, Scalar

Value: TypeAlias = Callable[[Scalar], "int | None"]
"""The number of a scalar, None while it is open."""


class Words:
    """The words that were read so far, and what those wait for whose addresses are open in part."""

    def __init__(self) -> None:
        self._words: dict[tuple[object, ...], Expr] = {}  # by their address as far as it is known
        self._unplaced: dict[Expr, list[Expr]] = {}  # with the unknowns open in their addresses
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
        found = self._words.setdefault(_placed(word, value), word)
        if found is word and not _is_placed(word, value):
            self._wait(word, value)
        return found

    def _look_again(self, value: Value) -> None:
        moved, self._moved = self._moved, []
        again = {word for unknown in moved for word in self._waiting.pop(unknown, ())}
        for word in sorted(again & self._unplaced.keys(), key=lambda item: item.serial):
            self._words.setdefault(_placed(word, value), word)
            if _is_placed(word, value):
                del self._unplaced[word]
            else:
                self._wait(word, value)

    def _wait(self, word: Expr, value: Value) -> None:
        self._unplaced[word] = found = self._open(word, value)
        for unknown in found:
            self._waiting.setdefault(unknown, []).append(word)

    def _open(self, word: Expr, value: Value) -> list[Expr]:
        """Return the unknowns that are open in an address, and in the addresses of these."""
        found: dict[Expr, None] = {}
        work = [word]
        while work:
            for part in work.pop().args:
                if not isinstance(part, Expr) or part in found or value(part) is not None:
                    continue
                found[part] = None
                if part in self._unplaced:
                    found |= dict.fromkeys(self._unplaced[part])
                else:
                    work.append(part)
        return [part for part in found if part.unknown and value(part) is None]


def _placed(item: Expr, value: Value) -> tuple[object, ...]:
    """Return an unknown's parts with numbers for what is known of them."""
    parts: list[object] = [item.function]
    for part in item.args:
        if not isinstance(part, Expr):
            parts.append(part)
        elif (known := value(part)) is not None:
            parts.append(known)
        else:
            parts.append(_placed(part, value) if part.unknown else part)
    return tuple(parts)


def _is_placed(item: Expr, value: Value) -> bool:
    """Tell whether nothing an address is computed from is open, but for where an array begins: the
    first part of a pointer.
    """
    for place, part in enumerate(item.args):
        if not isinstance(part, Expr) or value(part) is not None:
            continue
        if place or not part.unknown or not _is_placed(part, value):
            return False
    return True
