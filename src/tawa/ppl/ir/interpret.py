# pyright: reportUnknownMemberType=false
"""The interpreter: the definition of what a program means, one lane after the other.

Floating-point operations are NumPy's on scalars of the program's kind: IEEE, rounded to nearest.
Integers wrap. A shift by the width or more gives 0.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tawa.errors import InternalError
from tawa.ppl.ir.core import Function, Kind, Op, Program, Region, Type, Value, walk
from tawa.ppl.ir.operations import ADJOINTS, ELEMENTARY, FUNCTIONS, MATRICES, NEUTRAL, PARTS

_FLOAT: dict[str, Callable[[Any], Any]] = {"f32": np.float32, "f64": np.float64}
_WIDTH = {"i32": 32, "i64": 64, "bool": 1}
_BITS = {"f32": ("<f", "<i"), "f64": ("<d", "<q")}
Library = Callable[..., Function]
"""Gives the IR of a function of `math/`, by its name and the types of its arguments."""


def interpret(
    program: Program,
    arguments: Sequence[Any],
    buffers: Mapping[str, np.ndarray[Any, Any]],
    lanes: range,
    library: Library,
) -> None:
    """Run lanes of a program; `buffers` (rows by lanes) are read and written.

    `arguments` are in the order of `program.params`: numbers, and NumPy arrays of the shapes.
    """
    with np.errstate(all="ignore"):
        values = _constants(program.regions()) | {
            param: _argument(param.type, given)
            for param, given in zip(program.params, arguments, strict=True)
        }
        for lane in lanes:
            _Lane(program, buffers, lane, library).region(program.body, dict(values))


def _constants(regions: Iterable[Region]) -> dict[Value, Any]:
    """Return the values of constants: a third of all operations."""
    ops = (op for region in regions for op in walk(region) if op.code == "const")
    return {op.result: number(op.result.type.kind, op.attrs["value"]) for op in ops}


@cache
def _begun(function: Function) -> dict[Value, Any]:
    return _constants([function.body])


def _argument(type_: Type, given: Any) -> Any:
    if type_.shape:
        return [number(type_.kind, item) for item in np.asarray(given).reshape(-1).tolist()]
    return number(type_.kind, given)


def number(kind: Kind, given: Any) -> Any:
    """Return a Python number as one of a kind."""
    if kind in _FLOAT:
        return _FLOAT[kind](given)
    return bool(given) if kind == "bool" else wrap(kind, int(given))


def wrap(kind: Kind, given: int) -> int:
    """Return an integer modulo the kind's width, signed."""
    width = _WIDTH[kind]
    given &= (1 << width) - 1
    return given - (1 << width) if given >> (width - 1) else given


