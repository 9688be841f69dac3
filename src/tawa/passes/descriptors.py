"""Turn pointer accesses into descriptor accesses where that is provably the same program.

Purpose: a kernel that loads through pointers and masks gets TMA, as one written with descriptors.

Before -> after:
    %p = tile.ptr_add %base, (m + i) * stride + (k + j)
    %x = tile.load %p, (m + i < M) & (k + j < K), 0.0
      ->
    %d = tile.make_desc %base, [M, K], [stride, 1]
    %x = tile.desc_load %d[m, k]

Requires tile IR. Ensures: every promoted access reads and writes the same elements for every launch
that passes the guards the pass leaves on the kernel (attribute `guards`: conditions that the
launcher must find true, `tawa.runtime.guards`, else it runs the kernel compiled without this pass).

Declines when no product and no loop around a load of a tile gives roles something to overlap
(`promote_always` does not); and (per access, the reason names the rule) when: the addresses are not
affine; no stride is known to be 1; a stride or the base is not known to be a multiple of 16 bytes;
the mask is not a conjunction of bounds; a bound is not a function of the arguments; masked-
off elements are not zero; a wrapped index may reach a store; an index that stands several times is
masked; the columns of a store are not known to end at a multiple of 16 bytes; the access is
volatile, or of what other programs write; a box surely begins at an address that is no multiple of
16 bytes.
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from tawa.analysis.blocks import Block, describe, ends_whole
from tawa.analysis.bounds import Refusal
from tawa.analysis.coordinates import Dim
from tawa.analysis.copies import is_zero
from tawa.analysis.effects import enclosing_loops, is_volatile
from tawa.analysis.memory import reached, roots_of, synchronizers, writers
from tawa.analysis.naming import inherit_name, name_of
from tawa.analysis.polynomial import (
    ONE,
    Call,
    Leaf,
    Polynomial,
    Trip,
    is_argument,
    place_of,
    polynomial,
)
from tawa.analysis.rows import reaches_only_masked_stores
from tawa.analysis.spelling import asked
from tawa.ir import tile
from tawa.ir.types import DescType, PtrType, element_type, i32, i64, int_array, shape_of
from tawa.ir.walk import walk
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_NOTHING = "no product, and no loop around a load of a tile: threads reach memory as fast"


def promote(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Promote every pointer load and store of `kernel` that is a block of a strided array."""
    return _promote_each(kernel, _has_work_to_overlap(kernel))


