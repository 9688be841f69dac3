"""Tasks: variants, inner or leaf, with the privileges they declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tawa.cypress.place import here
from tawa.cypress.tensor import TensorType
from tawa.errors import MappingError, Place


@dataclass(frozen=True, slots=True, repr=False)
class Variant:
    """One way to do a task. `tunables` are the keyword-only parameters, with their types."""

    task: str
    function: Callable[..., Any]
    inner: bool
    parameters: tuple[str, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    types: tuple[TensorType | None, ...]
    tunables: tuple[str, ...]

    @property
    def hints(self) -> Mapping[str, Any]:
        """The annotations, by parameter; None for what has none."""
        names = (*self.parameters, *self.tunables)
        return {name: self.function.__annotations__.get(name) for name in names}

    @property
    def name(self) -> str:
        """The function's name, as mappings print it; those of the library with `cy.lib.`."""
        name = self.function.__name__
        home = "tawa.cypress.lib"
        return f"cy.lib.{name}" if self.function.__module__ == home else name

    @property
    def place(self) -> Place:
        """The function's first line."""
        code = self.function.__code__
        return Place(code.co_filename, code.co_firstlineno)

    def __repr__(self) -> str:
        """Return the name, as mappings print it."""
        return self.name

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse: tasks are launched."""
        raise MappingError(
            f"{self.name} is called",
            place=here(),
            why="which variant runs is the mapping's choice",
            remedy=f'write cy.launch("{self.task}", ...)',
        )


def inner(
    task: str, *, reads: str = "", writes: str = ""
) -> Callable[[Callable[..., Any]], Variant]:
    """Make a function an inner variant of a task: it partitions tensors and launches tasks.

    `reads` and `writes` name parameters; keyword-only parameters are tunables, which the mapping
    gives. Raises MappingError for names that the function does not have.
    """
    return lambda function: _variant(task, function, True, reads, writes)


def leaf(
    task: str, *, reads: str = "", writes: str = ""
) -> Callable[[Callable[..., Any]], Variant]:
    """Make a function a leaf variant of a task: tile language on tensors.

    It returns the new values of what it writes, in the order of its parameters.
    """
    return lambda function: _variant(task, function, False, reads, writes)


def _variant(
    task: str, function: Callable[..., Any], inside: bool, reads: str, writes: str
) -> Variant:
    code = function.__code__
    place = Place(code.co_filename, code.co_firstlineno)
    parameters = inspect.signature(function).parameters.values()
    tensors = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    tunables = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if len(tensors) + len(tunables) != len(parameters):
        raise MappingError(
            f"{function.__name__} has parameters that are neither tensors nor tunables",
            place=place,
            why="tensors are positional parameters, tunables keyword-only ones",
        )
    given = {"reads": frozenset(reads.split()), "writes": frozenset(writes.split())}
    for word, names in given.items():
        if unknown := sorted(names - set(tensors)):
            raise MappingError(
                f"{function.__name__} {word} {unknown[0]}, which is none of its parameters",
                place=place,
                why=f"its tensors are {', '.join(tensors)}",
            )
    if unused := [name for name in tensors if name not in given["reads"] | given["writes"]]:
        raise MappingError(
            f"{function.__name__} neither reads nor writes {unused[0]}",
            place=place,
            remedy="name each parameter in reads= or writes=, or drop it",
        )
    hints: Mapping[str, Any] = {}
    if inside:
        hints = inspect.get_annotations(function, eval_str=True)
    types = tuple(hints.get(name) for name in tensors)
    if inside and not all(isinstance(kind, TensorType) for kind in types):
        raise MappingError(
            f"{function.__name__} does not say the types of its tensors",
            place=place,
            remedy="annotate them: C: cy.Tensor[cy.f16, 2]",
        )
    return Variant(
        task,
        function,
        inside,
        tuple(tensors),
        given["reads"],
        given["writes"],
        types,
        tuple(tunables),
    )
