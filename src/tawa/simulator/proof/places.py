"""Places of an environment: what reads several of them at once."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeAlias

Read: TypeAlias = Callable[[list[Any]], tuple[Any, ...]]
"""What reads some places of an environment."""


def reader(places: tuple[int, ...]) -> Read:
    """Return what reads some places of an environment."""
    match places:
        case ():
            return lambda env: ()
        case (place,):
            return lambda env: (env[place],)
        case _:
            return itemgetter(*places)  # pyright: ignore[reportUnknownVariableType]
