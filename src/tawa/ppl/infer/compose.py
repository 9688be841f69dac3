"""From a model to a lane program of a method: lower, handle, cut, and add the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import Any

import numpy as np

from tawa.ppl.emit.machine import STORED
from tawa.ppl.frontend.lower import Lowering
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered, given, lower
from tawa.ppl.frontend.source import held
from tawa.ppl.frontend.values import Lane
from tawa.ppl.frontend.words import bits, read, run, write
from tawa.ppl.infer.execute import Device, Executable, seed_words
from tawa.ppl.infer.kept import Moments, moments, unpack
from tawa.ppl.infer.options import Options
from tawa.ppl.ir.core import I32, Builder, Kind, Program, Region, Type, Value
from tawa.ppl.ir.operations import HEAP, KEPT
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
    records: Any = None
    """Where lanes keep their variables from launch to launch, if they do (`records.py`)."""

    @property
    def program(self) -> Program:
        """The program."""
        return self.lowered.program

    @property
    def size(self) -> int:
        """How many words a draw keeps."""
        return self.layout.size

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
                self.buffer(self.program.dtype, self.size, name)
            return accumulate
        self.buffer(self.lowered.low.b.word.kind, self.size * draws, "kept")
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
        words = buffers["kept"].reshape(draws, self.size, buffers["kept"].shape[-1])
        return *unpack(self.layout, self.lowered.template, words), {}

    def particles(self, words: np.ndarray[Any, Any]) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
        """Return kept words (words, lanes), a draw a lane, as one chain: shaped (1, lanes, ...)."""
        return unpack(self.layout, self.lowered.template, words.T[:, :, None])


def bare(name: str) -> Composed:
    """Return a lane program of no model, in float64."""
    params = (Value(I32, "seed0"), Value(I32, "seed1"))
    program = Program(name, "f64", params, Region(), variables={"draw": I32, "count": I32})
    low = Lowering(program, Builder("f64"), frozenset())
    return Composed(Lowered(program, low, None, ()), Layout())


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
    make: Callable[[Lowered], Composed],
) -> Composed:
    """Return what `make` makes of a lowered model, with the data of these arguments.

    How much memory a run with so many lanes takes is logged.

    It is made once for a method, its options, and arguments of a form; again where a name that was
    read outside of the model, in its module or in a function it calls, stands for something else.
    """
    parts = given(model, arguments, options.dtype)
    # Not the form itself: 1 and True are equal.
    key = method, repr(parts.form), replace(options, **NOT_IN_A_PROGRAM)
    composed = model.programs.get(key)
    if composed is None or any(
        held(*name) is not found for name, found in composed.lowered.low.uses.items()
    ):
        composed = make(lower(model, parts, options.dtype))
        model.programs.pop(key, None)
        model.programs[key] = composed
        for oldest in list(model.programs)[:-PROGRAMS]:
            model.programs.pop(oldest, None)
    size, name = composed.bytes, f"{getattr(method, '__name__', method)} of {model.name}"
    LOG.info("%s: %d lanes, %d bytes each, %.4g MB", name, lanes, size, lanes * size / 1e6)
    return replace(composed, lowered=replace(composed.lowered, data=parts.data))


MakeHandler = Callable[[Any, Layout], Handler]


def compose(
    lowered: Lowered,
    handler: MakeHandler = Handler,
    stack: int = 64,
    wanted: tuple[str, ...] | None = None,
    *,
    moments: bool = False,
) -> Composed:
    """Give a lowered model's effects their meaning, and make procedures of it.

    Of what it draws and returns, all or what is `wanted` by name is kept; for `moments` as reals.

    `begin` sets up a run, `go` runs the model to its next suspension or its end.
    """
    layout = Layout(wanted, moments)
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
        for kept in layout.places.values() if layout.partial else ():
            real = kept.type.is_float
            blank = low.b.const(NAN if real else BLANK, low.b.real if real else I32)
            with low.b.inside(Region((Value(I32),))) as each:
                at = low.b.make("add", *each.args, low.b.const(kept.start, I32))
                low.b.put(KEPT, at, blank)
            low.b.op("for", (low.b.const(kept.size, I32),), (), (each,))
    begin.ops[:0] = head.ops
    program.procedures |= {"begin": begin, "go": go}
    return Composed(lowered, layout, meaning)


# What is kept of a site that a run did not reach.
NAN, BLANK = float("nan"), -(2**31)


def keep(words: Any, size: Any, row: Any) -> None:
    """Write the `size` words of a draw to their buffer, `row` draws down."""
    for k in range(size):
        write("kept", row * size + k, words[k])


def accumulate(words: Any, size: Any, row: Any) -> None:
    """Add a draw to the means and sums of squares of the `row` draws before it (Welford)."""
    for k in range(size):
        x = bits(words[k], "real")
        before = read("mean", k, "real")
        mean = before + (x - before) / float(row + 1)
        write("mean", k, mean)
        write("square", k, read("square", k, "real") + (x - before) * (x - mean))


def particle(lane: Any, size: Any) -> None:
    """Run the model once and keep what it drew."""
    run("begin")
    run("go")
    keep(lane.kept_words, size, 0)
