"""Tensors in registers: splats, views that only rename registers, joins, layout conversions."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tawa.codegen.elements import element_of
from tawa.codegen.emit.emitter import (
    Affine,
    Emitter,
    Handler,
    Scalar,
    Tensor,
    Uniform,
    atom,
    sum_of,
)
from tawa.codegen.wrappers import arithmetic as w
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import PtrType, element_type, is_tensor, layout_of
from tawa.layouts.convert import convert, flattened, projected, register_map
from tawa.layouts.fragments import permuted, with_dimension
from tawa.layouts.indexing import fit, formula_of
from tawa.layouts.register import RegisterLayout

_VIEWS = (
    tile.ExpandDims,
    tile.Broadcast,
    tile.Transpose,
    tile.Reshape,
    tile.Split,
    hopper.Columns,
    hopper.ConvertLayout,
)


def view_map(value: SSAValue) -> tuple[SSAValue, tuple[int, ...]] | None:
    """Return the tensor a view renames, and its register for each of the view's; None if it is
    no view. Raises InternalError where a view's elements lie in other threads.
    """
    if not is_tensor(value) or not isinstance(value.owner, Operation):
        return None
    target = layout_of(value.type)
    match value.owner:
        case tile.ExpandDims() as op:
            source = with_dimension(layout_of(op.value.type), op.axis.data)
        case tile.Broadcast() as op:
            source = layout_of(op.value.type)
            target = projected(target, source.shape)
        case tile.Transpose() as op:
            order = tuple(item.data for item in op.permutation)
            source = permuted(layout_of(op.value.type), order)
        case tile.Reshape() as op:
            source, target = flattened(layout_of(op.value.type)), flattened(target)
        case tile.Split() as op:
            source = layout_of(op.value.type)
            rank = len(target.shape)
            last = (0,) * rank + (0 if value is op.first else 1,)
            return op.value, _required(op, source, with_dimension(target, rank), last)
        case hopper.Columns() as op:
            first = (0,) * (len(target.shape) - 1) + (op.start.data,)
            return op.value, _required(op, layout_of(op.value.type), target, first)
        case hopper.ConvertLayout() as op:
            found = register_map(layout_of(op.value.type), target)
            return None if found is None else (op.value, found)
        case _:
            return None
    return op.value, _required(op, source, target)


def _required(
    op: Operation, source: RegisterLayout, target: RegisterLayout, offset: tuple[int, ...] = ()
) -> tuple[int, ...]:
    found = register_map(source, target, offset)
    if found is None:
        raise InternalError(f"{op.name} moves elements between threads: {source} to {target}")
    return found


def looks_at(value: SSAValue) -> SSAValue | None:
    """Return the tensor whose registers a value shares under other numbers; None if its own."""
    match value.owner:
        case op if type(op) not in _VIEWS or not is_tensor(value):
            return None
        case hopper.ConvertLayout() as op:
            found = view_map(value)
            return None if found is None else found[0]
        case op:
            assert isinstance(op, Operation)
            return op.operands[0]


def view(e: Emitter, op: Operation) -> None:
    """Bind views to the tensor they look at; no text."""
    for result in op.results:
        found = view_map(result)
        if found is None:
            raise InternalError(f"{op.name} is no view of a tensor")
        e.bind(result, e.renamed(e.tensor(found[0]), found[1]))


def splat(e: Emitter, op: tile.Splat) -> None:
    """Bind a tensor of one scalar."""
    scalar = e.scalar(op.value)
    count = layout_of(op.result.type).register_count
    e.bind(op.result, Uniform(scalar.text, scalar.element, count))


def arange(e: Emitter, op: tile.Arange) -> None:
    """Bind a range to what the thread's position and the register add up to."""
    layout = layout_of(op.result.type)
    element = element_of(element_type(op.result.type))
    registers = formula_of([place[0] for place in layout.register_table], "registers")
    base = thread_sum(e, layout, op.start.data)
    if not base.isdigit():
        name = e.fresh(op.result, "index")
        e.line(f"const int {name} = {base};")
        base = name
    e.bind(op.result, Affine(base, registers, element, layout.register_count))


def thread_sum(e: Emitter, layout: RegisterLayout, start: int = 0, dim: int = 0) -> str:
    """Return what this thread's lane and warp add to a coordinate, plus `start`."""
    return sum_of(thread_offsets(e, layout, lambda where: where[dim]), str(start))


