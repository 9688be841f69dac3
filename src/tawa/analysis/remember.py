"""Questions about values that ask the same of their operands: what is used twice is asked once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from xdsl.ir import SSAValue

Answer = TypeVar("Answer")


def remembered(
    ask: Callable[[SSAValue, dict[SSAValue, Answer]], Answer],
) -> Callable[[SSAValue, dict[SSAValue, Answer]], Answer]:
    """Return a question that looks a value up in its second argument, and keeps the answer there.

    Without it values used twice, again and again, take exponential time.
    """

    @wraps(ask)
    def remember(value: SSAValue, known: dict[SSAValue, Answer]) -> Answer:
        if value not in known:
            known[value] = ask(value, known)
        return known[value]

    return remember
