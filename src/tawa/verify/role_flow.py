"""Lemma 5: each role by itself, for all trip counts: one forward dataflow over its program.

Products, copies and accesses are over before what they touch is handed on or used again; the
states are those of `role_state.py`, the rules those of `role_registers.py` and `role_memory.py`.
A loop is followed from its first iteration until two states in a row differ by constant steps, or
by steps that are alike for scalars and facts; that state is taken for all later iterations, and one
more iteration has to lead to the same. Both sides of a condition are followed, and stay apart until
the loop around them goes on: what a condition told is known where it is asked again.

It is a second analysis, which shares nothing with the passes that place waits and fences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tawa.ir import hopper, tile
from tawa.ir.walk import all_of, decisive, passed_on, terminator, walk
from tawa.verify.cursors import Cursors, Numbers
from tawa.verify.rings import Rings, constant, flip_of, label_of, slots_of, step_of
from tawa.verify.role_memory import AT_RINGS, Memory
from tawa.verify.role_registers import FENCED, Products
from tawa.verify.role_state import Lattice, State, Steady
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import RANK, UNKNOWN, Term
from tawa.verify.values import Values

_COMPARED = {"gt": (0, 1, 0), "lt": (1, 0, 0), "ge": (0, 1, 1), "le": (1, 0, 1)}
"""Of a comparison: which operand less which, and what more, is positive."""

_EVENTS = (
    *(scf.IfOp, scf.ForOp, scf.WhileOp, hopper.OneThread),
    *(hopper.WgmmaFence, hopper.Wgmma, hopper.WgmmaCommit, hopper.WgmmaWait),
    *(*AT_RINGS, hopper.NamedBarrier),
    *(hopper.ProxyFence, hopper.BulkCommit, hopper.BulkWait),
)


def check_roles(kernel: tile.Kernel, rings: Rings, values: Values) -> Numbers:
    """Check each role of a kernel in hopper IR by itself; return the numbers of rings that they
    have. Raises `Refused`."""
    numbers = Numbers(values, rings)
    depths = [slots_of(array.result) for array in all_of(kernel, hopper.Barriers)]
    before = [op for op in kernel.body.block.ops if not isinstance(op, hopper.Role)]
    for role in all_of(kernel, hopper.Role):
        lattice = Lattice(values.terms)
        deciding, slots, positions, phases = _deciding(role)
        cursors = Cursors(role, numbers, lattice, slots, phases)
        flow = _Flow(
            lattice,
            Products(role, lattice),
            Memory(role, rings, lattice, cursors),
            cursors,
            max(depths, default=1) + 3,
            deciding,
            positions,
        )
        state = State({argument: values.of(argument) for argument in kernel.body.block.args})
        cursors.begin(state)
        for operation in before:
            flow.scalars(state, operation)
        for end in flow.block(role.body.block, [state]):
            flow.products.end(end)
            flow.memory.end(end)
    return numbers


@dataclass(slots=True)
class _Flow:
    """The states of one role, operation by operation."""

    lattice: Lattice
    products: Products
    memory: Memory
    cursors: Cursors
    patience: int
    """After so many iterations every ring and every delay has been gone through."""
    deciding: set[SSAValue]
    positions: set[SSAValue]
    """Scalars that are slots and nothing else."""
    _steps: dict[Block, list[Operation]] = field(default_factory=dict[Block, list[Operation]])
    _scalars: dict[Operation, list[SSAValue]] = field(
        default_factory=dict[Operation, list[SSAValue]]
    )

    # --- blocks -----------------------------------------------------------------------------------

    def block(self, block: Block, states: list[State]) -> list[State]:
        """Return the states after a block: those of paths that have to be kept apart."""
        if block not in self._steps:
            self._steps[block] = [each for each in block.ops if self._matters(each)]
        for operation in self._steps[block]:
            match operation:
                case hopper.OneThread():
                    states = self.block(operation.body.block, states)
                case scf.IfOp():
                    ends = [end for each in states for end in self._branch(operation, each)]
                    states = self._left(ends, operation)
                case scf.ForOp() | scf.WhileOp():
                    ends = [end for each in states for end in self._loop(operation, each)]
                    states = self._left(ends, operation)
                case _:
                    for state in states:
                        self._operation(state, operation)
        return states

    def _matters(self, operation: Operation) -> bool:
        """Tell whether an operation changes a state: most compute tiles that decide nothing."""
        return (
            isinstance(operation, _EVENTS)
            or operation in self.memory.rings.of
            or any(result in self.deciding for result in operation.results)
            or self.products.touches(operation)
        )

    def _operation(self, state: State, operation: Operation) -> None:
        products, memory = self.products, self.memory
        match operation:
            case hopper.WgmmaFence():
                state.must.add(FENCED)
            case hopper.Wgmma():
                products.start(state, operation)
                memory.access(state, operation)
            case hopper.WgmmaCommit():
                products.commit(state)
                memory.commit_products(state, products.older)
            case hopper.WgmmaWait():
                products.wait(state, operation)
                memory.wait_products(state, operation.pending.data)
            case hopper.Wait():
                self.cursors.wait(state, operation)
                memory.wait(state, operation)
            case hopper.Arrive() | hopper.CopyAsyncArrive():
                memory.arrive(state, operation)
                self.cursors.arrive(state, operation)
            case hopper.Expect():
                memory.expect(state, operation)
                self.cursors.arrive(state, operation)
            case hopper.NamedBarrier():
                memory.meet(state, operation)
            case hopper.ProxyFence():
                memory.fence(state, operation)
            case hopper.BulkCommit():
                memory.commit_stores(state, operation)
            case hopper.BulkWait():
                memory.wait_stores(state, operation)
            case _:
                products.touch(state, operation)
                if operation in memory.rings.of:
                    memory.access(state, operation)
                if isinstance(operation, hopper.TmaLoad):
                    memory.load(state, operation)
                self.scalars(state, operation)

    # --- scalars ----------------------------------------------------------------------------------

    def scalars(self, state: State, operation: Operation) -> None:
        """Give the scalars that an operation makes their terms."""
        for result in operation.results:
            if result in self.deciding:
                self.cursors.step(state, result)
                state.values[result] = self._term(state, operation, result)

    def _term(self, state: State, operation: Operation, result: SSAValue) -> Term:
        if result in self.cursors.phases:
            return self.cursors.flipped(state, result)
        if result in self.positions and constant(result) is None:
            return self.cursors.slot(state, result)
        term = self.cursors.numbers.values.of(result)
        if not self.lattice.terms.support(term) - {RANK, UNKNOWN} and not _is_comparison(operation):
            return term
        inputs = [state.values.get(each) for each in operation.operands]
        known = [each for each in inputs if each is not None]
        if not isinstance(operation, tile.Elementwise) or len(known) != len(inputs):
            return self.lattice.symbol()
        if not _is_comparison(operation):
            return self.cursors.numbers.values.function(operation, known)
        terms, (more, less, and_more) = self.lattice.terms, _COMPARED[operation.function.data]
        return terms.add(terms.sub(known[more], known[less]), terms.constant(and_more))

    # --- control ----------------------------------------------------------------------------------

    def _branch(self, branch: scf.IfOp, state: State) -> list[State]:
        condition = state.values[branch.cond]
        found: list[State] = []
        for region, holds in ((branch.true_region, True), (branch.false_region, False)):
            side = self.lattice.assume(state, condition, holds)
            if side is None:
                continue
            if not region.blocks:
                found.append(side)
                continue
            for end in self.block(region.block, [side]):
                self._pass_on(end, branch.results, terminator(region.block).operands)
                found.append(end)
        self.products.chosen(found, branch)
        return found

    def _left(self, states: list[State], control: Operation) -> list[State]:
        """Forget what was made inside of a condition or a loop, and join the states that differ in
        nothing but registers and in what conditions told.
        """
        kept: list[State] = []
        for state in states:
            for value in self._inside(control):
                state.values.pop(value, None)
            for place, other in enumerate(kept):
                if (
                    state.must == other.must
                    and state.may == other.may
                    and state.owed == other.owed
                    and state.values == other.values
                ):
                    kept[place] = self.lattice.join(other, state)
                    break
            else:
                kept.append(state)
        return kept

    def _inside(self, control: Operation) -> list[SSAValue]:
        """Return the scalars that stand in a condition or a loop."""
        if control not in self._scalars:
            self._scalars[control] = [
                value
                for inner in walk(control)
                for value in (
                    *(() if inner is control else inner.results),
                    *(each for region in inner.regions for b in region.blocks for each in b.args),
                )
                if value in self.deciding
            ]
        return self._scalars[control]

    def _pass_on(
        self, state: State, targets: Sequence[SSAValue], origins: Sequence[SSAValue]
    ) -> None:
        """Let values go on under other names, all at once."""
        pairs = list(zip(targets, origins, strict=True))
        scalars = [
            (
                target,
                self.cursors.phase(state, origin, self.cursors.phases[target])
                if target in self.cursors.phases
                else state.values[origin],
            )
            for target, origin in pairs
            if target in self.deciding
        ]
        state.values.update(scalars)
        self.products.move(
            state,
            [
                (target, origin)
                for target, origin in pairs
                if target in self.products.tracked and isinstance(target.type, TensorType)
            ],
        )

    # --- loops ------------------------------------------------------------------------------------

    def _loop(self, loop: scf.ForOp | scf.WhileOp, state: State) -> list[State]:
        """Return the states after a loop. Raises Refused where its iterations do not repeat."""
        lattice, numbers = self.lattice, self.cursors.numbers
        self.products.fills(state, loop)
        self.memory.paid(state, loop)
        exits, going = self._tested(loop, [self._entered(loop, state)])
        head = lattice.join_all(going)
        reason: Refused | None = None
        for _ in range(self.patience):
            if head is None:
                return exits
            since = lattice.symbols
            ends, going = self._iteration(loop, head)
            following = lattice.join_all(going)
            if following is None:
                return [*exits, *ends]
            steady: Steady | bool = lattice.steady(head, following, since)
            behind = numbers.behind
            last: list[State] = []
            try:
                for _ in head.values:  # each time scalars that grow unlike each other are parted
                    if not isinstance(steady, Steady):
                        break
                    numbers.behind = dict(behind)
                    last, going = self._iteration(loop, steady.state)
                    more = lattice.join_all(going)
                    steady = more is None or lattice.repeats(steady, more, since)
                if steady is True:
                    return [*exits, *last]
            except Refused as found:
                reason = found
            numbers.behind = behind
            exits += ends
            head = following
        raise reason or Refused(
            rule("form"),
            f"{self.products.role.label.data} does not come to iterations that repeat"
            + _held(head),
            loop,
        )

    def _entered(self, loop: scf.ForOp | scf.WhileOp, state: State) -> State:
        found = state.copy()
        if isinstance(loop, scf.ForOp):
            index, *carried = loop.body.block.args
            found.values[index] = found.values[loop.lb]
            self._pass_on(found, carried, loop.iter_args)
        else:
            self._pass_on(found, loop.before_region.block.args, loop.arguments)
        self.cursors.enter(found, loop)
        return found

    def _iteration(
        self, loop: scf.ForOp | scf.WhileOp, head: State
    ) -> tuple[list[State], list[State]]:
        """Return the states in which a loop ends after an iteration, and those in which it goes
        on.
        """
        body = loop.body.block if isinstance(loop, scf.ForOp) else loop.after_region.block
        ends = self.block(body, [head.copy()])
        made = [each for each in self._inside(loop) if isinstance(each, OpResult)]
        for end in ends:
            self.memory.paid(end, loop)
            self.cursors.end_tile(end, loop)
            if isinstance(loop, scf.ForOp):
                index, *carried = body.args
                self._pass_on(end, carried, terminator(body).operands)
                step = end.values[loop.step]
                end.values[index] = self.lattice.terms.add(end.values[index], step)
            else:
                self._pass_on(end, loop.before_region.block.args, terminator(body).operands)
            for value in made:
                end.values.pop(value, None)
        return self._tested(loop, ends)

    def _tested(
        self, loop: scf.ForOp | scf.WhileOp, states: Iterable[State]
    ) -> tuple[list[State], list[State]]:
        """Ask whether a loop goes on; return the states where it has ended, and where not."""
        ends: list[State] = []
        going: list[State] = []
        for state in states:
            if isinstance(loop, scf.ForOp):
                index, *carried = loop.body.block.args
                left = self.lattice.terms.sub(state.values[loop.ub], state.values[index])
                tests = [(state, left)]
                targets: Sequence[SSAValue] = carried
            else:
                before = loop.before_region.block
                test = terminator(before)
                tests = [
                    (each, each.values[test.operands[0]]) for each in self.block(before, [state])
                ]
                targets = test.operands[1:]
            for at, left in tests:
                if (end := self.lattice.assume(at, left, False)) is not None:
                    self._pass_on(end, loop.results, targets)
                    ends.append(end)
                if (more := self.lattice.assume(at, left, True)) is not None:
                    if isinstance(loop, scf.WhileOp):
                        self._pass_on(more, loop.after_region.block.args, targets)
                    going.append(more)
        return ends, going


def _is_comparison(operation: Operation) -> bool:
    """Tell whether an operation compares integers, which is told by their difference."""
    return (
        isinstance(operation, tile.Elementwise)
        and operation.function.data in _COMPARED
        and isinstance(operation.inputs[0].type, IntegerType)
    )


def _deciding(
    role: hopper.Role,
) -> tuple[set[SSAValue], set[SSAValue], set[SSAValue], dict[SSAValue, int]]:
    """Return the scalars that slots, phases, conditions and bounds of a role are computed from,
    those of slots, those of slots alone, and those of phases of rings of one depth alone: of these
    two the number counts that they stand for.
    """
    slots: list[SSAValue] = []
    asked: list[SSAValue] = []
    flips: dict[int, list[SSAValue]] = {}
    for operation in walk(role):
        match operation:
            case hopper.TmaLoad():
                slots.append(operation.slot)
            case _ if isinstance(operation, AT_RINGS):
                slots.append(operation.slot)
                if isinstance(operation, hopper.Wait):
                    flips.setdefault(slots_of(operation.barriers), []).append(operation.phase)
            case hopper.Slot():
                slots.append(operation.index)
            case hopper.Wgmma() if operation.accumulate is not None:
                asked.append(operation.accumulate)
            case _:
                asked += decisive(operation)
                if isinstance(operation, scf.ForOp):
                    asked.append(operation.body.block.args[0])

    def of_phase(value: SSAValue) -> list[SSAValue]:
        flip = flip_of(value)
        if flip is None:
            return passed_on(value)
        if flip.step is not None:
            slots.append(flip.step.slot)
            asked.append(flip.step.more)
        return [flip.phase]

    def of_slot(value: SSAValue) -> list[SSAValue]:
        step = step_of(value)
        if step is None:
            return passed_on(value)
        asked.append(step.more)
        return [step.slot]

    def of_scalar(value: SSAValue) -> list[SSAValue]:
        made = value.owner
        return list(made.inputs) if isinstance(made, tile.Elementwise) else passed_on(value)

    phases: dict[SSAValue, list[int]] = {}
    for depth, work in flips.items():
        for value in _made_of(work, of_phase):
            phases.setdefault(value, []).append(depth)
    positions = _made_of(slots, of_slot)
    decided = _made_of(asked, of_scalar)
    return (
        decided | positions | set(phases),
        positions,
        positions - decided,
        {
            value: depths[0]
            for value, depths in phases.items()
            if len(depths) == 1
            and constant(value) is None
            and value not in positions
            and value not in decided
        },
    )


def _made_of(work: list[SSAValue], origins: Callable[[SSAValue], list[SSAValue]]) -> set[SSAValue]:
    """Return what integers are made of."""
    found: set[SSAValue] = set()
    while work:
        value = work.pop()
        if value not in found and isinstance(value.type, IntegerType):
            found.add(value)
            work += origins(value)
    return found


def _held(state: State | None) -> str:
    """Say at which barriers slots come that are held, as all are that nobody hands on."""
    facts = state.must if state is not None else ()
    things = [fact.thing for fact in facts if fact.kind == "held"]
    labels = sorted({label_of(each) for each in things if isinstance(each, SSAValue)})
    return f": it holds slots that come at {', '.join(labels)}" if labels else ""
