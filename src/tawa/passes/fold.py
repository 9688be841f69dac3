"""Folds: what one statement is equal to, given its operands. The facts `simplify` uses.

Each fold is one fact about the language: it returns the equal value, or None. Constants are
computed with the NumPy meaning of `tawa.ir.functions`, so a fold and the simulator cannot disagree.
Floating-point identities are used only where they hold for every value (NaN, -0.0 included).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import IntAttr, IntegerType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tawa.analysis.contiguity import HINTS, Contiguity
from tawa.analysis.ranges import compare, range_of
from tawa.ir import tile
from tawa.ir.functions import FUNCTIONS, ORDERS
from tawa.ir.types import Real, bit_width, element_type, is_float, is_signed, shape_of, with_shape

Emit = Callable[[Operation], SSAValue]
"""Insert a new operation before the one that is folded and return its first result."""


def constant_of(value: SSAValue) -> int | float | None:
    """Return the number of a constant scalar, or of a tensor filled with one constant."""
    if not isinstance(value, OpResult):
        return None
    match value.owner:
        case tile.Constant(value=IntAttr() as number):
            return number.data
        case tile.Constant(value=Real() as number):
            return number.data
        case tile.Splat():
            return constant_of(value.owner.value)
        case _:
            return None


def integer_of(value: SSAValue) -> int | None:
    """Return the number of a constant of integer type."""
    number = constant_of(value)
    return number if isinstance(number, int) and not is_float(element_type(value.type)) else None


def constant(number: int | float, kind: Attribute) -> tile.Constant:
    """Return a constant of type `kind`, filled with one number."""
    if is_float(element_type(kind)):
        return tile.Constant.make(results=[kind], value=Real(float(number)))
    return tile.Constant.make(results=[kind], value=int(number))


def _as(filled: tile.Constant, kind: Attribute) -> tile.Constant:
    """Return the number of a constant as another type."""
    return tile.Constant.make(results=[kind], value=filled.value)


def elementwise(function: str, *inputs: SSAValue) -> tile.Elementwise:
    """Return the operation that applies `function`; its result type follows from the operands."""
    row = FUNCTIONS[function]
    kind = inputs[1 if row.result == "select" else 0].type
    if row.result == "bool":
        kind = with_shape(shape_of(kind), IntegerType(1))
    return tile.Elementwise.make(list(inputs), results=[kind], function=function)


def fold(operation: Operation, emit: Emit) -> SSAValue | None:
    """Return a value equal to the first result of `operation`, or None."""
    match operation:
        case tile.Elementwise():
            return _fold_elementwise(operation, emit)
        case tile.Cast():
            return _fold_cast(operation, emit)
        case tile.Splat() | tile.Broadcast() | tile.ExpandDims() | tile.Reshape():
            return _fold_shape(operation, emit)
        case tile.Transpose():
            return _fold_transpose(operation, emit)
        case tile.PtrAdd() if integer_of(operation.offset) == 0:
            return operation.pointer if operation.pointer.type == operation.result.type else None
        case _:
            return None


# --- arithmetic ---------------------------------------------------------------------------------


def _fold_elementwise(operation: tile.Elementwise, emit: Emit) -> SSAValue | None:
    return (
        _fold_constants(operation, emit)
        or _fold_identity(operation, emit)
        or _fold_uniform(operation, emit)
        or _fold_decided(operation, emit)
        or _fold_wide(operation, emit)
    )


def _fold_wide(operation: tile.Elementwise, emit: Emit) -> SSAValue | None:
    """A quotient or remainder of 64 bits whose operands are of 32: many times faster in these.

    The dividend is not negative: the least number of 32 bits over -1 has a quotient of 33.
    """
    name, kind = operation.function.data, operation.result.type
    if name not in ("idiv", "irem") or any(hint in operation.attributes for hint in HINTS):
        return None
    if bit_width(element_type(kind)) != 64 or not is_signed(element_type(kind)):
        return None
    if not range_of(operation.inputs[0]).is_natural:
        return None
    narrow = with_shape(shape_of(kind), IntegerType(32))
    whole = [_in_type(value, narrow, emit) for value in operation.inputs]
    if any(value is None for value in whole):
        return None
    result = emit(elementwise(name, *(value for value in whole if value is not None)))
    return emit(tile.Cast.make(result, results=[kind]))


def _in_type(value: SSAValue, kind: Attribute, emit: Emit) -> SSAValue | None:
    """Return what was widened to a value, or its constant, if it is of type `kind`."""
    number = integer_of(value)
    if number is not None:
        fits = _exact_in(number, element_type(kind))
        return emit(constant(number, kind)) if fits else None
    match value.owner:
        case tile.Cast() as cast if cast.value.type == kind:
            return cast.value
        case tile.Splat() as splat:
            inner = _in_type(splat.value, element_type(kind), emit)
            return None if inner is None else emit(_splat(inner, shape_of(kind)))
        case _:
            return None


def _fold_decided(operation: tile.Elementwise, emit: Emit) -> SSAValue | None:
    """A comparison that the ranges of its sides decide, or what divides one of them."""
    name = operation.function.data
    if name in ("eq", "ne") and _never_equal(*operation.inputs):
        return emit(constant(int(name == "ne"), operation.result.type))
    if name not in ORDERS or not _is_whole(operation.inputs[0]):
        return None
    if operation.inputs[0] is operation.inputs[1]:
        return emit(constant(int(name in ("le", "ge")), operation.result.type))
    decided = compare(name, *(range_of(value) for value in operation.inputs))
    return None if decided is None else emit(constant(decided, operation.result.type))


def _never_equal(one: SSAValue, other: SSAValue) -> bool:
    """Tell whether a scalar is a multiple of a power of two that a constant is none of.

    Other divisors are lost where a product wraps around.
    """
    number = integer_of(other)
    if number is None or shape_of(one.type):
        return False
    (run,) = Contiguity().of(one)
    return number % (run.divisibility & -run.divisibility) != 0


def _numpy_type(kind: Attribute) -> str | None:
    """Return NumPy's name of a type whose arithmetic NumPy does as the device does."""
    if is_float(kind):
        return {32: "float32", 64: "float64"}.get(bit_width(kind))
    width = bit_width(kind)
    if width == 1:
        return "bool"
    return f"{'int' if is_signed(kind) else 'uint'}{width}"


