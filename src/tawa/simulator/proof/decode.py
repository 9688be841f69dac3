"""A role read once into closures: only what synchronization, memory and control flow depend on.

Scalars that no trip count, condition, slot or phase depends on are not computed, tensors are not
values at all; of them only those in registers that wgmma uses are followed (see `registers`). A
step is taken once for each script: it computes in its environment, and gives the action of its
agents, if they have any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.traits import Pure

from tawa.analysis.naming import unlabelled
from tawa.analysis.polynomial import Known
from tawa.ir import hopper, tile
from tawa.ir.control import terminator, yielded
from tawa.ir.types import Real
from tawa.simulator.proof.census import Census
from tawa.simulator.proof.counting import carries_scalar
from tawa.simulator.proof.expressions import Scalar
from tawa.simulator.proof.functions import FUNCTIONS, cast_name, name_of
from tawa.simulator.proof.globals import may_change
from tawa.simulator.proof.machine import Script
from tawa.simulator.proof.regions import Buffer, Footprint, footprint
from tawa.simulator.proof.rules import Idle, Unproved
from tawa.simulator.proof.scalars import itself, truth
from tawa.simulator.proof.steps import Computation, Step, both, silent
from tawa.simulator.proof.uniform import Uniform

Rule: TypeAlias = Callable[["Decoder", Any], "Step | None"]


@dataclass(eq=False)
class Decoder:
    """Decodes the roles of a kernel. `rules` gives the step of each operation with an effect,
    `instances` how many roles take tiles in turn; `constants` are the integers that stand in the
    environment from the start, by their place, `scripted` what one thread does by a script of its
    own, `touching` what reads tensors that are `running` or makes ones that are `tracked`, `quiet`
    which conditions are so (see `quiet`), of those that were asked for.
    """

    census: Census
    rules: dict[type[Operation], Rule]
    buffers: dict[SSAValue, Buffer]
    arrays: dict[SSAValue, int]
    touch: Rule
    written: frozenset[int] | None
    followed: dict[Operation, frozenset[int] | None]
    persistent: bool
    instances: int
    uniform: Uniform = field(default_factory=lambda: Uniform({}, {}))
    numbers: dict[SSAValue, int] = field(default_factory=lambda: {})
    constants: dict[int, int] = field(default_factory=lambda: {})
    needed: set[SSAValue] = field(default_factory=lambda: set())
    tracked: set[SSAValue] = field(default_factory=lambda: set())
    running: set[SSAValue] = field(default_factory=lambda: set())
    touching: set[Operation] = field(default_factory=lambda: set())
    quiet: dict[Operation, bool] = field(default_factory=lambda: {})
    footprints: dict[SSAValue, Footprint] = field(default_factory=lambda: {})
    scripted: set[Operation] = field(default_factory=lambda: set())
    polynomials: Known = field(default_factory=lambda: {})
    _silent: set[type[Operation]] = field(default_factory=lambda: set(), init=False)

    def number(self, value: SSAValue) -> int:
        """Return the place of a value in a script's environment."""
        return self.numbers.setdefault(value, len(self.numbers))

    def view(self, value: SSAValue) -> tuple[Footprint, int]:
        """Return the static part of a view and the place of its slot number."""
        found = self.footprints.get(value)
        if found is None:
            found = self.footprints[value] = footprint(value, self.buffers)
        return found, self.number(found.index)

    # --- what is needed -------------------------------------------------------------------------

    def slice(self, roots: Iterable[SSAValue]) -> None:
        """Mark the scalars that `roots` depend on."""
        work = list(roots)
        while work:
            value = work.pop()
            if value not in self.needed and carries_scalar(value):
                self.needed.add(value)
                work.extend(sources(value))

    # --- steps ----------------------------------------------------------------------------------

    def block(self, block: Block) -> list[Step]:
        """Decode the operations of a block but its terminator."""
        steps: list[Step] = []
        written: set[int] = set()
        for operation in block.ops:
            if type(operation) in _ENDS:
                continue
            step = self.operation(operation)
            if step is None:
                continue
            if step.by and not written.isdisjoint(step.by):
                step = replace(step, cut=True)
                written.clear()
            steps.append(step)
            written.update(self.numbers[each] for each in operation.results if each in self.needed)
        return steps

    def operation(self, operation: Operation) -> Step | None:
        """Decode one operation; None where the proof has nothing to do."""
        kind = type(operation)
        rule = self.rules.get(kind)
        if rule is not None:
            return rule(self, operation)
        if kind not in self._silent:
            if not (operation.has_trait(Pure) or isinstance(operation, SILENT)):
                raise Unproved(f"the proof does not know {operation.name}", operation)
            self._silent.add(kind)
        check = self.touch(self, operation)
        if self.needed.isdisjoint(operation.results):
            return check
        match operation:
            case tile.Constant(value=IntAttr() as number):
                self.constants[self.number(operation.result)] = number.data
                return check
            case _:
                pass
        step = compute(self, operation)
        return step if check is None else both(check, step)


