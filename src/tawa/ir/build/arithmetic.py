"""Operators and conversions on values: Triton's typing rules applied, then tile operations.

An operand is a `Tensor` or a `Const` number; two constants never come here, Python folds them.

What debugging adds to integer arithmetic: a check that no sum, difference or product wraps.

As in Triton, with the option ``debug`` and unless ``sanitize_overflow=False``. The check computes
the same in 64 bits and asserts that the result fits; 64-bit integers are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from tawa.errors import ShapeUnsupported, TypeMismatch
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Builder, Context, Number
from tawa.ir.build.promotion import (
    PromotionError,
    is_value_of,
    literal_type,
    promote,
    promote_integers,
)
from tawa.ir.build.values import Const, Tensor, Value, describe, ir_type, spell_type
from tawa.language.dtypes import (
    bfloat16,
    dtype,
    float32,
    int1,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

# Operator → (row for integers, row for floats); an empty row: the operator has no such meaning.
_ARITHMETIC = {
    "+": ("add", "add"),
    "-": ("sub", "sub"),
    "*": ("mul", "mul"),
    "/": ("", "div"),
    "//": ("idiv", ""),
    "%": ("irem", "frem"),
}
# Bools are numbers of one bit, as in Triton: sums and differences are modulo 2.
MODULO_2 = {"add": "xor", "sub": "xor"}
# To these they are 0 and 1 of int32: in one bit a shift by 1 has no value.
_OF_NUMBERS = frozenset(("//", "%", "<<", ">>"))
_BITWISE = {"&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr"}
_COMPARISON = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}
MAX_ELEMENTS = 1 << 20


def check_shape(builder: Builder, shape: Sequence[int]) -> None:
    """Refuse a shape that no layout takes; raises ShapeUnsupported."""
    for extent in shape:
        if extent > 0 and (extent & (extent - 1) == 0 or extent % 8 == 0):
            continue
        raise builder.error(
            ShapeUnsupported,
            f"a tensor of shape {list(shape)} has an extent of {extent}",
            why="the extents of a tensor are powers of two or multiples of 8",
            remedy="round the extent up and mask what lies outside",
        )
    total = 1
    for extent in shape:
        total *= extent
    if total > MAX_ELEMENTS:
        raise builder.error(
            ShapeUnsupported,
            f"a tensor of shape {list(shape)} has {total:,} elements",
            why=f"a tensor has at most {MAX_ELEMENTS:,} elements",
            remedy="use smaller block sizes and a loop or a larger grid",
        )


def as_number(value: Value) -> Number | None:
    """Return the number a constant holds, or None for anything else."""
    if isinstance(value, Const) and isinstance(value.value, (bool, int, float)):
        return value.value
    return None


def literal(builder: Builder, number: Number) -> dtype:
    """Return the type of a Python number on its own; raises TypeMismatch over 64 bits."""
    try:
        return literal_type(number)
    except PromotionError as error:
        raise builder.mismatch(str(error), remedy="use a float") from None


def to_tensor(builder: Builder, value: Value) -> Tensor:
    """Turn a number into a scalar of its own type; raises TypeMismatch for other constants."""
    if isinstance(value, Tensor):
        return value
    if (number := as_number(value)) is None:
        raise builder.mismatch(
            f"a tensor or a number is needed here, this is a {describe(value)}",
            remedy="pass a scalar, a tensor, or a Python number",
        )
    return builder.constant(number, literal(builder, number))


def to_type(builder: Builder, value: Value, element: dtype, shape: Sequence[int] = ()) -> Tensor:
    """Convert a value to an element type and repeat it to a shape; raises TypeMismatch for integers
    that the type does not hold.
    """
    if (number := as_number(value)) is not None and not element.is_ptr():
        _check_range(builder, number, element)
        return builder.constant((element.is_bool() and number != 0) or number, element, shape)
    return broadcast_to(builder, cast(builder, to_tensor(builder, value), element), shape)


def converted(builder: Builder, value: Value, element: dtype, shape: Sequence[int] = ()) -> Tensor:
    """Convert a value as `tl.cast` does and repeat it to a shape.

    What goes to memory is converted so: -1 stored as uint32 has all bits set.
    """
    number = as_number(value)
    if number is not None and element.is_int() and not is_value_of(number, element):
        value = cast(builder, to_tensor(builder, value), element)
    return to_type(builder, value, element, shape)


def _check_range(builder: Builder, number: Number, element: dtype) -> None:
    if not element.is_int() or element.is_bool():
        return
    if not number == number or number in (float("inf"), float("-inf")):
        raise builder.mismatch(f"{number} is not a value of {element.name}")
    low, high = element.get_int_min_value(), element.get_int_max_value()
    if not low <= number <= high:
        raise builder.mismatch(
            f"the constant {number} does not fit {element.name}",
            why=f"{element.name} holds {low} to {high}",
            remedy="cast the other operand to a wider or signed type",
        )


def _meet(
    builder: Builder, operator: str, one: Value, other: Value, *, division: bool = False
) -> tuple[Tensor, Tensor]:
    """Bring two operands, no pointers, to the common element type and shape."""
    first, second = as_number(one), as_number(other)
    left = literal(builder, first) if first is not None else to_tensor(builder, one).dtype
    right = literal(builder, second) if second is not None else to_tensor(builder, other).dtype
    if left.is_ptr() or right.is_ptr():
        raise builder.mismatch(
            f"`{operator}` does not take {describe(one)} and {describe(other)}",
            why="it has no meaning for pointers, which is what arrays are in a kernel",
            remedy="pass a number where one is meant; `.to(tl.int64)` gives an address as one",
        )
    try:
        common = promote(left, first is not None, right, second is not None, division)
    except PromotionError as error:
        raise _no_operator(builder, operator, one, other, str(error)) from None
    shape = broadcast_shape(builder, _shape(one), _shape(other))
    return to_type(builder, one, common, shape), to_type(builder, other, common, shape)


def _shape(value: Value) -> tuple[int, ...]:
    return value.shape if isinstance(value, Tensor) else ()


_INSTEAD = {
    "**": "multiply it out, or use tl.extra.libdevice.pow",
    "@": "use tl.dot(a, b)",
    "//": "use tl.floor(a / b) for floats",
}
"""What to write for operators that these operands do not have."""


def _no_operator(
    builder: Builder, operator: str, one: Value, other: Value, why: str
) -> TypeMismatch:
    return builder.mismatch(
        f"`{operator}` does not take {describe(one)} and {describe(other)}",
        why=why,
        remedy=_INSTEAD.get(operator, "cast an operand with `.to(...)`"),
    )


def binary(builder: Builder, operator: str, one: Value, other: Value) -> Tensor:
    """Apply an arithmetic or bitwise operator of Python; raises TypeMismatch."""
    if operator in ("+", "-") and _has_pointer(one, other):
        return _move_pointer(builder, operator, one, other)
    if operator in _BITWISE:
        return _bitwise(builder, operator, one, other)
    if operator not in _ARITHMETIC:
        raise _no_operator(builder, operator, one, other, f"tensors have no `{operator}`")
    if (same := _unchanged(operator, one, other)) is not None:
        return same
    left, right = _meet(builder, operator, one, other, division=operator in ("/", "//", "%"))
    if left.dtype.is_bool() and operator in _OF_NUMBERS:
        left, right = cast(builder, left, int32), cast(builder, right, int32)
    if operator == "/" and left.dtype.is_int():
        left, right = cast(builder, left, float32), cast(builder, right, float32)
    integers, floats = _ARITHMETIC[operator]
    if not (function := integers if left.dtype.is_int() else floats):
        raise _no_operator(
            builder, operator, one, other, f"`{operator}` is defined for integers only"
        )
    if left.dtype.is_bool():
        function = MODULO_2.get(function, function)
    return builder.elementwise(function, left, right)


def _unchanged(operator: str, one: Value, other: Value) -> Tensor | None:
    """Return the integer that an operator leaves as it is: ``x * 1``, ``x + 0``, ``x // 1``.

    Strides and extents specialised to 1 stand in every address computation.
    """
    if operator in ("+", "*") and as_number(one) is not None:
        one, other = other, one
    neutral = {"+": 0, "-": 0, "*": 1, "//": 1}.get(operator)
    number = as_number(other)
    if neutral is None or isinstance(number, (bool, float)) or number != neutral:
        return None
    return (
        one if isinstance(one, Tensor) and one.dtype.is_int() and not one.dtype.is_bool() else None
    )


def _has_pointer(*values: Value) -> bool:
    return any(isinstance(value, Tensor) and value.dtype.is_ptr() for value in values)


def _move_pointer(builder: Builder, operator: str, one: Value, other: Value) -> Tensor:
    """Add an integer offset to a pointer, or subtract it; the offset counts elements."""
    if operator == "+" and not _has_pointer(one):
        one, other = other, one
    offset = to_tensor(builder, other)
    if not isinstance(one, Tensor) or not _has_pointer(one) or not offset.dtype.is_int():
        raise _no_operator(
            builder, operator, one, other, "a pointer moves by an integer number of elements"
        )
    if offset.dtype.is_int_unsigned() and offset.dtype.int_bitwidth < 64:
        offset = cast(builder, offset, int64)
    if operator == "-":
        offset = negate(builder, offset)
    shape = broadcast_shape(builder, one.shape, offset.shape)
    pointer = broadcast_to(builder, one, shape)
    return builder.op(tile.PtrAdd, [pointer, broadcast_to(builder, offset, shape)], pointer.type)


def _bitwise(builder: Builder, operator: str, one: Value, other: Value) -> Tensor:
    left, right = _meet(builder, operator, one, other)
    if not left.dtype.is_int():
        raise _no_operator(builder, operator, one, other, "bits are those of integers")
    common = promote_integers(left.dtype, right.dtype)
    if common.is_bool() and operator in _OF_NUMBERS:
        common = int32
    left, right = cast(builder, left, common), cast(builder, right, common)
    return builder.elementwise(_BITWISE[operator], left, right)


def compare(builder: Builder, operator: str, one: Value, other: Value) -> Tensor:
    """Compare element by element; gives int1. Raises TypeMismatch."""
    left, right = _meet(builder, operator, *_comparable(builder, one, other))
    return builder.elementwise(_COMPARISON[operator], left, right)


def _comparable(builder: Builder, one: Value, other: Value) -> tuple[Value, Value]:
    """Give a number its own type: a bfloat16 is below 0.1 or not, not below what 0.1 rounds to.

    A number that both types hold compares alike in the other operand's, which takes no cast. A
    float64 is compared with what float32 has of 0.1, as in Triton.
    """

    def typed(value: Value, against: Value) -> Value:
        number = as_number(value)
        if number is None or not isinstance(against, Tensor) or against.dtype.is_ptr():
            return value
        kinds = against.dtype, literal(builder, number)
        held = all(is_value_of(number, kind) for kind in kinds)
        return value if held else to_tensor(builder, value)

    return typed(one, other), typed(other, one)


def negate(builder: Builder, value: Tensor) -> Tensor:
    """Change the sign; raises TypeMismatch for pointers."""
    if value.dtype.is_ptr():
        raise builder.mismatch(f"`-` does not take {describe(value)}")
    if value.dtype.is_bool():
        return value  # modulo 2
    return builder.elementwise("neg", value)


def invert(builder: Builder, value: Tensor) -> Tensor:
    """Flip all bits of an integer; raises TypeMismatch for floats and pointers."""
    if not value.dtype.is_int():
        raise builder.mismatch(f"`~` takes integers, this is {describe(value)}")
    if value.dtype.is_bool():
        return builder.elementwise("xor", value, builder.constant(1, int1, value.shape))
    return builder.elementwise("not", value)


def to_bool(builder: Builder, value: Value) -> Tensor:
    """Convert to int1: whether the value differs from zero."""
    return cast(builder, to_tensor(builder, value), int1)


def minimum_maximum(
    builder: Builder, function: str, one: Value, other: Value, propagate_nan: bool = False
) -> Tensor:
    """Take the "min" or "max" of two values after promotion; of bfloat16 it is a float32."""
    left, right = meet(builder, function, _unshortened(builder, one), _unshortened(builder, other))
    suffix = "_nan" if propagate_nan and left.dtype.is_floating() else ""
    return builder.elementwise(function + suffix, left, right)


def _unshortened(builder: Builder, value: Value) -> Tensor:
    tensor = to_tensor(builder, value)
    return cast(builder, tensor, float32) if tensor.dtype == bfloat16 else tensor


def meet(builder: Builder, name: str, one: Value, other: Value) -> tuple[Tensor, Tensor]:
    """Bring two operands of function `name` to a common element type and shape; to a function a
    number has its own type.
    """
    return _meet(builder, name, to_tensor(builder, one), to_tensor(builder, other))


def choices(builder: Builder, one: Value, other: Value) -> tuple[Tensor, Tensor]:
    """Bring what `tl.where` chooses from to a common element type and shape."""
    return _meet(builder, "where", one, other)


def select(builder: Builder, condition: Value, one: Value, other: Value) -> Tensor:
    """Choose element by element; pointers may be chosen too when their types are equal."""
    if _has_pointer(one, other):
        left, right = to_tensor(builder, one), to_tensor(builder, other)
        if left.dtype != right.dtype:
            raise _no_operator(builder, "where", one, other, "the pointers differ in type")
    else:
        left, right = choices(builder, one, other)
    chosen = to_bool(builder, condition)
    shape = broadcast_shape(builder, chosen.shape, left.shape)
    shape = broadcast_shape(builder, shape, right.shape)
    parts = (broadcast_to(builder, part, shape) for part in (chosen, left, right))
    return builder.elementwise("select", *parts)


def cast(builder: Builder, value: Tensor, element: dtype) -> Tensor:
    """Convert elements to another type, as `tl.cast`; raises TypeMismatch."""
    source = value.dtype
    if source == element:
        return value
    if element.is_bool():
        return _differs_from_zero(builder, value)
    kind = ir_type(element, value.shape)
    if source.is_ptr() or element.is_ptr():
        if source.primitive_bitwidth == element.primitive_bitwidth == 64 and not (
            source.is_floating() or element.is_floating()
        ):
            return builder.op(tile.Bitcast, [value], kind)
        raise builder.mismatch(
            f"{source.name} does not convert to {element.name}",
            why="an address converts to other pointers and to 64-bit integers only",
            remedy="go through tl.int64",
        )
    return builder.op(tile.Cast, [value], kind)


def _differs_from_zero(builder: Builder, value: Tensor) -> Tensor:
    if value.dtype.is_ptr():
        value = cast(builder, value, int64)
    zero = builder.constant(0, value.dtype, value.shape)
    return builder.elementwise("ne", value, zero)


def bitcast(builder: Builder, value: Tensor, element: dtype) -> Tensor:
    """Read the bits as another type of the same width; raises TypeMismatch."""
    source = value.dtype
    if source == element:
        return value
    if source.primitive_bitwidth != element.primitive_bitwidth:
        raise builder.mismatch(
            f"a bitcast from {source.name} to {element.name} changes the width",
            why=f"{source.primitive_bitwidth} bits against {element.primitive_bitwidth}",
            remedy="cast without bitcast=True, or choose a type of the same width",
        )
    return builder.op(tile.Bitcast, [value], ir_type(element, value.shape))


def unsigned_of(element: dtype) -> dtype:
    """Return the unsigned integer type as wide as `element`."""
    return _UNSIGNED[element.primitive_bitwidth]


def broadcast_shape(builder: Builder, one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Return the shape two operands meet in, ranks extended on the left; raises TypeMismatch."""
    rank = max(len(one), len(other))
    left = (1,) * (rank - len(one)) + tuple(one)
    right = (1,) * (rank - len(other)) + tuple(other)
    for axis, (a, b) in enumerate(zip(left, right)):
        if a == b or 1 in (a, b):
            continue
        raise builder.mismatch(
            f"tensors of shapes {list(one)} and {list(other)} do not fit together",
            why=f"in dimension {axis} the extents are {a} and {b}; they must be equal, or one is 1",
            remedy="index with None to line the dimensions up, as in x[:, None]",
        )
    return tuple(b if a == 1 else a for a, b in zip(left, right))