def fma(kind: Kind, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once."""
    left, right, plus = float(a), float(b), float(c)
    if not (math.isfinite(left) and math.isfinite(right) and math.isfinite(plus)):
        return _FLOAT[kind](np.float64(left) * np.float64(right) + np.float64(plus))
    if kind == "f64":
        (a1, a2), (b1, b2), (c1, c2) = (x.as_integer_ratio() for x in (left, right, plus))
        exact, unit = a1 * b1 * c2 + c1 * a2 * b2, a2 * b2 * c2
        if exact == 0:  # its sign is that of a sum of zeros
            return np.float64(left * right + plus)
        try:
            return np.float64(exact / unit)  # rounded once
        except OverflowError:
            return np.float64(math.inf if exact > 0 else -math.inf)
    product = left * right  # exact: 48 bits
    rough = product + plus
    part = rough - product
    error = (product - (rough - part)) + (plus - part)  # exact (Knuth)
    if error:
        # Round to odd: a double that was rounded must not look like a tie between two floats.
        (bits,) = struct.unpack("<q", struct.pack("<d", rough))
        if not bits & 1:
            bits += 1 if (error > 0) == (rough > 0) else -1
            (rough,) = struct.unpack("<d", struct.pack("<q", bits))
    return np.float32(rough)


class _Lane:
    def __init__(
        self,
        program: Program,
        buffers: Mapping[str, np.ndarray[Any, Any]],
        lane: int,
        library: Library,
    ) -> None:
        self.program = program
        self.buffers = buffers
        self.lane = lane
        self.library = library
        self.variables: dict[str, Any] = {
            name: _filled(type_, 0) for name, type_ in program.variables.items()
        }

    def region(self, region: Region, env: dict[Value, Any], args: Sequence[Any] = ()) -> list[Any]:
        env.update(zip(region.args, args, strict=True))
        for op in region.ops:
            if op.code != "const":
                env.update(zip(op.results, self.operation(op, env), strict=True))
        return [env[value] for value in region.yields]

    def operation(self, op: Op, env: dict[Value, Any]) -> Sequence[Any]:
        given = [env[value] for value in op.operands]
        if op.code in _ELEMENTARY:
            return (_elementary(op, op.operands[0].type.kind, given),)
        match op.code:
            case "load":
                return (given[0][offset(op.operands[0].type.shape, given[1:])],)
            case "pack":
                return (_stack(given),)
            case "select":
                return (given[1] if given[0] else given[2],)
            case "cast":
                return (_cast(op.operands[0].type.kind, op.result.type.kind, given[0]),)
            case "bits":
                return (_bits(op.operands[0].type.kind, op.result.type.kind, given[0]),)
            case "if":
                return self.region(op.regions[0 if given[0] else 1], env)
            case "switch":
                number_: int = given[0]
                if 0 <= number_ < len(op.regions):
                    self.region(op.regions[number_], env)
                return ()
            case "for" if "sums" in op.attrs:
                self.rows(op, given[0], env)
                return ()
            case "for":
                carried = given[1:]
                for index in range(given[0]):
                    carried = self.region(op.regions[0], env, (index, *carried))
                return carried
            case "while":
                while self.region(op.regions[0], env, given)[0]:
                    given = self.region(op.regions[1], env, given)
                return given
            case "build":
                rows = [self.region(op.regions[0], env, (i,)) for i in range(op.attrs["count"])]
                return [_stack(column) for column in zip(*rows, strict=True)]
            case "get":
                return (_copied(self.variables[op.attrs["name"]]),)
            case "set":
                self.variables[op.attrs["name"]] = _copied(given[0])
                return ()
            case "loadvar":
                return (self.variables[op.attrs["name"]][self.at(op, given)],)
            case "storevar":
                self.variables[op.attrs["name"]][self.at(op, given)] = given[-1]
                return ()
            case "accumulate":
                name, type_ = op.attrs["name"], op.operands[-1].type
                held = self.variables[name]
                if len(given) == 1:
                    self.variables[name] = _joined(type_, held, given[0])
                else:
                    at = self.at(op, given)
                    held[at] = _joined(type_, held[at], given[-1])
                return ()
            case "lane":
                return (self.lane,)
            case "read":
                kind = op.result.type.kind
                return (number(kind, self.buffers[op.attrs["name"]][self.column(given)]),)
            case "write":
                self.buffers[op.attrs["name"]][self.column(given[:-1])] = given[-1]
                return ()
            case "call":
                body = self.program.functions[op.attrs["name"]].body
                return self.region(body, dict(env), given)
            case "run":
                return self.region(self.program.procedures[op.attrs["name"]], env)
            case code if code in _LIBRARY:
                called = self.library(code, *(value.type for value in op.operands))
                body, memory = called.body, called.variables
                inner = Program(called.name, self.program.dtype, (), body, variables=memory)
                values = dict(_begun(called))
                return _Lane(inner, {}, self.lane, self.library).region(body, values, given)
            case _:
                raise InternalError(f"the interpreter has no rule for {op.code}")

    def rows(self, op: Op, count: int, env: dict[Value, Any]) -> None:
        """Run a loop whose sums are added up in parts: row i to part i modulo PARTS, in order, and
        then half of the parts to the other half, until one is left.
        """
        held, sums = self.variables, tuple(op.attrs["sums"])
        before = {name: held[name] for name in sums}
        types = {name: self.program.variables[name] for name in sums}
        parts: list[dict[str, Any]] = [
            {name: _filled(type_, NEUTRAL[type_.kind]) for name, type_ in types.items()}
            for _ in range(PARTS)
        ]
        for row in range(count):
            held |= parts[row % PARTS]
            self.region(op.regions[0], env, (row,))
            parts[row % PARTS] = {name: held[name] for name in sums}
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [
                {name: _joined(types[name], low[name], high[name]) for name in sums}
                for low, high in zip(parts[:half], parts[half:], strict=True)
            ]
        held |= {name: _joined(types[name], before[name], parts[0][name]) for name in sums}

    def column(self, at: Sequence[Any]) -> tuple[Any, Any]:
        """Return a row, and the lane: this one where no other is named."""
        return at[0], at[1] if len(at) > 1 else self.lane

    def at(self, op: Op, given: Sequence[Any]) -> int:
        shape = self.program.variables[op.attrs["name"]].shape
        return offset(shape, given[: len(shape)])


def offset(shape: tuple[int, ...], at: Sequence[int]) -> int:
    """Return where an element lies in row-major order. Raises InternalError outside of it."""
    place = 0
    for size, index in zip(shape, at, strict=True):
        if not 0 <= index < size:
            raise InternalError(f"index {list(at)} is outside of {list(shape)}")
        place = place * size + index
    return place


def _filled(type_: Type, given: float) -> Any:
    """Return a variable that is a number in each place."""
    item = number(type_.kind, given)
    return [item] * type_.size if type_.shape else item


def _joined(type_: Type, one: Any, other: Any) -> Any:
    """Return what accumulating gives: sums of reals, and the larger of whole numbers."""
    if type_.shape:
        scalar = Type(type_.kind)
        return [_joined(scalar, a, b) for a, b in zip(one, other, strict=True)]
    return number(type_.kind, one + other if type_.is_float else max(one, other))


def _copied(value: Any) -> Any:
    """Return a value of its own: an array value does not change when the variable does."""
    return list(value) if isinstance(value, list) else value  # pyright: ignore


def _stack(rows: Sequence[Any]) -> list[Any]:
    if rows and isinstance(rows[0], list):
        return [item for row in rows for item in row]
    return list(rows)


def _cast(source: Kind, target: Kind, given: Any) -> Any:
    if target in _FLOAT:
        return _FLOAT[target](given)
    if target == "bool":
        return given != 0
    if source in _FLOAT:
        if math.isnan(given):
            return 0
        limit = 1 << (_WIDTH[target] - 1)
        return int(max(-float(limit), given)) if given < float(limit) else limit - 1
    return wrap(target, int(given))


def _bits(source: Kind, target: Kind, given: Any) -> Any:
    if source in _FLOAT:
        floating, integer = _BITS[source]
        return struct.unpack(integer, struct.pack(floating, given))[0]
    floating, integer = _BITS[target]
    return _FLOAT[target](struct.unpack(floating, struct.pack(integer, given))[0])


def _elementary(op: Op, kind: Kind, given: Sequence[Any]) -> Any:
    floating = kind in _FLOAT
    if (plain := _PLAIN.get(op.code)) is not None:
        raw = plain(*given)
    elif op.code in _RELATIONS:
        return bool(_RELATIONS[op.code](*given))
    else:
        raw = _special(op.code, kind, given)
    if floating:
        return raw if type(raw) is _FLOAT[kind] else _FLOAT[kind](raw)
    return bool(raw) if kind == "bool" else wrap(kind, int(raw))


def _special(code: str, kind: Kind, given: Sequence[Any]) -> Any:
    match code:
        case "fma":
            return fma(kind, given[0], given[1], given[2])
        case "floordiv":
            return given[0] // given[1] if given[1] else 0
        case "mod":
            return given[0] % given[1] if given[1] else given[0]
        case "shl":
            return given[0] << given[1] if 0 <= given[1] < _WIDTH[kind] else 0
        case "lshr":
            word = given[0] & ((1 << _WIDTH[kind]) - 1)
            return word >> given[1] if 0 <= given[1] < _WIDTH[kind] else 0
        case _:  # mulhi
            mask = (1 << _WIDTH[kind]) - 1
            return ((given[0] & mask) * (given[1] & mask)) >> _WIDTH[kind]


_PLAIN: dict[str, Callable[..., Any]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv},
    **{"neg": operator.neg, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "rint": np.rint},
    **{"and": operator.and_, "or": operator.or_, "xor": operator.xor},
}
_ELEMENTARY = ELEMENTARY.keys() - FUNCTIONS
_LIBRARY = {*FUNCTIONS, *MATRICES, *ADJOINTS, "philox"}
_RELATIONS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne}
