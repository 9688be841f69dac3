"""The text of a program: what `inspect` shows and tests compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tawa.ppl.ir.core import Op, Program, Region, Value


def program_text(program: Program) -> str:
    """Return the text of a whole program."""
    names = _Names()
    params = ", ".join(names.typed(value) for value in program.params)
    lines = [f"program {program.name}({params})"]
    lines += [f"  var {name}: {type_}" for name, type_ in program.variables.items()]
    lines += [f"  buffer {name}: {kind}" for name, kind in program.buffers.items()]
    for function in program.functions.values():
        args = ", ".join(names.typed(value) for value in function.body.args)
        lines.append(f"  function {function.name}({args})")
        lines += names.region(function.body, "    ")
    for name, region in program.procedures.items():
        lines.append(f"  procedure {name}")
        lines += names.region(region, "    ")
    lines.append("  body")
    lines += names.region(program.body, "    ")
    return "\n".join(lines) + "\n"


def operation_text(op: Op) -> str:
    """Return the first line of an operation, for messages."""
    return _Names().head(op)


class _Names:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}

    def name(self, value: Value) -> str:
        if value not in self.names:
            self.names[value] = "%" + (value.name or str(len(self.names)))
        return self.names[value]

    def typed(self, value: Value) -> str:
        return f"{self.name(value)}: {value.type}"

    def head(self, op: Op) -> str:
        left = ", ".join(self.typed(value) for value in op.results)
        right = " ".join([op.code, ", ".join(self.name(value) for value in op.operands)]).strip()
        attrs = ", ".join(f"{key}={_attribute(given)}" for key, given in op.attrs.items())
        return f"{left}{' = ' if left else ''}{right}{' {' + attrs + '}' if attrs else ''}"

    def region(self, region: Region, indent: str) -> Iterator[str]:
        for op in region.ops:
            yield indent + self.head(op)
            for number, inner in enumerate(op.regions):
                args = ", ".join(self.typed(value) for value in inner.args)
                yield f"{indent}  [{number}] {args}".rstrip()
                yield from self.region(inner, indent + "    ")
        if region.yields:
            yield indent + "yield " + ", ".join(self.name(value) for value in region.yields)


def _attribute(given: Any) -> str:
    name = getattr(given, "name", None)
    return name if isinstance(name, str) else repr(given)
