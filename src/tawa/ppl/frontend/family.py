"""What a distribution is: its parameters, its support, and two functions of the subset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from tawa.ppl.frontend.surface import outside

Result = Literal["real", "int", "bool", "vector", "matrix"]


@dataclass(frozen=True, slots=True)
class Support:
    """Where the values lie, and the smooth map of all reals, or real vectors, onto it.

    `forward(z, *parameters)` returns the value and the log Jacobian of the map. For vectors and
    matrices z is a vector; `free(shape)` is its length.
    """

    name: str
    forward: Callable[..., Any] | None
    free: Callable[[tuple[int, ...]], int] = lambda shape: 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its name, what it is, and its value where none is given.

    A size is a whole number known when the model is compiled; functions of the family get the
    vector of places 0, 1, ... of that length for it.
    """

    name: str
    takes: Literal["real", "int", "vector", "matrix", "size"] = "real"
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """A family of distributions; calling it in a model gives one of them.

    `draw(*parameters)` and `log_density(value, *parameters)` are functions of the subset; the
    density is that of the value (real) or its probability (int, bool). `shift_scale` are the
    indices of a location and a scale: such a family can be sampled with `centered=False`.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Result
    support: Support
    draw: Callable[..., Any]
    log_density: Callable[..., Any]
    shape: Callable[..., tuple[int, ...]] = lambda *shapes: ()
    shift_scale: tuple[int, int] | None = None

    def __call__(self, *given: Any, **named: Any) -> NoReturn:
        """Stand for one distribution; only a model's source may call it."""
        outside(self.name)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A distribution with its parameters, while a model is lowered."""

    family: Distribution
    parameters: tuple[Any, ...]
