"""A model: a function of the subset under `@ppl.model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, NoReturn, overload

from tawa.errors import ModelError


@dataclass(frozen=True, slots=True)
class Model:
    """A function whose source is a probabilistic program.

    Example::

        @ppl.model
        def coin(flips):
            bias = ppl.sample(ppl.Beta(1.0, 1.0))
            ppl.map(lambda flip: ppl.observe(ppl.Bernoulli(bias), flip), flips)
            return bias
    """

    function: Callable[..., Any]
    dtype: str = "float32"
    programs: dict[Any, Any] = field(default_factory=lambda: {}, compare=False, repr=False)
    """What methods made of it (`infer/compose.py`), by their options and its arguments' form."""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    def __call__(self, *args: Any) -> NoReturn:
        """Only another model may call a model."""
        raise ModelError(
            f"{self.name} is a model: Python cannot call it",
            why="what it returns depends on an inference method",
            remedy=f"write ppl.infer({self.name}, ...)",
        )


@overload
def model(function: Callable[..., Any], /) -> Model: ...
@overload
def model(*, dtype: str) -> Callable[[Callable[..., Any]], Model]: ...
def model(*function: Any, dtype: str = "float32") -> Any:
    """Make a model of a function. Its source is read when it is first used.

    `@ppl.model(dtype="float64")` makes one whose runs are in float64 where they do not say other.
    Raises ModelError for anything but a function with source.
    """
    return _made(dtype, *function) if function else partial(_made, dtype)


def _made(dtype: str, function: Any) -> Model:
    if not isinstance(function, FunctionType):
        raise ModelError(
            f"{function!r:.60} is no model",
            why="a model is a Python function, whose source is read",
            remedy="write @ppl.model above a def",
        )
    return Model(function, dtype)


def refuse_other(given: object) -> None:
    """Raise ModelError for what is not a model."""
    if not isinstance(given, Model):
        raise ModelError(f"{given!r:.60} is not a model", remedy="put @ppl.model before its def")
