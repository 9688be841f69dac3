"""wgmma in a role: fences, groups, and the registers that products own (Lemma 5).

A tensor *names* its registers. A product and a wait give them a new name; who touches them by an
old one, or while a product may have them, is refused. A fence stands on every path between an
access to registers of products and the next product, whichever registers they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.analysis.liveness import names_of, renames
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of, terminator, walk
from tawa.verify.role_state import FINISHED, OVER, Fact, Lattice, Registers, State
from tawa.verify.rules import Refused, rule

FENCED = Fact("wgmma fence")
_ENDS = (scf.YieldOp, scf.ConditionOp, tile.Yield)
_PRODUCTS = (hopper.Wgmma, hopper.WgmmaCommit, hopper.WgmmaWait, hopper.WgmmaFence)


@dataclass(slots=True)
class Products:
    """The registers of one role that products use: `running` may be some product's, `tracked` go
    into one as well.
    """

    role: hopper.Role
    lattice: Lattice
    running: set[SSAValue] = field(default_factory=set[SSAValue])
    tracked: set[SSAValue] = field(default_factory=set[SSAValue])
    operands: set[SSAValue] = field(default_factory=set[SSAValue])
    """What is computed for operand A of a product, in the registers that the product reads."""
    most: int = 0
    """Beyond this age all groups are alike."""

    def __post_init__(self) -> None:
        forward: dict[SSAValue, list[SSAValue]] = {}
        backward: dict[SSAValue, list[SSAValue]] = {}
        passed: dict[SSAValue, list[SSAValue]] = {}
        fed: list[SSAValue] = []
        made: list[SSAValue] = []
        operands: list[SSAValue] = []
        for operation in walk(self.role):
            for target, origin in moves(operation):
                forward.setdefault(origin, []).append(target)
                backward.setdefault(target, []).append(origin)
                if not renames(operation):
                    passed.setdefault(target, []).append(origin)
            if isinstance(operation, hopper.Wgmma):
                made.append(operation.result)
                fed.append(operation.acc)
                if isinstance(operation.a.type, TensorType):
                    operands += names_of(operation.a)
        fed += operands
        self.operands = _closure(operands, passed)
        self.running = _closure(made, forward)
        self.tracked = self.running | _closure([*fed, *self.running], backward)
        waits = all_of(self.role, hopper.WgmmaWait)
        self.most = 1 + max((wait.pending.data for wait in waits), default=0)

    # --- names ------------------------------------------------------------------------------------

    def move(self, state: State, pairs: Iterable[tuple[SSAValue, SSAValue]]) -> None:
        """Let tensors go on under other names: what loops and conditions pass on."""
        found = [(target, origin, self._name(state, origin)) for target, origin in pairs]
        for target, origin, name in found:
            if isinstance(origin.owner, tile.Constant | hopper.Uninitialized):
                self._put(state, target, state.sets[name[0]])  # registers of its own
            else:
                state.names[target] = name

    def chosen(self, states: list[State], branch: scf.IfOp) -> None:
        """Threads write the registers of what a condition chooses, where its sides have unlike
        ones: no product may use either.
        """
        for result in branch.results:
            numbers = [state.names[result][0] for state in states if result in state.names]
            running = any(
                state.sets[number].product < FINISHED
                for state in states
                for number in numbers
                if number in state.sets
            )
            if len(set(numbers)) > 1 and running:
                raise self._refused(
                    "accumulators at rest",
                    "chooses between registers while a wgmma may be running on them",
                    branch,
                )

    def _name(self, state: State, value: SSAValue) -> tuple[int, bool]:
        name = state.names.get(value)
        if name is None:  # made before the role: a constant, or registers with any content
            filled = not isinstance(value.owner, hopper.Uninitialized)
            name = self._put(state, value, Registers(filled=filled))
        return name

    def _put(self, state: State, value: SSAValue, held: Registers) -> tuple[int, bool]:
        number = self.lattice.registers()
        state.sets[number] = held
        state.names[value] = (number, False)
        return state.names[value]

    def _rename(self, state: State, number: int, value: SSAValue) -> None:
        for name, (registers, _) in state.names.items():
            if registers == number:
                state.names[name] = (number, True)
        state.names[value] = (number, False)

    # --- threads ----------------------------------------------------------------------------------

    def touches(self, operation: Operation) -> bool:
        """Tell whether an operation reads registers of products, or writes those of operands."""
        return not self.tracked.isdisjoint(operation.results) or any(
            value in self.running for value in _operands(operation)
        )

    def touch(self, state: State, operation: Operation) -> None:
        """An operation by threads: registers that it reads and writes are at rest."""
        if type(operation) in _ENDS or type(operation) in _PRODUCTS:
            return
        reads = [value for value in _operands(operation) if value in self.running]
        writes = [value for value in operation.results if value in self.tracked]
        if not reads and not writes:
            return
        state.must.discard(FENCED)
        for value in reads:
            number, stale = self._name(state, value)
            held, name = state.sets[number], value.name_hint or "a value"
            if held.product != OVER:
                raise self._refused(
                    "accumulators at rest",
                    f"reads {name} by {operation.name} while the wgmma that computes it may be "
                    "running: no wgmma_wait that covers it has named it",
                    operation,
                )
            if stale:
                raise self._refused(
                    "accumulators at rest",
                    f"reads {name} by {operation.name} under a name from before the last product "
                    "or wait on its registers",
                    operation,
                )
            if not held.filled:
                raise self._refused(
                    "accumulators written first",
                    f"reads {name} by {operation.name}: registers that nothing has written",
                    operation,
                )
        alias = renames(operation)
        for place, value in enumerate(operation.results):
            if value not in self.tracked:
                continue
            old = state.names.get(value)
            held = Registers() if old is None else state.sets[old[0]]
            if value in self.operands and not alias and held.operand < FINISHED:
                raise self._refused(
                    "accumulators at rest",
                    f"computes operand A of a wgmma anew by {operation.name} while the wgmma that "
                    "reads its registers may be running",
                    operation,
                )
            if alias or isinstance(operation, hopper.Pin):
                state.names[value] = self._name(state, operation.operands[place])
            else:
                filled = not isinstance(operation, hopper.Uninitialized)
                self._put(state, value, Registers(filled=filled))

    def fills(self, state: State, loop: Operation) -> None:
        """A loop that carries a constant fills registers with it."""
        if isinstance(loop, scf.ForOp) and any(
            carried in self.tracked and isinstance(first.owner, tile.Constant)
            for carried, first in zip(loop.body.block.args[1:], loop.iter_args, strict=True)
        ):
            state.must.discard(FENCED)

    # --- products ---------------------------------------------------------------------------------

    def start(self, state: State, wgmma: hopper.Wgmma) -> None:
        """A product starts: until it is over it owns its accumulator and reads A from registers."""
        if FENCED not in state.must:
            raise self._refused(
                "wgmma fence",
                "starts a wgmma, and on some path to it registers of products are touched, or the "
                "role begins, with no wgmma_fence after that",
                wgmma,
            )
        number, stale = self._name(state, wgmma.acc)
        held = state.sets[number]
        if isinstance(wgmma.acc.owner, tile.Constant | hopper.Uninitialized):
            number = self.lattice.registers()  # those of the result, from now on
            held = state.sets[number] = Registers(filled=held.filled)
        elif stale:
            raise self._stale("accumulates into registers", wgmma)
        if not held.filled and self._adds(state, wgmma):
            raise self._refused(
                "accumulators written first",
                "accumulates into registers that nothing has written: its first product does not "
                "take them as zero",
                wgmma,
            )
        old = state.names.get(wgmma.result)
        if old is not None and old[0] != number and state.sets[old[0]].product < FINISHED:
            raise self._refused(
                "accumulators at rest",
                "starts a wgmma that writes the registers of its own result of before, which no "
                "wait has covered since",
                wgmma,
            )
        if isinstance(wgmma.a.type, TensorType):
            operand, stale = self._name(state, wgmma.a)
            if stale:
                raise self._stale("reads operand A", wgmma)
            if state.sets[operand].product != OVER:
                raise self._refused(
                    "accumulators at rest",
                    "feeds a product that is not waited for to a wgmma",
                    wgmma,
                )
            state.sets[operand] = state.sets[operand]._replace(operand=0)
        state.sets[number] = state.sets[number]._replace(product=0, filled=1)
        self._rename(state, number, wgmma.result)

    def _adds(self, state: State, wgmma: hopper.Wgmma) -> bool:
        if wgmma.accumulate is None:
            return True
        condition = state.values.get(wgmma.accumulate)
        return condition is None or self.lattice.decide(state, condition) is not False

    def commit(self, state: State) -> None:
        """Close the group of the products that were started."""
        for number, held in state.sets.items():
            state.sets[number] = held._replace(
                product=self.older(held.product), operand=self.older(held.operand)
            )

    def older(self, age: int) -> int:
        """Return an age after one more commit."""
        return age if age >= FINISHED else min(age + 1, self.most)

    def wait(self, state: State, wait: hopper.WgmmaWait) -> None:
        """Wait for all but the newest groups: the values that the wait names are readable."""
        pending = wait.pending.data
        for value, result in zip(wait.values, wait.res, strict=True):
            number, stale = self._name(state, value)
            held, name = state.sets[number], value.name_hint or "a value"
            if stale:
                raise self._stale(f"waits for {name}", wait)
            if held.product <= pending:
                late = (
                    "may be among the groups it allows in flight"
                    if held.product
                    else "was never committed"
                )
                raise self._refused(
                    "accumulators at rest" if held.product else "wgmma commit",
                    f"waits for {name}, but the group of the wgmma that computes it {late}",
                    wait,
                )
            state.sets[number] = held._replace(product=OVER)
            self._rename(state, number, result)
        for number, held in state.sets.items():
            state.sets[number] = held._replace(
                product=FINISHED if pending < held.product < FINISHED else held.product,
                operand=OVER if pending < held.operand else held.operand,
            )

    def end(self, state: State) -> None:
        """Raise Refused where a product is not waited for when the role ends."""
        if any(held.product < FINISHED for held in state.sets.values()):
            raise self._refused(
                "nothing is left", "ends with a wgmma that it has not waited for", self.role
            )

    def _stale(self, what: str, operation: Operation) -> Refused:
        return self._refused(
            "accumulators at rest",
            f"{what} by a name from before the last product or wait on these registers: nothing "
            "ties it to what it must come after",
            operation,
        )

    def _refused(self, name: str, what: str, operation: Operation) -> Refused:
        return Refused(rule(name), f"{self.role.label.data} {what}", operation)


def moves(operation: Operation) -> list[tuple[SSAValue, SSAValue]]:
    """Return (target, origin) of the tensors that an operation passes on in their registers."""
    match operation:
        case scf.ForOp():
            block = operation.body.block
            inside = block.args[1:]
            back = terminator(block).operands
            return [
                *_tensors(inside, operation.iter_args),
                *_tensors(inside, back),
                *_tensors(operation.results, inside),
            ]
        case scf.IfOp():
            blocks = [region.block for region in operation.regions if region.blocks]
            ends = [terminator(block).operands for block in blocks if operation.results]
            return [pair for end in ends for pair in _tensors(operation.results, end)]
        case scf.WhileOp():
            before, after = operation.before_region.block, operation.after_region.block
            passed = terminator(before).operands[1:]
            return [
                *_tensors(before.args, operation.arguments),
                *_tensors(before.args, terminator(after).operands),
                *_tensors(after.args, passed),
                *_tensors(operation.results, passed),
            ]
        case hopper.WgmmaWait():
            return list(_tensors(operation.res, operation.values))
        case hopper.Pin():
            return list(_tensors(operation.res, operation.values))
        case hopper.Wgmma():
            return [(operation.result, operation.acc)]
        case _ if len(operation.results) == 1 and renames(operation):
            return list(_tensors(operation.results, operation.operands[:1]))
        case _:
            return []


def _tensors(
    targets: Iterable[SSAValue], origins: Iterable[SSAValue]
) -> Iterator[tuple[SSAValue, SSAValue]]:
    pairs = zip(targets, origins, strict=True)
    return (pair for pair in pairs if isinstance(pair[0].type, TensorType))


def _closure(start: Iterable[SSAValue], edges: dict[SSAValue, list[SSAValue]]) -> set[SSAValue]:
    found: set[SSAValue] = set()
    work = list(start)
    while work:
        value = work.pop()
        if value not in found:
            found.add(value)
            work.extend(edges.get(value, ()))
    return found


def _operands(operation: Operation) -> Iterable[SSAValue]:
    """Return the operands of an operation and of what stands in its regions (reduce, scan)."""
    if not operation.regions:
        return operation.operands
    return [value for inner in operation.walk() for value in inner.operands]
