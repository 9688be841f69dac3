"""What each tile operation does to its values: the same code for tiles at every level.

`RULES` maps an operation to the function that decodes it. Operations that touch memory, ask for
the program's index or report something take the run's world (`World`) first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

import numpy as np
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation

from tawa.errors import LaunchError
from tawa.ir import tile
from tawa.ir.types import PtrType, Real, element_type, shape_of
from tawa.simulator.decode import (
    CONTROL,
    Binary,
    Decoder,
    Rule,
    Step,
    Ternary,
    Unary,
    along,
    computes,
    effect,
    pure,
)
from tawa.simulator.dot import dot
from tawa.simulator.memory import Descriptor, GlobalMemory, Watch
from tawa.simulator.ptx import inline_asm
from tawa.simulator.reductions import REDUCTIONS, element_function, elementwise
from tawa.simulator.values import (
    Array,
    DType,
    convert,
    counted,
    dtype_of,
    filled,
    gathered,
    place_of,
    reinterpret,
)


class World(Protocol):
    """What a tile operation can see of the program it runs in."""

    @property
    def memory(self) -> GlobalMemory:
        """Global memory."""
        ...

    @property
    def watch(self) -> Watch | None:
        """Told of every access to global memory, if anyone cares."""
        ...

    @property
    def program(self) -> tuple[int, int, int]:
        """This program's index in the grid."""
        ...

    @property
    def grid(self) -> tuple[int, int, int]:
        """The grid the user launched."""
        ...


# --- making and moving values -----------------------------------------------------------------


def constant_value(operation: tile.Constant) -> Any:
    """Return the content of a constant."""
    match operation.value:
        case IntAttr() | Real():
            return filled(operation.result.type, operation.value.data)
        case _:
            raise TypeError(f"tile.constant holds {operation.value}")


def _constant(decoder: Decoder, operation: tile.Constant) -> Step | None:
    decoder.constant(operation.result, constant_value(operation))
    return None


def _arange(decoder: Decoder, operation: tile.Arange) -> Step | None:
    start, (count,) = operation.start.data, shape_of(operation.result.type)
    dtype = dtype_of(operation.result.type)
    decoder.constant(operation.result, np.arange(start, start + count, dtype=dtype))
    return None


def _shaped(function: Callable[[Any, tuple[int, ...]], Any]) -> Rule:
    """Return the rule of an operation that gives its operand the shape of its result."""

    def meaning(operation: Any) -> Unary:
        shape = shape_of(operation.result.type)
        return lambda value: function(value, shape)

    return pure(meaning)


def _expand_dims(operation: tile.ExpandDims) -> Unary:
    axis = operation.axis.data
    return lambda value: np.expand_dims(value, axis)


def _transpose(operation: tile.Transpose) -> Unary:
    permutation = [item.data for item in operation.permutation]
    return lambda value: np.transpose(value, permutation)


def _gather(operation: tile.Gather) -> Binary:
    axis = operation.axis.data
    return lambda value, index: gathered(value, index, axis)


def _histogram(operation: tile.Histogram) -> Callable[..., Array]:
    bins = shape_of(operation.result.type)[-1]

    def count(value: Array, mask: Any = True) -> Array:
        return counted(value, bins, mask)

    return count


# --- arithmetic -------------------------------------------------------------------------------


def _cast(operation: tile.Cast) -> Unary:
    dtype = dtype_of(operation.result.type)
    return lambda value: convert(value, dtype)


def _bitcast(operation: tile.Bitcast) -> Unary:
    source = element_type(operation.value.type)
    target = element_type(operation.result.type)
    if isinstance(source, PtrType) and isinstance(target, PtrType):
        return lambda value: value
    dtype = dtype_of(target)
    return lambda value: reinterpret(value, dtype)


def _ptr_add(operation: tile.PtrAdd) -> Binary:
    pointer = element_type(operation.pointer.type)
    assert isinstance(pointer, PtrType), "tile.ptr_add moves pointers; report this with the kernel"
    size = dtype_of(pointer.element).itemsize
    return lambda pointer, offset: pointer + offset.astype(np.int64) * size


def _dot(operation: tile.Dot) -> Ternary:
    precision = operation.precision.data
    return lambda a, b, acc: dot(a, b, acc, precision)


# --- memory -----------------------------------------------------------------------------------


def pointee(kind: Any) -> DType:
    """Return the dtype that a pointer, or each of a tensor of pointers, points to."""
    pointer = element_type(kind)
    assert isinstance(pointer, PtrType), "not a pointer; report this with the kernel"
    return dtype_of(pointer.element)


