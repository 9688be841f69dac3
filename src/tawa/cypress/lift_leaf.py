"""The tile IR of a leaf as text of the tile language, that reads back as it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation, SSAValue

from tawa.errors import MappingError
from tawa.ir import tile
from tawa.ir.build.types import dtype_of
from tawa.ir.types import DescType, element_type, shape_of
from tawa.simulator.values import place_of

_OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}
_FUNCTIONS = {"max": "maximum", "min": "minimum", "select": "where"}
_NAMED = (
    "exp",
    "exp2",
    "log",
    "log2",
    "sin",
    "cos",
    "sqrt",
    "rsqrt",
    "erf",
    "floor",
    "ceil",
    "abs",
    "fma",
)
_REDUCTIONS = {"add": "sum", "max": "max", "min": "min"}


WORDS = (
    *(tile.Elementwise, tile.Cast, tile.Reduce, tile.Splat, tile.Broadcast, tile.ExpandDims),
    *(tile.Reshape, tile.Transpose, tile.Arange),
)
"""The operations that a leaf can be printed of, besides constants."""


def element_of(value: SSAValue) -> str:
    """Return the language's name of the type of a value's elements."""
    kind: Any = value.type
    inner = element_type(kind.block if isinstance(kind, DescType) else kind)
    return f"tl.{_SPELLED.get(name := dtype_of(inner).name, name)}"


_SPELLED = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
_SPELLED |= {"fp8e4nv": "float8e4nv", "fp8e5": "float8e5"}


@dataclass(slots=True)
class LeafText:
    """Expressions of values, by the names of what is given and of what was computed."""

    names: dict[SSAValue, str]

    def statements(self, run: Sequence[Operation], outputs: Sequence[SSAValue]) -> list[str]:
        """Return statements that compute some operations, and return their outputs."""
        lines: list[str] = []
        for operation in run:
            (result,) = operation.results
            several = len(list(result.uses)) > 1 or result in outputs
            shaped = isinstance(operation, tile.Splat | tile.Broadcast | tile.ExpandDims)
            if (result.name_hint or several) and not shaped:
                text = self.expression(result)
                used = set(self.names.values())
                base = result.name_hint or "t"
                name = next(
                    n for k in range(9999) if (n := f"{base}_{k}" if k else base) not in used
                )
                lines.append(f"{name} = {text}")
                self.names[result] = name
        return [*lines, f"return {', '.join(map(self.expression, outputs))}"]

    def expression(self, value: SSAValue) -> str:
        """Return the text of a value; raises MappingError for what the text has no words for."""
        if value in self.names:
            return self.names[value]
        operation: Any = value.owner
        match operation:
            case tile.Constant():
                number = repr(operation.value.data).replace("inf", 'float("inf")')
                shape = tuple(shape_of(value.type))
                return f"tl.full({shape}, {number}, {element_of(value)})" if shape else number
            case tile.Splat():
                inner = self.expression(operation.operands[0])
                return f"tl.full({tuple(shape_of(value.type))}, {inner}, {element_of(value)})"
            case tile.ExpandDims():
                rank, axis = len(shape_of(value.type)), operation.axis.data
                at = ", ".join("None" if d == axis else ":" for d in range(rank))
                return f"{self.expression(operation.operands[0])}[{at}]"
            case tile.Broadcast():
                inner = self.expression(operation.operands[0])
                return f"tl.broadcast_to({inner}, {tuple(shape_of(value.type))})"
            case tile.Arange():
                start = operation.start.data
                return f"tl.arange({start}, {start + shape_of(value.type)[0]})"
            case tile.Cast():
                return f"{self.expression(operation.value)}.to({element_of(value)})"
            case tile.Reshape():
                return f"{self.expression(operation.value)}.reshape{tuple(shape_of(value.type))}"
            case tile.Transpose() if len(shape_of(value.type)) == 2:
                return f"{self.expression(operation.value)}.T"
            case tile.Reduce() if len(operation.inputs) == 1:
                body = list(operation.body.block.ops)
                function = getattr(body[0], "function", None)
                word = _REDUCTIONS.get(function.data) if function and len(body) == 2 else None
                if word:
                    axis = operation.axis.data
                    return f"tl.{word}({self.expression(operation.inputs[0])}, {axis})"
            case tile.Elementwise():
                return self._elementwise(operation)
            case _:
                pass
        raise MappingError(
            f"{operation.name} cannot be said as tasks",
            place=place_of(operation),
            why="a leaf is printed in the words of the language that the lift knows",
        )

    def _elementwise(self, operation: tile.Elementwise) -> str:
        function = operation.function.data
        shape = list(shape_of(operation.result.type))
        given = [self._bare(value, operation) for value in operation.inputs]
        full = any(list(shape_of(value.type)) == shape for (_, value) in given) or not shape
        bare = [
            text if full else self.expression(v) for (text, _), v in zip(given, operation.inputs)
        ]
        if function in _OPERATORS:
            return f"({bare[0]} {_OPERATORS[function]} {bare[1]})"
        if function == "neg":
            return f"(-{bare[0]})"
        if function in _FUNCTIONS or function in _NAMED:
            return f"tl.{_FUNCTIONS.get(function, function)}({', '.join(bare)})"
        raise MappingError(
            f"{function} cannot be said as tasks",
            place=place_of(operation),
            why="a leaf is printed in the words of the language that the lift knows",
        )

    def _bare(self, value: SSAValue, user: Operation) -> tuple[str, SSAValue]:
        """Return an operand without what broadcasting adds by itself."""
        while value not in self.names and isinstance(value.owner, tile.Splat | tile.Broadcast):
            value = value.owner.operands[0]
        owner = value.owner
        if value not in self.names and isinstance(owner, tile.Constant):
            return repr(owner.value.data).replace("inf", 'float("inf")'), owner.result
        return self.expression(value), value
