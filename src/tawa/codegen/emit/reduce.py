"""Reductions and scans: within a thread, then across the lanes of its warp.

What crosses warps goes through shared memory, and the lowering has written that out before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.arithmetic import apply, nested, rounded
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.values import Scalar, Tensor
from tawa.codegen.storage import is_tensor
from tawa.codegen.wrappers import arithmetic as w
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import element_type, layout_of
from tawa.layouts.fragments import without_dimension
from tawa.layouts.indexing import fit
from tawa.layouts.register import RegisterLayout

Combine = Callable[[Sequence[str], Sequence[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Fold:
    """Which elements fold together.

    `heads`: the first register folded into each result register; `tail`: what the others add to its
    number, in order along the axis (0 first); `masks`: the lane bits that differ along the axis.
    """

    heads: tuple[int, ...]
    tail: tuple[int, ...]
    masks: tuple[int, ...]


def fold_of(layout: RegisterLayout, result: RegisterLayout, axis: int) -> Fold:
    """Return how `layout` folds along `axis` into `result`; InternalError if across warps."""

    def drop(place: tuple[int, ...]) -> tuple[int, ...]:
        return place[:axis] + place[axis + 1 :]

    if any(item.step[axis] for item in layout.warps if item.extent > 1):
        raise InternalError(f"a reduction of {layout} along {axis} crosses warps")
    if tuple(map(drop, layout.lane_table)) != result.lane_table:
        raise InternalError(f"a reduction of {layout} along {axis} into {result}")
    groups: dict[tuple[int, ...], list[int]] = {}
    for register, place in enumerate(layout.register_table):
        groups.setdefault(drop(place), []).append(register)
    tails: set[tuple[int, ...]] = set()
    for members in groups.values():
        members.sort(key=lambda register: layout.register_table[register][axis])
        tails.add(tuple(register - members[0] for register in members))
    if len(tails) != 1:
        raise InternalError(f"registers of {layout} fold irregularly along {axis}")
    heads = tuple(groups[place][0] for place in result.register_table)
    return Fold(heads, tails.pop(), _lane_bits(layout, axis))


def _lane_bits(layout: RegisterLayout, axis: int) -> tuple[int, ...]:
    """Return the xor masks of lanes that hold other elements along `axis`, nearest first."""
    masks: list[int] = []
    reach = 1
    for item in layout.lanes:
        if item.step[axis]:
            if item.extent & (item.extent - 1) or reach & (reach - 1):
                raise InternalError(f"lanes of {layout} are no power of two along {axis}")
            masks.extend(reach << bit for bit in range(item.extent.bit_length() - 1))
        reach *= item.extent
    return tuple(masks)


def combiner(e: Emitter, body: Block, elements: Sequence[Element]) -> tuple[Combine, bool]:
    """Return the body of a reduction as a function on expressions, and whether it is one
    expression (so that it may be nested).
    """
    ops = list(body.ops)
    args = list(body.args)
    yielded = ops[-1].operands
    simple = (
        len(ops) == 2
        and isinstance(ops[0], tile.Elementwise)
        and list(ops[0].operands) == args
        and len(args) == 2
    )
    if simple and isinstance(ops[0], tile.Elementwise):
        name = ops[0].function.data

        def one(left: Sequence[str], right: Sequence[str]) -> list[str]:
            text = nested(apply(e, name, elements[0], [left[0], right[0]]), elements[0], name)
            return [rounded(e, text, elements[0])]

        return one, True

    def many(left: Sequence[str], right: Sequence[str]) -> list[str]:
        for argument, text in zip(args, [*left, *right]):
            element = element_of(argument.type)
            name = e.fresh(argument, "item")
            e.line(f"const {element.compute} {name} = {text};")
            e.bind(argument, Scalar(name, element))
        e.run(body)
        return [e.scalar(value).text for value in yielded]

    return many, False


def reduce(e: Emitter, op: tile.Reduce) -> None:
    """Write a reduction along an axis."""
    axis = op.axis.data
    layout = layout_of(op.inputs[0].type)
    elements = [element_of(element_type(value.type)) for value in op.inputs]
    results = list(op.res)
    scalar = not is_tensor(results[0])
    target = _scalar_layout(layout) if scalar else layout_of(results[0].type)
    fold = fold_of(layout, target, axis)
    tensors = [e.tensor(value) for value in op.inputs]
    for tensor in tensors:
        e.use_accessors(tensor.element)
    partial = _targets(e, results, elements, scalar, len(fold.heads))
    combine, simple = combiner(e, op.body.block, elements)
    heads = fit(fold.heads)
    if heads is None:
        raise InternalError(f"results of a reduction at registers {fold.heads}")
    with e.unrolled("r", len(fold.heads)) as r:
        names = [e.names.fresh("total") for _ in tensors]
        head = heads.render(r)
        _fold_registers(e, names, tensors, elements, head, fold.tail, combine, simple)
        _fold_lanes(e, names, elements, fold.masks, combine)
        for place, name in zip(partial, names):
            e.line(f"{place}[{r}] = {name};" if not scalar else f"{place} = {name};")
    _finish(e, results, elements, partial, scalar)


def _scalar_layout(layout: RegisterLayout) -> RegisterLayout:
    """Return the layout of a reduction of a row to one element, which every thread then holds."""
    return without_dimension(layout, 0)


def _targets(
    e: Emitter, results: Sequence[SSAValue], elements: list[Element], scalar: bool, count: int
) -> list[str]:
    """Declare where results go: variables, the results' arrays, or an unpacked array first."""
    places: list[str] = []
    for result, element in zip(results, elements):
        if scalar:
            name = e.fresh(result, "total")
            e.line(f"{element.compute} {name};")
            places.append(name)
        elif element.packed == 1:
            places.append(e.array(result).name)
        else:
            name = e.names.fresh("totals")
            e.line(f"{element.compute} {name}[{count}];")
            places.append(name)
    return places


