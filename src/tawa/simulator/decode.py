"""A kernel read once into Python closures, so that running it looks nothing up.

Every SSA value gets a number; a run keeps its values in one flat list. Every operation becomes a
`Step`. A step that may have to wait for another agent is *blocking*: its function is a generator
that yields conditions to the scheduler. Control flow is blocking exactly if its body is, so that a
sequential run has no generators at all.

Loops at a standstill: what an iteration would do again, as long as no one else writes memory.

A loop such as ``while tl.load(flag, volatile=True) == 0`` is run on only while it gets on. Where a
iteration ends with the values it began with, and nobody has changed memory meanwhile, every further
iteration is that iteration. The program then waits for a change of memory, like one at a barrier:
nothing is lost, others run, and when nobody is left to change memory the launch is known to hang.

That holds for loops of which all effects are seen in memory and in what the loop carries. Others
are run as they stand: such with copies or products in flight, or that meet other roles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.analysis.statements import ATOMICS, READS, name_of
from tawa.errors import InternalError, LaunchError
from tawa.ir import hopper, tile
from tawa.ir.walk import is_terminator, marked_pure, walk
from tawa.simulator.memory import GlobalMemory
from tawa.simulator.scheduler import Blocked, Need
from tawa.simulator.values import dtype_of, is_array, place_of


@dataclass(slots=True)
class Frame:
    """One run of a program: its values by number, and the world it acts on."""

    values: list[Any]
    world: Any


Wait: TypeAlias = Generator[Any, None, None]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `run(frame)` acts, or returns a generator to run through if `blocking`."""

    run: Callable[[Frame], Any]
    blocking: bool = False

    def within(self, frame: Frame) -> Wait:
        """Run it inside of a generator."""
        waits = self.run(frame)
        if self.blocking:
            yield from waits

    def alone(self, frame: Frame) -> Wait:
        """Run it as a task of its own: others may run before it acts."""
        yield None
        yield from self.within(frame)


Rule: TypeAlias = Callable[["Decoder", Any], "Step | None"]
Meaning: TypeAlias = Callable[[Any], Callable[..., Any]]
Unary: TypeAlias = Callable[[Any], Any]
Binary: TypeAlias = Callable[[Any, Any], Any]
Ternary: TypeAlias = Callable[[Any, Any, Any], Any]