def _load(operation: tile.Load) -> Callable[..., Any]:
    dtype = pointee(operation.pointer.type)
    masked, filled_in = operation.mask is not None, operation.other is not None
    kind = "poll" if operation.volatile is not None and bool(operation.volatile) else "read"

    def load(world: World, pointer: Any, *rest: Any) -> Any:
        mask = rest[0] if masked else None
        other = rest[-1] if filled_in else None
        return world.memory.gather(pointer, dtype, mask, other, operation, world.watch, kind)

    return load


def _store(operation: tile.Store) -> Callable[..., Any]:
    dtype = pointee(operation.pointer.type)

    def store(world: World, pointer: Any, value: Any, mask: Any = None) -> None:
        value = convert(value, dtype)
        world.memory.scatter(pointer, value, mask, operation, world.watch)

    return store


def combination(function: str, dtype: DType) -> Callable[[Any, Any], Any]:
    """Return what an atomic does to the old value and its operand."""
    if function == "exchange":
        return lambda old, new: new
    if function in ("min", "max") and dtype.kind == "f" and dtype.itemsize >= 4:
        return _by_bits(function)
    return element_function(function, dtype, dtype)


def _by_bits(function: str) -> Callable[[Any, Any], Any]:
    """Return the extremum of f32 or f64 that the GPU takes in memory, of their bits as integers: a
    NaN is beyond the infinity of its sign, and 0.0 is more than -0.0 (IEEE 754, totalOrder).
    """

    def choose(old: Any, new: Any) -> Any:
        first, second = (np.asarray(each) for each in (old, new))
        whole = np.dtype(f"i{first.itemsize}")
        most = np.iinfo(whole).max
        a, b = (np.where(x < 0, x ^ most, x) for x in (first.view(whole), second.view(whole)))
        return np.where(a > b if function == "max" else a < b, first, second)[()]

    return choose


def _atomic(operation: tile.Atomic) -> Callable[..., Any]:
    step = combination(operation.function.data, dtype_of(operation.value.type))

    def update(world: World, pointer: Any, value: Any, mask: Any = None) -> Any:
        return world.memory.update(pointer, step, value, mask, operation, world.watch)

    return update


def _bits(value: Any) -> Any:
    """Return elements as unsigned integers: compare-and-swap compares bits, not numbers."""
    return reinterpret(value, np.dtype(f"u{value.dtype.itemsize}"))


def _compare_exchange(operation: tile.CompareExchange) -> Callable[..., Any]:
    def exchange(world: World, pointer: Any, expected: Any, value: Any) -> Any:
        pairs = np.stack([np.asarray(expected), np.asarray(value)], axis=-1)
        at = np.asarray(pointer)
        old = np.empty(at.shape, pairs.dtype)
        for where in np.ndindex(at.shape):
            wanted, new = pairs[where]

            def step(found: Any, _: Any, wanted: Any = wanted, new: Any = new) -> Any:
                same = bool(_bits(np.asarray(found)) == _bits(np.asarray(wanted)))
                return new if same else found

            old[where] = world.memory.update(at[where], step, new, None, operation, world.watch)
        return old[()]

    return exchange


def _make_desc(operation: tile.MakeDesc) -> Callable[..., Any]:
    kind = operation.result.type
    dtype, block, padding = dtype_of(kind.element), kind.block_shape, operation.padding.data
    rank = len(operation.extents)

    def make(base: Any, *numbers: Any) -> Descriptor:
        values = tuple(int(number) for number in numbers)
        return Descriptor(int(base), dtype, values[:rank], values[rank:], block, padding)

    return make


def _desc_extent(operation: tile.DescExtent) -> Unary:
    if operation.what.data == "base":
        return lambda desc: np.int64(desc.address)
    axis, dtype = operation.axis.data, dtype_of(operation.result.type)
    if operation.what.data == "extent":
        return lambda desc: dtype.type(desc.extents[axis])
    if operation.what.data == "count":
        return lambda desc: dtype.type(desc.window.counts(desc.extents[1:-1])[axis])
    return lambda desc: dtype.type(desc.strides[axis])


def _desc_load(operation: tile.DescLoad) -> Callable[..., Any]:
    shape = shape_of(operation.result.type)

    def load(world: World, desc: Descriptor, *offsets: Any) -> Array:
        at = tuple(int(offset) for offset in offsets)
        block = world.memory.read_block(desc, at, desc.block_shape, operation, world.watch)
        return block.reshape(shape)

    return load


