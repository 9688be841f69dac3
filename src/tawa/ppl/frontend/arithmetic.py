"""Numbers, vectors and their operations: static ones are computed, others become operations.

bool, i32 and the program's real promote in this order. Vectors combine element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tawa.ppl.frontend.values import List, Variable, View
from tawa.ppl.ir.core import BOOL, I32, Builder, Type, Value

RANK = {"bool": 0, "i32": 1, "i64": 2, "f32": 3, "f64": 4}
RELATIONS = {  # the operation, and whether its operands change places
    "Lt": ("lt", False),
    "LtE": ("le", False),
    "Gt": ("lt", True),
    "GtE": ("le", True),
    "Eq": ("eq", False),
    "NotEq": ("ne", False),
}


class Misfit(Exception):  # noqa: N818
    """Operands do not fit; the lowering adds the place."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


def is_array(given: Any) -> bool:
    """Whether something is a vector or a matrix, or a part of one."""
    return isinstance(given, (Value, View)) and bool(given.type.shape)


def is_number(given: Any) -> bool:
    """Whether something is a scalar, static or not."""
    if isinstance(given, (Value, View)):
        return not given.type.shape
    return isinstance(given, (bool, int, float))


class Arithmetic:
    """Operations on abstract values; appends to a builder."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def natural(self, given: Any) -> Type:
        """Return the scalar type that a number has by itself."""
        if isinstance(given, (Value, View)):
            return given.type
        if isinstance(given, bool):
            return BOOL
        return I32 if isinstance(given, int) else self.b.real

    def value(self, given: Any, want: Type | None = None) -> Value:
        """Return a value of the IR, converted to a type if one is asked for."""
        if isinstance(given, View):
            given = self.whole(given)
        if not isinstance(given, Value):
            if not isinstance(given, (bool, int, float)):
                raise Misfit(f"a number is needed here, not {describe(given)}")
            type_ = want or self.natural(given)
            if isinstance(given, int) and type_ == I32 and not -(2**31) <= given < 2**31:
                raise Misfit(f"{given} does not fit into 32 bits")
            if type_.shape or (isinstance(given, float) and not type_.is_float):
                raise Misfit(f"{type_} is needed here, not {given}")
            return self.b.const(given, type_)
        return given if want is None or given.type == want else self.convert(given, want)

    def convert(self, given: Value, want: Type) -> Value:
        """Promote a value. Raises Misfit where nothing but `cast` could do it."""
        have = given.type
        if have == want:
            return given
        if have.shape != want.shape or RANK[have.kind] > RANK[want.kind]:
            raise Misfit(f"{want} is needed here, not {have}")
        if (have.kind, want.kind) == ("f32", "f64"):
            raise Misfit("f32 and f64 do not mix: write cast")
        if have.shape:
            return self.b.build(
                have.shape,
                lambda *at: self.convert(self.b.load(given, *at), Type(want.kind)),
            )
        return self.b.make("cast", given, type=want)

    def whole(self, view: View) -> Value:
        """Return a part of an array as an array, or an element, of its own."""
        if isinstance(view.array, Variable) and not view.at:
            return self.b.get(view.array.name, view.type)
        return self.b.build(view.type.shape, lambda *at: self.element(view, at))

    def element(self, given: Any, at: tuple[Value, ...]) -> Value:
        """Return an element of an array or a view; a number is each of its elements."""
        if isinstance(given, View):
            array, at = given.array, (*given.at, *at)
            if isinstance(array, Variable):
                return self.b.loadvar(array.name, array.type.kind, *at)
            return self.b.load(array, *at)
        if isinstance(given, Value):
            return self.b.load(given, *at) if given.type.shape else given
        return self.value(given)

    def one_shape(self, shapes: set[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape that arrays have in common. Raises Misfit where they have several."""
        if len(shapes) > 1:
            listed = " and ".join(str(list(shape)) for shape in sorted(shapes))
            raise Misfit(f"vectors combine element by element: shapes {listed} differ")
        return next(iter(shapes))

    def elementwise(self, function: Callable[..., Any], *given: Any) -> Any:
        """Apply a function of scalars to numbers, or to the elements of arrays of one shape."""
        shapes = {item.type.shape for item in given if is_array(item)}
        if not shapes:
            return function(*given)
        shape = self.one_shape(shapes)

        def item(*at: Value) -> Value:
            parts = [self.element(part, at) if is_array(part) else part for part in given]
            return self.value(function(*parts))

        return self.b.build(shape, item)

    def joined(self, *given: Any, floating: bool = False) -> list[Value]:
        """Return numbers as values of one type."""
        dynamic = [self.natural(item) for item in given if isinstance(item, (Value, View))]
        static = [self.natural(item) for item in given if not isinstance(item, (Value, View))]
        # A static number has no width of its own: it takes that of what it meets.
        best = max(dynamic, key=lambda type_: RANK[type_.kind], default=BOOL)
        for type_ in static:
            if RANK[type_.kind] > RANK[best.kind] and not best.is_float:
                best = type_
        if floating and not best.is_float:
            best = self.b.real
        return [self.value(item, best) for item in given]

    def binary(self, name: str, left: Any, right: Any) -> Any:
        """Apply a Python operator to numbers or vectors."""

        def one(a: Any, b: Any) -> Any:
            return self._binary(name, a, b)

        return self.elementwise(one, left, right)

    def _binary(self, name: str, a: Any, b: Any) -> Any:
        for item in (a, b):
            if not is_number(item):
                raise Misfit(f"a number is needed here, not {describe(item)}")
        static = not isinstance(a, (Value, View)) and not isinstance(b, (Value, View))
        if static and name not in ("Div", "Pow"):
            return _STATIC[name](a, b)
        match name:
            case "Add" | "Sub" | "Mult":
                code = {"Add": "add", "Sub": "sub", "Mult": "mul"}[name]
                left, right = self.joined(a, b)
                if left.type == BOOL:
                    left, right = self.value(left, I32), self.value(right, I32)
                return self.b.make(code, left, right)
            case "Div":
                if static and b != 0:
                    return _STATIC[name](a, b)
                return self.b.make("div", *self.joined(a, b, floating=True))
            case "FloorDiv" | "Mod":
                left, right = self.joined(a, b)
                if left.type.is_float:
                    quotient = self.b.make("floor", self.b.make("div", left, right))
                    if name == "FloorDiv":
                        return quotient
                    return self.b.make("sub", left, self.b.make("mul", right, quotient))
                return self.b.make({"FloorDiv": "floordiv", "Mod": "mod"}[name], left, right)
            case "Pow":
                return self._power(a, b, static)
            case "BitAnd" | "BitOr" | "BitXor":
                code = {"BitAnd": "and", "BitOr": "or", "BitXor": "xor"}[name]
                return self.b.make(code, *self.joined(a, b))
            case _:
                raise Misfit(f"the operator {name} has no meaning in a model")

    def _power(self, a: Any, b: Any, static: bool) -> Any:
        if static and not (a < 0 and isinstance(b, float)):
            return a**b
        if isinstance(b, int) and not isinstance(b, bool):
            (base,) = self.joined(a)
            powers = abs(b)
            result: Value | None = None
            while powers:
                if powers & 1:
                    result = base if result is None else self.b.make("mul", result, base)
                powers >>= 1
                base = self.b.make("mul", base, base) if powers else base
            if result is None:
                return 1
            return result if b > 0 else self._binary("Div", 1.0, result)
        left, right = self.joined(a, b, floating=True)
        return self.b.make("exp", self.b.make("mul", right, self.b.make("log", left)))

    def compare(self, name: str, left: Any, right: Any) -> Any:
        """Apply a comparison to two numbers, or to the elements of arrays of one shape."""
        if name not in RELATIONS:
            raise Misfit(f"the comparison {name} has no meaning in a model")
        relation, swapped = RELATIONS[name]
        if left is None or right is None:
            return (left is right) == (relation == "eq")
        if is_array(left) or is_array(right):

            def one(a: Any, b: Any) -> Any:
                return self.compare(name, a, b)

            return self.elementwise(one, left, right)
        if not is_number(left) or not is_number(right):
            raise Misfit(f"numbers are compared, not {describe(left)} and {describe(right)}")
        if not isinstance(left, (Value, View)) and not isinstance(right, (Value, View)):
            if swapped:
                left, right = right, left
            return {"lt": left < right, "le": left <= right, "eq": left == right}.get(
                relation, left != right
            )
        a, b = self.joined(left, right)
        return self.b.compare(relation, *((b, a) if swapped else (a, b)))

    def truth(self, given: Any) -> Value | bool:
        """Return whether a number is not zero."""
        if not isinstance(given, (Value, View)):
            if not isinstance(given, (bool, int, float, type(None))):
                raise Misfit(f"a condition is needed here, not {describe(given)}")
            return bool(given)
        value = self.value(given)
        if value.type.shape:
            raise Misfit(f"a condition is needed here, not {value.type}")
        return value if value.type == BOOL else self.b.make("cast", value, type=BOOL)

    def negate(self, given: Any) -> Any:
        """Return the condition that holds where this one does not."""
        truth = self.truth(given)
        if isinstance(truth, bool):
            return not truth
        return self.b.make("xor", truth, self.b.const(True, BOOL))

    def minus(self, given: Any) -> Any:
        """Return the number, or each element, with its sign changed."""
        if is_array(given):
            return self.elementwise(self.minus, given)
        if not isinstance(given, (Value, View)):
            return -given
        value = self.value(given)
        return self.b.make("neg", self.value(value, I32) if value.type == BOOL else value)


_STATIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "FloorDiv": lambda a, b: a // b if b else math.nan,
    "Mod": lambda a, b: a % b if b else math.nan,
    "BitAnd": lambda a, b: a & b,
    "BitOr": lambda a, b: a | b,
    "BitXor": lambda a, b: a ^ b,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
    "MatMult": lambda a, b: a @ b,
}


def describe(given: Any) -> str:
    """Say what an abstract value is, for messages."""
    if isinstance(given, (Value, View)):
        return str(given.type)
    if given is None:
        return "None"
    if isinstance(given, List):
        return "a list"
    if isinstance(given, tuple):
        return f"a record of {len(given)}"  # type: ignore[reportUnknownArgumentType]
    return type(given).__name__ if not isinstance(given, (bool, int, float)) else repr(given)
