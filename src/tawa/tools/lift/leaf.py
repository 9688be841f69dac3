"""The tile IR of a leaf as text of the tile language, that reads back as it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation, SSAValue

from tawa.errors import MappingError
from tawa.ir import tile
from tawa.ir.build.values import dtype_of
from tawa.ir.types import DescType, element_type, shape_of
from tawa.simulator.values import place_of

_OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}
_FUNCTIONS = {"max": "maximum", "min": "minimum", "select": "where"}
_NAMED = (
    "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil", "abs",
    "fma",
)  # fmt: skip
_REDUCTIONS = {"add": "sum", "max": "max", "min": "min"}
_SCANS = {"add": "cumsum", "mul": "cumprod"}


WORDS = (
    *(tile.Elementwise, tile.Cast, tile.Reduce, tile.Splat, tile.Broadcast, tile.ExpandDims),
    *(tile.Dot, tile.Scan, tile.Reshape, tile.Transpose, tile.Arange),
)
"""The operations that a leaf can be printed of, besides constants."""


_SPELLED = {
    **{"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"},
    **{"fp8e4nv": "float8e4nv", "fp8e5": "float8e5"},
}


def refused(what: str, operation: Operation | None, why: str) -> MappingError:
    """Return the error of what tasks have no words for."""
    place = None if operation is None else place_of(operation)
    return MappingError(f"{what} cannot be said as tasks", place=place, why=why)


def dot_text(dot: tile.Dot, a: str, b: str, c: str) -> str:
    """Return the text of a product and what it is added to, in the precision that it asks for."""
    more = f', input_precision="{dot.precision.data}"' * (dot.precision.data != "tf32")
    if (run := dot.max_imprecise.data) not in (0, 1 << 30):  # tl.dot's own, and that of FP8
        more += f", max_num_imprecise_acc={run}"
    return f"tl.dot({a}, {b}, {c}{more})"


def element_of(value: SSAValue) -> str:
    """Return the language's name of the type of a value's elements."""
    kind: Any = value.type
    name = dtype_of(element_type(kind.block if isinstance(kind, DescType) else kind)).name
    return f"tl.{_SPELLED.get(name, name)}"


@dataclass(slots=True)
class LeafText:
    """Expressions of values, by the names of what is given and of what was computed."""

    names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])

    def statements(self, run: Sequence[Any], outputs: Sequence[SSAValue]) -> list[str]:
        """Return statements that compute some operations, and return their outputs.

        What has no name and is used once stands where it is used.
        """
        lines: list[str] = []
        for operation in run:
            (result,) = operation.results
            named = result.name_hint or len(list(result.uses)) > 1
            if named and not isinstance(operation, tile.Splat | tile.Broadcast | tile.ExpandDims):
                text, base, count = self.of(result), result.name_hint or "t", 0
                while (name := f"{base}_{count}" if count else base) in self.names.values():
                    count += 1
                lines.append(f"{name} = {text}")
                self.names[result] = name
        return [*lines, f"return {', '.join(map(self.of, outputs))}"]

    def of(self, value: SSAValue) -> str:
        """Return the text of a value; raises MappingError for what the text has no words for."""
        if value in self.names:
            return self.names[value]
        operation: Any = value.owner
        shape = tuple(shape_of(value.type))
        inner = self.of(operation.operands[0]) if len(operation.operands) == 1 else ""
        match operation:
            case tile.Constant():
                number = _number(operation)
                return f"tl.full({shape}, {number}, {element_of(value)})" if shape else number
            case tile.Dot():
                return dot_text(operation, *map(self.of, (operation.a, operation.b, operation.acc)))
            case tile.Splat():
                return f"tl.full({shape}, {inner}, {element_of(value)})"
            case tile.ExpandDims():
                at = (":" if d != operation.axis.data else "None" for d in range(len(shape)))
                return f"{inner}[{', '.join(at)}]"
            case tile.Broadcast():
                return f"tl.broadcast_to({inner}, {shape})"
            case tile.Arange():
                return f"tl.arange({operation.start.data}, {operation.start.data + shape[0]})"
            case tile.Cast():
                return f"{inner}.to({element_of(value)})"
            case tile.Reshape():
                return f"{inner}.reshape{shape}"
            case tile.Transpose() if len(shape) == 2:
                return f"{inner}.T"
            case tile.Reduce() | tile.Scan() if inner:
                body: list[Any] = list(operation.body.block.ops)
                words = _SCANS if isinstance(operation, tile.Scan) else _REDUCTIONS
                word = words.get(body[0].function.data) if len(body) == 2 else None
                back = ", reverse=True" * bool(operation.attributes.get("reverse"))
                if word:
                    return f"tl.{word}({inner}, {operation.axis.data}{back})"
            case tile.Elementwise():
                return self._elementwise(operation, shape)
            case _:
                pass
        raise refused(operation.name, operation, "the lift has no word of the language for it")

    def _elementwise(self, operation: Any, shape: tuple[int, ...]) -> str:
        function: str = operation.function.data
        bare = [self._bare(value) for value in operation.inputs]
        # The language broadcasts by itself where one operand has the whole shape.
        alone = shape and not any(tuple(shape_of(value.type)) == shape for _, value in bare)
        given = [self.of(v) if alone else text for (text, _), v in zip(bare, operation.inputs)]
        if function in _OPERATORS:
            return f"({given[0]} {_OPERATORS[function]} {given[1]})"
        if function == "neg":
            return f"(-{given[0]})"
        if function not in _FUNCTIONS and function not in _NAMED:
            raise refused(function, operation, "the lift has no word of the language for it")
        return f"tl.{_FUNCTIONS.get(function, function)}({', '.join(given)})"

    def _bare(self, value: SSAValue) -> tuple[str, SSAValue]:
        """Return an operand without what broadcasting adds by itself."""
        while value not in self.names and isinstance(value.owner, tile.Splat | tile.Broadcast):
            value = value.owner.operands[0]
        constant = value not in self.names and isinstance(value.owner, tile.Constant)
        return (_number(value.owner) if constant else self.of(value)), value


def _number(constant: Any) -> str:
    return re.sub(r"\b(inf|nan)\b", r'float("\1")', repr(constant.value.data))
