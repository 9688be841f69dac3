"""Python source as a tree, made by one thread at a time; its names in ASCII.

CPython before 3.11.8 and 3.12.2 keeps one count for the depth of all trees that are being made, and
raises SystemError where two threads make one at once (python/cpython#106905).
"""

from __future__ import annotations

import ast
import threading
import unicodedata
from typing import Literal, overload

_MAKING = threading.RLock()  # what a garbage collection runs meanwhile may come here as well


@overload
def parse(text: str) -> ast.Module: ...
@overload
def parse(text: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse(text: str, mode: str = "exec") -> ast.AST:
    """Return the tree of some source, of an expression in mode "eval". Raises SyntaxError."""
    with _MAKING:
        return ast.parse(text, mode=mode)


def in_ascii(name: str) -> str:
    """Return a name as IR and C++ can take it: letters lose their accents, and what no ASCII letter
    is like becomes its code point.

    >>> in_ascii("größe"), in_ascii("β")
    ('groudfe', 'u3b2')
    """
    if name.isascii():
        return name
    plain = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return "".join(c if c.isascii() else f"u{ord(c):x}" if c.isalnum() else "_" for c in plain)
