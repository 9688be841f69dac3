"""Where the code that builds a kernel stands: what errors and names of statements point at."""

from __future__ import annotations

import sys
from functools import lru_cache
from itertools import islice
from types import CodeType

from tawa.errors import Place

_PASSED = ("tawa.ir.build", "tawa.frontend.inline", "contextlib")
"""Modules whose frames stand between the builder's caller and the builder."""


def caller() -> Place:
    """Return the expression outside of the builder that is being evaluated."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return _place(frame.f_code, frame.f_lasti)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.startswith(_PASSED)


@lru_cache(maxsize=4096)
def _place(code: CodeType, instruction: int) -> Place:
    positions = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    line, last, column, end = positions
    if column is None or end is None or last != line:  # of several lines the first is shown whole
        end = column = column or 0
    return Place(code.co_filename, line or code.co_firstlineno, column, end)
