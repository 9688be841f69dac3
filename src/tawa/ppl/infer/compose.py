"""From a model to a lane program of a method: lower, handle, cut, and add the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import Any, TypeVar

import numpy as np

from tawa.ppl.emit.machine import STORED
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered, given, lower
from tawa.ppl.frontend.source import held
from tawa.ppl.frontend.values import Lane
from tawa.ppl.frontend.words import read, run, write
from tawa.ppl.infer.execute import Device, Executable, seed_words
from tawa.ppl.infer.kept import Moments, moments, unpack
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import I32, Builder, Kind, Program, Region, Type, Value
from tawa.ppl.ir.operations import HEAP
from tawa.ppl.passes.cut import DONE, cut
from tawa.ppl.passes.handle import Handler, Layout, handle


@dataclass(eq=False, slots=True)
class Composed:
    """A lane program in the making: `low` appends to it, `layout` says what is kept where."""

    lowered: Lowered
    layout: Layout
    handler: Handler | None = None
    lane: Lane = field(default_factory=lambda: Lane({}))
    numbers: dict[str, int | float] = field(default_factory=lambda: {})
    rows: dict[str, int] = field(default_factory=lambda: {})
    executables: dict[tuple[Device, str], Executable] = field(default_factory=lambda: {})

    @property
    def program(self) -> Program:
        """The program."""
        return self.lowered.program

    @property
    def sizes(self) -> tuple[int, int]:
        """How many reals and whole numbers a draw keeps."""
        return self.layout.sizes["kept_real"], self.layout.sizes["kept_whole"]

    def declare(self, shape: tuple[int, ...], *names: str) -> None:
        """Add real variables of a shape; others are declared by their first assignment."""
        self.program.variables |= dict.fromkeys(names, Type(self.program.dtype, shape))

    def share(self, **numbers: int | float) -> None:
        """Add numbers that all lanes share, with their values in a run."""
        for name, number in numbers.items():
            type_ = I32 if isinstance(number, int) else Type(self.program.dtype)
            self.lane.shared[name] = Value(type_, name)
            self.program.params = (*self.program.params, self.lane.shared[name])
        self.numbers |= numbers

    def buffer(self, kind: Kind, rows: int, name: str) -> None:
        """Add a buffer."""
        self.program.buffers[name] = kind
        self.rows[name] = rows

    @property
    def bytes(self) -> int:
        """How many bytes of buffers a lane has."""
        kinds = self.program.buffers
        return sum(n * np.dtype(STORED[kinds[name]]).itemsize for name, n in self.rows.items())

    def keeping(self, draws: int, *, moments: bool = False) -> Callable[..., None]:
        """Add the buffers of `keep`, or those of `accumulate`; return which."""
        if moments:
            for name in ("mean", "square"):
                self.buffer(self.program.dtype, sum(self.sizes), name)
            return accumulate
        for name, kind, size in zip(("real", "whole"), (self.program.dtype, I32.kind), self.sizes):
            self.buffer(kind, size * draws, name)
        return keep

    def algorithm(
        self, function: Callable[..., Any], *args: Any, results: str = "", site: int = -1
    ) -> None:
        """Make a function of the subset, of the lane and `args`, the body of the program.

        `results` are variables whose values at the end come out in buffers of their names. `site`
        counts the algorithm's own random numbers: those of models are not negative.
        """
        low = self.lowered.low
        variables = self.program.variables
        variables |= {"fault": I32, "depth": I32}
        self.program.buffers |= {"fault": "i32"}
        low.site = site
        self.program.body = Region()
        with low.b.inside(self.program.body):
            low.call(function, (self.lane, *args))
            out = [("fault", 0, "fault"), ("depth", 1, "fault")]
            for name in results.split():
                kind = variables[name].kind
                self.buffer("i32" if kind == "bool" else kind, 1, name)
                out.append((name, 0, name))
            for name, row, buffer in out:
                value = low.b.get(name, variables[name])
                value = low.numbers.value(value, Type(self.program.buffers[buffer]))
                low.b.op("write", (low.b.const(row, I32), value), name=buffer)

    def arguments(self, seed: int, **numbers: int | float) -> tuple[Any, ...]:
        """Return the arguments of a run, in the order of the program's parameters."""
        return (*seed_words(seed), *self.lowered.data, *(self.numbers | numbers).values())

    def run(
        self, options: Options, lanes: int, **held: np.ndarray[Any, Any]
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run all lanes once; return the buffers, which but for those of `held` begin as zeros."""
        given, buffers = self.arguments(options.seed), self.rows | held
        return self.executable(options).run(given, buffers, lanes, options.threads)

    def executable(self, options: Options) -> Executable:
        """Make the program ready, once for a device."""
        key = options.device, options.cpu
        if key not in self.executables:
            self.executables[key] = Executable(self.program, *key)
        return self.executables[key]

    def unpack(
        self, buffers: Mapping[str, np.ndarray[Any, Any]], options: Options
    ) -> tuple[dict[str, np.ndarray[Any, Any]], Any, dict[str, Moments]]:
        """Return what `keep` kept by name, (lanes, draws, ...), and the value; or moments."""
        draws = options.draws
        if options.moments:
            found = moments(self.layout, buffers["mean"], buffers["square"], draws)
            return {}, None, found
        lanes = buffers["real"].shape[-1]
        shaped = (
            buffers[name].reshape(draws, size, lanes)
            for name, size in zip(("real", "whole"), self.sizes, strict=True)
        )
        return *unpack(self.layout, self.lowered.template, *shaped), {}

    def particles(
        self, real: np.ndarray[Any, Any], whole: np.ndarray[Any, Any]
    ) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
        """Return kept memory of one draw a lane as one chain: shaped (1, lanes, ...)."""
        shaped = (array.T[:, :, None] for array in (real, whole))
        return unpack(self.layout, self.lowered.template, *shaped)


def bare(name: str) -> Composed:
    """Return a lane program of no model, in float64."""
    params = (Value(I32, "seed0"), Value(I32, "seed1"))
    program = Program(name, "f64", params, Region(), variables={"draw": I32, "count": I32})
    low = Lowering(program, Builder("f64"), frozenset())
    return Composed(Lowered(program, low, None, ()), Layout())


T = TypeVar("T")
LOG = getLogger("tawa.ppl")
PROGRAMS = 64
"""How many programs a model keeps."""
NOT_IN_A_PROGRAM = {"seed": 0, "chains": 0, "particles": 0, "threads": None}
"""The options that no program depends on, with one value for all."""


def made(
    model: Model,
    arguments: tuple[Any, ...],
    options: Options,
    method: Hashable,
    lanes: int,
    make: Callable[[Lowered], tuple[Composed, T]],
) -> tuple[Composed, T]:
    """Return what `make` makes of a lowered model, with the data of these arguments.

    How much memory a run with so many lanes takes is logged.

    It is made once for a method, its options, and arguments of a form; again where a name that was
    read outside of the model, in its module or in a function it calls, stands for something else.
    """
    parts = given(model, arguments, options.dtype)
    # Not the form itself: 1 and True are equal.
    key = method, repr(parts.form), replace(options, **NOT_IN_A_PROGRAM)
    composed, rest = model.programs.get(key, (None, None))
    if composed is None or any(
        held(*name) is not found for name, found in composed.lowered.low.uses.items()
    ):
        composed, rest = make(lower(model, parts, options.dtype))
        model.programs.pop(key, None)
        model.programs[key] = composed, rest
        for oldest in list(model.programs)[:-PROGRAMS]:
            model.programs.pop(oldest, None)
    size, name = composed.bytes, f"{getattr(method, '__name__', method)} of {model.name}"
    LOG.info("%s: %d lanes, %d bytes each, %.4g MB", name, lanes, size, lanes * size / 1e6)
    return replace(composed, lowered=replace(composed.lowered, data=parts.data)), rest


MakeHandler = Callable[[Any, Layout], Handler]


def compose(
    lowered: Lowered,
    handler: MakeHandler = Handler,
    stack: int = 64,
    wanted: tuple[str, ...] | None = None,
) -> Composed:
    """Give a lowered model's effects their meaning, and make procedures of it.

    Of what it draws and returns, all or what is `wanted` by name is kept.

    `begin` sets up a run, `go` runs the model to its next suspension or its end.
    """
    layout = Layout(wanted)
    program = lowered.program
    dtype = program.dtype
    program.variables |= {"draw": I32, "count": I32, "logw": Type(dtype), "fault": I32}
    meaning = handler(lowered.low, layout)
    handle(program, meaning)
    if any(op.code in ("call", "suspend") for op in program.operations()):
        cut(program, stack)
        begin, go = program.procedures.pop("start"), program.procedures.pop("resume")
    else:
        begin, go = Region(), program.body
        program.body = Region()
        program.variables["kind"] = I32
        for region, kind in ((begin, 0), (go, DONE)):
            with lowered.low.b.inside(region):
                lowered.low.b.set("kind", lowered.low.b.const(kind, I32))
    low = lowered.low
    head = Region()
    with low.b.inside(head):
        low.b.set("logw", low.b.const(0.0, low.b.real))
        low.b.set("count", low.b.const(0, I32))
        if HEAP in program.variables:
            program.variables[HEAP] = Type(low.b.word.kind, (stack,))
            low.b.set("hp", low.b.const(0, I32))
            low.b.set("heap_end", low.b.const(stack, I32))
        if layout.partial:
            low.call(_blank, (Lane({}),))
    begin.ops[:0] = head.ops
    program.procedures |= {"begin": begin, "go": go}
    return Composed(lowered, layout, meaning)


def _blank(lane: Any) -> None:
    lane.kept_real = NAN
    lane.kept_whole = BLANK


# What is kept of a site that a run did not reach.
NAN, BLANK = float("nan"), -(2**31)


def keep(real: Any, whole: Any, sizes: Any, row: Any) -> None:
    """Write kept memory to the buffers, `row` draws down; `sizes` are those of a draw."""
    for k in range(sizes[0]):
        write("real", row * sizes[0] + k, real[k])
    for k in range(sizes[1]):
        write("whole", row * sizes[1] + k, whole[k])


def accumulate(real: Any, whole: Any, sizes: Any, row: Any) -> None:
    """Add kept memory to the means and sums of squares of the `row` draws before it (Welford)."""
    for k in range(sizes[0]):
        _learn(k, real[k], row)
    for k in range(sizes[1]):
        _learn(sizes[0] + k, float(whole[k]), row)


def _learn(k: Any, x: Any, row: Any) -> None:
    before = read("mean", k, "real")
    mean = before + (x - before) / float(row + 1)
    write("mean", k, mean)
    write("square", k, read("square", k, "real") + (x - before) * (x - mean))


def particle(lane: Any, sizes: Any) -> None:
    """Run the model once and keep what it drew."""
    run("begin")
    run("go")
    keep(lane.kept_real, lane.kept_whole, sizes, 0)