_ENDS = frozenset((scf.YieldOp, scf.ConditionOp))
SILENT: tuple[type[Operation], ...] = (
    *(tile.Assume, tile.Print, tile.Assert, tile.Load, tile.AsmEffect, hopper.Pin),
)


def sources(value: SSAValue) -> Sequence[SSAValue]:
    """Return the values a scalar is computed from, through control flow; also tensors it is of."""
    if isinstance(value, BlockArgument):
        return _argument_sources(value)
    owner = value.owner
    assert isinstance(owner, Operation)
    if not owner.regions:
        return owner.operands
    index = owner.results.index(value)  # pyright: ignore[reportArgumentType]
    match owner:
        case scf.ForOp():
            return [owner.lb, owner.ub, owner.step, owner.body.block.args[index + 1]]
        case scf.IfOp():
            ends = [terminator(region.block) for region in owner.regions if region.blocks]
            return [owner.cond, *(end.operands[index] for end in ends)]
        case scf.WhileOp():
            condition = terminator(owner.before_region.block)
            return [condition.operands[0], condition.operands[index + 1]]
        case _:
            return owner.operands


def _argument_sources(value: BlockArgument) -> list[SSAValue]:
    parent = value.owner.parent_op()
    match parent:
        case scf.ForOp():
            if value.index == 0:
                return [parent.lb, parent.step]
            end = terminator(value.owner)
            return [parent.iter_args[value.index - 1], end.operands[value.index - 1]]
        case scf.WhileOp() if value.owner is parent.before_region.block:
            end = terminator(parent.after_region.block)
            return [parent.arguments[value.index], end.operands[value.index]]
        case scf.WhileOp():
            return [yielded(parent.before_region.block, value.index + 1)]
        case _:
            return []


# --- scalars --------------------------------------------------------------------------------------


def compute(decoder: Decoder, operation: Operation) -> Step:
    """Return the step that computes an operation's scalar result."""
    out = decoder.number(operation.results[0])
    match operation:
        case tile.Constant(value=Real() as number):
            return _unknown(out, "float", number.data)
        case tile.Elementwise():
            return _elementwise(decoder, operation, out)
        case tile.Cast() | tile.Bitcast():
            return _cast(decoder, operation, out)
        case tile.Splat(value=one) | tile.Reduce(inputs=(one,)) if carries_scalar(one):
            return _same(decoder, operation, one, out)
        case hopper.ClusterRank():
            return silent(_rank(out))
        case hopper.BlockId() | tile.ProgramId():
            return silent(_block_id(out, operation.axis.data))
        case hopper.NumBlocks() | tile.NumPrograms():
            return silent(_num_blocks(out, operation.axis.data))
        case hopper.GridExtent():
            return _unknown(out, "grid_extent", operation.axis.data)
        case tile.Load() | tile.Atomic() | tile.CompareExchange():
            return _read(decoder, operation, out)
        case _ if operation.has_trait(Pure) and all(map(carries_scalar, operation.operands)):
            return _opaque(decoder, operation)
        case _:
            return fresh(operation, *map(decoder.number, operation.results))


def _computing(
    decoder: Decoder,
    operation: Operation,
    run: Callable[[Script], None],
    out: int,
    numbers: bool = False,
) -> Step:
    """Return a step that computes a scalar from others alone (see `Computation`)."""
    result = operation.results[0]
    places = map(decoder.number, operation.operands)
    reads = tuple([place for place in places if place not in decoder.constants])
    return silent(run, Computation(result, out, reads, numbers))


def _same(decoder: Decoder, operation: Operation, value: SSAValue, out: int) -> Step:
    source = decoder.number(value)

    def run(script: Script) -> None:
        script.env[out] = script.env[source]

    return _computing(decoder, operation, run, out)


def _unknown(out: int, kind: str, *key: object) -> Step:
    def run(script: Script) -> None:
        script.env[out] = script.world.scalars.unknown(kind, *key)

    return silent(run)


def _rank(out: int) -> Callable[[Script], None]:
    def run(script: Script) -> None:
        script.env[out] = script.block

    return run


def _num_blocks(out: int, axis: int) -> Callable[[Script], None]:
    """A grid of clusters has a multiple of their size of blocks along axis 0."""

    def run(script: Script) -> None:
        scalars, size = script.world.scalars, script.world.cluster
        if size == 1 or axis:
            script.env[out] = scalars.unknown("num_blocks", axis)
            return
        script.env[out] = scalars.apply("mul", scalars.unknown("num_clusters", axis), size)

    return run


