"""Prefix combinations along an axis that one warp holds.

A line of the axis is cut into runs: each lane's neighbours in registers, then lanes, then (for long
lines) further rounds of all lanes. Runs are combined in their thread, their totals across lanes
by log-step shuffles, rounds by carrying the last lane's total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from tawa.codegen.elements import Element, element_of
from tawa.codegen.emit.emitter import Emitter, Handler
from tawa.codegen.emit.reduce import Combine, combiner
from tawa.codegen.emit.values import atom
from tawa.codegen.wrappers import arithmetic as w
from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.types import element_type, layout_of
from tawa.layouts.indexing import Digit, Formula, fit
from tawa.layouts.register import RegisterLayout


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
    formulas = [fit(table) for table in (heads, run, rounds)]
    if any(formula is None for formula in formulas):
        raise InternalError(f"a scan of {layout} along {axis}: irregular registers")
    first_formula, run_formula, rounds_formula = (f for f in formulas if f is not None)
    return Line(first_formula, run_formula, rounds_formula, unit, lanes)


def scan(e: Emitter, op: Operation) -> None:
    """Write an inclusive scan along an axis."""
    assert isinstance(op, tile.Scan)
    layout = layout_of(op.inputs[0].type)
    if any(layout_of(value.type) != layout for value in (*op.inputs, *op.res)):
        raise InternalError(f"a scan between layouts: {op}")
    line = line_of(layout, op.axis.data)
    backwards = op.reverse is not None and bool(op.reverse.value.data)
    elements = [element_of(element_type(value.type)) for value in op.inputs]
    names: list[str] = []
    for value, element in zip(op.inputs, elements):
        tensor = e.tensor(value)
        e.use_accessors(element)
        name = e.names.fresh("prefix")
        e.line(f"{element.compute} {name}[{layout.register_count}];")
        with e.unrolled("r", layout.register_count) as r:
            e.line(f"{name}[{r}] = {tensor.at(r)};")
        names.append(name)
    combine, _ = combiner(e, op.body.block, elements)
    writer = _Scan(e, line, names, elements, combine, backwards)
    with e.unrolled("line", line.heads.length) as number:
        writer.one(number)
    for result, name in zip(op.res, names):
        e.fill(e.array(result), lambda r, name=name: f"{name}[{r}]")


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
            offset = line.rounds(position)
            terms = [term for term in (head, str(offset)) if term != "0"]
            base = " + ".join(terms) or "0"
            carries = self._round(base, carries, last=place == line.rounds.length - 1)

    def _at(self, base: str, index: str) -> list[str]:
        """Return the elements at place `index` (a number or a name) of the run from `base`."""
        run = self._line.run
        if self._backwards:
            back = Formula(run.length, run(run.length - 1), _negated(run))
            offset = back.render(index)
        else:
            offset = run.render(index)
        terms = [term for term in (base, offset) if term != "0"]
        return [f"{name}[{' + '.join(terms) or '0'}]" for name in self._names]

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
            self._across(base, totals)
        if carries:
            self._prefix(base, carries)
        if last:
            return []
        source = self._last_lane()
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

    def _across(self, base: str, totals: list[str]) -> None:
        """Make `totals` the prefix over lanes and give each lane what came before it."""
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
        before = self._named("before", self._from(totals, 1))
        with e.block(f"if ({digit} > 0)"):
            self._prefix(base, before)

    def _from(self, names: Sequence[str], distance: int) -> list[str]:
        sign = "+" if self._backwards else "-"
        source = f"{self._e.lane} {sign} {distance * self._line.unit}"
        return [
            self._e.call(w.shuffle(element.compute, "from"), name, source)
            for element, name in zip(self._elements, names)
        ]

    def _last_lane(self) -> str:
        """Return the lane that ends the line this lane is on."""
        line = self._line
        span = line.unit * line.lanes
        low = f"{self._e.lane} / {span} * {span} + {self._e.lane} % {line.unit}"
        return low if self._backwards else f"{low} + {(line.lanes - 1) * line.unit}"

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


RULES: dict[type[Operation], Handler] = {tile.Scan: scan}
