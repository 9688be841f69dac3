"""Python's operators on values: constants fold, tuples behave as tuples, the rest computes."""

from __future__ import annotations

import ast
import operator as python
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from tawa.frontend.aggregates import defines
from tawa.frontend.calls import Iterations, call
from tawa.frontend.context import Context
from tawa.frontend.names import lift
from tawa.ir.build import arithmetic
from tawa.ir.build.values import (
    Const,
    Instance,
    Method,
    Tensor,
    Tuple,
    Value,
    describe,
    known,
    leaves,
    same_form,
)
from tawa.language.dtypes import dtype

Fold = Callable[[Any, Any], Any]


def _python(name: str) -> Fold:
    return getattr(python, name)


_BINARY: dict[type[ast.operator], tuple[str, Fold]] = {
    ast.Add: ("+", _python("add")),
    ast.Sub: ("-", _python("sub")),
    ast.Mult: ("*", _python("mul")),
    ast.Div: ("/", _python("truediv")),
    ast.FloorDiv: ("//", _python("floordiv")),
    ast.Mod: ("%", _python("mod")),
    ast.Pow: ("**", _python("pow")),
    ast.LShift: ("<<", _python("lshift")),
    ast.RShift: (">>", _python("rshift")),
    ast.BitAnd: ("&", _python("and_")),
    ast.BitOr: ("|", _python("or_")),
    ast.BitXor: ("^", _python("xor")),
    ast.MatMult: ("@", _python("matmul")),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Fold]] = {
    ast.Eq: ("==", python.eq),
    ast.NotEq: ("!=", python.ne),
    ast.Lt: ("<", python.lt),
    ast.LtE: ("<=", python.le),
    ast.Gt: (">", python.gt),
    ast.GtE: (">=", python.ge),
}


_REFLECTED = str.maketrans("lg", "gl")
_UNARY: dict[type[ast.unaryop], str] = {
    ast.USub: "__neg__",
    ast.UAdd: "__pos__",
    ast.Invert: "__invert__",
}


def binary(c: Context, kind: ast.operator, one: Value, other: Value) -> Value:
    """Apply a binary operator: constants and tuples by Python, tensors by Triton's rules."""
    symbol, fold = _BINARY[type(kind)]
    name = fold.__name__.strip("_")
    if (found := _overloaded(c, f"__{name}__", (one, other), f"__r{name}__")) is not None:
        return found
    if isinstance(one, Const) and isinstance(other, Const):
        return _fold(c, symbol, fold, one.value, other.value)
    if isinstance(one, Tuple) and isinstance(other, Tuple) and symbol == "+":
        return Tuple(one.items + other.items)
    if isinstance(one, Const) and isinstance(one.value, int) and symbol == "*":
        one, other = (other, one) if isinstance(other, Tuple) else (one, other)
    if isinstance(one, Tuple) and isinstance(other, Const) and symbol == "*":
        count = arithmetic.as_number(other)
        return Tuple(one.items * (count if isinstance(count, int) else 0))
    return arithmetic.checked(c, symbol, one, other)


def _overloaded(c: Context, name: str, of: Sequence[Value], reflected: str = "") -> Value | None:
    """Apply an operator to aggregates, by the function that the class of one defines for it.

    None where there is no aggregate; raises TypeMismatch where no class defines it.
    """
    if not any(isinstance(each, Instance) for each in of):
        return None
    for owner, word, others in ((of[0], name, of[1:]), (of[-1], reflected, of[:1])):
        if isinstance(owner, Instance) and defines(owner.kind, word):
            return call(c, Method(owner, word), others, {})
    raise c.builder.mismatch(
        f"no class of {' and '.join(map(describe, of))} has {name}",
        why="operators of an aggregate are the functions of these names in its class",
    )


def _fold(c: Context, symbol: str, fold: Fold, one: object, other: object) -> Value:
    try:
        return lift(fold(one, other))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise c.builder.mismatch(
            f"`{one!r} {symbol} {other!r}` has no value", why=f"Python says: {error}"
        ) from None


def unary(c: Context, kind: ast.unaryop, operand: Value) -> Value:
    """Apply a unary operator; raises TypeMismatch."""
    name = _UNARY.get(type(kind), "")
    if name and (found := _overloaded(c, name, (operand,))) is not None:
        return found
    match kind, operand:
        case ast.Not(), Const():
            return Const(not operand.value)
        case ast.Not(), Tuple():
            return Const(not operand.items)
        case ast.Not(), Tensor():
            return arithmetic.invert(c.builder, arithmetic.to_bool(c.builder, operand))
        case ast.USub(), Tensor():
            return arithmetic.checked_negate(c, operand)
        case ast.Invert(), Tensor():
            return arithmetic.invert(c.builder, operand)
        case ast.UAdd(), Tensor():
            return operand
        case _, Const(value=bool() | int() | float() as number):
            return _fold_unary(c, kind, number)
        case _:
            raise c.builder.mismatch(f"this operator does not take {describe(operand)}")


