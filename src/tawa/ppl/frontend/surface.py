"""Words of the language: Python sees their names and what they take, none is ever run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec

from tawa.errors import ModelError

if TYPE_CHECKING:
    from tawa.ppl.frontend.context import Context

P = ParamSpec("P")


def outside(name: str) -> NoReturn:
    """Refuse a word, or a distribution, that Python runs."""
    raise ModelError(
        f"ppl.{name} was called outside of a model",
        why="a model's source is compiled, not run: its words have a meaning only there",
        remedy="call it in a function under @ppl.model, and run that with ppl.infer",
    )


class Word(Generic[P]):
    """A word of the language, by what lowers it: a function of the lowering and of what the word
    takes, whose name and meaning are the word's; or `like` a function that is written in it.
    """

    def __init__(
        self, lower: Callable[Concatenate[Context, P], Any], like: Callable[P, Any] | None = None
    ) -> None:
        self.lower, self.like = lower, like
        self.__name__, self.__doc__ = lower.__name__, lower.__doc__
        self.__module__ = lower.__module__
        takes = list(signature(like or lower).parameters.values())[0 if like else 1 :]
        self.__signature__ = Signature([each.replace(annotation=Signature.empty) for each in takes])

    def __repr__(self) -> str:
        """Say what it takes, for `help`."""
        return f"ppl.{self.__name__}{self.__signature__}"

    def __reduce__(self) -> str:
        """Pickle it by its name, as a function."""
        return self.__name__

    def __call__(self, *_: P.args, **__: P.kwargs) -> Any:
        """Only a model may call it."""
        outside(self.__name__)


def written(function: Callable[P, Any]) -> Word[P]:
    """Return the word that a function of the language is."""

    @wraps(function)
    def lower(low: Context, *args: P.args, **named: P.kwargs) -> Any:
        return low.call(function, args, named)

    return Word(lower, function)
