"""The operators: signatures in the language itself, and their meaning in NumPy.

`SIGNATURES` is made of the files beside this one; a signature is parsed when it is first used.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tawa.axon.shapes.words import Fresh, Source, Span
from tawa.axon.syntax.parser import parse_type
from tawa.axon.types.elaborate import Scope
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
def scheme_of(name: str) -> Scheme | None:
    """Return the scheme of an operator, None where there is none of that name."""
    text = signatures().get(name)
    if text is None:
        return None
    place = Span(1, 1, 2)

    def wrong(at: Span, why: str) -> AxonError:
        return AxonError(f"the signature of {name}, {at}: {why}")

    scope = Scope(Fresh(), wrong, Source(0, "", place, place))
    return scope.scheme(scope.type(parse_type(text, f"the signature of {name}")))
