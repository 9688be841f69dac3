"""Loads and stores through pointers and block pointers.

A block pointer becomes pointer arithmetic and a mask here, so that one analysis of affine addresses
serves both forms. What a boundary check leaves out reads as 0 (or NaN).

Atomic operations on memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TypeAlias

from tawa.errors import TypeMismatch
from tawa.ir import tile
from tawa.ir.build import arithmetic
from tawa.ir.build.builder import Context
from tawa.ir.build.operations import arguments as arg
from tawa.ir.build.values import BlockPointer, Const, Descriptor, Tensor, Value, describe, ir_type
from tawa.language.dtypes import dtype, int8, int32, int64, pointer_type

How: TypeAlias = Mapping[str, str | bool | None]
"""How memory is accessed: attributes of a load or a store, by name."""
_LOAD_CACHE = (".ca", ".cg", ".cv")
_STORE_CACHE = (".wb", ".cg", ".cs", ".wt")
_EVICTION = ("evict_first", "evict_last", "evict_normal")


def element_of(c: Context, pointer: Tensor) -> dtype:
    """Return what a pointer points to; raises TypeMismatch for anything else."""
    if isinstance(kind := pointer.dtype, pointer_type):
        return kind.element_ty
    raise c.builder.mismatch(
        f"an address is needed here, this is {describe(pointer)}",
        why="memory is read and written through pointers",
        remedy="add the offset to the pointer that an array passed as an argument is",
    )


def eviction(c: Context, value: Value) -> str | None:
    """Return an L2 eviction policy as "first" or "last", None for the normal one."""
    policy = arg.text(c, value, "eviction_policy", _EVICTION)
    if policy in ("", "evict_normal"):
        return None
    return policy.removeprefix("evict_")


def _cache(c: Context, value: Value, allowed: tuple[str, ...]) -> str | None:
    modifier = arg.text(c, value, "cache_modifier", allowed)
    return modifier.removeprefix(".") or None


def _pointer(c: Context, value: Value, name: str) -> Tensor:
    if isinstance(value, Tensor):
        element_of(c, value)
        return value
    remedy = "use desc.load and desc.store" if isinstance(value, Descriptor) else ""
    raise c.builder.mismatch(f"{name} takes a pointer, this is {describe(value)}", remedy=remedy)


def _mask(c: Context, value: Value, pointer: Tensor) -> Tensor | None:
    """Bring a mask to the shape of the pointers; None when it lets everything through."""
    if arg.is_none(value):
        return None
    mask = arithmetic.to_tensor(c.builder, value)
    if not mask.dtype.is_bool():
        raise c.builder.mismatch(
            f"a mask holds truth values, this is {describe(mask)}",
            remedy="compare with zero: mask != 0",
        )
    if mask.is_block and not pointer.is_block:
        raise c.builder.mismatch(f"one address cannot have a mask of shape {list(mask.shape)}")
    return arithmetic.broadcast_to(c.builder, mask, pointer.shape)


def _widen(c: Context, pointer: Tensor, *others: Value) -> Tensor:
    """Repeat pointers to the shape they and their mask meet in."""
    shape = pointer.shape
    for other in others:
        if isinstance(other, Tensor) and pointer.is_block:
            shape = arithmetic.broadcast_shape(c.builder, shape, other.shape)
    return arithmetic.broadcast_to(c.builder, pointer, shape)


def load(
    c: Context,
    pointer: Value,
    mask: Value,
    other: Value,
    boundary_check: Value,
    padding_option: Value,
    cache_modifier: Value,
    eviction_policy: Value,
    volatile: Value,
) -> Value:
    """Emit a load."""
    attributes: How = {
        "cache": _cache(c, cache_modifier, _LOAD_CACHE),
        "eviction": eviction(c, eviction_policy),
        "volatile": arg.flag(c, volatile, "volatile") or None,
    }
    padding = arg.text(c, padding_option, "padding_option", ("zero", "nan"))
    if isinstance(pointer, BlockPointer):
        _no_mask(c, mask, other)
        return _load_block(c, pointer, boundary_check, padding, attributes)
    if padding or arg.sequence(boundary_check):
        raise _needs_block_pointer(c)
    if arg.is_none(mask) and not arg.is_none(other):
        raise c.builder.mismatch(
            "tl.load got `other` without `mask`",
            why="`other` stands for the elements that the mask leaves out",
        )
    return load_from(c, _pointer(c, pointer, "tl.load"), mask, other, attributes)


def _no_mask(c: Context, *values: Value) -> None:
    if all(map(arg.is_none, values)):
        return
    raise c.builder.mismatch(
        "a block pointer takes no mask",
        why="its extents say what lies inside",
        remedy="name the dimensions to check in boundary_check",
    )


def _needs_block_pointer(c: Context) -> TypeMismatch:
    return c.builder.mismatch(
        "boundary_check and padding_option take a block pointer",
        why="a tensor of pointers does not know the extents of its tensor",
        remedy="use a mask, or tl.make_block_ptr",
    )


def load_from(c: Context, pointer: Tensor, mask: Value, other: Value, attributes: How) -> Tensor:
    """Emit a load from addresses; `mask` and `other` are brought to their shape."""
    pointer = _widen(c, pointer, mask, other)
    element = element_of(c, pointer)
    stored = in_memory(element)
    pointer = arithmetic.cast(c.builder, pointer, pointer_type(stored))
    bound = _mask(c, mask, pointer)
    filler = None
    if bound is not None and not arg.is_none(other):
        filler = as_stored(c, other, element, pointer.shape)
    kind = ir_type(stored, pointer.shape)
    made = c.builder.op(tile.Load, [pointer, bound, filler], kind, **attributes)
    return arithmetic.cast(c.builder, made, element)


def in_memory(element: dtype) -> dtype:
    """Return the type in which memory holds elements: a bool takes a byte."""
    return int8 if element.is_bool() else element


def as_stored(c: Context, value: Value, element: dtype, shape: Sequence[int]) -> Tensor:
    """Convert a value to a type, and that to what memory holds: of a bool whether it is not 0."""
    meant = arithmetic.converted(c.builder, value, element, shape)
    return arithmetic.cast(c.builder, meant, in_memory(element))


def store(
    c: Context,
    pointer: Value,
    value: Value,
    mask: Value,
    boundary_check: Value,
    cache_modifier: Value,
    eviction_policy: Value,
) -> Value:
    """Emit a store."""
    attributes: How = {
        "cache": _cache(c, cache_modifier, _STORE_CACHE),
        "eviction": eviction(c, eviction_policy),
    }
    if isinstance(pointer, BlockPointer):
        _no_mask(c, mask)
        address, inside = _addresses(c, pointer, boundary_check)
        store_to(c, address, value, inside or arg.NONE, attributes)
        return arg.NONE
    if arg.sequence(boundary_check):
        raise _needs_block_pointer(c)
    store_to(c, _pointer(c, pointer, "tl.store"), value, mask, attributes)
    return arg.NONE


def store_to(c: Context, pointer: Tensor, value: Value, mask: Value, attributes: How) -> None:
    """Emit a store to addresses; `value` and `mask` are brought to their shape."""
    shape = pointer.shape
    for name, part in (("value", value), ("mask", mask)):
        other = part.shape if isinstance(part, Tensor) else ()
        if arithmetic.broadcast_shape(c.builder, shape, other) != shape:
            raise c.builder.mismatch(
                f"the {name} of tl.store is {describe(part)}, its pointer {describe(pointer)}",
                why="a store writes one element to each address",
                remedy="give the pointer the shape of the value, as in ptr + offsets[:, None]",
            )
    element = element_of(c, pointer)
    pointer = arithmetic.cast(c.builder, pointer, pointer_type(in_memory(element)))
    data = as_stored(c, value, element, shape)
    bound = _mask(c, mask, pointer)
    c.builder.effect(tile.Store, [pointer, data, bound], **attributes)


def make_block_ptr(
    c: Context,
    base: Value,
    shape: Value,
    strides: Value,
    offsets: Value,
    block_shape: Value,
    order: Value,
) -> Value:
    """Remember a base, extents, strides and offsets; nothing but conversions is emitted."""
    pointer = _pointer(c, base, "tl.make_block_ptr")
    block = arg.shape(c, block_shape)
    parts = (
        scalars(c, shape, int64, "an extent"),
        scalars(c, strides, int64, "a stride"),
        scalars(c, offsets, int32, "an offset"),
        arg.integers(c, order, "order"),
    )
    if pointer.is_block or any(len(part) != len(block) for part in parts):
        raise c.builder.mismatch(
            "tl.make_block_ptr takes one address, and lists of equal length",
            why=f"block_shape has {len(block)} items; shape, strides, offsets and order have "
            + ", ".join(str(len(part)) for part in parts),
        )
    return BlockPointer(pointer, parts[0], parts[1], parts[2], block)


def scalars(c: Context, value: Value, kind: dtype, what: str) -> tuple[Tensor, ...]:
    """Return a list of integer scalars as one type; raises TypeMismatch."""
    return tuple(scalar(c, item, kind, what) for item in arg.sequence(value))


def scalar(c: Context, value: Value, kind: dtype, what: str) -> Tensor:
    """Return an integer scalar as `kind`; a wider one is refused with TypeMismatch."""
    tensor = None if isinstance(value, Const) else arithmetic.to_tensor(c.builder, value)
    if tensor is not None and (tensor.is_block or not tensor.dtype.is_int()):
        raise c.builder.mismatch(f"{what} is an integer scalar, this is {describe(value)}")
    if tensor is not None and tensor.dtype.int_bitwidth > kind.int_bitwidth:
        raise c.builder.mismatch(
            f"{what} is {kind.name}, this is {describe(value)}",
            why="the hardware counts elements of a tile in 32 bits",
            remedy="convert it with .to(tl.int32)",
        )
    return arithmetic.to_type(c.builder, value, kind)


def advance(c: Context, base: Value, offsets: Value) -> Value:
    """Move a block pointer."""
    if not isinstance(base, BlockPointer):
        raise c.builder.mismatch(f"tl.advance takes a block pointer, this is {describe(base)}")
    moves = scalars(c, offsets, int32, "an offset")
    if len(moves) != len(base.offsets):
        raise c.builder.mismatch(f"tl.advance got {len(moves)} offsets for {describe(base)}")
    moved = tuple(
        _plus(c, offset, item, move)
        for offset, item, move in zip(base.offsets, arg.sequence(offsets), moves)
    )
    return BlockPointer(base.base, base.extents, base.strides, moved, base.block_shape)


def _plus(c: Context, offset: Tensor, written: Value, move: Tensor) -> Tensor:
    if arithmetic.as_number(written) == 0:
        return offset
    return arithmetic.binary(c.builder, "+", offset, move)


def _addresses(
    c: Context, pointer: BlockPointer, boundary_check: Value
) -> tuple[Tensor, Tensor | None]:
    """Return the addresses of a tile, and where they lie inside the dimensions checked."""
    rank = len(pointer.block_shape)
    checked = {arg.axis_of(c, axis, rank) for axis in arg.sequence(boundary_check)}
    address, inside = pointer.base, list[Tensor]()
    for axis in range(rank):
        index = _index(c, pointer, axis)
        distance = arithmetic.binary(c.builder, "*", index, pointer.strides[axis])
        address = arithmetic.binary(c.builder, "+", address, distance)
        if axis in checked:
            low = arithmetic.compare(c.builder, ">=", index, Const(0))
            high = arithmetic.compare(c.builder, "<", index, pointer.extents[axis])
            inside += [low, high]
    both = partial(arithmetic.binary, c.builder, "&")
    mask = reduce(both, inside) if inside else None
    return arithmetic.broadcast_to(c.builder, address, pointer.block_shape), mask


def _index(c: Context, pointer: BlockPointer, axis: int) -> Tensor:
    """Return the positions of a tile along one dimension, shaped to broadcast."""
    extent, rank = pointer.block_shape[axis], len(pointer.block_shape)
    index = arithmetic.binary(c.builder, "+", pointer.offsets[axis], c.builder.line(extent))
    for place in range(rank):
        if place != axis:
            index = c.builder.expand_dims(index, place)
    return index


def _load_block(
    c: Context,
    pointer: BlockPointer,
    boundary_check: Value,
    padding: str,
    attributes: How,
) -> Tensor:
    address, inside = _addresses(c, pointer, boundary_check)
    if inside is None:
        return load_from(c, address, arg.NONE, arg.NONE, attributes)
    element = element_of(c, pointer.base)
    if padding == "nan" and not element.is_floating():
        raise c.builder.mismatch(
            f"padding_option='nan' does not apply to {element.name}", why="only floats have a NaN"
        )
    filler = Const(float("nan") if padding == "nan" else 0)
    return load_from(c, address, inside, filler, attributes)


# --- atomics --------------------------------------------------------------------------------------


_ORDERS = ("acquire", "release", "acq_rel", "relaxed")
_SCOPES = ("gpu", "cta", "sys")


def _how(c: Context, order: Value, scope: Value) -> dict[str, str]:
    return {
        "order": arg.text(c, order, "sem", _ORDERS) or "acq_rel",
        "scope": arg.text(c, scope, "scope", _SCOPES) or "gpu",
    }


def _check_type(c: Context, function: str, element: dtype) -> None:
    """Refuse element types that memory has no such operation for (PTX ISA, "atom")."""
    short = element.primitive_bitwidth < 32
    half = element.is_floating() and element.primitive_bitwidth == 16
    if element.is_floating() and function in ("and", "or", "xor"):
        why = "bits are those of integers"
    elif short and not (half and function == "add"):
        why = "memory has it for 32 and 64 bits, and the addition for 16-bit floats"
    else:
        return
    raise c.builder.mismatch(
        f"atomic_{function} does not take {element.name}",
        why=why,
        remedy="use an array of tl.float32 or tl.int32",
    )


def _address(c: Context, pointer: Value) -> Tensor:
    tensor = arithmetic.to_tensor(c.builder, pointer)
    element_of(c, tensor)
    return tensor


def _atomic(
    function: str, c: Context, pointer: Value, value: Value, mask: Value, sem: Value, scope: Value
) -> Value:
    address = _address(c, pointer)
    element = element_of(c, address)
    _check_type(c, function, element)
    operand = arithmetic.converted(c.builder, value, element, address.shape)
    bound = None
    if not arg.is_none(mask):
        truth = arithmetic.to_bool(c.builder, mask)
        bound = arithmetic.broadcast_to(c.builder, truth, address.shape)
    kind = ir_type(element, address.shape)
    return c.builder.op(
        tile.Atomic, [address, operand, bound], kind, function=function, **_how(c, sem, scope)
    )


def atomic_cas(
    c: Context, pointer: Value, expected: Value, value: Value, sem: Value, scope: Value
) -> Value:
    """Emit a compare and exchange."""
    address = _address(c, pointer)
    element = element_of(c, address)
    if element.primitive_bitwidth not in (16, 32, 64):
        raise c.builder.mismatch(
            f"atomic_cas does not take {element.name}", why="memory compares 16, 32 or 64 bits"
        )
    operands = [
        arithmetic.converted(c.builder, part, element, address.shape) for part in (expected, value)
    ]
    kind = ir_type(element, address.shape)
    return c.builder.op(tile.CompareExchange, [address, *operands], kind, **_how(c, sem, scope))


OPERATIONS: dict[str, Callable[..., Value]] = {
    "load": load,
    "store": store,
    "make_block_ptr": make_block_ptr,
    "advance": advance,
    "atomic_cas": atomic_cas,
    **{
        f"atomic_{name}": partial(_atomic, function)
        for name, function in {
            "xchg": "exchange",
            "add": "add",
            "max": "max",
            "min": "min",
            "and": "and",
            "or": "or",
            "xor": "xor",
        }.items()
    },
}
