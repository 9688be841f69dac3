"""Functions of elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.operations.reductions import along
from tawa.ir.build.values import Const, Tensor, Tuple, Value, describe, ir_type
from tawa.ir.inline_asm import AsmError, plain_text, registers_of, substituted
from tawa.language.dtypes import float32, float64


def _operator(symbol: str, c: Context, one: Value, other: Value, sanitize: Value) -> Value:
    checked = arg.flag(c, sanitize, "sanitize_overflow")
    return arithmetic.checked(
        c, symbol, arithmetic.to_tensor(c.builder, one), other, sanitize=checked
    )


def _propagates(c: Context, value: Value) -> bool:
    """Whether NaN wins; the enumeration may be Triton's, so it is read by name."""
    if isinstance(value, Const) and getattr(value.value, "name", "") in ("ALL", "NONE"):
        return getattr(value.value, "name", "") == "ALL"
    raise c.builder.mismatch(
        f"propagate_nan is {describe(value)}",
        why="it is tl.PropagateNan.ALL or tl.PropagateNan.NONE",
    )


def _extremum(function: str, c: Context, one: Value, other: Value, nan: Value) -> Value:
    return arithmetic.minimum_maximum(c.builder, function, one, other, _propagates(c, nan))


def clamp(c: Context, value: Value, low: Value, high: Value, nan: Value) -> Value:
    """Bring a value into a range."""
    wins = _propagates(c, nan)
    raised = arithmetic.minimum_maximum(c.builder, "max", value, low, wins)
    return arithmetic.minimum_maximum(c.builder, "min", raised, high, wins)


