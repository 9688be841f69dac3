"""Classes of values: what ``tawa.aggregate`` and ``triton.aggregate`` have marked.

Triton's decorator makes another class, which copies the user's functions; the user's own class is
in the closures of its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any, get_type_hints

from tawa.errors import UnknownName


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A class of values: its fields, by name, with their annotations and defaults, and its own
    constructor. Without one, `stub` has the signature: the fields in order.
    """

    fields: Mapping[str, Any]
    defaults: Mapping[str, Any]
    init: Any

    @property
    def stub(self) -> Callable[..., None]:
        """A function of the fields."""

        def fields() -> None: ...

        kind = Parameter.POSITIONAL_OR_KEYWORD
        fields.__signature__ = Signature(  # pyright: ignore[reportFunctionMemberAccess]
            [
                Parameter(name, kind, default=self.defaults.get(name, Parameter.empty))
                for name in self.fields
            ]
        )
        return fields


def aggregate_of(kind: Any) -> Aggregate | None:
    """Return what a class marked as an aggregate has, of its bases too; None for anything else.

    Raises UnknownName for an annotation that names nothing.
    """
    if not isinstance(kind, type) or not getattr(kind, "__triton_aggregate__", False):
        return None
    own = _own(kind)
    try:
        fields = get_type_hints(own)
    except NameError as error:
        raise UnknownName(
            f"an annotation of {kind.__name__}: {error}",
            why="annotations that are text are read in the module of the class",
            remedy="define what they name in the module, or write them without quotes",
        ) from None
    held = [vars(_own(base)) for base in reversed(own.__mro__[:-1])]
    defaults = {name: space[name] for space in held for name in fields if name in space}
    inits = [space["__init__"] for space in held if "__init__" in space]
    return Aggregate(fields, defaults, inits[-1] if inits else None)


def defines(kind: type, name: str) -> bool:
    """Tell whether an aggregate has a function of a name, other than those of all objects."""
    found = getattr(kind, name, None)
    return callable(found) and found is not getattr(object, name, None)


def _own(kind: type) -> type:
    """Return the user's class of the one that Triton's decorator made."""
    setter = vars(kind).get("__setattr__")
    if not isinstance(setter, FunctionType):
        return kind
    cells = dict(zip(setter.__code__.co_freevars, setter.__closure__ or ()))
    return cells["cls"].cell_contents if "cls" in cells else kind
