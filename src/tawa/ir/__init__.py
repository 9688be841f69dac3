"""The dialects: the only folder that declares operations; the rest imports them from here."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Any

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import Builtin, FileLineColLoc, ModuleOp, StringAttr, UnknownLoc
from xdsl.dialects.builtin import IntAttr as IntAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import AttributeInvT
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from tawa.errors import Place
from tawa.ir import aref, hopper, tile

LABEL = "label"
"""The attribute that names a statement: what plans, pins and messages call it."""


def make_context() -> Context:
    """Return a context that knows every dialect of the pipeline."""
    context = Context()
    for dialect in (Builtin, scf.Scf, tile.Tile, aref.Aref, hopper.Hopper):
        context.load_dialect(dialect)
    return context


class _Parser(Parser):
    """Reads each string as text: xDSL takes one with other characters than ASCII for bytes.

    With a `file`, each operation stands where it does in that file.
    """

    def __init__(self, context: Context, text: str, file: str) -> None:
        super().__init__(context, text, file or "<unknown>")
        self._file = file
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))] if file else []
        self._uses: dict[str, Span[Any]] = {}

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        operation = super().parse_operation()
        if self._file:
            line = bisect_right(self._lines, start)
            at_line(operation, self._file, line, start - self._lines[line - 1])
        return operation

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            return super().parse_module(allow_implicit_module)
        except ParseError as error:
            if self._current_token.kind == MLIRTokenKind.EOF and self.forward_ssa_references:
                name = next(iter(self.forward_ssa_references))  # where it is used, not the end
                raise ParseError(self._uses[name], f"%{name} is used but not defined") from error
            raise

    def resolve_operand(
        self, operand: UnresolvedOperand, type: AttributeInvT
    ) -> SSAValue[AttributeInvT]:
        self._uses.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

    def _get_op_by_name(self, name: str) -> type[Operation]:
        try:
            return super()._get_op_by_name(name)
        except ParseError as error:  # the name, and not what follows it
            source: Input[Any] = error.span.input
            start = source.content.rfind(name, 0, error.span.start)
            raise ParseError(Span(start, start + len(name), source), error.msg) from error

    def parse_optional_str_literal(self) -> str | None:
        if (text := super().parse_optional_str_literal()) is not None:
            return text
        found = self.parse_optional_bytes_literal()
        return None if found is None else found.decode()


def parse(text: str, file: str = "") -> tile.Kernel:
    """Read one kernel back from its text at any level; its operations stand in `file`, if given.

    Raises xDSL's ParseError or VerifyException, and TypeError for what is no kernel.
    """
    module = _Parser(make_context(), text, file).parse_module()
    module.verify()
    kernel = next(iter(module.body.block.ops))
    if not isinstance(kernel, tile.Kernel):
        raise TypeError(f"expected tile.kernel, got {kernel.name}")
    kernel.detach()
    return kernel


def verify(kernel: tile.Kernel) -> None:
    """Check the structure of a kernel that stands in no block; raises xDSL's VerifyException."""
    module = ModuleOp([kernel])
    try:
        module.verify()
    finally:
        kernel.detach()


def line_of(operation: Operation) -> int:
    """Return the Python line an operation stands for, 0 when unknown."""
    match operation.location:
        case FileLineColLoc():
            return operation.location.line.data
        case _:
            return 0


def place_of(operation: Operation) -> Place | None:
    """Return the Python place an operation stands for, None when unknown."""
    match operation.location:
        case FileLineColLoc(filename=file, line=line, column=column):
            return Place(file.data, line.data, column.data)
        case _:
            return None


def at_line(operation: Operation, file: str, line: int, column: int) -> Operation:
    """Set the Python place of an operation and return it."""
    operation.location = _location(file, line, column)
    return operation


@lru_cache(maxsize=256)
def _location(file: str, line: int, column: int) -> FileLineColLoc:
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(column))


__all__ = [
    "LABEL", "IntAttr", "UnknownLoc", "aref", "at_line", "hopper", "line_of", "make_context",
    "parse", "place_of", "tile", "verify",
]  # fmt: skip
