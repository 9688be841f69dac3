"""What debugging adds to integer arithmetic: a check that no sum, difference or product wraps.

As in Triton, with the option ``debug`` and unless ``sanitize_overflow=False``. The check computes
the same in 64 bits and asserts that the result fits; 64-bit integers are not checked.
"""

from __future__ import annotations

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.context import Context
from tawa.ir.build.values import Const, Tensor, Value
from tawa.language.dtypes import int64

_NAMES = {"+": "add", "-": "sub", "*": "mul"}


def binary(c: Context, symbol: str, one: Value, other: Value, *, sanitize: bool = True) -> Tensor:
    """Apply an operator of the user's text; raises TypeMismatch."""
    result = arithmetic.binary(c.builder, symbol, one, other)
    if sanitize and symbol in _NAMES and _is_checked(c, result) and result not in (one, other):
        _check(c, symbol, one, other, result)
    return result


def negate(c: Context, value: Tensor) -> Tensor:
    """Change the sign of a value of the user's text; raises TypeMismatch."""
    result = arithmetic.negate(c.builder, value)
    if _is_checked(c, result):
        _check(c, "-", Const(0), value, result)
    return result


def _is_checked(c: Context, result: Tensor) -> bool:
    kind = result.dtype
    narrow = kind.is_int() and not kind.is_bool() and kind.int_bitwidth < 64
    if not narrow or not c.options.get("debug") or not c.options.get("sanitize_overflow", True):
        return False
    # A reduction's body computes values and nothing else. Functions of the language written in it,
    # such as those of random numbers, mean their integers to wrap.
    return not c.builder.isolated and not c.means_to_wrap()


def _check(c: Context, symbol: str, one: Value, other: Value, result: Tensor) -> None:
    builder, kind = c.builder, result.dtype
    operands = (arithmetic.to_type(builder, value, kind, result.shape) for value in (one, other))
    left, right = (arithmetic.cast(builder, operand, int64) for operand in operands)
    # The product of two uint32 may wrap in turn: it is negative then, or beyond uint32 still.
    exact = arithmetic.binary(builder, symbol, left, right)
    low, high = Const(kind.get_int_min_value()), Const(kind.get_int_max_value())
    above = arithmetic.compare(builder, ">=", exact, low)
    below = arithmetic.compare(builder, "<=", exact, high)
    fits = arithmetic.binary(builder, "&", above, below)
    said = f"{kind.name} overflow detected for operation {_NAMES[symbol]}"
    builder.effect(tile.Assert, [fits], message=said)
