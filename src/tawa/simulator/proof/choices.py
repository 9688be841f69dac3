"""What runs choose: the numbers of unknowns, one after the other. A run follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass, field


class Repeated(Exception):  # noqa: N818 - it is no error
    """A run chose what another run has chosen that came to its end: it does the same."""


@dataclass(eq=False, slots=True)
class Choices:
    """What runs have chosen after the same beginning: the next choices, and whether a run made no
    more.
    """

    next: dict[object, Choices] = field(default_factory=dict[object, "Choices"])
    complete: bool = False
