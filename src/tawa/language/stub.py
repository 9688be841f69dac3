"""What makes a name of the language: a documented function that only the compiler gives a meaning.

The signature of a stub is the API: the frontend binds arguments against it, so a handler and its
documentation cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

from tawa.errors import UnsupportedSyntax

F = TypeVar("F", bound=Callable[..., Any])  # a checker sees the function itself, so methods bind


def refuse(name: str) -> NoReturn:
    """Raise the error of a language function called by Python itself."""
    raise UnsupportedSyntax(
        f"tl.{name} was called outside a kernel",
        why="the functions of tawa.language have a meaning only in code that is compiled: "
        "in a function decorated with @tawa.jit, or called from one",
        remedy="launch the kernel with kernel[grid](...); in host code use NumPy, tawa.cdiv and "
        "tawa.next_power_of_2",
    )


def builtin(function: F) -> F:
    """Make a documented stub into a function of the language."""

    @wraps(function)
    def outside(*_: object, **__: object) -> NoReturn:
        refuse(function.__name__)

    return cast("F", outside)
