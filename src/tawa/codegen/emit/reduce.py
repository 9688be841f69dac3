"""Reductions and scans: within a thread, then across the lanes of its warp.

What crosses warps goes through shared memory, and the lowering has written that out before.

Prefix combinations along an axis that one warp holds.

A line of the axis is cut into runs: each lane's neighbours in registers, then lanes, then (for long
lines) further rounds of all lanes. Runs are combined in their thread, their totals across lanes
by log-step shuffles, rounds by carrying the last lane's total. Of lines that several warps hold
`pick` and `carry_in` tell the ends of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.arithmetic import apply, nested, rounded
from tawa.codegen.emit.emitter import Emitter, Handler, Scalar, Tensor, atom, sum_of
from tawa.codegen.emit.tensors import thread_sum
from tawa.codegen.wrappers import arithmetic as w
from tawa.errors import InternalError
from tawa.ir import hopper, tile
from tawa.ir.types import element_type, is_tensor, layout_of
from tawa.layouts.fragments import without_dimension
from tawa.layouts.indexing import Digit, Formula, formula_of
from tawa.layouts.register import LANES, RegisterLayout

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
    heads = formula_of(fold.heads, "results")
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
    formula = formula_of(tail[::width], "registers")

    def group(index: str) -> list[str]:
        start = formula.render(index)
        items = [
            [tensor.at(_place(sum_of(head, start, str(more)))) for tensor in tensors]
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


def _place(text: str) -> str:
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


# --- scans ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """How one line of the axis lies in a thread and over its warp.

    `heads`: the first register of each line; `run` and `rounds`: what registers of a run and of
    further rounds add to it; `unit` and `lanes`: the lanes' digit along the axis.
    """

    heads: Formula
    run: Formula
    rounds: Formula
    unit: int
    lanes: int


def line_of(layout: RegisterLayout, axis: int) -> Line:
    """Read how the axis lies; InternalError where it is not runs, then lanes, then rounds."""
    if any(item.step[axis] for item in layout.warps if item.extent > 1):
        raise InternalError(f"a scan of {layout} along {axis} crosses warps")
    along = [item for item in layout.lanes if item.step[axis] and item.extent > 1]
    if len(along) > 1:
        raise InternalError(f"a scan of {layout} along {axis} over several digits of lanes")
    lanes = along[0].extent if along else 1
    step = along[0].step[axis] if along else layout.shape[axis]
    unit = 1
    for item in layout.lanes:
        if along and item is along[0]:
            break
        unit *= item.extent
    lines: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for register, place in enumerate(layout.register_table):
        rest = place[:axis] + place[axis + 1 :]
        lines.setdefault(rest, []).append((place[axis], register))
    shapes: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    heads: list[int] = []
    for items in lines.values():
        items.sort()
        first = items[0][1]
        heads.append(first)
        run = tuple(register - first for where, register in items if where < step)
        rounds = tuple(register - first for where, register in items if where % (step * lanes) == 0)
        if len(run) * len(rounds) != len(items):
            raise InternalError(f"a scan of {layout} along {axis}: the axis is interleaved")
        shapes.add((run, rounds))
    if len(shapes) != 1:
        raise InternalError(f"a scan of {layout} along {axis}: lines differ")
    run, rounds = shapes.pop()
    first, inside, further = (formula_of(each, "lines") for each in (heads, run, rounds))
    return Line(first, inside, further, unit, lanes)


def scan(e: Emitter, op: Operation) -> None:
    """Write an inclusive scan along an axis."""
    assert isinstance(op, tile.Scan)
    layout = layout_of(op.inputs[0].type)
    if any(layout_of(value.type) != layout for value in (*op.inputs, *op.res)):
        raise InternalError(f"a scan between layouts: {op}")
    line = line_of(layout, op.axis.data)
    elements = [element_of(element_type(value.type)) for value in op.inputs]
    names = [_unpacked(e, value) for value in op.inputs]
    combine, _ = combiner(e, op.body.block, elements)
    writer = _Scan(e, line, names, elements, combine, _backwards(op))
    with e.unrolled("line", line.heads.length) as number:
        writer.one(number)
    for result, name in zip(op.res, names):
        e.fill(e.array(result), lambda r, name=name: f"{name}[{r}]")


def _backwards(op: tile.Scan | hopper.CarryIn) -> bool:
    return op.reverse is not None and bool(op.reverse.value.data)


def _unpacked(e: Emitter, value: SSAValue) -> str:
    """Copy a tensor to an array of its elements' compute type; return its name."""
    tensor = e.tensor(value)
    e.use_accessors(tensor.element)
    name = e.names.fresh("prefix")
    e.line(f"{tensor.element.compute} {name}[{tensor.count}];")
    with e.unrolled("r", tensor.count) as r:
        e.line(f"{name}[{r}] = {tensor.at(r)};")
    return name


