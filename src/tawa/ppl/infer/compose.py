"""From a model to a lane program of a method: lower, handle, cut, and add the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.program import Lowered, lower
from tawa.ppl.frontend.surface import get, write
from tawa.ppl.frontend.values import Memory
from tawa.ppl.ir.core import I32, Kind, Program, Region, Type, Value
from tawa.ppl.passes.cut import cut
from tawa.ppl.passes.handle import Handler, Layout, handle


@dataclass(eq=False, slots=True)
class Composed:
    """A lane program in the making: `low` appends to it, `layout` says what is kept where."""

    lowered: Lowered
    layout: Layout

    @property
    def program(self) -> Program:
        """The program."""
        return self.lowered.program

    def memory(self, name: str, type_: Type | None = None) -> Memory:
        """Return a variable of the lane for an algorithm, declared with a type where it is new."""
        if type_ is not None:
            self.program.variables.setdefault(name, type_)
        return Memory(name, self.program.variables[name])

    def parameter(self, name: str, type_: Type) -> Value:
        """Add a number that all lanes share."""
        value = Value(type_, name)
        self.program.params = (*self.program.params, value)
        return value

    def algorithm(self, function: Callable[..., Any], *args: Any) -> None:
        """Make a function of the subset the body of the program, "
        "with the faults written at its end."""
        low = self.lowered.low
        self.program.buffers |= {"fault": "i32"}
        low.site = -1  # the algorithm's own random numbers: no site of a model has this number
        body = Region()
        with low.b.inside(body):
            low.call(function, args)
            low.call(_end, (self.memory("fault", I32), self.memory("depth", I32)))
        self.program.body = body


def _end(fault: Any, depth: Any) -> None:
    write("fault", 0, get(fault))
    write("fault", 1, get(depth))


MakeHandler = Callable[[Any, Layout], Handler]


def compose(
    model: Model,
    arguments: tuple[Any, ...],
    dtype: Kind,
    handler: MakeHandler = Handler,
    stack: int = 64,
) -> Composed:
    """Lower a model, give its effects their meaning, and make procedures of it.

    `begin` sets up a run, `go` runs the model to its next suspension or its end.
    """
    lowered = lower(model, arguments, dtype)
    layout = Layout()
    program = lowered.program
    program.variables |= {"draw": I32, "count": I32, "logw": Type(dtype), "fault": I32}
    handle(program, handler(lowered.low, layout))
    if any(op.code in ("call", "suspend") for op in program.operations()):
        cut(program, stack)
        begin, go = program.procedures.pop("start"), program.procedures.pop("resume")
    else:
        begin, go = Region(), program.body
        program.body = Region()
    low = lowered.low
    head = Region()
    with low.b.inside(head):
        low.b.set("logw", low.b.const(0.0, low.b.real))
        low.b.set("count", low.b.const(0, I32))
        if layout.partial:
            for name in ("kept_real", "kept_whole"):
                type_ = program.variables[name]
                low.call(_blank, (Memory(name, type_), type_.size, type_.is_float))
    begin.ops[:0] = head.ops
    program.procedures |= {"begin": begin, "go": go}
    return Composed(lowered, layout)


def _blank(memory: Any, size: Any, real: Any) -> None:
    for k in range(size):
        memory[k] = NAN if real else -2147483648


NAN = float("nan")


def keep(real: Any, whole: Any, reals: Any, wholes: Any, row: Any) -> None:
    """Write the kept memory to the buffers, `row` draws down."""
    for k in range(reals):
        write("real", row * reals + k, real[k])
    for k in range(wholes):
        write("whole", row * wholes + k, whole[k])


def kept(composed: Composed) -> tuple[Any, ...]:
    """Return the arguments of `keep` but the row, and declare its buffers."""
    composed.program.buffers |= {"real": composed.program.dtype, "whole": "i32"}
    sizes = composed.layout.sizes
    return (
        composed.memory("kept_real"),
        composed.memory("kept_whole"),
        sizes["kept_real"],
        sizes["kept_whole"],
    )
