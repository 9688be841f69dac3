"""Reductions and scans: a region that combines two elements, built from a library or user function.

The body of `tile.reduce` and `tile.scan` takes the elements of the left half first, then those of
the right half: (a0, a1, ..., b0, b1, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from xdsl.ir import Block, Region

from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.values import Const, Tensor, Tuple, Value, describe, ir_scalar, ir_type
from tawa.language.dtypes import bfloat16, float32, int32, uint32

Combine = Callable[[Context, Sequence[Tensor], Sequence[Tensor]], Sequence[Value]]


def _combine_with(function: str) -> Combine:
    def combine(c: Context, one: Sequence[Tensor], other: Sequence[Tensor]) -> Sequence[Value]:
        bools = one[0].dtype.is_bool()
        name = arithmetic.MODULO_2.get(function, function) if bools else function
        return [c.builder.elementwise(name, one[0], other[0])]

    return combine


def _combine_index(compare: str) -> Combine:
    """Keep the better value and its index, of equal ones the lower index. A NaN is passed over for
    any number and equal to a NaN, so that no order of combining gives another result.
    """

    def combine(c: Context, one: Sequence[Tensor], other: Sequence[Tensor]) -> Sequence[Value]:
        builder = c.builder
        both = partial(arithmetic.binary, builder, "&")
        either = partial(arithmetic.binary, builder, "|")
        (a, b), same = (one[0], other[0]), partial(arithmetic.compare, builder, "==")
        better, equal = arithmetic.compare(builder, compare, a, b), same(a, b)
        if a.dtype.is_floating():
            other_is_nan = arithmetic.compare(builder, "!=", b, b)
            better = either(better, both(same(a, a), other_is_nan))
            equal = either(equal, both(arithmetic.compare(builder, "!=", a, a), other_is_nan))
        earlier = arithmetic.compare(builder, "<", one[1], other[1])
        better = either(better, both(equal, earlier))
        return [builder.elementwise("select", better, *pair) for pair in zip(one, other)]

    return combine


# Triton's own combine functions may be passed to tl.reduce; they are known by name.
_LIBRARY: dict[str, Combine] = {
    "_sum_combine": _combine_with("add"),
    "_prod_combine": _combine_with("mul"),
    "_elementwise_max": _combine_with("max"),
    "_elementwise_min": _combine_with("min"),
    "_xor_combine": _combine_with("xor"),
    "_or_combine": _combine_with("or"),
    "maximum": _combine_with("max"),
    "minimum": _combine_with("min"),
    "add": _combine_with("add"),
    "mul": _combine_with("mul"),
    "_argmax_combine_tie_break_left": _combine_index(">"),
    "_argmax_combine_tie_break_fast": _combine_index(">"),
    "_argmin_combine_tie_break_left": _combine_index("<"),
    "_argmin_combine_tie_break_fast": _combine_index("<"),
}


def _combine_of(c: Context, function: Value) -> Combine:
    match c.function_of(function):
        case str() as name if name in _LIBRARY:
            return _LIBRARY[name]
        case None | str():
            raise c.builder.mismatch(
                f"the combine function is {describe(function)}",
                why="a reduction combines two elements with a function of the kernel",
                remedy="pass a helper decorated with @tawa.jit that takes and gives scalars",
            )
        case combine:
            return lambda _, one, other: arg.sequence(combine([*one, *other]))


def _region(c: Context, inputs: Sequence[Tensor], combine: Combine) -> Region:
    """Build the body of a reduction; raises TypeMismatch when it changes the types."""
    kinds = [ir_scalar(tensor.dtype) for tensor in inputs]
    body = Block(arg_types=kinds * 2)
    count = len(inputs)
    elements = [Tensor(argument) for argument in body.args]
    with c.builder.into(body, isolated=True):
        results = combine(c, elements[:count], elements[count:])
        made = [arithmetic.to_tensor(c.builder, result) for result in results]
        if [tensor.type for tensor in made] != kinds:
            raise c.builder.mismatch(
                f"the combine function gives {', '.join(map(describe, made))}",
                why=f"it was given elements of {', '.join(t.dtype.name for t in inputs)}, "
                "and must give the same types",
                remedy="cast inside the function, or cast the input before the reduction",
            )
        c.builder.effect(tile.Yield, [made])
    return Region([body])


def _reduce(
    c: Context, inputs: Sequence[Tensor], axis: Value, combine: Combine, keep: bool
) -> tuple[Tensor, ...]:
    """Reduce tensors of one shape along an axis, or over all elements."""
    shape = inputs[0].shape
    if any(tensor.shape != shape for tensor in inputs):
        raise c.builder.mismatch(
            f"the inputs of a reduction differ in shape: {', '.join(map(describe, inputs))}"
        )
    rank = len(shape)
    if whole := arg.is_none(axis):
        inputs = [c.builder.reshape(tensor, (prod(shape),)) for tensor in inputs]
        number = 0
    else:
        number = arg.axis_of(c, axis, rank)
    left = () if whole else shape[:number] + shape[number + 1 :]
    operation = tile.Reduce.make(
        [tensor.ssa for tensor in inputs],
        results=[[ir_type(tensor.dtype, left) for tensor in inputs]],
        regions=[_region(c, inputs, combine)],
        axis=number,
    )
    results = [Tensor(result) for result in c.builder.emit(operation).results]
    if keep:
        places = range(rank) if whole else (number,)
        for place in places:
            results = [c.builder.expand_dims(result, place) for result in results]
    return tuple(results)


def along(c: Context, function: str, value: Tensor, axis: Value, keep: bool = False) -> Tensor:
    """Reduce a tensor with a function of the table, for other handlers."""
    return _reduce(c, [value], axis, _combine_with(function), keep)[0]


def reduce(c: Context, value: Value, axis: Value, function: Value, keep_dims: Value) -> Value:
    """Reduce one tensor or a tuple of tensors with a given function."""
    inputs = [arg.tensor(c, item, "tl.reduce") for item in arg.sequence(value)]
    keep = arg.flag(c, keep_dims, "keep_dims")
    results = _reduce(c, inputs, axis, _combine_of(c, function), keep)
    return Tuple(results) if isinstance(value, Tuple) else results[0]


def _widened(c: Context, tensor: Tensor, floats: bool) -> Tensor:
    """Convert types under 32 bits: integers to 32 bits, floats to float32 if asked."""
    kind = tensor.dtype
    if kind.primitive_bitwidth >= 32:
        return tensor
    if kind.is_floating():
        return arithmetic.cast(c.builder, tensor, float32) if floats else tensor
    wide = uint32 if kind.is_int_unsigned() else int32
    return arithmetic.cast(c.builder, tensor, wide)


def _promoted(c: Context, tensor: Tensor) -> Tensor:
    """Convert bfloat16 to float32: comparisons of bfloat16 are not in hardware."""
    is_short = tensor.dtype == bfloat16
    return arithmetic.cast(c.builder, tensor, float32) if is_short else tensor


def _summed(c: Context, tensor: Tensor, dtype: Value) -> Tensor:
    """Convert to the type a sum is taken in."""
    if arg.is_none(dtype):
        return _widened(c, tensor, floats=False)
    return arithmetic.cast(c.builder, tensor, arg.element(c, dtype))


def sum(c: Context, value: Value, axis: Value, keep_dims: Value, dtype: Value) -> Value:
    """Add up."""
    tensor = _summed(c, arg.tensor(c, value, "tl.sum"), dtype)
    return along(c, "add", tensor, axis, arg.flag(c, keep_dims, "keep_dims"))


def _extremum(
    function: str,
    c: Context,
    value: Value,
    axis: Value,
    return_indices: Value,
    tie_break_left: Value,
    keep_dims: Value,
) -> Value:
    tensor = arg.tensor(c, value, f"tl.{function}")
    if arg.flag(c, return_indices, "return_indices"):
        return Tuple(_with_index(c, function, tensor, axis, tie_break_left, keep_dims))
    # As in Triton 3.6 every integer under 32 bits, unsigned ones too, becomes int32 here.
    wide = _widened(c, tensor, floats=True)
    if tensor.dtype.is_int_unsigned() and tensor.dtype.primitive_bitwidth < 32:
        wide = arithmetic.cast(c.builder, tensor, int32)
    return along(c, function, wide, axis, arg.flag(c, keep_dims, "keep_dims"))


def _with_index(
    c: Context, function: str, tensor: Tensor, axis: Value, tie_left: Value, keep_dims: Value
) -> tuple[Tensor, ...]:
    """Reduce a tensor together with the positions of its elements along the axis."""
    tensor = _promoted(c, tensor)
    if arg.is_none(axis) and len(tensor.shape) == 1:
        axis = Const(0)
    number = arg.axis_of(c, axis, len(tensor.shape))
    index = c.builder.line(tensor.shape[number])
    for place in range(len(tensor.shape)):
        if place != number:
            index = c.builder.expand_dims(index, place)
    index = c.builder.broadcast(index, tensor.shape)
    arg.flag(c, tie_left, "tie_break_left")  # where either will do, the lower index does
    combine = _combine_index(">" if function == "max" else "<")
    keep = arg.flag(c, keep_dims, "keep_dims")
    return _reduce(c, [tensor, index], Const(number), combine, keep)


def _argument(
    function: str, c: Context, value: Value, axis: Value, tie_left: Value, keep_dims: Value
) -> Value:
    tensor = arg.tensor(c, value, f"tl.arg{function}")
    return _with_index(c, function, tensor, axis, tie_left, keep_dims)[1]


def _bits(name: str, function: str, c: Context, value: Value, axis: Value, keep: Value) -> Value:
    tensor = arg.tensor(c, value, f"tl.{name}")
    if not tensor.dtype.is_int():
        raise c.builder.mismatch(f"tl.{name} takes integers, this is {describe(tensor)}")
    return along(c, function, tensor, axis, arg.flag(c, keep, "keep_dims"))


def _scan(
    c: Context, inputs: Sequence[Tensor], axis: Value, combine: Combine, reverse: Value
) -> tuple[Tensor, ...]:
    number = arg.axis_of(c, axis, len(inputs[0].shape))
    backwards = arg.flag(c, reverse, "reverse")
    operation = tile.Scan.make(
        [tensor.ssa for tensor in inputs],
        results=[[tensor.type for tensor in inputs]],
        regions=[_region(c, inputs, combine)],
        axis=number,
        reverse=backwards or None,
    )
    return tuple(Tensor(result) for result in c.builder.emit(operation).results)


def associative_scan(
    c: Context, value: Value, axis: Value, function: Value, reverse: Value
) -> Value:
    """Give prefix combinations with a given function."""
    inputs = [arg.tensor(c, item, "tl.associative_scan") for item in arg.sequence(value)]
    results = _scan(c, inputs, axis, _combine_of(c, function), reverse)
    return Tuple(results) if isinstance(value, Tuple) else results[0]


def cumsum(c: Context, value: Value, axis: Value, reverse: Value, dtype: Value) -> Value:
    """Give running sums."""
    tensor = _summed(c, _promoted(c, arg.tensor(c, value, "tl.cumsum")), dtype)
    return _scan(c, [tensor], axis, _combine_with("add"), reverse)[0]


def cumprod(c: Context, value: Value, axis: Value, reverse: Value, dtype: Value) -> Value:
    """Give running products."""
    tensor = _promoted(c, arg.tensor(c, value, "tl.cumprod"))
    if not arg.is_none(dtype):
        tensor = arithmetic.cast(c.builder, tensor, arg.element(c, dtype))
    return _scan(c, [tensor], axis, _combine_with("mul"), reverse)[0]


OPERATIONS: dict[str, Callable[..., Value]] = {
    "reduce": reduce,
    "associative_scan": associative_scan,
    "sum": sum,
    "max": partial(_extremum, "max"),
    "min": partial(_extremum, "min"),
    "argmax": partial(_argument, "max"),
    "argmin": partial(_argument, "min"),
    "xor_sum": partial(_bits, "xor_sum", "xor"),
    "reduce_or": partial(_bits, "reduce_or", "or"),
    "cumsum": cumsum,
    "cumprod": cumprod,
}