def _desc_write(operation: tile.DescStore | tile.DescAtomic) -> Callable[..., Any]:
    combine = None
    if isinstance(operation, tile.DescAtomic):
        combine = combination(operation.function.data, dtype_of(operation.value.type))

    def write(world: World, desc: Descriptor, *rest: Any) -> None:
        *offsets, value = rest
        at = tuple(int(offset) for offset in offsets)
        block = convert(np.asarray(value), desc.dtype).reshape(desc.block_shape)
        world.memory.write_block(desc, at, block, operation, world.watch, combine)

    return write


# --- promises and reports ---------------------------------------------------------------------


def _assume(operation: tile.Assume) -> Callable[..., Any]:
    def check(_: World, condition: Any) -> None:
        if not np.all(condition):
            raise LaunchError(
                "tl.assume: the promised fact is false here",
                place=place_of(operation),
                why="the compiler uses what is assumed; on the device the result is undefined",
            )

    return check


def _assert(operation: tile.Assert) -> Callable[..., Any]:
    def check(world: World, condition: Any) -> None:
        if not np.all(condition):
            raise LaunchError(
                f"device_assert failed: {operation.message.data}",
                place=place_of(operation),
                why=f"in program {world.program}",
            )

    return check


def _print(operation: tile.Print) -> Callable[..., Any]:
    prefix, shown = operation.prefix.data, _in_hex if operation.hex is not None else _as_it_is

    def show(world: World, *values: Any) -> None:
        print(f"pid {world.program} {prefix}", *map(shown, values))

    return show


def _breakpoint(operation: tile.Breakpoint) -> Callable[..., Any]:
    """Stop in a frame that stands at the user's line, with the user's names."""
    names, place = [name.data for name in operation.names], place_of(operation)
    tree = ast.parse("breakpoint()")
    if place is not None:
        ast.increment_lineno(tree, place.line - 1)
    file = "<kernel>" if place is None else place.file
    code = compile(tree, file, "exec").replace(co_name=operation.function.data)

    def stop(world: World, *values: Any) -> None:
        found: dict[str, list[Any]] = {}
        for name, value in zip(names, values, strict=True):
            found.setdefault(name, []).append(copy(value))
        scope = {name: each[0] if len(each) == 1 else tuple(each) for name, each in found.items()}
        exec(code, {"np": np, "program": world.program}, scope)

    return stop


def _as_it_is(value: Any) -> Any:
    return value


def _in_hex(value: Any) -> str:
    """Return the bits of a scalar, or of each element, as ``0x`` and all their digits."""
    array = np.asarray(value)
    is_bool = array.dtype.kind == "b"
    bits = array if is_bool else array.view(f"u{array.itemsize}")
    spell = ("0x{:x}" if is_bool else f"0x{{:0{2 * array.itemsize}x}}").format
    return np.array2string(bits, formatter={"all": spell})


RULES: dict[type[Operation], Rule] = {
    **CONTROL,
    **REDUCTIONS,
    tile.Constant: _constant,
    tile.Arange: _arange,
    tile.ProgramId: along(lambda world: world.program),
    tile.NumPrograms: along(lambda world: world.grid),
    tile.Splat: _shaped(np.broadcast_to),
    tile.ExpandDims: pure(_expand_dims),
    tile.Broadcast: _shaped(np.broadcast_to),
    tile.Reshape: _shaped(np.reshape),
    tile.Transpose: pure(_transpose),
    tile.Split: computes(lambda value: (value[..., 0][()], value[..., 1][()])),
    tile.Join: computes(lambda first, second: np.stack([first, second], axis=-1)),
    tile.Gather: pure(_gather),
    tile.Histogram: pure(_histogram),
    tile.Elementwise: pure(elementwise),
    tile.Asm: pure(inline_asm),
    tile.AsmEffect: pure(inline_asm),
    tile.Cast: pure(_cast),
    tile.Bitcast: pure(_bitcast),
    tile.PtrAdd: pure(_ptr_add),
    tile.Dot: pure(_dot),
    tile.Load: effect(_load),
    tile.Store: effect(_store),
    tile.Atomic: effect(_atomic),
    tile.CompareExchange: effect(_compare_exchange),
    tile.MakeDesc: pure(_make_desc),
    tile.DescExtent: pure(_desc_extent),
    tile.DescLoad: effect(_desc_load),
    tile.DescStore: effect(_desc_write),
    tile.DescAtomic: effect(_desc_write),
    tile.Assume: effect(_assume),
    tile.Assert: effect(_assert),
    tile.Print: effect(_print),
    tile.Breakpoint: effect(_breakpoint),
}
"""Every tile operation, by class."""
