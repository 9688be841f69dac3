"""Programs, tensors made from nothing, hints, prints and asserts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.values import Const, Tensor, Value, describe, ir_type
from tawa.ir.operation import TawaOperation
from tawa.ir.types import i32, int_array
from tawa.language.dtypes import int32


def _grid(kind: type[TawaOperation], c: Context, axis: Value) -> Tensor:
    """Emit a number of the grid along an axis."""
    number = arg.integer(c, axis, "the axis of the grid")
    if number not in (0, 1, 2):
        raise c.builder.mismatch(f"the grid has axes 0, 1 and 2, not {number}")
    return c.builder.op(kind, [], i32, axis=number)


def arange(c: Context, start: Value, end: Value) -> Value:
    """Emit consecutive integers."""
    first, last = arg.integer(c, start, "arange's start"), arg.integer(c, end, "arange's end")
    if last <= first or last >= 2**31:
        raise c.builder.mismatch(
            f"tl.arange({first}, {last}) is empty or leaves int32",
            why="the end must be greater than the start and below 2**31",
        )
    arithmetic.check_shape(c.builder, (last - first,))
    kind = ir_type(int32, (last - first,))
    return c.builder.op(tile.Arange, [], kind, start=first)


def full(c: Context, shape: Value, value: Value, dtype: Value) -> Value:
    """Fill a tensor with a number or a scalar; integers beyond the type wrap."""
    extents, element = arg.shape(c, shape), arg.element(c, dtype)
    if isinstance(value, Tensor) and value.is_block:
        if any(extent != 1 for extent in value.shape):
            raise c.builder.mismatch(f"tl.full takes a scalar, this is {describe(value)}")
        value = c.builder.reshape(value, ())
    whole = isinstance(arithmetic.as_number(value), int)  # which wraps, as in memory
    convert = arithmetic.converted if whole else arithmetic.to_type
    return convert(c.builder, value, element, extents)


def zeros(c: Context, shape: Value, dtype: Value) -> Value:
    """Fill a tensor with zeros."""
    return full(c, shape, Const(0), dtype)


def zeros_like(c: Context, value: Value) -> Value:
    """Fill a tensor shaped like another with zeros."""
    like = arithmetic.to_tensor(c.builder, value)
    return arithmetic.to_type(c.builder, Const(0), like.dtype, like.shape)


def to_tensor(c: Context, value: Value) -> Value:
    """Turn a number into a scalar."""
    return arithmetic.to_tensor(c.builder, value)


def static_assert(c: Context, condition: Value, message: Value) -> Value:
    """Check a constant now."""
    if not isinstance(condition, Const):
        raise c.builder.mismatch(
            f"tl.static_assert takes a compile-time condition, this is {describe(condition)}",
            remedy="use tl.device_assert for values of the run",
        )
    if condition.value:
        return arg.NONE
    said = str(message.value) if isinstance(message, Const) else ""
    raise c.builder.mismatch(
        f"static assertion failed{': ' + said if said else ''}",
        why="the kernel's author requires this of its compile-time parameters",
    )


def static_print(
    c: Context, values: Value, sep: Value, end: Value, file: Value, flush: Value
) -> Value:
    """Print constants now."""
    parts = [
        str(part.value) if isinstance(part, Const) else describe(part)
        for part in arg.sequence(values)
    ]
    print(*parts, sep=arg.text(c, sep, "sep"), end=arg.text(c, end, "end"))
    return arg.NONE


def device_print(c: Context, prefix: Value, values: Value, hex: Value) -> Value:
    """Emit a print."""
    shown = [arithmetic.to_tensor(c.builder, value) for value in arg.sequence(values)]
    digits = UnitAttr() if arg.flag(c, hex, "hex") else None
    said = arg.text(c, prefix, "the prefix")
    c.builder.effect(tile.Print, [shown], prefix=said, hex=digits)
    return arg.NONE


def device_assert(c: Context, condition: Value, message: Value, mask: Value = arg.NONE) -> Value:
    """Emit an assertion when the option ``debug`` is set."""
    if not c.options.get("debug") or (isinstance(condition, Const) and condition.value):
        return arg.NONE
    if c.builder.isolated:
        raise c.unsupported(
            "tl.device_assert in the combine function of a reduction",
            why="the function combines two elements, in an order and number that is not said",
            remedy="check the input of the reduction, or its result",
        )
    holds = arithmetic.to_bool(c.builder, condition)
    if not arg.is_none(mask):
        outside = arithmetic.invert(c.builder, arithmetic.to_bool(c.builder, mask))
        holds = arithmetic.binary(c.builder, "|", holds, outside)
    text = arg.text(c, message, "the message")
    c.builder.effect(tile.Assert, [holds], message=text)
    return arg.NONE


def assume(c: Context, condition: Value) -> Value:
    """Emit a fact about a scalar; a constant one is checked now."""
    if isinstance(condition, Const):
        return static_assert(c, condition, Const("tl.assume of a false constant"))
    holds = arithmetic.to_bool(c.builder, condition)
    if holds.is_block:
        raise c.builder.mismatch(
            f"tl.assume takes a scalar condition, this is {describe(condition)}"
        )
    c.builder.effect(tile.Assume, [holds])
    return arg.NONE


def _hint(name: str, c: Context, value: Value, values: Value) -> Value:
    """Record a promise about a tensor on the operation that makes it."""
    numbers = arg.integers(c, values, f"the values of tl.{name}")
    if not isinstance(value, Tensor):
        return value
    if max(1, len(value.shape)) != len(numbers):
        raise c.builder.mismatch(
            f"tl.{name} got {len(numbers)} values for {describe(value)}",
            why="it takes one value a dimension",
        )
    if isinstance(owner := value.ssa.owner, Operation):
        owner.attributes[name] = int_array(numbers)
    elif value.is_block:
        return _promise_carried(c, name, value, numbers)
    elif name == "multiple_of" and not value.is_block and not c.in_loop():
        # An argument of the kernel has no operation to carry the promise: state it. What a loop
        # carries is left to the analyses: an assumption would run in every iteration.
        rest = arithmetic.binary(c.builder, "%", value, Const(numbers[0]))
        holds = arithmetic.compare(c.builder, "==", rest, Const(0))
        c.builder.effect(tile.Assume, [holds])
    return value


def _promise_carried(c: Context, name: str, value: Tensor, numbers: Sequence[int]) -> Tensor:
    """Note a promise about what a loop carries on a broadcast to its own shape, from here on."""
    noted = c.builder.op(tile.Broadcast, [value], value.type, **{name: int_array(numbers)})
    c.replace(value, noted)
    return noted


def _order(c: Context) -> Value:
    """Emit nothing: tile IR is sequential, and the compiler keeps the order of memory accesses;
    where launches of a stream overlap, the lowering says who waits.
    """
    return arg.NONE


def num_warps(c: Context) -> Value:
    """Give the author's number of warps."""
    return Const(c.options.get("num_warps") or 4)


def num_threads(c: Context) -> Value:
    """Give the threads of the author's warps."""
    return Const(32 * int(str(c.options.get("num_warps") or 4)))


OPERATIONS: dict[str, Callable[..., Value]] = {
    "program_id": partial(_grid, tile.ProgramId),
    "num_programs": partial(_grid, tile.NumPrograms),
    "arange": arange,
    "full": full,
    "zeros": zeros,
    "zeros_like": zeros_like,
    "to_tensor": to_tensor,
    "static_assert": static_assert,
    "static_print": static_print,
    "device_print": device_print,
    "device_assert": device_assert,
    "assume": assume,
    **{name: partial(_hint, name) for name in ("multiple_of", "max_contiguous", "max_constancy")},
    **dict.fromkeys(("debug_barrier", "gdc_wait", "gdc_launch_dependents"), _order),
    "num_warps": num_warps,
    "num_threads": num_threads,
}
