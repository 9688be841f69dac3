"""The text of a kernel: what ``str`` of its operation gives, in a third of the time."""

from __future__ import annotations

from functools import lru_cache
from io import StringIO

from xdsl.ir import Attribute, Operation, TypeAttribute
from xdsl.printer import Printer


class _Printer(Printer):
    """Prints strings in one piece, and each type once: types are most of a kernel's text."""

    def print_attribute(self, attribute: Attribute) -> None:
        if isinstance(attribute, TypeAttribute):
            self.print_string(_text_of_type(attribute))
        else:
            super().print_attribute(attribute)

    def print_bytes_literal(self, bytestring: bytes) -> None:
        plain = bytestring.isascii() and bytestring.decode("ascii").isprintable()
        if plain and b'"' not in bytestring and b"\\" not in bytestring:
            self.print_string(f'"{bytestring.decode("ascii")}"')
        else:
            super().print_bytes_literal(bytestring)


@lru_cache(maxsize=1024)
def _text_of_type(kind: Attribute) -> str:
    stream = StringIO()
    Printer(stream=stream).print_attribute(kind)
    return stream.getvalue()


def text_of(operation: Operation) -> str:
    """Return the text of an operation and all that is in it."""
    stream = StringIO()
    _Printer(stream=stream).print_op(operation)
    return stream.getvalue()
