"""Tensor descriptors: made in the kernel, and accessed in tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from xdsl.dialects.builtin import TensorType

from tawa.errors import DescriptorError
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.operations.memory import as_stored, element_of, in_memory, scalar, scalars
from tawa.ir.build.values import Const, Descriptor, Tensor, Value, describe, ir_scalar, ir_type
from tawa.ir.types import DescType
from tawa.language.dtypes import dtype, int32, int64, pointer_type

_MIN_BYTES = 16  # CUDA driver API, cuTensorMapEncodeTiled: boxDim[0] * elementSize % 16 == 0


def make_tensor_descriptor(
    c: Context, base: Value, shape: Value, strides: Value, block_shape: Value, padding_option: Value
) -> Value:
    """Describe a tensor in memory."""
    if not isinstance(base, Tensor) or base.is_block:
        raise c.builder.mismatch(f"a descriptor starts at a pointer, this is {describe(base)}")
    element = element_of(c, base)
    block = arg.shape(c, block_shape)
    extents, steps = arg.sequence(shape), arg.sequence(strides)
    _check_ranks(c, len(extents), len(steps), len(block))
    _check_last(c, steps[-1], block[-1], element)
    padding = arg.text(c, padding_option, "padding_option", ("zero", "nan")) or "zero"
    if padding == "nan" and not element.is_floating():
        raise c.builder.error(
            DescriptorError,
            f"padding_option='nan' does not apply to {element.name}",
            why="only floats have a NaN",
        )
    sizes = tuple(scalar(c, extent, int64, "an extent") for extent in extents)
    pitches = scalars(c, strides, int64, "a stride")
    stored = in_memory(element)
    kind = DescType(TensorType(ir_scalar(stored), list(block)))
    start = arithmetic.cast(c.builder, base, pointer_type(stored))
    made = c.builder.op(tile.MakeDesc, [start, sizes, pitches], kind, padding=padding)
    seen = tuple(_as_extent(c, extent) for extent in extents)
    return Descriptor(made.ssa, seen, pitches, padding, element.is_bool())


def _as_extent(c: Context, extent: Value) -> Const | Tensor:
    """Return an extent as `desc.shape` shows it: int32."""
    if isinstance(extent, Const):
        return extent
    return arithmetic.to_type(c.builder, extent, int32)


def _check_ranks(c: Context, extents: int, strides: int, block: int) -> None:
    if extents == strides == block and 1 <= extents <= 5:
        return
    raise c.builder.error(
        DescriptorError,
        f"shape has {extents} items, strides has {strides}, block_shape has {block}",
        why="a descriptor has 1 to 5 dimensions, and an item of each for every one",
    )


def _check_last(c: Context, stride: Value, extent: int, element: dtype) -> None:
    if arithmetic.as_number(stride) != 1:
        raise c.builder.error(
            DescriptorError,
            f"the last stride of a descriptor is {describe(stride)}",
            why="TMA moves rows of adjacent elements: the last stride is the constant 1",
            remedy="write 1 there; describe a transposed tensor with its dimensions swapped, and "
            "use .T on the tensor",
        )
    size = extent * element.itemsize
    if size < _MIN_BYTES:
        raise c.builder.error(
            DescriptorError,
            f"rows of block_shape are {extent} x {element.name} = {size} bytes",
            why=f"TMA moves at least {_MIN_BYTES} bytes of a row",
            remedy=f"make the last extent of block_shape {_MIN_BYTES // element.itemsize} or more",
        )


def _offsets(c: Context, desc: Descriptor, offsets: Value) -> tuple[Tensor, ...]:
    found = scalars(c, offsets, int32, "an offset")
    if len(found) != len(desc.block_shape):
        raise c.builder.mismatch(
            f"{len(found)} offsets for a {describe(desc)}",
            why=f"it takes one a dimension, {len(desc.block_shape)}",
        )
    return found


def _descriptor(c: Context, value: Value) -> Descriptor:
    if isinstance(value, Descriptor):
        return value
    raise c.builder.mismatch(f"a descriptor is needed here, this is {describe(value)}")


def load(c: Context, desc: Value, offsets: Value, tap: Value = arg.NONE) -> Value:
    """Emit the load of a tile."""
    source = _descriptor(c, desc)
    numbers = *_offsets(c, source, offsets), *_taps(c, source, tap), *c.builder.counts(source)
    places = [number.ssa for number in numbers]
    kind = ir_type(in_memory(source.dtype), source.block_shape)
    made = c.builder.make(tile.DescLoad.make(source.ssa, places, results=[kind]))
    return arithmetic.cast(c.builder, made, source.dtype)


def _taps(c: Context, desc: Descriptor, tap: Value) -> tuple[Tensor, ...]:
    """Return the place in a window by axis, () for blocks that are not of windows."""
    window = desc.type.window
    if window is None:
        if arg.is_none(tap):
            return ()
        raise c.builder.error(
            DescriptorError,
            f"tap= in the load of a {describe(desc)}",
            why="taps are places in a window, and its blocks are of the tensor itself",
            remedy="leave tap out, or pass a tawa.WindowDescriptor",
        )
    what = f"a window of {'x'.join(map(str, window.size))}"
    if arg.is_none(tap) or len(arg.sequence(tap)) != window.axes:
        raise c.builder.error(
            DescriptorError,
            f"the load of a {describe(desc)} needs tap=, a place in {what}",
            why=f"a block is what consecutive windows see at one place, {window.axes} numbers",
            remedy="write desc.load([window, channel], tap=(row, column))",
        )
    for value, extent in zip(arg.sequence(tap), window.size):
        number = arithmetic.as_number(value)
        if number is not None and not 0 <= number < extent:
            raise c.builder.error(DescriptorError, f"tap {number} lies outside {what}")
    return scalars(c, tap, int32, "a tap")


def _block_for(c: Context, desc: Descriptor, value: Value) -> Tensor:
    """Convert a tensor to what a descriptor stores; raises TypeMismatch for another shape."""
    block = arg.tensor(c, value, "a descriptor's store")
    if block.shape != desc.block_shape:
        raise c.builder.mismatch(
            f"a tensor {describe(block)} does not fit a {describe(desc)}",
            why=f"the shapes are {list(block.shape)} and {list(desc.block_shape)}",
            remedy="reshape the tensor, or make the descriptor with its shape",
        )
    return as_stored(c, block, desc.dtype, block.shape)


def _written(c: Context, value: Value) -> Descriptor:
    """Return a descriptor that is written through; raises DescriptorError for windows."""
    desc = _descriptor(c, value)
    if desc.type.window is not None:
        raise c.builder.error(
            DescriptorError,
            f"a {describe(desc)} is written",
            why="windows share pixels: TMA only loads them",
            remedy="store through a descriptor or pointer of the array itself",
        )
    return desc


def store(c: Context, desc: Value, offsets: Value, value: Value) -> Value:
    """Emit the store of a tile."""
    target = _written(c, desc)
    block = _block_for(c, target, value)
    places = [offset.ssa for offset in _offsets(c, target, offsets)]
    c.builder.emit(tile.DescStore.make(target.ssa, places, block.ssa))
    return arg.NONE


# cp.reduce.async.bulk.tensor (PTX ISA): which functions it has for which element types.
_ADD = ("uint32", "int32", "uint64", "fp32", "fp16", "bf16")
_EXTREMA = ("uint32", "int32", "uint64", "int64", "fp16", "bf16")
_BITS = ("uint32", "int32", "uint64", "int64")
_ATOMICS = {"add": _ADD, "max": _EXTREMA, "min": _EXTREMA, "and": _BITS, "or": _BITS, "xor": _BITS}


def _atomic(function: str, c: Context, desc: Value, offsets: Value, value: Value) -> Value:
    target = _written(c, desc)
    if target.dtype.name not in _ATOMICS[function]:
        raise c.builder.mismatch(
            f"atomic_{function} of a descriptor does not take {target.dtype.name}",
            why=f"the hardware has it for {', '.join(_ATOMICS[function])}",
        )
    block = _block_for(c, target, value)
    places = [offset.ssa for offset in _offsets(c, target, offsets)]
    c.builder.emit(tile.DescAtomic.make(target.ssa, places, block.ssa, function=function))
    return arg.NONE


OPERATIONS: dict[str, Callable[..., Value]] = {
    "make_tensor_descriptor": make_tensor_descriptor,
    "load_tensor_descriptor": load,
    "store_tensor_descriptor": store,
    "descriptor.load": load,
    "descriptor.store": store,
    **{f"descriptor.atomic_{name}": partial(_atomic, name) for name in _ATOMICS},
}