def _finish(
    e: Emitter,
    results: Sequence[SSAValue],
    elements: list[Element],
    places: list[str],
    scalar: bool,
) -> None:
    for result, element, place in zip(results, elements, places):
        if scalar:
            e.bind(result, Scalar(place, element))
        elif element.packed > 1:
            e.fill(e.array(result), lambda r, place=place: f"{place}[{r}]")


def _fold_registers(
    e: Emitter,
    names: list[str],
    tensors: list[Tensor],
    elements: list[Element],
    head: str,
    tail: tuple[int, ...],
    combine: Combine,
    simple: bool,
) -> None:
    """Fold a thread's own elements; four at a time where the body is one expression, so that
    their latencies overlap (the function is associative by the operation's meaning).
    """
    width = _together(tail) if simple else 1
    inside = tail[:width]
    formula = fit(tail[::width])
    if formula is None:
        raise InternalError(f"a reduction over registers at {tail}")

    def group(index: str) -> list[str]:
        start = formula.render(index)
        terms = [term for term in (head, start) if term != "0"]
        items = [
            [tensor.at(_place([*terms, str(more)] if more else terms)) for tensor in tensors]
            for more in inside
        ]
        while len(items) > 1:
            items = [combine(items[i], items[i + 1]) for i in range(0, len(items), 2)]
        return items[0]

    for name, element, text in zip(names, elements, group("0")):
        e.line(f"{element.compute} {name} = {text};")
    if len(tail) == width:
        return
    e.line("#pragma unroll")
    with e.block(f"for (int part = 1; part < {len(tail) // width}; ++part)"):
        _assign(e, names, combine(names, group("part")))


def _together(tail: tuple[int, ...]) -> int:
    """Return how many elements to fold at a time: 4, 2 or 1, always at the same distances."""
    for width in (4, 2):
        if len(tail) % width:
            continue
        steps = {
            tuple(register - tail[i] for register in tail[i : i + width])
            for i in range(0, len(tail), width)
        }
        if len(steps) == 1:
            return width
    return 1


def _place(terms: list[str]) -> str:
    text = " + ".join(terms) or "0"
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _fold_lanes(
    e: Emitter, names: list[str], elements: list[Element], masks: tuple[int, ...], combine: Combine
) -> None:
    """Fold across lanes: after each exchange both lanes hold the same."""
    for mask in masks:
        others = [
            e.call(w.shuffle(element.compute, "xor"), name, mask)
            for name, element in zip(names, elements)
        ]
        if len(names) == 1:
            _assign(e, names, combine(names, others))
            continue
        with e.scope():
            _assign(e, names, combine(names, others))


def _assign(e: Emitter, names: list[str], texts: list[str]) -> None:
    for name, text in zip(names, texts):
        if name != text:
            e.line(f"{name} = {text};")


RULES: dict[type[Operation], Handler] = {tile.Reduce: reduce}