def pick(e: Emitter, op: Operation) -> None:
    """Write an element of each line, from the lane that holds it."""
    assert isinstance(op, hopper.Pick)
    axis, at = op.axis.data, op.at.data
    layout, target = layout_of(op.value.type), layout_of(op.result.type)
    line = line_of(layout, axis)
    step = layout.shape[axis] // line.lanes // line.rounds.length
    place, register = divmod(at, step)
    rounds, lane = divmod(place, line.lanes)
    if without_dimension(layout, axis) != target:
        raise InternalError(f"a pick of {layout} along {axis} to {target}")
    tensor, inside = e.tensor(op.value), line.rounds(rounds) + line.run(register)
    e.use_accessors(tensor.element)

    def text(r: str) -> str:
        held = tensor.at(sum_of(line.heads.render(r), str(inside)))
        if line.lanes == 1:
            return held
        source = _lane_of(e, line, lane)
        return e.call(w.shuffle(tensor.element.compute, "from"), held, source)

    e.fill(e.array(op.result), text)


def carry_in(e: Emitter, op: Operation) -> None:
    """Write the combination of parts with the ends of their neighbours: each warp's but one."""
    assert isinstance(op, hopper.CarryIn)
    axis, layout, over = op.axis.data, layout_of(op.parts[0].type), layout_of(op.ends[0].type)
    line, parts = line_of(over, axis), over.shape[axis]
    lines = {place: register for register, place in enumerate(over.register_table)}
    first = [lines[p[: axis + 1] + p[axis + 2 :]] for p in layout.register_table]
    heads = formula_of(first, "parts")
    if line.lanes != parts:
        raise InternalError(f"ends in {over} of parts in {layout} along {axis}")
    elements = [element_of(element_type(value.type)) for value in op.parts]
    combine, _ = combiner(e, op.body.block, elements)
    number = e.names.fresh("part")
    e.line(f"const int {number} = {thread_sum(e, layout, dim=axis)};")
    source, own = (f"{number} + 1", parts - 1) if _backwards(op) else (f"{number} - 1", 0)
    source = source if line.unit == 1 else f"({source}) * {line.unit}"
    ends: list[str] = []
    for value, element in zip(op.ends, elements):
        tensor, name = e.tensor(value), e.names.fresh("before")
        e.use_accessors(element)
        e.line(f"{element.compute} {name}[{tensor.count}];")
        with e.unrolled("r", tensor.count) as r:
            moved = e.call(w.shuffle(element.compute, "from"), tensor.at(r), source)
            e.line(f"{name}[{r}] = {moved};")
        ends.append(name)
    names = [_unpacked(e, value) for value in op.parts]
    with e.block(f"if ({number} != {own})"), e.unrolled("r", layout.register_count) as r:
        before = [f"{name}[{heads.render(r)}]" for name in ends]
        items = [f"{name}[{r}]" for name in names]
        for target, text in zip(items, combine(before, items)):
            e.line(f"{target} = {text};")
    for result, name in zip(op.res, names):
        e.fill(e.array(result), lambda r, name=name: f"{name}[{r}]")


def _lane_of(e: Emitter, line: Line, place: int) -> str:
    """Return the lane that holds a place of the line this lane is on."""
    span = line.unit * line.lanes
    own = [f"{e.lane} / {span} * {span}"] if span < LANES else []
    own += [f"{e.lane} % {line.unit}"] if line.unit > 1 else []
    own += [str(place * line.unit)] if place or not own else []
    return " + ".join(own)


