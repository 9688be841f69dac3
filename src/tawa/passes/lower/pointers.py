"""Descriptor accesses that TMA cannot take become accesses through pointers.

Purpose: keep kernels right whose descriptors are made inside the kernel from values the host does
not have, whose rows are no multiple of 16 bytes, or whose store the plan wants from registers.
Before -> after:
    tile.desc_store %d[%m, %n], %v    ->    %p = base + (m + i) * stride0 + (n + j) * stride1
                                            tile.store %p, %v, (0 <= m + i < extent0) & ...
Requires: tile operations. Ensures: out-of-bounds elements read as the padding, writes are dropped.
Declines when: each such access is a note, `TMA for a@12`, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, SSAValue

from tawa.analysis.hardware import block_objection, is_host_made, padding_of
from tawa.analysis.statements import VIEWS, name_of
from tawa.ir import hopper, tile
from tawa.ir.types import DescType, PtrType, Real, element_type, i64, is_float, spell, with_shape
from tawa.ir.walk import walk
from tawa.layouts.windows import Window
from tawa.passes.lower.context import Lowering
from tawa.passes.lower.emit import Emitter, erase, replace


def expand_accesses(lowering: Lowering, role: hopper.Role) -> None:
    """Expand the descriptor accesses of `role` that do not go through TMA."""
    for operation in walk(role):
        match operation:
            case tile.DescLoad():
                spare = lowering.plan.sharing and not _feeds_product(operation.result)
                spare = spare and _window(operation.desc) is None  # only TMA counts windows
                reason = "the plan keeps shared memory for the operands of products" * spare
                if lowering.plan.takes_directly(name_of(operation)):
                    reason = "the plan loads it into registers"
                if reason := reason or _objection(lowering, operation.desc):
                    lowering.note(f"TMA for {name_of(operation)}", reason)
                    expand_load(operation)
            case tile.DescStore():
                by_plan = lowering.store_plan(operation).via == "registers"
                reason = "the plan stores it from registers" if by_plan else ""
                if reason := reason or _objection(lowering, operation.desc):
                    lowering.note(f"TMA for {name_of(operation)}", reason)
                    lowering.direct.add(expand_write(operation))
            case tile.DescAtomic():
                reason = _objection(lowering, operation.desc) or _reduction_objection(operation)
                if reason:
                    lowering.note(f"TMA for {name_of(operation)}", reason)
                    expand_write(operation)
            case _:
                continue


def _window(desc: SSAValue) -> Window | None:
    """Return the windows a descriptor is of."""
    assert isinstance(desc.type, DescType)
    return desc.type.window


def _feeds_product(value: SSAValue) -> bool:
    """Tell whether a product reads a tile, or a view of it."""
    users = [use.operation for use in value.uses]
    return any(
        isinstance(user, tile.Dot) or (isinstance(user, VIEWS) and _feeds_product(user.results[0]))
        for user in users
    )


# What TMA combines into memory (PTX ISA, "cp.reduce.async.bulk.tensor"), by function.
_REDUCED = {
    "add": ("u32", "i32", "u64", "f32", "f16", "bf16"),
    "min": ("u32", "i32", "u64", "i64", "f16", "bf16"),
    "max": ("u32", "i32", "u64", "i64", "f16", "bf16"),
    "and": ("u32", "i32", "u64", "i64"),
    "or": ("u32", "i32", "u64", "i64"),
    "xor": ("u32", "i32", "u64", "i64"),
}


def _reduction_objection(atomic: tile.DescAtomic) -> str:
    """Return why TMA does not combine a block as asked, or nothing."""
    function, element = atomic.function.data, spell(element_type(atomic.value.type))
    if element in _REDUCED.get(function, ()):
        return ""
    return f"it does not combine {element} by {function}"


def _objection(lowering: Lowering, desc: SSAValue) -> str:
    """Return why TMA cannot serve accesses through `desc`, or nothing."""
    if reason := block_objection(desc.type, lowering.target):
        return reason
    if not is_host_made(desc):
        return "the descriptor depends on the program, the host cannot encode it"
    return ""


def expand_load(load: tile.DescLoad) -> None:
    """Load a block through pointers, the padding outside of the tensor."""
    emitter = Emitter.before(load)
    pointer, mask = _addresses(emitter, load.desc, list(load.offsets))
    other = _padding(emitter, load)
    operands = [pointer, [mask], [other]]
    replace(load, [emitter.made(tile.Load, operands, load.result.type, eviction=load.eviction)])


def _padding(emitter: Emitter, load: tile.DescLoad) -> SSAValue:
    """Return what elements outside read as: zeros, or NaN where the descriptor says so."""
    kind = load.result.type
    outside = float("nan") if padding_of(load.desc) == "nan" else 0.0
    value: Attribute = Real(outside) if is_float(element_type(kind)) else IntAttr(0)
    return emitter.put(tile.Constant.make(results=[kind], value=value)).result


def expand_write(access: tile.DescStore | tile.DescAtomic) -> tile.Store | tile.Atomic:
    """Store or combine a block through pointers; return the operation that does."""
    emitter = Emitter.before(access)
    pointer, mask = _addresses(emitter, access.desc, list(access.offsets))
    match access:
        case tile.DescStore():
            made = emitter.put(tile.Store.make(pointer, access.value, [mask]))
        case tile.DescAtomic():
            made = emitter.put(
                tile.Atomic.make(
                    pointer,
                    access.value,
                    [mask],
                    results=[access.value.type],
                    function=access.function,
                    order="relaxed",
                    scope="gpu",
                )
            )
    erase(access)
    return made


def _addresses(
    emitter: Emitter, desc: SSAValue, offsets: list[SSAValue]
) -> tuple[SSAValue, SSAValue]:
    """Return the pointers to a block's elements and the mask of those inside the tensor."""
    kind = desc.type
    assert isinstance(kind, DescType)
    shape = kind.block_shape
    extents, strides = _geometry(emitter, desc, len(shape))
    base = emitter.splat(_base(emitter, desc), shape)
    mask: SSAValue | None = None
    moved = base
    for dim, offset in enumerate(offsets):
        index = _index(emitter, offset, dim, shape)
        step = emitter.splat(strides[dim], shape)
        term = emitter.apply("mul", index, step)
        moved = emitter.put(tile.PtrAdd.make(moved, term, results=[base.type])).result
        zero = emitter.constant(0, with_shape(shape, i64))
        inside = emitter.apply(
            "and",
            emitter.apply("ge", index, zero),
            emitter.apply("lt", index, emitter.splat(extents[dim], shape)),
        )
        mask = inside if mask is None else emitter.apply("and", mask, inside)
    assert mask is not None, "a descriptor has at least one dimension"
    return moved, mask


