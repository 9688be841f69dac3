"""The dialects: the only folder that declares operations; the rest imports them from here."""

from __future__ import annotations

from functools import lru_cache

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import Builtin, FileLineColLoc, ModuleOp, StringAttr, UnknownLoc
from xdsl.dialects.builtin import IntAttr as IntAttr
from xdsl.ir import Operation
from xdsl.parser import Parser

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
    """Reads each string as text: xDSL takes one with other characters than ASCII for bytes."""

    def parse_optional_str_literal(self) -> str | None:
        if (text := super().parse_optional_str_literal()) is not None:
            return text
        found = self.parse_optional_bytes_literal()
        return None if found is None else found.decode()


def parse(text: str) -> tile.Kernel:
    """Read one kernel back from its text at any level."""
    module = _Parser(make_context(), text).parse_module()
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


def at_line(operation: Operation, file: str, line: int, column: int) -> Operation:
    """Set the Python place of an operation and return it."""
    operation.location = _location(file, line, column)
    return operation


@lru_cache(maxsize=256)
def _location(file: str, line: int, column: int) -> FileLineColLoc:
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(column))


__all__ = [
    "LABEL",
    "IntAttr",
    "UnknownLoc",
    "aref",
    "at_line",
    "hopper",
    "line_of",
    "make_context",
    "parse",
    "tile",
    "verify",
]