def _fold_unary(c: Context, kind: ast.unaryop, number: bool | int | float) -> Value:
    match kind, number:
        case ast.USub(), _:
            return Const(-number)
        case ast.UAdd(), _:
            return Const(+number)
        case _, int():
            return Const(~int(number))
        case _:
            raise c.builder.mismatch(f"`~` does not take the float {number}")


def truth(c: Context, value: Value) -> bool | Tensor:
    """Return whether a value holds: a Python bool when it is known now, else an int1 scalar."""
    match value:
        case Const():
            return bool(value.value)
        case Tuple():
            return bool(value.items)
        case Tensor() if not value.is_block:
            return arithmetic.to_bool(c.builder, value)
        case Tensor():
            if all(extent == 1 for extent in value.shape):
                flat = c.builder.reshape(value, ())
                return arithmetic.to_bool(c.builder, flat)
            raise c.builder.mismatch(
                f"a tensor of {describe(value)} is neither true nor false",
                why="control flow follows one truth value for the whole program",
                remedy="reduce it to a scalar, as in tl.max(x.to(tl.int32)) > 0, or use tl.where",
            )
        case _:
            return True


def both(c: Context, one: Value, other: Value) -> Value:
    """Join the links of a chained comparison."""
    for sure, unknown in ((one, other), (other, one)):
        if isinstance(sure, Const):
            return unknown if sure.value else sure
    return arithmetic.binary(c.builder, "&", one, other)


def compare(c: Context, kind: ast.cmpop, one: Value, other: Value) -> Value:
    """Apply a comparison, identity or membership; raises TypeMismatch."""
    match kind:
        case ast.Is() | ast.IsNot():
            same = isinstance(one, Const) and isinstance(other, Const) and _same(one, other)
            return Const(same == isinstance(kind, ast.Is))
        case ast.In() | ast.NotIn():
            found = _contains(c, one, other)
            return found if isinstance(kind, ast.In) else unary(c, ast.Not(), found)
        case _:
            symbol, fold = _COMPARE[type(kind)]
    name = fold.__name__
    reflected = name.translate(_REFLECTED)
    if (found := _overloaded(c, f"__{name}__", (one, other), f"__{reflected}__")) is not None:
        return found
    match one, other:
        case Const(), Const():
            return _fold(c, symbol, fold, one.value, other.value)
        case (Tuple(), _) | (_, Tuple()) if symbol in ("==", "!="):
            equal = _equal(c, one, other)
            return equal if symbol == "==" else unary(c, ast.Not(), equal)
        case _:
            return arithmetic.compare(c.builder, symbol, one, other)


def _same(one: Const, other: Const) -> bool:
    """Tell whether constants are one object; of each type of elements there is one."""
    return one.value is other.value or (isinstance(one.value, dtype) and one.value == other.value)


def _equal(c: Context, one: Value, other: Value) -> Value:
    """Compare items of tuples: known ones now, others in the run."""
    match known(one), known(other):
        case Tuple(items=ones), Tuple(items=others) if len(ones) == len(others):
            found: Value = Const(True)
            for pair in zip(ones, others):
                found = both(c, found, _equal(c, *pair))
            return found
        case (Tensor(), Tensor() | Const(value=int() | float())) | (
            Const(value=int() | float()),
            Tensor(),
        ):
            return arithmetic.compare(c.builder, "==", one, other)
        case Const(value=a), Const(value=b):
            return Const(bool(a == b))
        case a, b:
            return Const(same_form(a, b) and list(leaves(a)) == list(leaves(b)))


def _contains(c: Context, item: Value, container: Value) -> Value:
    match item, container:
        case _, Tuple(items=items):
            equal = [_equal(c, item, each) for each in items]
            if any(isinstance(each, Const) and each.value for each in equal):
                return Const(True)
            unknown = [each for each in equal if isinstance(each, Tensor)]
            return reduce(partial(arithmetic.binary, c.builder, "|"), unknown or [Const(False)])
        case Const(value=str() as part), Const(value=str() as whole):
            return Const(part in whole)
        case _:
            pass
    raise c.builder.mismatch(
        f"`in` is decided at compile time, and {describe(item)} in {describe(container)} is not",
        remedy="compare with == and combine with |",
    )


def static_items(c: Context, value: Value) -> Sequence[Value]:
    """Return what a compile-time sequence holds: a tuple, or a range with constant bounds."""
    match value:
        case Tuple():
            return value.items
        case Const(value=Iterations() as iterations):
            numbers = [
                arithmetic.as_number(known(v))
                for v in (iterations.start, iterations.end, iterations.step)
            ]
            bounds = [number for number in numbers if isinstance(number, int)]
            if len(bounds) == 3 and bounds[2] != 0:
                return [Const(number) for number in range(*bounds)]
            raise c.builder.mismatch(
                "the bounds of an unrolled loop must be compile-time integers, these are "
                + ", ".join(
                    describe(v) for v in (iterations.start, iterations.end, iterations.step)
                ),
                why="its iterations are laid out when the kernel is compiled",
                remedy="use range or tl.range for bounds known at run time",
            )
        case _:
            raise c.unsupported(
                f"a loop cannot run over {describe(value)}",
                why="loops run over range, tl.range, tl.static_range, or a tuple (unrolled)",
            )
