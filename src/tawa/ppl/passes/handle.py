"""Purpose: give the effects of a model the meaning that an inference method needs.

Before -> after, for importance sampling::

    %x = sample %mu, %tau {Normal}      words of Philox, Box and Muller, a multiplication
    observe %v, %x, %s {Normal}         log weight += log density
    record %x {title="x"}               kept memory of the lane, if runs have one an iteration

Requires: a lowered model. Ensures: no effect is left in what was handled, unless the handler left
it.
Declines: a record in a function that calls itself or in a loop of unknown length is dropped: it
has no fixed place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tawa.errors import ModelError
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.ir.core import I32, Op, Program, Region, Type, Value
from tawa.ppl.ir.operations import KEPT

VALUE = "value"
"""The title of what a model returns; of several numbers also `value.0` and so on."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops around an operation: index and trip count, if all counts are known.

    `certain` is whether the operation runs in each iteration; `known` whether all counts are known.
    """

    loops: tuple[tuple[Value, int], ...] = ()
    known: bool = True
    certain: bool = True

    @property
    def counts(self) -> tuple[int, ...]:
        """The trip counts of the loops."""
        return tuple(count for _, count in self.loops)

    def first(self, low: Lowering, size: int, start: int) -> Value:
        """Append where this iteration's `size` words lie, of all iterations' words from `start`
        on: row-major over the loops.
        """
        b = low.b
        at = (*(index for index, _ in self.loops), b.const(0, I32))
        return b.offset((*self.counts, size), b.const(start, I32), *at)


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a recorded value lies among the words that a lane keeps."""

    title: str
    type: Type
    shape: tuple[int, ...]
    """The shape of one draw."""
    start: int

    @property
    def size(self) -> int:
        """How many numbers one draw has."""
        return prod(self.shape)


@dataclass(eq=False, slots=True)
class Layout:
    """The words that a program keeps: a place for each record of `wanted`, or of all.

    Where `reals`, whole numbers are kept as reals: for moments. `held` says which values lie where
    at the end, and in which loops each was recorded.
    """

    wanted: tuple[str, ...] | None = None
    reals: bool = False
    places: dict[str, Kept] = field(default_factory=lambda: {})
    size: int = 0
    titles: dict[str, None] = field(default_factory=lambda: {})
    partial: bool = False
    held: dict[Value, tuple[Kept, Nest]] = field(default_factory=lambda: {})

    def wants(self, title: str) -> bool:
        """Whether a record is one of those wanted."""
        self.titles[title] = None
        return self.wanted is None or title in self.wanted

    def add(self, title: str, type_: Type, nest: Nest) -> Kept:
        """Give a record its place. The same title again has the same place: branches of an if."""
        self.partial |= not nest.certain
        shape = (*nest.counts, *type_.shape)
        if (known := self.places.get(title)) is not None and known.shape == shape:
            return known
        kept = self.places[title] = Kept(title, type_, shape, self.size)
        self.size += kept.size
        return kept


class Handler:
    """The meanings of the effects; a method overrides what it needs."""

    def __init__(self, low: Lowering, layout: Layout) -> None:
        self.low = low
        self.layout = layout

    def sample(self, op: Op, nest: Nest) -> Value:
        """Draw from the prior."""
        family = op.attrs["family"]
        self.low.site = op.attrs["site"]
        drawn = self.low.call(family.draw, op.operands)
        return self.low.numbers.value(drawn, op.result.type)

    def observe(self, op: Op, nest: Nest) -> None:
        """Add the log density to the log weight."""
        self.weigh(self.density(op))

    def density(self, op: Op) -> Value:
        """Append the log density of an observation."""
        given = self.low.call(op.attrs["family"].log_density, op.operands)
        return self.low.numbers.value(given, self.low.b.real)

    def factor(self, op: Op, nest: Nest) -> None:
        """Add to the log weight."""
        self.weigh(op.operands[0])

    def weigh(self, amount: Value) -> None:
        """Append the addition to the log weight."""
        self.low.program.variables.setdefault("logw", self.low.b.real)
        self.low.b.accumulate("logw", amount)

    def record(self, op: Op, nest: Nest) -> Value:
        """Keep a value in the lane's memory; return what stands for it from here on."""
        if nest.known and self.layout.wants(op.attrs["title"]):
            self.keep(op.attrs["title"], op.operands[0], nest)
        return op.operands[0]

    def keep(self, title: str, value: Value, nest: Nest) -> None:
        """Append the stores of a value."""
        b, word = self.low.b, value
        if self.layout.reals:
            word = self.low.numbers.value(value, Type(b.dtype, value.type.shape))
        kept = self.layout.add(title, word.type, nest)
        # Of two records in one place the later one stays.
        held = {v: at for v, at in self.layout.held.items() if at[0] is not kept}
        self.layout.held = {**held, value: (kept, nest)}
        b.put(KEPT, nest.first(self.low, word.type.size, kept.start), word)