def run_steps(steps: tuple[Step, ...], blocking: bool) -> Step:
    """Return one step that runs several in order."""
    if not blocking:
        plain = tuple(step.run for step in steps)

        def run(frame: Frame) -> None:
            for step in plain:
                step(frame)

        return Step(run)

    def wait(frame: Frame) -> Wait:
        for step in steps:
            if step.blocking:
                yield from step.run(frame)
            else:
                step.run(frame)

    return Step(wait, True)


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded block: where its arguments go, what it does and which values end it."""

    arguments: tuple[int, ...]
    step: Step
    results: tuple[int, ...]


@dataclass(eq=False)
class Decoder:
    """Numbers values and turns operations into steps by the `rules` of a level."""

    rules: Mapping[type[Operation], Rule]
    numbers: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    template: list[Any] = field(default_factory=list[Any])

    def number(self, value: SSAValue) -> int:
        """Return the number of an SSA value."""
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.template)
            self.template.append(None)
        return found

    def numbered(self, values: Any) -> tuple[int, ...]:
        """Return the numbers of several SSA values."""
        return tuple(self.number(value) for value in values)

    def constant(self, value: SSAValue, content: Any) -> None:
        """Give a value its content before any run."""
        self.template[self.number(value)] = content

    def frame(self, world: Any) -> Frame:
        """Return a fresh run."""
        return Frame(self.template.copy(), world)

    def operation(self, operation: Operation) -> Step | None:
        """Decode one operation; None when there is nothing to do at run time."""
        rule = self.rules.get(type(operation))
        if rule is None:
            raise InternalError(
                f"the simulator has no rule for {operation.name} at this level",
                remedy="report it, with the kernel",
            )
        return rule(self, operation)

    def steps(self, operations: Any) -> Step:
        """Decode operations that follow one another."""
        decoded = [step for op in operations if (step := self.operation(op)) is not None]
        return run_steps(tuple(decoded), any(step.blocking for step in decoded))

    def body(self, block: Block) -> Body:
        """Decode a block with its arguments and terminator."""
        arguments = self.numbered(block.args)
        operations = list(block.ops)
        results: tuple[int, ...] = ()
        if operations and isinstance(operations[-1], scf.YieldOp | tile.Yield):
            results = self.numbered(operations.pop().operands)
        return Body(arguments, self.steps(operations), results)

    def reader(self, value: SSAValue, operation: Operation) -> Callable[[list[Any]], Any]:
        """Return the function that reads a tensor from the values for an ordinary instruction."""
        number = self.number(value)
        return lambda values: values[number]

    def compute(
        self, operation: Operation, function: Callable[..., Any], *, world: bool = False
    ) -> Step:
        """Return the step that stores function(operands...) as the operation's results.

        With `world` the function takes the run's world before the operands.
        """
        inputs, outputs = self.numbered(operation.operands), self.numbered(operation.results)
        if world:
            return Step(_with_world(function, inputs, outputs))
        return Step(_pure(function, inputs, outputs))


def _pure(
    function: Callable[..., Any], inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> Callable[[Frame], None]:
    if len(outputs) != 1:

        def several(frame: Frame) -> None:
            values = frame.values
            results = function(*[values[i] for i in inputs])
            for out, result in zip(outputs, results or ()):
                values[out] = result

        return several
    (out,) = outputs
    if len(inputs) == 2:
        first, second = inputs

        def binary(frame: Frame) -> None:
            values = frame.values
            values[out] = function(values[first], values[second])

        return binary

    def single(frame: Frame) -> None:
        values = frame.values
        values[out] = function(*[values[i] for i in inputs])

    return single


def _with_world(
    function: Callable[..., Any], inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> Callable[[Frame], None]:
    def run(frame: Frame) -> None:
        values = frame.values
        result = function(frame.world, *[values[i] for i in inputs])
        if outputs:
            values[outputs[0]] = result

    return run


def pure(meaning: Meaning) -> Rule:
    """Return the rule of an operation that only computes; `meaning(op)` gives its function."""
    return lambda decoder, operation: decoder.compute(operation, meaning(operation))


def computes(function: Unary | Binary | Ternary) -> Rule:
    """Return the rule of an operation that only computes, by its operands alone."""
    return lambda decoder, operation: decoder.compute(operation, function)


def acts(function: Unary | Binary | Ternary) -> Rule:
    """Return the rule of an operation by the world and its operands alone."""
    return lambda decoder, operation: decoder.compute(operation, function, world=True)


def effect(meaning: Meaning) -> Rule:
    """Return the rule of an operation whose function takes the world before the operands."""
    return lambda decoder, operation: decoder.compute(operation, meaning(operation), world=True)


def along(numbers: Callable[[Any], Sequence[int]]) -> Rule:
    """Return the rule of an operation that asks the world for one of three numbers, by its axis."""

    def meaning(operation: Any) -> Unary:
        axis: int = operation.axis.data
        return lambda world: np.int32(numbers(world)[axis])

    return effect(meaning)


def _move(values: list[Any], targets: tuple[int, ...], sources: tuple[int, ...]) -> None:
    moved = [values[source] for source in sources]
    for target, value in zip(targets, moved):
        values[target] = value


def step_of(run: Callable[[Frame], Wait], blocking: bool) -> Step:
    """Return the step of control flow; where nothing in it waits, it runs through at once."""

    def through(frame: Frame) -> None:
        for _ in run(frame):
            raise AssertionError("what is not blocking waits for nobody")

    return Step(run, True) if blocking else Step(through)


def decode_for(decoder: Decoder, loop: scf.ForOp, *, as_written: bool = False) -> Step:
    """scf.for: the bounds are read once; a step of zero or less is refused. `as_written`: what the
    user wrote, which counts as Python does; of zero only the user hears.
    """
    low, high, by = decoder.numbered((loop.lb, loop.ub, loop.step))
    initial = decoder.numbered(loop.iter_args)
    body = decoder.body(loop.body.block)
    (index, *carried), finals = body.arguments, decoder.numbered(loop.res)
    kept, step, results = tuple(carried), body.step, body.results
    scalar = dtype_of(loop.lb.type).type

    def iterations(values: list[Any]) -> range:
        if as_written and values[by] == 0:
            raise LaunchError(
                "a loop that never ends: its step is 0",
                place=place_of(loop),
                remedy="pass a step that is not 0",
            )
        if values[by] <= 0 and not as_written:
            raise InternalError(f"scf.for with step {values[by]}", why="steps are positive")
        return range(int(values[low]), int(values[high]), int(values[by]))

    def wait(frame: Frame) -> Wait:
        values = frame.values
        _move(values, kept, initial)
        for iteration in iterations(values):
            values[index] = scalar(iteration)
            yield from step.within(frame)
            _move(values, kept, results)
        _move(values, finals, kept)

    return step_of(wait, step.blocking)


def decode_if(decoder: Decoder, branch: scf.IfOp) -> Step:
    """scf.if, with or without results and else."""
    condition, finals = decoder.number(branch.cond), decoder.numbered(branch.output)
    then = decoder.body(branch.true_region.block)
    empty = not branch.false_region.blocks
    other = Body((), run_steps((), False), ()) if empty else decoder.body(branch.false_region.block)

    def wait(frame: Frame) -> Wait:
        side = then if frame.values[condition] else other
        yield from side.step.within(frame)
        _move(frame.values, finals, side.results)

    return step_of(wait, then.step.blocking or other.step.blocking)


def decode_while(decoder: Decoder, loop: scf.WhileOp) -> Step:
    """scf.while: the first region tests and passes values on, the second is the body."""
    initial, finals = decoder.numbered(loop.arguments), decoder.numbered(loop.res)
    block = loop.before_region.block
    before, last = decoder.numbered(block.args), block.last_op
    if not isinstance(last, scf.ConditionOp):
        raise InternalError("scf.while without scf.condition")
    test = decoder.steps(op for op in block.ops if op is not last)
    condition, passed = decoder.number(last.condition), decoder.numbered(last.args)
    body = decoder.body(loop.after_region.block)
    still = standing_still(loop)
    reads = still is not None and bool(still.reads)

    def wait(frame: Frame) -> Wait:
        values, memory = frame.values, frame.world.memory if reads else None
        _move(values, before, initial)
        while True:
            changes, carried = memory and memory.changes, [values[i] for i in before]
            yield from test.within(frame)
            if not values[condition]:
                break
            _move(values, body.arguments, passed)
            yield from body.step.within(frame)
            _move(values, before, body.results)
            if still is None or (memory and changes != memory.changes):
                continue
            if same_values(carried, [values[i] for i in before]):
                yield still.wait(memory)
        _move(values, finals, passed)

    return step_of(wait, test.blocking or body.step.blocking or reads)


CONTROL: dict[type[Operation], Rule] = {
    scf.ForOp: decode_for,
    scf.IfOp: decode_if,
    scf.WhileOp: decode_while,
}


# --- loops that stand still -----------------------------------------------------------------------


_SEEN = (
    *(*CONTROL, *READS, *ATOMICS, tile.Store, tile.Assume, tile.Assert, tile.Reduce, tile.Scan),
    *(hopper.OneThread, hopper.Slot, hopper.SharedLoad, hopper.SharedStore, hopper.ConvertLayout),
    *(hopper.Pick, hopper.CarryIn),
)
"""What has no effect but on memory, or on shared memory that the role keeps to itself: nobody is
told of a write there by what may stand in the loop."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A loop that may come to a standstill, and the names of what it reads of memory."""

    loop: scf.WhileOp
    reads: tuple[str, ...]

    def wait(self, memory: GlobalMemory | None) -> Blocked:
        """Return the wait for a change of memory; raises LaunchError where none would help: the
        loop reads nothing that others could change.
        """
        if memory is None:
            raise LaunchError(
                "a while loop never ends",
                place=place_of(self.loop),
                why="an iteration has changed nothing, and the loop reads no memory that others "
                "write",
                remedy="change in the loop what its condition tests",
            )
        seen, names = memory.changes, ", ".join(self.reads)

        def need() -> Need:
            sentence = f"for a change of the memory that its loop reads again and again ({names})"
            return Need(f"memory ({names})", sentence=sentence, of_kernel=True)

        return Blocked(lambda: memory.changes != seen, memory.waiting, need, self.loop)


def standing_still(loop: scf.WhileOp) -> Standstill | None:
    """Return how a loop stands still; None where an iteration has effects that are not seen
    here.
    """
    inside = walk(loop)
    if not all(_is_seen(operation) for operation in inside):
        return None
    read = (name_of(op) for op in inside if isinstance(op, (*READS, *ATOMICS)))
    return Standstill(loop, tuple(dict.fromkeys(read)))


def _is_seen(operation: Operation) -> bool:
    if isinstance(operation, hopper.NamedBarrier):
        return operation.scope.data != "roles"
    return isinstance(operation, _SEEN) or marked_pure(operation) or is_terminator(operation)


def same_values(one: list[Any], other: list[Any]) -> bool:
    """Tell whether a loop carries the same values as before, bit for bit."""
    return all(a is b or _same_bits(a, b) for a, b in zip(one, other))


def _same_bits(a: Any, b: Any) -> bool:
    if is_array(a) and is_array(b):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return isinstance(a, np.generic) and isinstance(b, np.generic) and a.tobytes() == b.tobytes()