def promote_always(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Promote them also where nothing overlaps: the pin store="tma" asks for it."""
    return _promote_each(kernel, True)


def _promote_each(kernel: tile.Kernel, gains: bool) -> tuple[Declined, ...]:
    declined: list[Declined] = []
    guards: list[str] = []
    for op in walk(kernel):
        match op:
            case tile.Load() | tile.Store() if isinstance(op.pointer.type, TensorType):
                reason = _promote(kernel, op, guards) if gains else _NOTHING
            case _:
                continue
        if reason:
            declined.append(Declined(f"descriptor for {name_of(op)}", reason))
    if guards:
        texts = [StringAttr(text) for text in dict.fromkeys(guards)]
        kernel.attributes["guards"] = ArrayAttr(texts)
    return tuple(declined)


def _has_work_to_overlap(kernel: tile.Kernel) -> bool:
    """Tell whether a kernel may get roles. In one without, tiles that TMA moves take a way more,
    through shared memory and to the threads that need them.
    """
    for op in walk(kernel):
        match op:
            case tile.Dot():
                return True
            case tile.DescLoad():
                tiled = True
            case tile.Load():
                tiled = sum(extent > 1 for extent in shape_of(op.result.type)) > 1
            case _:
                continue
        if tiled and enclosing_loops(op):
            return True
    return False


def _promote(kernel: tile.Kernel, op: tile.Load | tile.Store, guards: list[str]) -> str:
    """Rewrite one access; return the reason if it stays, else an empty text."""
    if isinstance(op, tile.Load) and (reason := _load_refusal(kernel, op)):
        return reason
    block = describe(op.pointer, op.mask)
    if isinstance(block, Refusal):
        return block.reason
    if any(dim.wrap is not None and not _wrap_is_harmless(op, dim) for dim in block.dims):
        return "a wrapped index may reach a store that is not masked"
    if isinstance(op, tile.Store) and not ends_whole(block):
        return "its columns are not known to end at a multiple of 16 bytes, which TMA writes whole"
    if isinstance(op, tile.Store) and any(dim.repeat > 1 for dim in block.dims):
        return "several of its elements go to one place"
    desc = _make_descriptor(kernel, op, block)
    offsets = [_emit(dim.offset, op, i32) for dim in block.dims]
    if isinstance(op, tile.Load):
        _replace_load(op, desc, offsets, block)
    else:
        _replace_store(op, desc, offsets, block)
    guards.extend(asked(kernel, "never_negative", poly) for poly in block.nonnegative)
    guards.extend(asked(kernel, "always_multiple", poly, unit) for poly, unit in block.multiples)
    return ""


def _load_refusal(kernel: tile.Kernel, op: tile.Load) -> str:
    if is_volatile(op):
        return "the load is volatile"
    if op.mask is not None and op.other is not None and not is_zero(op.other):
        return "masked-off elements are not zero"
    if _is_acquired(kernel, op):  # TMA would need a fence between the proxies
        return "other programs may have written it, as an atomic tells"
    return ""


def _is_acquired(kernel: tile.Kernel, load: tile.Load) -> bool:
    """Tell whether a load may see what another program wrote while the kernel ran."""
    if not (others := synchronizers(kernel)):
        return False
    order = {operation: place for place, operation in enumerate(walk(kernel))}
    loops = set(enclosing_loops(load))
    if not any(
        order[other] < order[load] or not loops.isdisjoint(enclosing_loops(other))
        for other in others
    ):
        return False
    mine = roots_of(load.pointer)
    every = [reached(store) for store in writers(kernel)]
    return any(mine is None or theirs is None or mine & theirs for theirs in every)


def _wrap_is_harmless(op: tile.Load | tile.Store, dim: Dim) -> bool:
    if not isinstance(op, tile.Load) or dim.dim is None or dim.wrap is None:
        return False
    return reaches_only_masked_stores(op.result, dim.dim, dim.offset, dim.wrap)


def _make_descriptor(kernel: tile.Kernel, op: Operation, block: Block) -> SSAValue:
    """Make the descriptor at the top of the kernel; equal ones are shared by the next pass."""
    pointer = block.base.type
    assert isinstance(pointer, PtrType), "a block starts at an argument's address"
    element = pointer.element
    shape = [dim.block for dim in block.dims]
    first = kernel.body.block.first_op
    assert first is not None, "a kernel that loads has statements"
    builder = Builder(InsertPoint.before(first))
    extents = [_emit_at(dim.extent, builder, i64) for dim in block.dims]
    strides = [_emit_at(dim.stride, builder, i64) for dim in block.dims]
    desc = tile.MakeDesc(
        operands=[block.base, extents, strides],
        attributes={"padding": StringAttr("zero")},
        result_types=[DescType(TensorType(element, shape))],
    )
    desc.location = op.location
    builder.insert(desc)
    desc.result.name_hint = f"{block.base.name_hint or 'x'}_desc"
    return desc.result


def _memory_order(block: Block) -> list[int]:
    """Return the tile's dimensions of extent > 1 in the order they have in memory."""
    return [dim.dim for dim in block.dims if dim.dim is not None]


def _replace_load(op: tile.Load, desc: SSAValue, offsets: list[SSAValue], block: Block) -> None:
    element = element_type(op.result.type)
    stored = [dim.block for dim in block.dims]
    builder = Builder(InsertPoint.before(op))
    load = tile.DescLoad(
        operands=[desc, offsets],
        attributes={} if op.eviction is None else {"eviction": op.eviction},
        result_types=[TensorType(element, stored)],
    )
    load.location = op.location
    inherit_name(load, op)
    builder.insert(load)
    value: SSAValue = load.result
    order = _memory_order(block)
    value = _reshaped(builder, value, [dim.block for dim in block.dims if dim.dim is not None])
    ranked = sorted(order)
    if order != ranked:
        permutation = [order.index(dim) for dim in ranked]
        shape = [shape_of(value.type)[place] for place in permutation]
        turn = tile.Transpose(
            operands=[value],
            attributes={"permutation": int_array(permutation)},
            result_types=[TensorType(element, shape)],
        )
        value = builder.insert(turn).result
    value = _repeated(builder, value, {d.dim: d.repeat for d in block.dims if d.dim is not None})
    value = _reshaped(builder, value, list(shape_of(op.result.type)))
    load.result.name_hint = op.result.name_hint
    value.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(value)
    op.detach()
    op.erase()


def _repeated(builder: Builder, value: SSAValue, counts: dict[int, int]) -> SSAValue:
    """Return a tile of which each index along dimension d, in order, stands `counts[d]` times."""
    for place, dim in enumerate(sorted(counts)):
        if (count := counts[dim]) == 1:
            continue
        shape, element = list(shape_of(value.type)), element_type(value.type)
        for kind, extent in ((tile.ExpandDims, 1), (tile.Broadcast, count)):
            longer = TensorType(element, [*shape[: place + 1], extent, *shape[place + 1 :]])
            axis = {"axis": IntAttr(place + 1)} if kind is tile.ExpandDims else {}
            made = kind(operands=[value], attributes=axis, result_types=[longer])
            value = builder.insert(made).result
        shape[place] *= count
        value = _reshaped(builder, value, shape)
    return value


def _replace_store(op: tile.Store, desc: SSAValue, offsets: list[SSAValue], block: Block) -> None:
    builder = Builder(InsertPoint.before(op))
    order = _memory_order(block)
    ranked = sorted(order)
    shape = shape_of(op.value.type)
    value = _reshaped(builder, op.value, [shape[dim] for dim in ranked])
    if order != ranked:
        permutation = [ranked.index(dim) for dim in order]
        turn = tile.Transpose(
            operands=[value],
            attributes={"permutation": int_array(permutation)},
            result_types=[TensorType(element_type(value.type), [shape[dim] for dim in order])],
        )
        value = builder.insert(turn).result
    value = _reshaped(builder, value, [dim.block for dim in block.dims])
    store = tile.DescStore(operands=[desc, offsets, value])
    store.location = op.location
    inherit_name(store, op)
    builder.insert(store)
    op.detach()
    op.erase()


def _reshaped(builder: Builder, value: SSAValue, shape: list[int]) -> SSAValue:
    if list(shape_of(value.type)) == shape:
        return value
    kind = TensorType(element_type(value.type), shape)
    return builder.insert(tile.Reshape(operands=[value], result_types=[kind])).result


def _emit(poly: Polynomial, before: Operation, kind: Attribute) -> SSAValue:
    return _emit_at(poly, Builder(InsertPoint.before(before)), kind)


def _emit_at(poly: Polynomial, builder: Builder, kind: Attribute) -> SSAValue:
    """Insert the arithmetic that computes `poly` as an integer of type `kind`."""

    def constant(number: int) -> SSAValue:
        op = tile.Constant(attributes={"value": IntAttr(number)}, result_types=[kind])
        return builder.insert(op).result

    def apply(name: str, *inputs: SSAValue) -> SSAValue:
        op = tile.Elementwise(
            operands=[list(inputs)],
            attributes={"function": StringAttr(name)},
            result_types=[kind],
        )
        return builder.insert(op).result

    def leaf(value: SSAValue) -> SSAValue:
        if value.type == kind:
            return value
        return builder.insert(tile.Cast(operands=[value], result_types=[kind])).result

    def atom(item: Leaf | Trip | Call) -> SSAValue:
        match item:
            case Leaf():
                return leaf(item.value)
            case Call():
                return leaf(item.value) if not is_constant_call(item) else call(item)
            case Trip():
                loop = item.loop
                iv = leaf(loop.body.block.args[0])
                start, step = polynomial(loop.lb), polynomial(loop.step)
                if not start.is_zero:
                    iv = apply("sub", iv, _emit_at(start, builder, kind))
                return iv if step == ONE else apply("idiv", iv, _emit_at(step, builder, kind))

    def call(item: Call) -> SSAValue:
        inputs = [_emit_at(part, builder, kind) for part in item.inputs]
        return apply(item.function, *inputs)

    def is_constant_call(item: Call) -> bool:
        # Only arguments below: computed again, since the original may stand further down.
        return all(
            isinstance(part, Leaf) and is_argument(part.value)
            for argument in item.inputs
            for part in argument.leaves
        )

    total: SSAValue | None = None
    for coefficient, monomial in sorted(
        ((c, sorted(m, key=place_of)) for m, c in poly.terms.items()),
        key=lambda term: (str(term[0]), [place_of(item) for item in term[1]]),
    ):
        factors = [atom(item) for item in monomial]
        if coefficient != 1 or not factors:
            factors.append(constant(coefficient))
        term = factors[0]
        for factor in factors[1:]:
            term = apply("mul", term, factor)
        total = term if total is None else apply("add", total, term)
    return total if total is not None else constant(0)