def handle(program: Program, handler: Handler) -> None:
    """Rewrite the body and all functions of a program."""
    for function in program.functions.values():
        _Rewriter(handler, {}).region(function.body, Nest(known=False))
    rewriter = _Rewriter(handler, {})
    rewriter.region(program.body, Nest())
    names = ["value"] if len(program.body.yields) == 1 else []
    names = names or [f"value.{k}" for k in range(len(program.body.yields))]
    layout = handler.layout
    if layout.wants(VALUE):
        with handler.low.b.inside(program.body):
            for title, value in zip(names, program.body.yields, strict=True):
                match layout.held.get(value):
                    case kept, Nest((), certain=True):  # what a site has drawn lies there already
                        layout.places[title] = replace(kept, title=title)
                    case _:
                        handler.keep(title, value, Nest())
    program.body.yields = ()
    unknown = [title for title in layout.wanted or () if title not in layout.titles]
    if unknown:
        raise ModelError(
            f"keep= names {unknown[0]}, and {program.name} has no such site",
            why=f"what it keeps: {', '.join(layout.titles)}",
            remedy='name sites of these; "value" is what the model returns',
        )
    program.variables[KEPT] = Type(handler.low.b.word.kind, (max(1, layout.size),))


class _Rewriter:
    def __init__(self, handler: Handler, known: dict[Value, Value]) -> None:
        self.handler = handler
        self.known = known
        self.constants: dict[Value, Any] = {}

    def region(self, region: Region, nest: Nest) -> None:
        """Replace the effects of a region, in order."""
        old, region.ops = region.ops, []
        b = self.handler.low.b
        with b.inside(region):
            for op in old:
                b.place = op.place
                given = op.operands
                op.operands = tuple(self.known.get(value, value) for value in op.operands)
                match op.code:
                    case "sample":
                        self.known[op.result] = self.handler.sample(op, nest)
                    case "observe":
                        self.handler.observe(op, nest)
                    case "factor":
                        self.handler.factor(op, nest)
                    case "record":
                        self.known[given[0]] = self.handler.record(op, nest)
                    case _:
                        if op.code == "const":
                            self.constants[op.result] = op.attrs["value"]
                        region.ops.append(op)
                        for inner in op.regions:
                            self.region(inner, self.inside(op, inner, nest))
                        if op.code == "build":
                            self.built(op, nest)
        region.yields = tuple(self.known.get(value, value) for value in region.yields)

    def built(self, op: Op, nest: Nest) -> None:
        """Where all items of an array were recorded, the array is."""
        (inner,) = op.regions
        kept, recorded = self.handler.layout.held.get(inner.yields[0], (None, None))
        if kept is not None and recorded == self.inside(op, inner, nest):
            self.handler.layout.held[op.result] = kept, nest

    def inside(self, op: Op, inner: Region, nest: Nest) -> Nest:
        match op.code:
            case "build":
                return Nest(
                    (*nest.loops, (inner.args[0], op.attrs["count"])), nest.known, nest.certain
                )
            case "for" if op.operands[0] in self.constants:
                count = int(self.constants[op.operands[0]])
                return Nest((*nest.loops, (inner.args[0], count)), nest.known, nest.certain)
            case "for" | "while":
                return Nest(nest.loops, known=False, certain=False)
            case _:
                return Nest(nest.loops, nest.known, certain=False)
