# pyright: reportUnknownMemberType=false
"""A term of a plate, and its gradient, as operations of a tile kernel.

The body of a program in which nothing loops but by known counts is run on tiles in place of
numbers: variables are names of tiles, whole constants (places in vectors) are Python's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tawa.errors import InternalError
from tawa.ir.build import KernelBuilder
from tawa.ppl.ir.core import Op, Program, Region, Value

Tile = Any
"""A tile, or a number where it is known."""

_DIRECT: dict[str, Callable[..., Any]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv},
    **{"neg": operator.neg, "lt": operator.lt, "le": operator.le, "eq": operator.eq},
    **{"ne": operator.ne, "and": operator.and_, "or": operator.or_, "xor": operator.xor},
}
_CALLED = ("sqrt", "abs", "floor", "exp", "log", "log1p", "expm1", "erf")
_TURNS = {"sinturn": "sin", "costurn": "cos"}
FUNCTIONS = frozenset((*_DIRECT, *_CALLED, *_TURNS, "fma", "select", "cast"))
"""Operations of a term that tiles have."""
_ELEMENTS = {"f32": "f32", "i32": "i32", "bool": "i1"}


def evaluate(k: KernelBuilder, term: Program, z: list[Tile], columns: list[Tile]) -> Evaluated:
    """Append a term's body: z and columns are tiles that broadcast against each other."""
    made = Evaluated(k, {"z": dict(enumerate(z))})
    made.region(term.body, dict(zip(term.params, columns, strict=True)))
    return made


class Evaluated:
    """The variables of a program after its body: tiles, those of a vector by their places."""

    def __init__(self, k: KernelBuilder, variables: dict[str, Any]) -> None:
        self.k = k
        self.variables = variables

    @property
    def value(self) -> Tile:
        """The term."""
        return self.variables["logw"]

    def slope(self, number: int) -> Tile:
        """The derivative of the term with respect to an input."""
        return self.variables["g"][number]

    def region(self, region: Region, known: dict[Value, Tile]) -> None:
        """Append the operations of a region."""
        for op in region.ops:
            given = [known[value] for value in op.operands]
            match op.code:
                case "const":
                    known[op.result] = op.attrs["value"]
                case "set":
                    self.variables[op.attrs["name"]] = given[0]
                case "get":
                    known[op.result] = self.variables[op.attrs["name"]]
                case "storevar":
                    self.variables.setdefault(op.attrs["name"], {})[given[0]] = given[1]
                case "loadvar":
                    known[op.result] = self.variables[op.attrs["name"]][given[0]]
                case "accumulate":
                    name, (*at, amount) = op.attrs["name"], given
                    held = self.variables[name] if at else self.variables
                    key = at[0] if at else name
                    held[key] = held[key] + amount
                case "for":
                    for iteration in range(given[0]):
                        self.region(op.regions[0], {**known, op.regions[0].args[0]: iteration})
                case "if":
                    known.update(zip(op.results, self.either(op, given[0], known), strict=True))
                case _:
                    known[op.result] = self.operation(op, given)

    def either(self, op: Op, condition: Tile, known: dict[Value, Tile]) -> list[Tile]:
        """Append both branches; each element has what its own left, in variables as in results."""
        before = self.variables
        left: list[dict[str, Any]] = []
        yields: list[list[Tile]] = []
        for region in op.regions:
            self.variables = {
                name: dict(_vector(held)) if isinstance(held, dict) else held
                for name, held in before.items()
            }
            inner = dict(known)
            self.region(region, inner)
            left.append(self.variables)
            yields.append([inner[value] for value in region.yields])
        self.variables = self._joined(condition, *left)
        return [self._join(condition, *pair) for pair in zip(*yields, strict=True)]

    def _joined(self, condition: Tile, yes: dict[Any, Any], no: dict[Any, Any]) -> dict[Any, Any]:
        """Return what either side left; what only one knows is its own."""
        both = {key: self._join(condition, yes[key], no[key]) for key in yes.keys() & no.keys()}
        return {**yes, **no, **both}

    def _join(self, condition: Tile, one: Any, other: Any) -> Any:
        if isinstance(one, dict):
            return self._joined(condition, _vector(one), _vector(other))
        if one is other:
            return one
        return self.k.where(condition, self.tile(one), self.tile(other))

    def operation(self, op: Op, given: list[Tile]) -> Tile:
        """Append an elementary operation."""
        if op.code in _DIRECT:
            return _DIRECT[op.code](*given)
        if op.code in _CALLED:
            return self.k.call(op.code, self.tile(given[0]))
        if op.code in _TURNS:
            return self.k.call(_TURNS[op.code], self.tile(given[0]) * (2 * math.pi))
        match op.code:
            case "fma":
                return given[0] * given[1] + given[2]
            case "select" if isinstance(given[0], bool):
                return given[1] if given[0] else given[2]
            case "select":
                return self.k.where(*given)
            case "cast":
                return self.tile(given[0], op.operands[0]).to(_ELEMENTS[op.result.type.kind])
            case _:
                raise InternalError(f"tiles have no rule for {op.code}")

    def tile(self, given: Tile, value: Value | None = None) -> Tile:
        """Return what a function of tiles takes: a known number as a constant."""
        if not isinstance(given, (bool, int, float)):
            return given
        return self.k.constant(given, _ELEMENTS[value.type.kind if value else "f32"])


def _vector(held: Any) -> dict[int, Tile]:
    return held
