"""Registers that wgmma owns: which tensors they are, and who may touch them when.

Registers are shared by a wgmma's accumulator and result, and carried through control flow and by
operations that only name them again.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from tawa.ir import hopper, tile
from tawa.simulator.proof.decode import Decoder, Step, terminator
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.products import Name, Products, Register
from tawa.simulator.proof.rules import Violation

_ALIAS = (hopper.WgmmaWait, hopper.Pin)


def follow_registers(decoder: Decoder, role: hopper.Role) -> None:
    """Find the tensors whose registers a wgmma owns (`running`) or uses (`tracked`)."""
    forward: dict[SSAValue, list[SSAValue]] = {}
    fed: list[SSAValue] = []
    made: list[SSAValue] = []
    for operation in role.walk():
        for target, origin in _moves(operation):
            forward.setdefault(origin, []).append(target)
        if isinstance(operation, hopper.Wgmma):
            forward.setdefault(operation.acc, []).append(operation.result)
            made.append(operation.result)
            fed.append(operation.acc)
            if isinstance(operation.a.type, TensorType):
                fed.append(operation.a)
    backward: dict[SSAValue, list[SSAValue]] = {}
    for origin, targets in forward.items():
        for target in targets:
            backward.setdefault(target, []).append(origin)
    running = _closure(made, forward)
    decoder.running |= running
    decoder.tracked |= running | _closure([*fed, *running], backward)


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
    if isinstance(operation, (scf.YieldOp, tile.Yield)):
        return None
    reads = [
        (decoder.number(value), value.name_hint or "a value")
        for value in _operands(operation)
        if value in decoder.running
    ]
    writes = [decoder.number(value) for value in operation.results if value in decoder.tracked]
    if not reads and not writes:
        return None
    alias = isinstance(operation, hopper.Pin)
    filled = not isinstance(operation, hopper.Uninitialized)

    def run(agent: Agent) -> None:
        products: Products | None = agent.products
        if products is None or not products.follows:
            return
        env = agent.env
        for place, name in reads:
            register = env[place].register
            if register.product >= 0:
                sentence = (
                    f"{agent.label} reads {name} by {operation.name} while the wgmma that "
                    "computes it may be running: no wgmma_wait that covers it has named it."
                )
                raise Violation("accumulators at rest", sentence, operation)
            if env[place].stale:
                sentence = (
                    f"{agent.label} reads {name} by {operation.name} under a name from before the "
                    "last product or wait on its registers: the compiler may move it ahead."
                )
                raise Violation("accumulators at rest", sentence, operation)
            if not register.filled:
                sentence = (
                    f"{agent.label} reads {name} by {operation.name}: registers that nothing has "
                    "written."
                )
                raise Violation("accumulators written first", sentence, operation)
            register.touched = products.tick()
        for place in writes:
            old = env[place]
            if isinstance(old, Name) and old.register.operand >= products.finished:
                sentence = (
                    f"{agent.label} computes operand A of a wgmma anew by {operation.name} while "
                    "the wgmma that reads its registers may be running."
                )
                raise Violation("accumulators at rest", sentence, operation)
            env[place] = Name(Register(products.tick(), filled=filled))
        if alias:
            for result, operand in zip(operation.results, operation.operands, strict=True):
                if result in decoder.tracked:
                    env[decoder.number(result)] = env[decoder.number(operand)]

    return Step(run)


def _operands(operation: Operation) -> list[SSAValue]:
    """Return the operands of an operation and of what stands in its regions (reduce, scan)."""
    found = list(operation.operands)
    for region in operation.regions:
        for inner in region.walk():
            found.extend(inner.operands)
    return found
