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


def names() -> list[str]:
    """Return the name of every operator."""
    return [*signatures(), *composed()]


def einsum(equation: str) -> str:
    """Return the type of `einsum` for an equation, as NumPy reads it.

    Raises ValueError for what is none: letters of the result that no operand has, or twice.
    """
    if not equation:
        raise ValueError('its equation stands first, as in einsum "ij,jk->ik" a b')
    operands, arrow, result = equation.replace(" ", "").partition("->")
    words = [re.findall(r"\.\.\.|[a-zA-Z]", word) for word in operands.split(",")]
    letters = [letter for word in words for letter in word]
    if not arrow:
        once = {letter for letter in letters if letters.count(letter) == 1} - {"..."}
        result = "..." * ("..." in letters) + "".join(sorted(once))
    last = re.findall(r"\.\.\.|[a-zA-Z]", result)
    if [",".join(map("".join, words)), "".join(last)] != [operands.strip(), result]:
        raise ValueError("it is letters, `...`, `,` and one `->`")
    if "..." in letters and "..." not in last:
        raise ValueError("its result has no `...`, and an operand has")
    if odd := [each for each in last if last.count(each) > 1 or each not in letters]:
        raise ValueError(f"`{odd[0]}` is twice in its result, or in no operand")
    if any(word.count("...") > 1 for word in words):
        raise ValueError("an operand has `...` twice")
    shown = [
        ", ".join(f"..e{n}" if x == "..." else x for x in word) for n, word in enumerate(words)
    ]
    made = " -> ".join(["text", *(f"'n[{word}]" for word in shown)])
    made += f" -> 'n[{', '.join('..r' if x == '...' else x for x in last)}]"
    rows = [f"..e{n}" for n, word in enumerate(words) if "..." in word]
    meet = f"broadcast({', '.join(rows)})" if len(rows) > 1 else rows[0] if rows else ""
    return f"{made} where ..r = {meet}" if rows else made


DIRECTED = {"einsum": einsum}  # operators whose type follows from the text that stands first


@cache
def scheme_of(name: str) -> Scheme | None:
    """Return the scheme of an operator, None where there is none of that name.

    That of a directed one is asked for by the name, a space, and the text; raises ValueError where
    it follows from none.
    """
    place = Span(1, 1, 2)

    def wrong(at: Span, why: str) -> AxonError:
        return AxonError(f"the signature of {name}, {at}: {why}")

    name, _, written = name.partition(" ")
    text = DIRECTED[name](written) if name in DIRECTED else signatures().get(name)
    if text is None:
        fun = composed().get(name)
        return fun and Inference(scheme_of, wrong).one(fun, {}).scheme
    scope = Scope(Fresh(), wrong, Source(0, "", place, place))
    return scope.scheme(scope.type(parse_type(text, f"the signature of {name}")))