def _fold_constants(operation: tile.Elementwise, emit: Emit) -> SSAValue | None:
    numbers = [constant_of(value) for value in operation.inputs]
    types = [_numpy_type(element_type(value.type)) for value in operation.inputs]
    result = element_type(operation.result.type)
    result_type = _numpy_type(result)
    row = FUNCTIONS[operation.function.data]
    if result_type is None or None in numbers or None in types:
        return None
    if is_float(result) and row.name not in _EXACT:
        return None  # the device's approximations are its own
    import numpy as np

    arrays = [np.array(number, kind) for number, kind in zip(numbers, types)]
    with np.errstate(all="ignore"):
        number: Any = np.asarray(row.numpy(np, *arrays)).astype(result_type).item()
    return emit(constant(number, operation.result.type))


_EXACT = frozenset({"add", "sub", "mul", "neg", "abs", "min", "max", "select"})


def _fold_identity(operation: tile.Elementwise, emit: Emit) -> SSAValue | None:
    inputs = list(operation.inputs)
    name = operation.function.data
    if name == "select":
        return _fold_select(inputs)
    if len(inputs) != 2:
        return None
    a, b = inputs
    if FUNCTIONS[name].commutative and integer_of(a) is not None:
        a, b = b, a
    number = constant_of(b)
    if (name, number) in _NEUTRAL and _is_whole(a):
        return a
    if number == 1 and bit_width(element_type(b.type)) == 1 and name in ("and", "or"):
        return a if name == "and" else b
    if name == "idiv" and number == -1 and is_signed(element_type(a.type)):
        return emit(elementwise("neg", a))  # the division of the least number is undefined in C++
    if (name, number) in _ABSORBING and _is_whole(a):
        return emit(constant(0, operation.result.type))
    if name in ("mul", "div") and constant_of(b) == 1.0:
        return a
    if a is b and _is_whole(a):
        return _fold_same(name, a, operation, emit)
    return _fold_absorbed(name, a, b) if name in _DUAL and _is_whole(a) else None


_DUAL = {"min": "max", "max": "min", "and": "or", "or": "and"}


def _fold_absorbed(name: str, a: SSAValue, b: SSAValue) -> SSAValue | None:
    """Return the number that the least of it and the greater of it and another is, and so on."""
    for value, other in ((a, b), (b, a)):
        match other.owner:
            case tile.Elementwise(function=inner, inputs=parts):
                if inner.data == _DUAL[name] and value in parts:
                    return value
            case _:
                pass
    return None


_NEUTRAL = {
    *((name, 0) for name in ("add", "sub", "or", "xor", "shl", "shr")),
    *((name, 1) for name in ("mul", "idiv")),
}
_ABSORBING = {("mul", 0), ("and", 0), ("irem", 1)}


