"""The operators: signatures in the language itself, and their meaning in NumPy.

Those of `composed.axon` are functions of others: they need neither. A text is parsed when it is
first used.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tawa.axon.shapes.words import Fresh, Source, Span
from tawa.axon.syntax.parser import parse_program, parse_type
from tawa.axon.syntax.tree import Fun
from tawa.axon.types.elaborate import Scope
from tawa.axon.types.infer import Inference
from tawa.axon.types.kinds import Scheme
from tawa.errors import AxonError

FILES = ("pointwise", "products", "shapes", "reductions")


@cache
def signatures() -> dict[str, str]:
    """Return the text of each operator's type, by its name."""
    found: dict[str, str] = {}
    for name in FILES:
        text = (Path(__file__).parent / f"{name}.axon").read_text()
        for match in re.finditer(r"^val (\w+) :(.*(?:\n .*)*)", text, re.MULTILINE):
            found[match[1]] = match[2].strip()
    return found


@cache
def composed() -> dict[str, Fun]:
    """Return the operators that are functions of others, by name."""
    text = (Path(__file__).parent / "composed.axon").read_text()
    found = parse_program(text, "composed.axon")
    return {each.name: each for each in found if isinstance(each, Fun)}


@cache
def scheme_of(name: str) -> Scheme | None:
    """Return the scheme of an operator, None where there is none of that name."""
    place = Span(1, 1, 2)

    def wrong(at: Span, why: str) -> AxonError:
        return AxonError(f"the signature of {name}, {at}: {why}")

    text = signatures().get(name)
    if text is None:
        fun = composed().get(name)
        return fun and Inference(scheme_of, wrong).one(fun, {}).scheme
    scope = Scope(Fresh(), wrong, Source(0, "", place, place))
    return scope.scheme(scope.type(parse_type(text, f"the signature of {name}")))
