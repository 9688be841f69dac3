"""The text of a kernel: what ``str`` of its operation gives, in a fifth of the time; and where its
operations stand in Python, which the text does not say.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from io import StringIO
from types import TracebackType
from typing import TypeAlias

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue, TypeAttribute
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove

from tawa.ir.operation import TawaOperation
from tawa.ir.walk import walk

Place: TypeAlias = tuple[str, int, int]
"""Where an operation stands in Python: file, line, column."""


class _Between(AbstractContextManager[None]):
    """Prints one string before its body and one after it."""

    def __init__(self, stream: StringIO, start: str, end: str) -> None:
        self._write = stream.write
        self._start = start
        self._end = end

    def __enter__(self) -> None:
        self._write(self._start)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(self._end)


class _Printer(Printer):
    """Counts no columns, prints strings in one piece, and makes the text of each type once."""

    def __init__(self) -> None:
        self._text = StringIO()
        super().__init__(stream=self._text)
        self._write = self._text.write
        self._parens = _Between(self._text, "(", ")")
        # By identity, which is cheaper than by value; the attributes are kept to keep theirs.
        self._types: dict[int, tuple[Attribute, str]] = {}

    def text(self) -> str:
        return self._text.getvalue()

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:
            self._write(text)

    def _print_new_line(self, indent: int | None = None, print_message: bool = True) -> None:
        spaces = (self._indent if indent is None else indent) * self.indent_num_spaces
        self._write("\n" + " " * spaces)

    def in_parens(self) -> AbstractContextManager[None]:
        return self._parens

    def print_op(self, op: Operation) -> None:
        if _has_own_format(type(op)):
            self._print_results(op)
            self._write(op.name)
            op.print(self)
        else:
            super().print_op(op)

    def print_ssa_value(self, value: SSAValue) -> str:
        if (name := self._ssa_values.get(value)) is None:
            return super().print_ssa_value(value)
        self._write("%" + name)
        return name

    def print_attribute(self, attribute: Attribute) -> None:
        if (known := self._types.get(id(attribute))) is not None:
            self._write(known[1])
        elif isinstance(attribute, TypeAttribute):
            text = _text_of_type(attribute)
            self._types[id(attribute)] = attribute, text
            self._write(text)
        else:
            super().print_attribute(attribute)

    def print_bytes_literal(self, bytestring: bytes) -> None:
        plain = bytestring.isascii() and bytestring.decode("ascii").isprintable()
        if plain and b'"' not in bytestring and b"\\" not in bytestring:
            self.print_string(f'"{bytestring.decode("ascii")}"')
        else:
            super().print_bytes_literal(bytestring)


@cache
def _has_own_format(kind: type[Operation]) -> bool:
    """Tell whether an operation prints what stands after its name, and shares its names with those
    around it.
    """
    return issubclass(kind, TawaOperation) and not (
        kind.print is Operation.print or kind.has_trait(IsolatedFromAbove)
    )


@lru_cache(maxsize=1024)
def _text_of_type(kind: Attribute) -> str:
    stream = StringIO()
    Printer(stream=stream).print_attribute(kind)
    return stream.getvalue()


def text_of(operation: Operation) -> str:
    """Return the text of an operation and all that is in it."""
    printer = _Printer()
    printer.print_op(operation)
    return printer.text()


class SteadyText:
    """Prints a kernel again and again, each value under the name that it had before: what is
    different between two texts was changed.
    """

    def __init__(self) -> None:
        self._names: dict[SSAValue, str] = {}

    def of(self, operation: Operation) -> str:
        """Return the text of an operation and all that is in it."""
        printer = _SteadyPrinter(self._names)
        printer.print_op(operation)
        return printer.text()


class _SteadyPrinter(_Printer):
    """Takes the names of values from a table, which it adds to."""

    def __init__(self, names: dict[SSAValue, str]) -> None:
        super().__init__()
        self._names = names

    def print_ssa_value(self, value: SSAValue) -> str:
        if (name := self._names.get(value)) is None:
            number = len(self._names)
            name = f"{value.name_hint}_{number}" if value.name_hint else str(number)
            self._names[value] = name
        self._write("%" + name)
        return name


class _PlacedPrinter(_Printer):
    """Notes on which line of the text each operation begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[tuple[int, Operation]] = []

    def print_op(self, op: Operation) -> None:
        self.begins.append((self.text().count("\n"), op))
        super().print_op(op)


def text_with_places(operation: Operation) -> tuple[str, list[Place | None]]:
    """Return the text of an operation, and for each of its lines where in Python the operation
    stands that begins there: file, line, column.
    """
    printer = _PlacedPrinter()
    printer.print_op(operation)
    text = printer.text()
    places: list[Place | None] = [None] * (text.count("\n") + 1)
    for line, one in printer.begins:
        places[line] = _place_of(one)
    return text, places


def places_of(operation: Operation) -> str:
    """Return the places of an operation and of all that is in it, as text for `put_places`."""
    numbers: dict[tuple[str, int, int], int] = {}
    order = [
        -1 if place is None else numbers.setdefault(place, len(numbers))
        for place in map(_place_of, walk(operation))
    ]
    return json.dumps([list(numbers), order], separators=(",", ":"))


def put_places(operation: Operation, places: str) -> None:
    """Give an operation that was read from its text, and all that is in it, its places."""
    distinct, order = json.loads(places)
    known = [FileLineColLoc(StringAttr(f), IntAttr(line), IntAttr(c)) for f, line, c in distinct]
    for one, number in zip(walk(operation), order, strict=True):
        if number >= 0:
            one.location = known[number]


def _place_of(operation: Operation) -> Place | None:
    match operation.location:
        case FileLineColLoc(filename=file, line=line, column=column):
            return file.data, line.data, column.data
        case _:
            return None