def _index(emitter: Emitter, offset: SSAValue, dim: int, shape: tuple[int, ...]) -> SSAValue:
    """Return offset + 0, 1, 2 ... along `dim`, as a tensor of i64 of the whole block."""
    line = emitter.cast(emitter.line(shape[dim]), i64)
    start = emitter.splat(emitter.cast(offset, i64), (shape[dim],))
    return emitter.spread(emitter.apply("add", start, line), dim, shape)


def _geometry(
    emitter: Emitter, desc: SSAValue, rank: int
) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    """Return extents and strides of a descriptor as i64 scalars."""
    if isinstance(desc.owner, tile.MakeDesc):
        made = desc.owner
        return (
            [emitter.cast(value, i64) for value in made.extents],
            [emitter.cast(value, i64) for value in made.strides],
        )
    extents, strides = (
        [emitter.made(tile.DescExtent, [desc], i64, what=what, axis=dim) for dim in range(rank)]
        for what in ("extent", "stride")
    )
    return extents, strides


def _base(emitter: Emitter, desc: SSAValue) -> SSAValue:
    """Return the base address of a descriptor."""
    if isinstance(desc.owner, tile.MakeDesc):
        return desc.owner.base
    kind = desc.type
    assert isinstance(kind, DescType)
    return emitter.made(tile.DescExtent, [desc], PtrType(kind.element), what="base", axis=0)