class _Scan:
    """Writes the scan of one line, in place in unpacked arrays."""

    def __init__(
        self,
        e: Emitter,
        line: Line,
        names: Sequence[str],
        elements: Sequence[Element],
        combine: Combine,
        backwards: bool,
    ) -> None:
        self._e = e
        self._line = line
        self._names = names
        self._elements = elements
        self._combine = combine
        self._backwards = backwards

    def one(self, number: str) -> None:
        """Write the scan of line `number`."""
        line = self._line
        head = line.heads.render(number)
        carries: list[str] = []
        for place in range(line.rounds.length):
            position = line.rounds.length - 1 - place if self._backwards else place
            base = sum_of(head, str(line.rounds(position)))
            carries = self._round(base, carries, last=place == line.rounds.length - 1)

    def _at(self, base: str, index: str) -> list[str]:
        """Return the elements at place `index` (a number or a name) of the run from `base`."""
        run = self._line.run
        if self._backwards:
            back = Formula(run.length, run(run.length - 1), _negated(run))
            offset = back.render(index)
        else:
            offset = run.render(index)
        return [f"{name}[{sum_of(base, offset)}]" for name in self._names]

    def _round(self, base: str, carries: list[str], *, last: bool) -> list[str]:
        """Write one round of all lanes; gives the names of the totals carried onward."""
        e, length = self._e, self._line.run.length
        if length > 1:
            e.line("#pragma unroll")
            with e.block(f"for (int step = 1; step < {length}; ++step)"):
                self._assign(
                    self._at(base, "step"), self._at(base, "(step - 1)"), self._at(base, "step")
                )
        totals = self._named("total", self._at(base, str(length - 1)))
        if self._line.lanes > 1:
            self._across(base, totals, carries)
        elif carries:
            self._prefix(base, carries)
        if last:
            return []
        source = _lane_of(e, self._line, 0 if self._backwards else self._line.lanes - 1)
        ends = [
            e.call(w.shuffle(element.compute, "from"), name, source)
            for element, name in zip(self._elements, totals)
        ]
        ends = self._named("end", ends if self._line.lanes > 1 else totals)
        if carries:
            self._assign(ends, carries, ends)
        return ends

    def _prefix(self, base: str, before: list[str]) -> None:
        """Write the combination of what came before with every element of a run."""
        with self._e.unrolled("step", self._line.run.length) as step:
            self._assign(self._at(base, step), before, self._at(base, step))

    def _across(self, base: str, totals: list[str], carries: list[str]) -> None:
        """Make `totals` the prefix over lanes and give each lane what came before it: all of the
        rounds before, which `carries` are, and the lanes before.
        """
        e, line = self._e, self._line
        digit = e.names.fresh("digit")
        text = f"{e.lane} / {line.unit} % {line.lanes}" if line.unit > 1 else e.lane
        text = f"{text} % {line.lanes}" if line.unit == 1 and line.lanes < 32 else text
        if self._backwards:
            text = f"{line.lanes - 1} - {atom(text)}"
        e.line(f"const int {digit} = {text};")
        distance = 1
        while distance < line.lanes:
            before = self._named("before", self._from(totals, distance))
            with e.block(f"if ({digit} >= {distance})"):
                self._assign(totals, before, totals)
            distance *= 2
        if line.run.length == 1:  # what a lane holds is its part of the prefix
            for target, total in zip(self._at(base, "0"), totals):
                e.line(f"{target} = {total};")
            if carries:
                self._prefix(base, carries)
            return
        before = self._named("before", self._from(totals, 1))
        if not carries:
            with e.block(f"if ({digit} > 0)"):
                self._prefix(base, before)
            return
        whole = self._named("before", carries)
        with e.block(f"if ({digit} > 0)"):
            self._assign(whole, carries, before)
        self._prefix(base, whole)

    def _from(self, names: Sequence[str], distance: int) -> list[str]:
        sign = "+" if self._backwards else "-"
        source = f"{self._e.lane} {sign} {distance * self._line.unit}"
        return [
            self._e.call(w.shuffle(element.compute, "from"), name, source)
            for element, name in zip(self._elements, names)
        ]

    def _named(self, hint: str, texts: Sequence[str]) -> list[str]:
        names: list[str] = []
        for element, text in zip(self._elements, texts):
            name = self._e.names.fresh(hint)
            self._e.line(f"{element.compute} {name} = {text};")
            names.append(name)
        return names

    def _assign(self, targets: Sequence[str], left: Sequence[str], right: Sequence[str]) -> None:
        for target, text in zip(targets, self._combine(left, right)):
            self._e.line(f"{target} = {text};")


def _negated(formula: Formula) -> tuple[Digit, ...]:
    """Return the digits of a formula counted from its end: `f(n - 1) - f(i)` falls as i grows."""
    return tuple(Digit(d.divisor, d.extent, -d.factor) for d in formula.digits)


RULES: dict[type[Operation], Handler] = {
    tile.Reduce: reduce,
    tile.Scan: scan,
    hopper.Pick: pick,
    hopper.CarryIn: carry_in,
}
