"""Classes of values: what ``tawa.aggregate`` and ``triton.aggregate`` have marked.

Triton's decorator makes another class, which copies the user's functions; the user's own class is
in the closures of its methods.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature, get_annotations, getattr_static
from types import FunctionType
from typing import Any, get_type_hints

from tawa.errors import UnknownName
from tawa.frontend.source import contents, underlying


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

    Raises UnknownName where an annotation is text that nothing defines.
    """
    if not isinstance(kind, type) or not getattr_static(kind, "__triton_aggregate__", False):
        return None
    own = _own(kind)
    bases = [_own(base) for base in reversed(own.__mro__[:-1])]
    fields = {name: field for base in bases for name, field in _annotated(base).items()}
    held = [vars(base) for base in bases]
    defaults = {name: space[name] for space in held for name in fields if name in space}
    inits = [space["__init__"] for space in held if "__init__" in space]
    return Aggregate(fields, defaults, inits[-1] if inits else None)


def defines(kind: type, name: str) -> bool:
    """Tell whether an aggregate has a function of a name, other than those of all objects."""
    found = getattr(kind, name, None)
    return callable(found) and found is not getattr(object, name, None)


def _annotated(kind: type) -> dict[str, Any]:
    """Return the annotations of a class itself, which may be text: names in it mean what they mean
    to the class's own functions, and to its module.
    """
    names: dict[str, Any] = {**getattr(sys.modules.get(kind.__module__), "__dict__", {})}
    for held in vars(kind).values():
        function = underlying(getattr(held, "__func__", held))
        if function is not None and function.__qualname__.startswith(f"{kind.__qualname__}."):
            inside = zip(function.__code__.co_freevars, map(contents, function.__closure__ or ()))
            names |= {**function.__globals__, **dict(inside)}
    found: dict[str, Any] = {}
    for name, annotation in get_annotations(kind).items():
        try:
            alone = type(kind.__name__, (), {"__annotations__": {name: annotation}})
            found |= get_type_hints(alone, names, dict(vars(kind)))
        except (NameError, AttributeError) as error:
            raise UnknownName(
                f"the field {name} of {kind.__name__} is annotated {annotation}: {error}",
                why="an annotation that is text means what it means to the functions of its class",
                remedy="define the name in the module of the class, or leave out `from __future__ "
                "import annotations`",
            ) from None
    return found


def _own(kind: type) -> type:
    """Return the user's class of the one that Triton's decorator made."""
    setter = vars(kind).get("__setattr__")
    if not isinstance(setter, FunctionType):
        return kind
    cells = dict(zip(setter.__code__.co_freevars, setter.__closure__ or ()))
    return cells["cls"].cell_contents if "cls" in cells else kind