def _block_id(out: int, axis: int) -> Callable[[Script], None]:
    """The blocks of a cluster follow one another along axis 0."""

    def run(script: Script) -> None:
        scalars, size = script.world.scalars, script.world.cluster
        if size == 1 or axis:
            script.env[out] = scalars.unknown("block_id", axis)
            return
        first = scalars.apply("mul", scalars.unknown("cluster_id", axis), size)
        script.env[out] = scalars.apply("add", first, script.block)

    return run


def _elementwise(decoder: Decoder, operation: tile.Elementwise, out: int) -> Step:
    operands = operation.operands
    name = name_of(operation.function.data, operands[0].type)
    inputs = tuple(map(decoder.number, operands))
    meaning = FUNCTIONS.get(name)
    if name == "select":
        return _computing(decoder, operation, _select(operation, inputs, out), out, numbers=True)
    if meaning is None or len(inputs) != 2:

        def several(script: Script) -> None:
            env = script.env
            env[out] = script.world.scalars.apply(name, *[env[item] for item in inputs])

        return silent(several) if meaning is None else _computing(decoder, operation, several, out)
    first, second = inputs
    made: dict[tuple[Scalar, Scalar], Scalar] = {}  # expressions are the kernel's, in all runs

    def binary(script: Script) -> None:
        env = script.env
        a, b = env[first], env[second]
        if a.__class__ is int and b.__class__ is int:
            env[out] = meaning(a, b)
            return
        found = made.get((a, b))
        if found is None:
            found = made[a, b] = script.world.scalars.apply(name, a, b)
        env[out] = found

    return _computing(decoder, operation, binary, out)


def _select(operation: Operation, inputs: tuple[int, ...], out: int) -> Callable[[Script], None]:
    condition, first, second = inputs

    def run(script: Script) -> None:
        env = script.env
        chosen = env[condition]
        if chosen.__class__ is int:
            value = env[first if chosen else second]
            if value.__class__ is int:
                env[out] = value
                return
        world = script.world
        if world.configuration.survey:
            world.ask(operation, script.facts, truth, chosen)
        env[out] = world.scalars.apply("select", chosen, env[first], env[second])

    return run


def _cast(decoder: Decoder, operation: tile.Cast | tile.Bitcast, out: int) -> Step:
    source = decoder.number(operation.value)
    name = cast_name(operation.value.type, operation.result.type)

    def run(script: Script) -> None:
        value = script.env[source]
        script.env[out] = script.world.scalars.apply(name, value) if name else value

    exact = not name or name in FUNCTIONS
    return _computing(decoder, operation, run, out) if exact else silent(run)


def _opaque(decoder: Decoder, operation: Operation) -> Step:
    """A pure function the proof does not compute: equal arguments give equal unknowns."""
    inputs = tuple(decoder.number(value) for value in operation.operands)
    facts = ",".join(f"{key}={value}" for key, value in sorted(unlabelled(operation).items()))
    name = f"{operation.name} {facts}"
    outs = [
        (decoder.number(out), name + f" {i}" * (i > 0)) for i, out in enumerate(operation.results)
    ]

    def run(script: Script) -> None:
        env = script.env
        for out, function in outs:
            env[out] = script.world.scalars.apply(function, *[env[item] for item in inputs])

    return silent(run)


def fresh(operation: Operation, *outs: int) -> Step:
    """Scalars that another role need not agree on: new unknowns at each execution."""

    def run(script: Script) -> None:
        turn = script.turn(operation)
        for which, out in enumerate(outs):
            more = (which,) if which else ()
            unknown = script.world.scalars.unknown("value", operation, *more, turn, script.block)
            script.env[out] = unknown

    return silent(run)


def _read(
    decoder: Decoder, operation: tile.Load | tile.Atomic | tile.CompareExchange, out: int
) -> Step:
    """A word of memory: the same at each read only where nothing writes it."""
    if may_change(operation, decoder.written):
        return fresh(operation, out)
    inputs = tuple(decoder.number(value) for value in operation.operands)

    def run(script: Script) -> None:
        env = script.env
        script.env[out] = script.world.scalars.apply("load", *[env[item] for item in inputs])

    return silent(run)


def concrete(script: Script, place: int, what: str, operation: Operation) -> int:
    """Return the number at a place of the environment, which is kept there: it was asked for, and
    what is computed from it need not be. A survey keeps the question, and is asked more from then
    on than other runs. Raises Unproved where it is open.
    """
    value: Scalar = script.env[place]
    if isinstance(value, int):
        return value
    known = script.world.scalars.value(value)
    if known is None:
        kind = Idle if value.function == "idle" else Unproved
        raise kind(f"the {what} of {operation.name} is not a number", operation)
    script.world.scalars.answered(itself, (value,), known)
    if script.world.configuration.survey:
        script.world.ask(operation, script.facts, itself, value)
        script.world.scalars.course = None
    else:
        script.env[place] = known
    return known
