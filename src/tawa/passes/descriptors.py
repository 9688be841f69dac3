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

Declines when the kernel has no product (`promote_always` does not): tiles that TMA moves take a way
more then, through shared memory and to the threads that need them; and (per access, the reason
names the rule) when: the addresses are not affine; no stride is known to be 1; a stride or the base
is not known to be a multiple of 16 bytes; the mask is not a conjunction of bounds; a bound is not a
function of the arguments; masked-off elements are not zero; a wrapped index may reach a store; an
index that stands several times is masked; the columns of a store are not known to end at a multiple
of 16 bytes; the access is volatile, or of what other programs write; a box surely begins at an
address that is no multiple of 16 bytes.

Purpose: keep stores by TMA inside their tensors' rows.

Before -> after, where the rows of `%d` end inside 16 bytes::

    tile.desc_store %d[%m, %n], %v    ->    %p = base + (m + i) * stride0 + (n + j) * stride1
                                            tile.store %p, %v, (0 <= m + i < extent0) & ...

TMA leaves out what lies outside of a tensor, but in pieces of 16 bytes: where a row of the tensor
ends inside such a piece, a store, or a reduction, changes what follows the row. Threads store such
tensors. Whether rows end so is known of a descriptor argument, and of numbers that are multiples;
else a launch is asked (attribute `row_ends`: conditions for `tawa.runtime.guards`).
Requires: tile IR. Ensures: the descriptors of all stores left, as far as the host makes them, have
rows of whole pieces. Declines: each store that threads make, with the reason.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tawa.analysis.blocks import Block, columns_of_piece, describe, ends_whole
from tawa.analysis.coordinates import Dim, is_multiple
from tawa.analysis.hardware import is_host_made, is_zero
from tawa.analysis.masks import Refusal, reaches_only_masked_stores
from tawa.analysis.memory import reached, roots_of, synchronizers, writers
from tawa.analysis.polynomial import (
    ONE,
    Call,
    Iteration,
    Leaf,
    Polynomial,
    asked,
    asked_natural,
    is_argument,
    is_host_value,
    place_of,
    polynomial,
)
from tawa.analysis.statements import enclosing_loops, inherit_name, is_volatile, name_of
from tawa.ir import tile
from tawa.ir.types import DescType, PtrType, element_type, i32, i64, shape_of
from tawa.ir.walk import all_of, has, walk
from tawa.passes.lower.emit import Emitter, ask_launch, erase, replace
from tawa.passes.lower.pointers import expand_write
from tawa.plan.plan import Declined, Plan
from tawa.target import Target

_NOTHING = "no product: threads reach memory as fast"


