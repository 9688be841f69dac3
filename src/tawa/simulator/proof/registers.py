"""Registers that wgmma owns: which tensors they are, and who may touch them when.

They are followed once for each role, along its program: what they hold, and which product owns
them, depends on nobody else.

Registers are shared by a wgmma's accumulator and result, and carried through control flow and by
operations that only name them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.analysis.registers import names_of, renames
from tawa.ir import hopper, tile
from tawa.ir.control import terminator
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.expressions import Scalar
from tawa.simulator.proof.fences import operands_of
from tawa.simulator.proof.machine import Script
from tawa.simulator.proof.rules import Violation
from tawa.simulator.proof.scalars import itself
from tawa.simulator.proof.steps import Step, silent


@dataclass(eq=False, slots=True)
class Register:
    """The registers of one tensor: the wgmma in flight that owns them, or the last to read them.

    `filled` tells whether they hold numbers, `version` counts the products and waits that gave them
    a new name.
    """

    product: int = -1
    operand: int = -1
    filled: bool = True
    version: int = 0


@dataclass(eq=False, slots=True)
class Name:
    """A tensor's name for its registers, good until a product or a wait gives them another: nothing
    but the newest name ties an instruction to the wait before it.
    """

    register: Register
    version: int = 0

    @property
    def stale(self) -> bool:
        """Whether the registers have a newer name."""
        return self.version != self.register.version


def renamed(register: Register) -> Name:
    """Give registers a new name: the others are stale."""
    register.version += 1
    return Name(register, register.version)


@dataclass(eq=False, slots=True)
class Registers:
    """The wgmmas of a role as its program has them, in order: how many were started and are known
    to have finished, the end of each committed group, and from which to which each wait waits.
    """

    issued: int = 0
    groups: list[int] = field(default_factory=lambda: [])
    finished: int = 0
    waits: list[tuple[int, int]] = field(default_factory=lambda: [])
    last: Operation | None = None

    @property
    def committed(self) -> int:
        """How many wgmmas were committed."""
        return self.groups[-1] if self.groups else 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where a wgmma's accumulator, result, operand A in registers and `accumulate` stand in the
    environment, -1 for what it has not; `constant` accumulators have registers of their own.
    """

    acc: int
    out: int
    a: int
    flag: int
    constant: bool


_CARRIERS = (scf.ForOp, scf.IfOp, scf.WhileOp, hopper.WgmmaWait, hopper.Pin, hopper.Wgmma)


def follow_registers(decoder: Decoder, role: hopper.Role) -> None:
    """Find the tensors whose registers a wgmma owns (`running`) or uses (`tracked`), and what reads
    or makes them.
    """
    forward: dict[SSAValue, list[SSAValue]] = {}
    fed: list[SSAValue] = []
    made: list[SSAValue] = []
    for operation in decoder.census.of(*_CARRIERS, within=role):
        for target, origin in _moves(operation):
            forward.setdefault(origin, []).append(target)
        if isinstance(operation, hopper.Wgmma):
            forward.setdefault(operation.acc, []).append(operation.result)
            made.append(operation.result)
            fed.append(operation.acc)
            if isinstance(operation.a.type, TensorType):
                fed += names_of(operation.a)
    backward: dict[SSAValue, list[SSAValue]] = {}
    for origin, targets in forward.items():
        for target in targets:
            backward.setdefault(target, []).append(origin)
    running = _closure(made, forward)
    tracked = running | _closure([*fed, *running], backward)
    decoder.running |= running
    decoder.tracked |= tracked
    decoder.touching.update(use.operation for value in running for use in value.uses)
    decoder.touching.update(value.owner for value in tracked if isinstance(value.owner, Operation))


def _moves(operation: Operation) -> list[tuple[SSAValue, SSAValue]]:
    """Return (target, origin) of the tensors an operation passes on in their registers."""
    match operation:
        case scf.ForOp():
            block = operation.body.block
            end = terminator(block)
            inside = list(block.args[1:])
            return _tensors(inside, operation.iter_args, inside, end.operands) + _tensors(
                operation.results, inside
            )
        case scf.IfOp():
            blocks = [region.block for region in operation.regions if region.blocks]
            ends = [terminator(block).operands for block in blocks] if operation.results else []
            return [pair for end in ends for pair in _tensors(operation.results, end)]
        case scf.WhileOp():
            return _while_moves(operation)
        case hopper.WgmmaWait():
            return _tensors(operation.res, operation.values)
        case hopper.Pin():
            return _tensors(operation.res, operation.values)
        case _:
            return []


def _while_moves(loop: scf.WhileOp) -> list[tuple[SSAValue, SSAValue]]:
    before, after = loop.before_region.block, loop.after_region.block
    passed = terminator(before).operands[1:]
    back = terminator(after).operands
    return (
        _tensors(before.args, loop.arguments, before.args, back)
        + _tensors(after.args, passed)
        + _tensors(loop.results, passed)
    )


def _tensors(*columns: object) -> list[tuple[SSAValue, SSAValue]]:
    pairs: list[tuple[SSAValue, SSAValue]] = []
    for targets, origins in zip(columns[::2], columns[1::2], strict=True):
        for target, origin in zip(targets, origins, strict=True):  # pyright: ignore
            if isinstance(target.type, TensorType):  # pyright: ignore
                pairs.append((target, origin))  # pyright: ignore
    return pairs


def _closure(start: list[SSAValue], edges: dict[SSAValue, list[SSAValue]]) -> set[SSAValue]:
    found: set[SSAValue] = set()
    work = list(start)
    while work:
        value = work.pop()
        if value not in found:
            found.add(value)
            work.extend(edges.get(value, ()))
    return found


