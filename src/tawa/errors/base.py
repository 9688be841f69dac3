"""What every error is: a message in four parts, with a place in the user's source."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A span of the user's Python source: 1-based line, 0-based columns."""

    file: str
    line: int
    column: int = 0
    end_column: int = 0

    def render(self) -> str:
        """Return ``file:line`` with the source line and a caret under the span."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return f"  at {self.file}:{self.line}"
        width = max(1, self.end_column - self.column)
        caret = " " * self.column + "^" * min(width, max(1, len(text) - self.column))
        return f"  at {self.file}:{self.line}\n    {text}\n    {caret}"


class TawaError(Exception):
    """The base of all errors: `what`, an optional place, `why` and `remedy`.

    Example::

        >>> try:
        ...     tl.arange(0, 64)
        ... except tawa.TawaError as error:
        ...     print(error.what)
        tl.arange was called outside a kernel
    """

    def __init__(
        self,
        what: str,
        *,
        place: Place | None = None,
        calls: tuple[Place, ...] = (),
        why: str = "",
        remedy: str = "",
    ) -> None:
        self.what = what
        self.place = place
        self.calls = calls
        self.why = why
        self.remedy = remedy
        super().__init__(self._render())

    @property
    def brief(self) -> str:
        """What is wrong and why, in one line, for lists of several."""
        return f"{self.what}: {self.why.splitlines()[0]}" if self.why else self.what

    def _render(self) -> str:
        lines = [self.what]
        if self.place is not None:
            lines.append(self.place.render())
        lines.extend(f"  called from {call.file}:{call.line}" for call in self.calls)
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.remedy:
            lines.append(f"  do:  {self.remedy}")
        return "\n".join(lines)