def cdiv(c: Context, value: Value, divisor: Value) -> Value:
    """Divide integers and round up."""
    numbers = [arithmetic.as_number(part) for part in (value, divisor)]
    match numbers:
        case [int() as one, int() as other] if other:
            return arithmetic.to_tensor(c.builder, Const(-(-one // other)))
        case [_, int() as other]:
            less: Value = Const(other - 1)
        case _:
            less = arithmetic.binary(c.builder, "-", divisor, Const(1))
    return arithmetic.binary(
        c.builder, "//", arithmetic.binary(c.builder, "+", value, less), divisor
    )


def absolute(c: Context, value: Value) -> Value:
    """Take the absolute value."""
    tensor = arithmetic.to_tensor(c.builder, value)
    if tensor.dtype.is_ptr():
        raise c.builder.mismatch(f"tl.abs does not take {describe(tensor)}")
    return tensor if tensor.dtype.is_int_unsigned() else c.builder.elementwise("abs", tensor)


def _float(c: Context, value: Value, name: str, double: bool = True) -> Tensor:
    """Return a float32 (or float64) tensor; raises TypeMismatch for other types."""
    tensor = arithmetic.to_tensor(c.builder, value)
    if tensor.dtype == float32 or (double and tensor.dtype == float64):
        return tensor
    raise c.builder.mismatch(
        f"tl.{name} takes float32{' or float64' * double}, this is {describe(tensor)}",
        why="the hardware has the function for 32-bit floats only",
        remedy="cast with .to(tl.float32), and back afterwards",
    )


def _unary(name: str, row: str, c: Context, value: Value) -> Value:
    double = row != "sqrt_rn" and not name.startswith("fast_")
    return c.builder.elementwise(row, _float(c, value, name, double))


def sigmoid(c: Context, value: Value) -> Value:
    """Compute the logistic function."""
    tensor = _float(c, value, "sigmoid")
    power = c.builder.elementwise("exp", arithmetic.negate(c.builder, tensor))
    below = arithmetic.binary(c.builder, "+", Const(1), power)
    return arithmetic.binary(c.builder, "/", Const(1), below)


def softmax(c: Context, value: Value, dim: Value, keep_dims: Value, ieee: Value) -> Value:
    """Compute the softmax along an axis."""
    tensor = arg.tensor(c, value, "tl.softmax")
    if tensor.dtype.is_floating():  # as the largest element is, which is subtracted
        tensor = arithmetic.cast(c.builder, tensor, float64 if tensor.dtype == float64 else float32)
    axis = Const(0) if arg.is_none(dim) else dim
    largest = along(c, "max", tensor, axis, keep=True)
    shifted = arithmetic.binary(c.builder, "-", tensor, largest)
    power = c.builder.elementwise("exp", _float(c, shifted, "softmax"))
    total = along(c, "add", power, axis, keep=True)
    return fdiv(c, power, total, ieee, Const(False))


def fma(c: Context, one: Value, other: Value, third: Value) -> Value:
    """Multiply and add with one rounding."""
    left, right = arithmetic.meet(c.builder, "fma", one, other)
    addend, left = arithmetic.meet(c.builder, "fma", third, left)
    addend, right = arithmetic.meet(c.builder, "fma", addend, right)
    left, right = arithmetic.meet(c.builder, "fma", left, right)
    return c.builder.elementwise("fma", left, right, addend)


def fdiv(c: Context, one: Value, other: Value, ieee: Value, approx: Value) -> Value:
    """Divide floats; the fast division serves as the approximate one."""
    if arg.flag(c, ieee, "ieee_rounding") and arg.flag(c, approx, "approx"):
        raise c.builder.mismatch("tl.fdiv rounds to nearest or approximates, not both")
    left, right = arithmetic.meet(c.builder, "fdiv", one, other)
    if not left.dtype.is_floating():
        raise c.builder.mismatch(
            f"tl.fdiv takes floats, these are {describe(one)} and {describe(other)}"
        )
    function = "div_rn" if arg.flag(c, ieee, "ieee_rounding") else "div"
    return c.builder.elementwise(function, left, right)


def div_rn(c: Context, one: Value, other: Value) -> Value:
    """Divide float32, rounded to nearest."""
    left, right = arithmetic.meet(c.builder, "div_rn", one, other)
    return c.builder.elementwise("div_rn", _float(c, left, "div_rn", False), right)


def _binary(name: str, row: str, c: Context, one: Value, other: Value) -> Value:
    left, right = arithmetic.meet(c.builder, name, one, other)
    return c.builder.elementwise(row, _float(c, left, name, not name.startswith("fast_")), right)


def umulhi(c: Context, one: Value, other: Value) -> Value:
    """Give the high half of an unsigned product."""
    left, right = arithmetic.meet(c.builder, "umulhi", one, other)
    result = left.dtype
    if not result.is_int() or result.primitive_bitwidth < 32:
        raise c.builder.mismatch(
            f"tl.umulhi takes 32- or 64-bit integers, this is {describe(left)}"
        )
    unsigned = arithmetic.unsigned_of(result)
    parts = [arithmetic.bitcast(c.builder, part, unsigned) for part in (left, right)]
    return arithmetic.bitcast(c.builder, c.builder.elementwise("mulhi", *parts), result)


def swizzle2d(c: Context, i: Value, j: Value, size_i: Value, size_j: Value, size_g: Value) -> Value:
    """Renumber a tile so that groups of rows are walked by column."""
    step, known = partial(arithmetic.binary, c.builder), partial(arithmetic.to_tensor, c.builder)
    row = step("+", step("*", known(i), size_j), j)
    in_group = step("*", known(size_g), size_j)
    first = step("*", step("//", row, in_group), size_g)
    rows_left = step("-", known(size_i), first)
    rows = arithmetic.minimum_maximum(c.builder, "min", rows_left, size_g)
    place = step("%", row, in_group)
    return Tuple((step("+", first, step("%", place, rows)), step("//", place, rows)))


def inline_asm(
    c: Context, asm: Value, constraints: Value, args: Value, kind: Value, pure: Value, pack: Value
) -> Value:
    """Apply inline PTX; several types give a tuple of tensors."""
    kinds = [arg.element(c, item, "dtype") for item in arg.sequence(kind)]
    if not kinds:
        raise c.builder.mismatch("inline PTX gives one result at least", why="dtype is ()")
    inputs = [arithmetic.to_tensor(c.builder, item) for item in arg.sequence(args)]
    shape: tuple[int, ...] = ()
    for item in inputs:
        shape = arithmetic.broadcast_shape(c.builder, shape, item.shape)
    inputs = [arithmetic.broadcast_to(c.builder, item, shape) for item in inputs]
    types = [ir_type(item, shape) for item in kinds]
    listed = arg.text(c, constraints, "constraints")
    try:
        text = plain_text(arg.text(c, asm, "asm"))
        width = arg.integer(c, pack, "pack")
        laid = registers_of(listed, width, types, [item.ssa.type for item in inputs])
        substituted(text, [""] * (len(laid.outputs) + len(laid.inputs)))
    except AsmError as error:
        raise c.builder.mismatch(
            f"inline PTX: {error}",
            remedy="see tl.inline_asm_elementwise in docs/reference/language.md",
        ) from None
    # What a special register says may differ between two instructions, and between threads.
    pure_too = arg.flag(c, pure, "is_pure") and not laid.memory and "%" not in text
    operation = tile.Asm if pure_too else tile.AsmEffect
    made = c.builder.emit(
        operation.make(
            [item.ssa for item in inputs],
            results=[types],
            text=text,
            constraints="".join(listed.split()),
            pack=width,
        )
    )
    results = tuple(Tensor(result) for result in made.results)
    return Tuple(results) if isinstance(kind, Tuple) else results[0]


def _by_ptx(name: str, instruction: str, c: Context, *values: Value) -> Value:
    """Apply an instruction of floats, float64 where an operand is."""
    given = [_float(c, value, name) for value in values]
    element = float64 if any(item.dtype == float64 for item in given) else float32
    inputs = Tuple(tuple(arithmetic.cast(c.builder, item, element) for item in given))
    kind, register = ("f32", "f") if element == float32 else ("f64", "d")
    places = ", ".join(f"${place}" for place in range(len(given) + 1))
    text, listed = (
        f"{instruction}.{kind} {places};",
        ",".join(("=" + register, *register * len(given))),
    )
    return inline_asm(c, Const(text), Const(listed), inputs, Const(element), Const(True), Const(1))


_ROUNDED = ("add", "sub", "mul", "div", "fma", "rcp", "sqrt")
_DIRECTIONS = {"rd": "rm", "ru": "rp", "rz": "rz"}  # as the library and as PTX calls them

_UNARY = (
    *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc"),
    *("lgamma", "tgamma", "logb", "erfinv", "erfcx", "cyl_bessel_i0", "cyl_bessel_i1"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sqrt", "sqrt_rn", "rsqrt", "cbrt", "floor", "ceil", "trunc", "rint", "round"),
)
_BINARY = (
    *("pow", "atan2", "hypot", "copysign", "nextafter", "remainder"),
    *("add_rn", "sub_rn", "mul_rn"),
)
# What goes by another name in the table of functions.
_OTHER_UNARY = {
    "nearbyint": "rint",
    **{f"fast_{row}f": row for row in ("exp", "tanh")},
    **{f"fast_{row}f": f"fast_{row}" for row in ("exp10", "log", "log2", "log10")},
    **{f"fast_{row}f": f"fast_{row}" for row in ("sin", "cos", "tan")},
}
_OTHER_BINARY = {"fmod": "frem", "fast_dividef": "div", "fast_powf": "fast_pow"}

OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": partial(_operator, "+"),
    "sub": partial(_operator, "-"),
    "mul": partial(_operator, "*"),
    "minimum": partial(_extremum, "min"),
    "maximum": partial(_extremum, "max"),
    "clamp": clamp,
    "cdiv": cdiv,
    "abs": absolute,
    "sigmoid": sigmoid,
    "softmax": softmax,
    "fma": fma,
    "fdiv": fdiv,
    "div_rn": div_rn,
    "umulhi": umulhi,
    "swizzle2d": swizzle2d,
    "inline_asm_elementwise": inline_asm,
    **{name: partial(_unary, name, name) for name in _UNARY},
    **{name: partial(_unary, name, row) for name, row in _OTHER_UNARY.items()},
    **{name: partial(_binary, name, name) for name in _BINARY},
    **{name: partial(_binary, name, row) for name, row in _OTHER_BINARY.items()},
    **{
        f"{name}_{way}": partial(_by_ptx, f"{name}_{way}", f"{name}.{mark}")
        for name in _ROUNDED
        for way, mark in _DIRECTIONS.items()
    },
}
