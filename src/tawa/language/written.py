"""Functions of the language that are written in the language: compiled where they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tawa.language.stub import refuse


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A function whose body, `fn`, is itself tile code; the frontend compiles it at each call."""

    fn: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return str(self.fn.__name__)

    @property
    def __doc__(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.fn.__doc__

    def __call__(self, *_: object, **__: object) -> Any:
        """Raise UnsupportedSyntax: outside a kernel there are no tensors."""
        refuse(self.__name__)