def _is_whole(value: SSAValue) -> bool:
    """Tell whether a value is of integer type, wider than a truth value."""
    kind = element_type(value.type)
    return isinstance(kind, IntegerType)


def _fold_same(
    name: str, value: SSAValue, operation: tile.Elementwise, emit: Emit
) -> SSAValue | None:
    if name in ("and", "or", "min", "max"):
        return value
    if name in ("sub", "xor", "ne", "lt", "gt"):
        return emit(constant(0, operation.result.type))
    if name in ("eq", "le", "ge"):
        return emit(constant(1, operation.result.type))
    return None


def _fold_select(inputs: list[SSAValue]) -> SSAValue | None:
    condition, yes, no = inputs
    if yes is no:
        return yes
    match integer_of(condition):
        case None:
            return None
        case 0:
            return no
        case _:
            return yes


def _fold_uniform(operation: tile.Elementwise, emit: Emit) -> SSAValue | None:
    """A function of tensors filled with scalars is a tensor filled with the function of them."""
    shape = shape_of(operation.result.type)
    if not shape or any(_filling(value) is None for value in operation.inputs):
        return None
    scalars = [_scalar(value, emit) for value in operation.inputs]
    return emit(_splat(emit(elementwise(operation.function.data, *scalars)), shape))


def _filling(value: SSAValue) -> Operation | None:
    """Return the operation that fills a tensor with one scalar."""
    owner = value.owner
    return owner if isinstance(owner, (tile.Splat, tile.Constant)) else None


def _scalar(value: SSAValue, emit: Emit) -> SSAValue:
    match value.owner:
        case tile.Splat() as splat:
            return splat.value
        case tile.Constant() as filled:
            return emit(_as(filled, element_type(value.type)))
        case _:
            raise TypeError("not a tensor filled with one scalar")


def _splat(value: SSAValue, shape: tuple[int, ...]) -> tile.Splat:
    return tile.Splat.make(value, results=[with_shape(shape, value.type)])


# --- casts and shapes ---------------------------------------------------------------------------


def _fold_cast(operation: tile.Cast, emit: Emit) -> SSAValue | None:
    value, result = operation.value, operation.result.type
    if value.type == result:
        return value
    number = constant_of(value)
    if number is not None and _exact_in(number, element_type(result)):
        return emit(constant(number, result))
    if shape_of(result) and isinstance(value.owner, tile.Splat):
        scalar = tile.Cast.make(value.owner.value, results=[element_type(result)])
        return emit(_splat(emit(scalar), shape_of(result)))
    return None


def _exact_in(number: int | float, kind: Attribute) -> bool:
    """Tell whether a number is representable in a type, so that converting it does not round."""
    if is_float(kind):
        return float(number) in (0.0, 0.5, 1.0, 2.0, 4.0) or (
            bit_width(kind) >= 32 and float(number).is_integer() and abs(number) <= 1 << 24
        )
    if not isinstance(number, int):
        return False
    if bit_width(kind) == 1:
        return number in (0, 1)
    width = bit_width(kind)
    low, high = (-(1 << width - 1), 1 << width - 1) if is_signed(kind) else (0, 1 << width)
    return low <= number < high


def _fold_shape(operation: Operation, emit: Emit) -> SSAValue | None:
    """Splat, broadcast, expand and reshape: nothing to do, or another way to fill a tensor."""
    value, result = operation.operands[0], operation.results[0].type
    if value.type == result:
        return value if not any(name in operation.attributes for name in HINTS) else None
    match value.owner:
        case tile.Constant() as filled:
            return emit(_as(filled, result))
        case tile.Splat() as splat if not isinstance(operation, tile.Splat):
            return emit(_splat(splat.value, shape_of(result)))
        case tile.Reshape() as reshape if isinstance(operation, tile.Reshape):
            return emit(tile.Reshape.make(reshape.value, results=[result]))
        case _:
            return None


def _fold_transpose(operation: tile.Transpose, emit: Emit) -> SSAValue | None:
    permutation = tuple(axis.data for axis in operation.permutation)
    if permutation == tuple(range(len(permutation))):
        return operation.value
    match operation.value.owner:
        case tile.Transpose() as inner:
            before = tuple(axis.data for axis in inner.permutation)
            if tuple(before[axis] for axis in permutation) == tuple(range(len(before))):
                return inner.value
        case tile.Constant() as filled:
            return emit(_as(filled, operation.result.type))
        case tile.Splat() as splat:
            return emit(_splat(splat.value, shape_of(operation.result.type)))
        case _:
            pass
    return None