def promote(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Promote every pointer load and store of `kernel` that is a block of a strided array."""
    return _promote_each(kernel, has(kernel, tile.Dot))


def promote_always(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Promote them also where nothing overlaps: what is pinned asks for it."""
    return _promote_each(kernel, True)


def promote_vectors(kernel: tile.Kernel) -> tuple[Declined, ...]:
    """Promote accesses of one dimension as well: a kernel that is said as tasks has tensors."""
    return _promote_each(kernel, True, least=1)


def _promote_each(kernel: tile.Kernel, gains: bool, least: int = 2) -> tuple[Declined, ...]:
    declined: list[Declined] = []
    guards: list[str] = []
    for op in walk(kernel):
        match op:
            case tile.Load() | tile.Store() if isinstance(op.pointer.type, TensorType):
                reason = _promote(kernel, op, guards, least) if gains else _NOTHING
            case _:
                continue
        if reason:
            declined.append(Declined(f"descriptor for {name_of(op)}", reason))
    ask_launch(kernel, "guards", guards)
    return tuple(declined)


def _promote(kernel: tile.Kernel, op: tile.Load | tile.Store, guards: list[str], least: int) -> str:
    """Rewrite one access; return the reason if it stays, else an empty text."""
    if isinstance(op, tile.Load) and (reason := _load_refusal(kernel, op)):
        return reason
    block = describe(op.pointer, op.mask, least)
    if isinstance(block, Refusal):
        return block.reason
    if any(dim.wrap is not None and not _wrap_is_harmless(op, dim) for dim in block.dims):
        return "a wrapped index may reach a store that is not masked"
    if isinstance(op, tile.Store) and not ends_whole(block):
        return "its columns are not known to end at a multiple of 16 bytes, which TMA writes whole"
    if isinstance(op, tile.Store) and any(dim.repeat > 1 for dim in block.dims):
        return "several of its elements go to one place"
    guards.extend(asked_natural(kernel, poly, op) for poly in block.nonnegative)
    guards.extend(asked(kernel, "always_multiple", poly, unit) for poly, unit in block.multiples)
    desc = _make_descriptor(kernel, op, block)
    offsets = [_emit_at(dim.offset, Emitter.before(op), i32) for dim in block.dims]
    if isinstance(op, tile.Load):
        _replace_load(op, desc, offsets, block)
    else:
        _replace_store(op, desc, offsets, block)
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
    emitter = Emitter.before(first)
    extents = [_emit_at(dim.extent, emitter, i64) for dim in block.dims]
    strides = [_emit_at(dim.stride, emitter, i64) for dim in block.dims]
    desc = emitter.made(
        tile.MakeDesc,
        [block.base, extents, strides],
        DescType(TensorType(element, shape)),
        padding=StringAttr("zero"),
    )
    assert isinstance(desc.owner, tile.MakeDesc)
    desc.owner.location = op.location
    desc.name_hint = f"{block.base.name_hint or 'x'}_desc"
    return desc


def _memory_order(block: Block) -> list[int]:
    """Return the tile's dimensions of extent > 1 in the order they have in memory."""
    return [dim.dim for dim in block.dims if dim.dim is not None]


def _replace_load(op: tile.Load, desc: SSAValue, offsets: list[SSAValue], block: Block) -> None:
    element = element_type(op.result.type)
    emitter = Emitter.before(op)
    load = tile.DescLoad.make(
        desc,
        offsets,
        results=[TensorType(element, [dim.block for dim in block.dims])],
        eviction=op.eviction,
    )
    inherit_name(load, op)
    value: SSAValue = emitter.put(load).result
    order = _memory_order(block)
    value = emitter.reshape(value, [dim.block for dim in block.dims if dim.dim is not None])
    value = emitter.transpose(value, [order.index(dim) for dim in sorted(order)])
    value = _repeated(emitter, value, {d.dim: d.repeat for d in block.dims if d.dim is not None})
    value = emitter.reshape(value, shape_of(op.result.type))
    load.result.name_hint = value.name_hint = op.result.name_hint
    replace(op, [value])


def _repeated(emitter: Emitter, value: SSAValue, counts: dict[int, int]) -> SSAValue:
    """Return a tile of which each index along dimension d, in order, stands `counts[d]` times."""
    for place, dim in enumerate(sorted(counts)):
        if (count := counts[dim]) == 1:
            continue
        shape = shape_of(value.type)
        before, after = shape[: place + 1], shape[place + 1 :]
        value = emitter.along(value, place + 1, (*before, count, *after))
        value = emitter.reshape(value, (*shape[:place], shape[place] * count, *after))
    return value


def _replace_store(op: tile.Store, desc: SSAValue, offsets: list[SSAValue], block: Block) -> None:
    emitter = Emitter.before(op)
    order = _memory_order(block)
    ranked = sorted(order)
    shape = shape_of(op.value.type)
    value = emitter.reshape(op.value, [shape[dim] for dim in ranked])
    value = emitter.transpose(value, [ranked.index(dim) for dim in order])
    value = emitter.reshape(value, [dim.block for dim in block.dims])
    store = tile.DescStore.make(desc, offsets, value)
    inherit_name(store, op)
    emitter.put(store)
    erase(op)


def _emit_at(poly: Polynomial, emitter: Emitter, kind: Attribute) -> SSAValue:
    """Insert the arithmetic that computes `poly` as an integer of type `kind`."""

    def atom(item: Leaf | Iteration | Call) -> SSAValue:
        match item:
            case Leaf():
                return emitter.cast(item.value, kind)
            case Call():
                return call(item) if is_constant_call(item) else emitter.cast(item.value, kind)
            case Iteration():
                loop = item.loop
                iv = emitter.cast(loop.body.block.args[0], kind)
                start, step = polynomial(loop.lb), polynomial(loop.step)
                if not start.is_zero:
                    iv = emitter.apply("sub", iv, _emit_at(start, emitter, kind))
                if step != ONE:
                    iv = emitter.apply("idiv", iv, _emit_at(step, emitter, kind))
                return iv

    def call(item: Call) -> SSAValue:
        inputs = [_emit_at(part, emitter, kind) for part in item.inputs]
        return emitter.apply(item.function, *inputs)

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
            factors.append(emitter.constant(coefficient, kind))
        term = factors[0]
        for factor in factors[1:]:
            term = emitter.apply("mul", term, factor)
        total = term if total is None else emitter.apply("add", total, term)
    return total if total is not None else emitter.constant(0, kind)


# --- rows that end inside a piece -----------------------------------------------------------------


_REASON = "its rows are not known to end at a multiple of 16 bytes, which TMA writes whole"


def end_rows(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Let threads store where rows end inside 16 bytes; ask a launch where that is open."""
    return _end_each(kernel, ask=True)


def end_rows_plain(kernel: tile.Kernel, plan: Plan, target: Target) -> tuple[Declined, ...]:
    """Let threads store where rows are not known to end at a multiple of 16 bytes."""
    return _end_each(kernel, ask=False)


def _end_each(kernel: tile.Kernel, *, ask: bool) -> tuple[Declined, ...]:
    declined: list[Declined] = []
    conditions: list[str] = []
    for store in all_of(kernel, tile.DescStore, tile.DescAtomic):
        unit, made = columns_of_piece(store.desc.type), store.desc.owner
        if isinstance(store.desc, BlockArgument):
            if "ragged" not in kernel.arguments.data[store.desc.index].data:
                continue
        elif not isinstance(made, tile.MakeDesc) or not is_host_made(store.desc):
            continue  # threads store anyway
        elif is_multiple(extent := polynomial(made.extents[-1]), unit):
            continue
        elif ask and is_host_value(extent) and extent.leaves:
            conditions.append(asked(kernel, "always_multiple", extent, unit))
            continue
        declined.append(Declined(f"TMA for {name_of(store)}", _REASON))
        expand_write(store)
    ask_launch(kernel, "row_ends", conditions)
    return tuple(declined)
