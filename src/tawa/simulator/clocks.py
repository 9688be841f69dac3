"""Vector clocks of one cluster: who knows that what has happened.

Each warp is a row. Each warp has four columns of its own: its generic accesses, those of them it
has fenced towards the async proxy, its cp.async copies, and those fenced. Each engine (the wgmmas
of a warpgroup; a TMA operation) has a column too. `now[row, column]` is the last event of the
column that the row knows to have happened. An access at (column, clock) happened before what a row
does next exactly if now[row, column] >= clock.

Warps of one role run in step here, but each knows only what it has itself synchronised with: a
missing barrier inside a role is therefore seen under every schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Clock: TypeAlias = NDArray[np.int32]
Rows: TypeAlias = slice | int


class Clocks:
    """The clocks of `rows` warps."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.now: Clock = np.zeros((rows, 4 * rows + 16), np.int32)
        self.used = 4 * rows
        self._own = np.arange(rows)
        self.now[self._own, self._own] = 1
        self._free: list[tuple[int, int]] = []

    def numbers(self, rows: Rows) -> NDArray[np.intp]:
        """Return the row numbers a selection means."""
        return np.atleast_1d(self._own[rows])

    def column(self) -> int:
        """Return a new column, for an engine."""
        if self.used == self.now.shape[1]:
            self.now = np.hstack([self.now, np.zeros_like(self.now)])
        self.used += 1
        return self.used - 1

    def operation(self, row: int) -> tuple[int, int]:
        """Return the (column, clock) of a new asynchronous operation started by `row`.

        A column is used again only by a row that knows its last operation to have happened: then
        knowing the new one implies knowing the old one, as with any clock.
        """
        for place, (column, clock) in enumerate(self._free):
            if self.now[row, column] >= clock:
                self._free[place] = (column, clock + 1)
                return column, clock + 1
        column = self.column()
        self._free.append((column, 1))
        return column, 1

    def acquire(self, rows: Rows, clock: Clock) -> None:
        """Let rows know all that a clock knows."""
        part = self.now[rows, : clock.size]
        np.maximum(part, clock, out=part)

    def learn(self, rows: Rows, column: int, clock: int) -> None:
        """Let rows know one event."""
        part = self.now[rows]
        part[..., column] = np.maximum(part[..., column], clock)
        self.now[rows] = part

    def release(self, rows: Rows) -> Clock:
        """Return what rows know together, and begin a new event in each of them."""
        part = self.now[rows]
        known = part.copy() if part.ndim == 1 else part.max(axis=0)
        own = self._own[rows]
        self.now[own, own] += 1
        return known

    def meet(self, rows: Rows) -> None:
        """Let rows know all that any of them knows: a barrier among them."""
        self.acquire(rows, self.release(rows))

    def fence(self, rows: Rows) -> None:
        """Order the rows' own accesses so far, and all copies that they know to be done, before
        later accesses of the async proxy.
        """
        own, count = self.numbers(rows), self.rows
        self.now[own, own + count] = self.now[own, own]
        copied = self.now[rows, 2 * count : 3 * count]
        fenced = self.now[rows, 3 * count : 4 * count]
        np.maximum(fenced, copied, out=fenced)
        self.now[own, own] += 1

    def known(
        self, rows: Rows, columns: Sequence[int] | NDArray[np.intp], clocks: Clock
    ) -> NDArray[np.bool_]:
        """Return for each row (first axis) and each event whether the row knows it."""
        return np.atleast_2d(self.now[rows])[:, columns] >= clocks