def thread_offsets(
    e: Emitter, layout: RegisterLayout, offset: Callable[[tuple[int, ...]], int]
) -> str:
    """Return a linear function of this thread's part of a coordinate as an expression."""
    lanes = [offset(place) for place in layout.lane_table]
    warps = [offset(place) for place in layout.warp_table]
    warps *= max(1, e.role.warps // len(warps))  # warps beyond the layout's hold copies
    inside = formula_of(lanes, "lanes").render(e.lane) if any(lanes) else "0"
    return sum_of(inside, formula_of(warps, "warps").render(e.warp) if any(warps) else "0")


def join(e: Emitter, op: tile.Join) -> None:
    """Write two tensors side by side along a new last dimension."""
    layout = layout_of(op.result.type)
    rank = len(layout.shape) - 1
    part = with_dimension(layout_of(op.first.type), rank)
    if part.lane_table != layout.lane_table or part.warp_table != layout.warp_table:
        raise InternalError(f"a join moves elements between threads: {part} to {layout}")
    where = {place: register for register, place in enumerate(part.register_table)}
    which = [place[-1] for place in layout.register_table]
    table = [where[(*place[:-1], 0)] for place in layout.register_table]
    first = e.renamed(e.tensor(op.first), table)
    second = e.renamed(e.tensor(op.second), table)
    choice = formula_of(which, "parts")
    array = e.array(op.result)
    e.use_accessors(array.element)
    e.fill(array, lambda r: f"({choice.render(r)} ? {second.at(r)} : {first.at(r)})")


def convert_layout(e: Emitter, op: hopper.ConvertLayout) -> None:
    """Write a conversion by warp shuffles, or bind one that stays within threads."""
    if view_map(op.result) is not None:
        view(e, op)
        return
    source, target = layout_of(op.value.type), layout_of(op.result.type)
    found = convert(source, target)
    if found.kind != "shuffle":
        raise InternalError(f"a conversion through shared memory left to codegen: {op}")
    tensor = e.tensor(op.value)
    array = e.array(op.result)
    element = array.element
    e.use_accessors(element)
    rows = [_gather(e, tensor, row, element.compute) for row in found.sources]
    if element.packed == 1:
        for register, text in enumerate(rows):
            e.line(f"{array.name}[{register}] = {text};")
        return
    places = e.names.fresh("gathered")
    e.line(f"{element.compute} {places}[{array.count}];")
    for register, text in enumerate(rows):
        e.line(f"{places}[{register}] = {text};")
    e.fill(array, lambda r: f"{places}[{r}]")


def _gather(e: Emitter, tensor: Tensor, row: tuple[tuple[int, int], ...], kind: str) -> str:
    """Return one register gathered from other lanes: a shuffle for each register it may be in."""
    registers = sorted({register for register, _ in row})
    texts = [tensor.at(str(register)) for register in registers]
    if any(lane != thread % 32 for thread, (_, lane) in enumerate(row)):
        source = by_thread(e, [lane for _, lane in row])
        shuffle = w.shuffle("int" if kind == "bool" else kind, "from")
        texts = [e.call(shuffle, text, source) for text in texts]
    if len(texts) == 1:
        return texts[0]
    # Every lane takes part in every shuffle: they stand before the choice, not within it.
    for index, text in enumerate(texts):
        texts[index] = e.names.fresh("moved")
        e.line(f"const {kind} {texts[index]} = {text};")
    choice = by_thread(e, [registers.index(register) for register, _ in row])
    text = texts[-1]
    for index in range(len(texts) - 2, -1, -1):
        text = f"({atom(choice)} == {index} ? {texts[index]} : {text})"
    return text


def by_thread(e: Emitter, table: list[int]) -> str:
    """Return an expression for a table over the role's threads."""
    lanes = len({tuple(table[i : i + 32]) for i in range(0, len(table), 32)}) == 1
    formula = fit(table[:32] if lanes else table)
    name = e.lane if lanes else e.thread
    if formula is not None:
        return formula.render(name)
    return f"{e.module.thread_table(table[:32] if lanes else table)}[{name}]"


def pointer_add(e: Emitter, op: tile.PtrAdd) -> None:
    """Move addresses by elements; bytes in 64 bits."""
    size = pointee_bytes(op.pointer)
    if not is_tensor(op.result):
        pointer, offset = e.scalar(op.pointer), e.scalar(op.offset)
        text = f"{atom(pointer.text)} + {_bytes(offset.text, offset, size)}"
        e.define(op.result, text, pointer.reads | offset.reads)
        return
    pointers, offsets = _operand(e, op.pointer, op.result), _operand(e, op.offset, op.result)
    array = e.array(op.result)
    for tensor in (pointers, offsets):
        e.use_accessors(tensor.element)
    scalar = Scalar("", offsets.element)
    e.fill(array, lambda r: f"{atom(pointers.at(r))} + {_bytes(offsets.at(r), scalar, size)}")


def _operand(e: Emitter, value: SSAValue, like: SSAValue) -> Tensor:
    if is_tensor(value):
        return e.tensor(value)
    scalar = e.scalar(value)
    return Uniform(scalar.text, scalar.element, layout_of(like.type).register_count)


def _bytes(text: str, offset: Scalar, size: int) -> str:
    """Return an offset in bytes: sign-extended before it is scaled."""
    wide = text if offset.element.bits == 64 else f"(i64){atom(text)}"
    return wide if size == 1 else f"{atom(wide) if offset.element.bits == 64 else wide} * {size}"


def pointee_bytes(value: SSAValue) -> int:
    """Return the size of what a pointer (or each of a tensor of pointers) points to."""
    kind = element_type(value.type)
    if not isinstance(kind, PtrType):
        raise InternalError(f"{kind} is no pointer")
    return max(8, element_of(kind.element).bits) // 8


RULES: dict[type[Operation], Handler] = {
    tile.Splat: splat,
    tile.Arange: arange,
    tile.ExpandDims: view,
    tile.Broadcast: view,
    tile.Transpose: view,
    tile.Reshape: view,
    tile.Split: view,
    hopper.Columns: view,
    tile.Join: join,
    tile.PtrAdd: pointer_add,
    hopper.ConvertLayout: convert_layout,
}
