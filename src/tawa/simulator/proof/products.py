"""wgmma: groups in flight, the bytes they read, and the registers they own meanwhile.

The wgmmas of a warpgroup form one queue; they finish in order, each group as a whole and for all
four warps. Registers are followed in one agent of each role, since all run the same program: a
`Register` is what a tensor in registers is; results of wgmma share it with their accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from tawa.ir import hopper, tile
from tawa.ir.types import LayoutAttr
from tawa.layouts.fragments import wgmma_tiling
from tawa.simulator.proof.copies import bucket_of
from tawa.simulator.proof.decode import Decoder, Step, concrete
from tawa.simulator.proof.effects import together
from tawa.simulator.proof.machine import Agent, Blocked
from tawa.simulator.proof.memory import Access
from tawa.simulator.proof.regions import Footprint
from tawa.simulator.proof.rules import Violation


@dataclass(eq=False, slots=True)
class Register:
    """The registers of one tensor: when last touched by threads, and by which wgmma in flight.

    `filled` tells whether they hold numbers, `version` counts the products and waits that gave them
    a new name.
    """

    touched: int
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
class Engine:
    """The queue of wgmmas of one warpgroup: the event of each, how many agents issued it, and what
    they knew then. A wgmma runs when all warps have started it, so that whoever waits for it knows
    that the other warps came so far: their waits are over. Their accesses are another matter.
    """

    size: int
    events: list[int] = field(default_factory=list[int])
    issued: list[int] = field(default_factory=list[int])
    known: list[int] = field(default_factory=list[int])
    queue: list[Agent] = field(default_factory=list[Agent])


@dataclass(eq=False, slots=True)
class Products:
    """The wgmmas as one agent sees them: `groups` holds the end of each committed group."""

    engine: Engine
    follows: bool
    issued: int = 0
    groups: list[int] = field(default_factory=list[int])
    finished: int = 0
    clock: int = 1
    fence: int = 0
    last: Operation | None = None

    def tick(self) -> int:
        """Return the time of an access to registers."""
        self.clock += 1
        return self.clock


def rows_of(wgmma: hopper.Wgmma, groups: int) -> list[list[tuple[int, int]]]:
    """Return, for each warpgroup, the ranges of rows of A it reads."""
    kind = wgmma.result.type
    assert isinstance(kind, TensorType)
    rows = kind.get_shape()[0]
    tiling = wgmma_tiling(kind.encoding.data) if isinstance(kind.encoding, LayoutAttr) else None
    if tiling is None or len(tiling.groups) != groups:
        return [[(0, rows)]] * groups
    return [
        sorted({(top + row, top + row + 64) for row, _ in tiling.blocks})
        for top, _ in tiling.groups
    ]


def wgmma_rule(decoder: Decoder, wgmma: hopper.Wgmma) -> Step:
    """Start a product: it reads its views from now on and owns its registers."""
    in_registers = isinstance(wgmma.a.type, TensorType)
    views = [wgmma.b] if in_registers else [wgmma.b, wgmma.a]
    places = [decoder.view(view) for view in views]
    acc, out = decoder.number(wgmma.acc), decoder.number(wgmma.result)
    a = decoder.number(wgmma.a) if in_registers else -1
    constant = isinstance(wgmma.acc.owner, (tile.Constant, hopper.Uninitialized))
    flag = decoder.number(wgmma.accumulate) if wgmma.accumulate is not None else -1
    shares: dict[int, list[list[tuple[int, int]]]] = {}

    def masks(agent: Agent, which: int, place: Footprint) -> list[int]:
        if which == 0:
            return [place.mask()]
        groups = agent.home.groups[agent.role]
        if groups not in shares:
            shares[groups] = rows_of(wgmma, groups)
        return [place.rows(low, high) for low, high in shares[groups][agent.group]]

    def run(agent: Agent) -> None:
        together(agent, wgmma)
        products: Products = agent.products
        engine, world = products.engine, agent.world
        _whole_warpgroup(agent, wgmma)
        index = products.issued
        products.issued += 1
        products.last = wgmma
        first = index == len(engine.events)
        if first:
            engine.events.append(world.event())
            engine.issued.append(0)
            engine.known.append(engine.events[index])
        world.step(agent, wgmma, f"wgmma {index} starts")
        for which, (place, slot) in enumerate(places):
            where = concrete(agent, slot, "slot", wgmma)
            bucket = bucket_of(agent, agent.block, place, where, wgmma)
            bucket.see(agent, place.buffer.number, wgmma)
            for mask in masks(agent, which, place):
                shifted = mask << place.buffer.shift(where)
                access = Access(
                    shifted,
                    engine.events[index],
                    False,
                    True,
                    agent,
                    "wgmma",
                    wgmma,
                    world.steps,
                )
                bucket.check(access)
                if first:
                    bucket.record(access)
        engine.issued[index] += 1
        engine.known[index] |= agent.known & ~world.by_threads
        if engine.issued[index] == engine.size:
            world.wake(engine.queue)
        if products.follows:
            _own(agent, products, index)

    def _own(agent: Agent, products: Products, index: int) -> None:
        env = agent.env
        name: Name = env[acc]
        register = name.register
        last = env[out]
        old: Register | None = last.register if isinstance(last, Name) else None
        if constant:
            # The registers are those of the result, which threads may have read since.
            before = old.touched if old is not None else 0
            register = Register(max(register.touched, before), filled=register.filled)
        elif name.stale:
            raise _stale(agent, wgmma, "accumulates into registers", "product")
        if not register.filled and (flag < 0 or agent.world.scalars.value(env[flag]) != 0):
            sentence = (
                f"{agent.label} accumulates into registers that nothing has written: its first "
                "product does not take them as zero."
            )
            raise Violation("accumulators written first", sentence, wgmma)
        # A wait that does not name a result that nobody reads any more ends its flight as well.
        if old is not None and old is not register and old.product >= products.finished:
            sentence = (
                f"{agent.label} starts a wgmma that writes the registers of its own result of "
                "before, which no wait has covered since."
            )
            raise Violation("accumulators at rest", sentence, wgmma)
        if constant and products.clock > products.fence:
            # It starts from zero in registers that any tensor at rest may have had until now.
            raise _unfenced(agent, wgmma, "registers that its accumulator may take")
        if register.product < 0 and register.touched > products.fence:
            raise _unfenced(agent, wgmma, "its accumulator")
        if a >= 0:
            operand: Register = env[a].register
            if env[a].stale:
                raise _stale(agent, wgmma, "reads operand A", "wait")
            if operand.product >= 0:
                sentence = f"{agent.label} feeds a product that is not waited for to a wgmma."
                raise Violation("accumulators at rest", sentence, wgmma)
            if operand.touched > products.fence:
                raise _unfenced(agent, wgmma, "operand A in registers")
            operand.operand = index
        if not products.fence:
            raise _unfenced(agent, wgmma, "any register: none was executed before")
        register.product = index
        register.filled = True
        env[out] = renamed(register)

    return Step(run)


def _stale(agent: Agent, operation: Operation, what: str, by: str) -> Violation:
    sentence = (
        f"{agent.label} {what} by a name from before the last {by} on these registers: nothing "
        "ties it to what it must come after."
    )
    return Violation("accumulators at rest", sentence, operation)


def _unfenced(agent: Agent, wgmma: hopper.Wgmma, what: str) -> Violation:
    sentence = (
        f"{agent.label} starts a wgmma without a wgmma_fence after the last access to {what}."
    )
    return Violation("wgmma fence", sentence, wgmma)


def _whole_warpgroup(agent: Agent, operation: Operation) -> None:
    if agent.products is None:
        sentence = f"{operation.name} in {agent.label}, whose warps are not whole warpgroups."
        raise Violation("whole warpgroups", sentence, operation)


def wgmma_fence_rule(decoder: Decoder, fence: hopper.WgmmaFence) -> Step:
    """Order accesses to registers before later wgmmas."""

    def run(agent: Agent) -> None:
        together(agent, fence)
        _whole_warpgroup(agent, fence)
        agent.world.step(agent, fence, "fences wgmma")
        agent.products.fence = agent.products.tick()

    return Step(run)


def wgmma_commit_rule(decoder: Decoder, commit: hopper.WgmmaCommit) -> Step:
    """Close the group."""

    def run(agent: Agent) -> None:
        together(agent, commit)
        _whole_warpgroup(agent, commit)
        agent.world.step(agent, commit, "commits wgmmas")
        agent.products.groups.append(agent.products.issued)

    return Step(run)


def wgmma_wait_rule(decoder: Decoder, wait: hopper.WgmmaWait) -> Step:
    """Wait for all but the newest groups; the named values are readable afterwards."""
    pending = wait.pending.data
    pairs = tuple(
        (decoder.number(value), decoder.number(result), result.name_hint or "a value")
        for value, result in zip(wait.values, wait.res, strict=True)
    )

    def run(agent: Agent) -> Blocked | None:
        together(agent, wait)
        _whole_warpgroup(agent, wait)
        products: Products = agent.products
        engine, groups = products.engine, products.groups
        finished = len(groups) - pending
        end = groups[finished - 1] if finished > 0 else 0
        for index in range(products.finished, end):
            if engine.issued[index] < engine.size:
                what = "the other warps of its warpgroup"
                sentence = f"{what}, which have not started wgmma {index}"
                return Blocked(what, "-", "-", sentence, wait, engine.queue)
        for index in range(products.finished, end):
            agent.known |= engine.known[index]
        products.finished = max(products.finished, end)
        agent.world.step(agent, wait, f"waited for wgmmas up to {end}")
        if products.follows:
            _release(agent, products, end)
        return None

    def _release(agent: Agent, products: Products, end: int) -> None:
        env = agent.env
        for value, result, name in pairs:
            register: Register = env[value].register
            if env[value].stale:
                raise _stale(agent, wait, f"waits for {name}", "product or wait")
            if register.product >= end:
                late = (
                    "was never committed"
                    if register.product >= _committed(products)
                    else (f"is among the {pending} groups it allows in flight")
                )
                sentence = (
                    f"{agent.label} waits for {name}, but the group of the wgmma that computes "
                    f"it {late}."
                )
                rule = "wgmma commit" if "never" in late else "accumulators at rest"
                raise Violation(rule, sentence, wait)
            register.product = -1
            env[result] = renamed(register)

    return Step(run)


def _committed(products: Products) -> int:
    return products.groups[-1] if products.groups else 0
