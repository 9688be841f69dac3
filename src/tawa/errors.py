"""Every error a user can meet, one class each.

A message answers, in this order: what is wrong, where (Python file, line, caret), why (the rule,
with numbers), what to do. `TawaError` formats it; the classes fix the kind. The documentation page
of each class is generated from its docstring.
"""

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
    """The base of all errors: `what`, an optional place, `why` and `remedy`."""

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


class UnsupportedSyntax(TawaError):  # noqa: N818
    """The kernel uses a Python construct or a `tl` function that the language does not have."""


class TypeMismatch(TawaError):  # noqa: N818
    """Types, shapes or constants of an operation do not fit together."""


class UnknownName(TawaError):  # noqa: N818
    """The kernel uses a name that is not defined, or a global that is not a constant."""


class ShapeUnsupported(TawaError):  # noqa: N818
    """A block shape that no instruction takes."""


class DescriptorError(TawaError):
    """Strides, alignment, extents or box of a tensor that TMA cannot take."""


class OverBudget(TawaError):  # noqa: N818
    """Shared memory or registers exceed what a block has; the message lists the buffers."""


class PlanError(TawaError):
    """A pinned field of the plan cannot be honoured."""


class ProtocolError(TawaError):
    """The proof found a hang, a race or a leftover; the message holds the trace."""


class UnprovedProtocol(ProtocolError):  # noqa: N818
    """The proof ran out of its state budget: nothing is known, so nothing is run."""


class BuildError(TawaError):
    """NVRTC refused the generated source, or its log shows a defect (serialised wgmma, spills)."""


class ArgumentError(TawaError):
    """A launch argument is missing, unknown, of the wrong type, dtype, device or layout."""


class LaunchError(TawaError):
    """The driver refused a launch, or a kernel failed on the device."""


class NoDriver(TawaError):  # noqa: N818
    """There is no NVIDIA driver, or it is too old, and the arguments live on a GPU."""


class TuningError(TawaError):
    """No configuration of an autotune space could be built; the message lists each reason."""


class InternalError(TawaError):
    """The compiler failed through no fault of the user's; the message names a dump folder."""
