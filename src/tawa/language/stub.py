"""What makes a name of the language: a documented function that only the compiler gives a meaning.

The signature of a stub is the API: the frontend binds arguments against it, so a handler and its
documentation cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

from tawa.errors import UnsupportedSyntax

P = ParamSpec("P")
R = TypeVar("R")


def refuse(name: str) -> NoReturn:
    """Raise the error of a language function called by Python itself."""
    raise UnsupportedSyntax(
        f"tl.{name} was called outside a kernel",
        why="the functions of tawa.language have a meaning only in code that is compiled: "
        "in a function decorated with @tawa.jit, or called from one",
        remedy="launch the kernel with kernel[grid](...), or use NumPy in host code",
    )


def builtin(function: Callable[P, R]) -> Callable[P, R]:
    """Make a documented stub into a function of the language."""

    @wraps(function)
    def outside(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse(function.__name__)

    return outside