def broadcast_to(builder: Builder, value: Tensor, shape: Sequence[int]) -> Tensor:
    """Repeat a scalar or a tensor to `shape`; raises TypeMismatch when it does not fit."""
    if value.shape == tuple(shape):
        return value
    if not value.is_block:
        return builder.splat(value, shape)
    if broadcast_shape(builder, value.shape, shape) != tuple(shape):
        raise builder.mismatch(
            f"{spell_type(value.dtype, value.shape)} cannot be repeated to {list(shape)}",
            why="only dimensions of extent 1 are repeated",
        )
    for _ in range(len(shape) - len(value.shape)):
        value = builder.expand_dims(value, 0)
    return builder.broadcast(value, shape)


# --- integers that are checked not to wrap --------------------------------------------------------


_NAMES = {"+": "add", "-": "sub", "*": "mul"}


def checked(c: Context, symbol: str, one: Value, other: Value, *, sanitize: bool = True) -> Tensor:
    """Apply an operator of the user's text; raises TypeMismatch."""
    result = arithmetic.binary(c.builder, symbol, one, other)
    if sanitize and symbol in _NAMES and _is_checked(c, result) and result not in (one, other):
        _check_fits(c, symbol, one, other, result)
    return result


def checked_negate(c: Context, value: Tensor) -> Tensor:
    """Change the sign of a value of the user's text; raises TypeMismatch."""
    result = arithmetic.negate(c.builder, value)
    if _is_checked(c, result):
        _check_fits(c, "-", Const(0), value, result)
    return result


def _is_checked(c: Context, result: Tensor) -> bool:
    kind = result.dtype
    narrow = kind.is_int() and not kind.is_bool() and kind.int_bitwidth < 64
    if not narrow or not c.options.get("debug") or not c.options.get("sanitize_overflow", True):
        return False
    # A reduction's body computes values and nothing else. Functions of the language written in it,
    # such as those of random numbers, mean their integers to wrap.
    return not c.builder.isolated and not c.means_to_wrap()


def _check_fits(c: Context, symbol: str, one: Value, other: Value, result: Tensor) -> None:
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