def touch_rule(decoder: Decoder, operation: Operation) -> Step | None:
    """An operation by threads on registers that wgmma uses: they must be at rest."""
    # What stands in the regions of others (reduce, scan) reads for them.
    if operation not in decoder.touching and not operation.regions:
        return None
    if isinstance(operation, (scf.YieldOp, tile.Yield)):
        return None
    reads = [
        (decoder.number(value), value.name_hint or "a value")
        for value in operands_of(operation)
        if value in decoder.running
    ]
    writes = [decoder.number(value) for value in operation.results if value in decoder.tracked]
    if not reads and not writes:
        return None
    named = renames(operation)  # nothing is written
    alias = named or isinstance(operation, hopper.Pin)
    # Numbered here: a run has places for what was numbered before it.
    again = [
        (decoder.number(result), decoder.number(operand))
        for result, operand in (
            zip(operation.results, operation.operands, strict=True) if alias else ()
        )
        if result in decoder.tracked
    ]
    filled = not isinstance(operation, hopper.Uninitialized)

    def run(script: Script) -> None:
        if not script.follows:
            return
        env, registers = script.env, script.registers
        for place, name in reads:
            register = env[place].register
            if register.product >= 0:
                sentence = (
                    f"{script.label} reads {name} by {operation.name} while the wgmma that "
                    "computes it may be running: no wgmma_wait that covers it has named it."
                )
                raise Violation("accumulators at rest", sentence, operation)
            if env[place].stale:
                sentence = (
                    f"{script.label} reads {name} by {operation.name} under a name from before the "
                    "last product or wait on its registers: the compiler may move it ahead."
                )
                raise Violation("accumulators at rest", sentence, operation)
            if not register.filled:
                sentence = (
                    f"{script.label} reads {name} by {operation.name}: registers that nothing has "
                    "written."
                )
                raise Violation("accumulators written first", sentence, operation)
        for place in writes:
            old = env[place]
            if not named and isinstance(old, Name) and old.register.operand >= registers.finished:
                sentence = (
                    f"{script.label} computes operand A of a wgmma anew by {operation.name} while "
                    "the wgmma that reads its registers may be running."
                )
                raise Violation("accumulators at rest", sentence, operation)
            env[place] = Name(Register(filled=filled))
        for result, operand in again:
            origin = env[operand]
            if isinstance(origin, Name):
                env[result] = origin

    return silent(run)


# --- products -----------------------------------------------------------------------------------


def own(script: Script, wgmma: hopper.Wgmma, places: Places, index: int) -> None:
    """Check the registers of product `index` of a role, which starts, and give them to it."""
    env, registers = script.env, script.registers
    name: Name = env[places.acc]
    register = name.register
    last = env[places.out]
    old: Register | None = last.register if isinstance(last, Name) else None
    if places.constant:
        register = Register(filled=register.filled)  # those of the result, from now on
    elif name.stale:
        raise _stale(script, wgmma, "accumulates into registers", "product")
    adds = places.flag < 0 or _adds(script, env[places.flag])
    if not register.filled and adds:
        sentence = (
            f"{script.label} accumulates into registers that nothing has written: its first "
            "product does not take them as zero."
        )
        raise Violation("accumulators written first", sentence, wgmma)
    # A wait that does not name a result that nobody reads any more ends its flight as well.
    if old is not None and old is not register and old.product >= registers.finished:
        sentence = (
            f"{script.label} starts a wgmma that writes the registers of its own result of "
            "before, which no wait has covered since."
        )
        raise Violation("accumulators at rest", sentence, wgmma)
    if places.a >= 0:
        _feed(script, wgmma, env[places.a], index)
    register.product = index
    register.filled = True
    env[places.out] = renamed(register)


def _adds(script: Script, flag: Scalar) -> bool:
    scalars = script.world.scalars
    number = scalars.value(flag)
    scalars.answered(itself, (flag,), number)
    return number != 0


def _feed(script: Script, wgmma: hopper.Wgmma, name: Name, index: int) -> None:
    """Check operand A in registers, which the product reads until it has finished."""
    operand = name.register
    if name.stale:
        raise _stale(script, wgmma, "reads operand A", "wait")
    if operand.product >= 0:
        sentence = f"{script.label} feeds a product that is not waited for to a wgmma."
        raise Violation("accumulators at rest", sentence, wgmma)
    operand.operand = index


def release(
    script: Script, wait: hopper.WgmmaWait, pairs: tuple[tuple[int, int, str], ...], end: int
) -> None:
    """Give the registers of the products before `end` back, those that a wait names: (its place,
    that of its new name, what it is called).
    """
    env, registers = script.env, script.registers
    for value, result, name in pairs:
        register: Register = env[value].register
        if env[value].stale:
            raise _stale(script, wait, f"waits for {name}", "product or wait")
        if register.product >= end:
            open_ = register.product >= registers.committed
            late = (
                "was never committed"
                if open_
                else f"is among the {wait.pending.data} groups it allows in flight"
            )
            sentence = (
                f"{script.label} waits for {name}, but the group of the wgmma that computes "
                f"it {late}."
            )
            rule = "wgmma commit" if open_ else "accumulators at rest"
            raise Violation(rule, sentence, wait)
        register.product = -1
        env[result] = renamed(register)


def _stale(script: Script, operation: Operation, what: str, by: str) -> Violation:
    sentence = (
        f"{script.label} {what} by a name from before the last {by} on these registers: nothing "
        "ties it to what it must come after."
    )
    return Violation("accumulators at rest", sentence, operation)
