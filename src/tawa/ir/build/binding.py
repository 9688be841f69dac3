"""Arguments of a call against the documented signature of a function of the language."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache

from tawa.ir.build.builder import Builder
from tawa.ir.build.values import Tuple, Value

_FORMER = {"trans_a": "pass tl.trans(a) for a", "trans_b": "pass tl.trans(b) for b"}
"""What stands for arguments that Triton has had."""


def bind(
    builder: Builder,
    name: str,
    stub: Callable[..., object],
    positional: Sequence[Value],
    named: Mapping[str, Value],
    lift: Callable[[object], Value],
) -> dict[str, Value]:
    """Return the arguments by parameter, defaults filled in by `lift`; raises TypeMismatch."""
    signature = _signature(stub)
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise builder.mismatch(
            f"{name}: {error}",
            why=f"its parameters are {_without_types(signature)}",
            remedy="; ".join(
                suggest(word, signature.parameters, _FORMER.get(word, f"leave {word} out"))
                for word in named
                if word not in signature.parameters
            ),
        ) from None
    values: dict[str, Value] = {}
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            values[parameter.name] = Tuple(tuple(bound.arguments.get(parameter.name, ())))
        elif parameter.name in bound.arguments:
            values[parameter.name] = bound.arguments[parameter.name]
        else:
            values[parameter.name] = lift(parameter.default)
    return values


def _without_types(signature: inspect.Signature) -> str:
    """Return the names and defaults of parameters."""
    parameters = signature.parameters.values()
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


@lru_cache(maxsize=1024)
def _signature(stub: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function of the language."""
    return inspect.signature(stub)


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return what to do about an unknown name: the names like it, else `otherwise`."""
    public = [item for item in known if not item.startswith("_")]
    near = get_close_matches(name, public, cutoff=0.75)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
