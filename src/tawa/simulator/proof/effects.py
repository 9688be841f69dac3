"""What the synchronization operations do: mbarriers, named barriers, fences, registers."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.proof.barriers import Mbarrier
from tawa.simulator.proof.decode import Decoder, concrete, fresh
from tawa.simulator.proof.form import role_of
from tawa.simulator.proof.machine import Action, Agent, Blocked, Script
from tawa.simulator.proof.rules import Violation
from tawa.simulator.proof.steps import Step

_WARPGROUP_THREADS = 128


def barrier_of(script: Script, block: int, array: int, slot: int, operation: Operation) -> Mbarrier:
    """Return barrier `slot` of an array of a block. Raises Violation past its end."""
    found: list[Mbarrier] = script.world.blocks[block].arrays[array]
    if not 0 <= slot < len(found):
        name = found[0].name.rsplit("[", 1)[0]
        sentence = f"{script.label} uses {name}[{slot}], but it has {len(found)} barriers."
        raise Violation("form", sentence, operation)
    return found[slot]


def barrier_at(
    script: Script, array: int, place: int, operation: Operation
) -> tuple[int, Mbarrier]:
    """Return the slot at a place of the environment, and that barrier of this block's array."""
    slot = concrete(script, place, "slot", operation)
    found: list[Mbarrier] = script.home.arrays[array]
    if 0 <= slot < len(found):
        return slot, found[slot]
    return slot, barrier_of(script, script.block, array, slot, operation)


def wait_rule(decoder: Decoder, wait: hopper.Wait) -> Step:
    """Wait for the phase of a parity."""
    array = decoder.arrays[wait.barriers]
    slot, phase = decoder.number(wait.slot), decoder.number(wait.phase)

    def run(script: Script) -> Action:
        index, barrier = barrier_at(script, array, slot, wait)
        parity = concrete(script, phase, "phase", wait)
        if parity not in (0, 1):
            sentence = f"{script.label} waits for parity {parity} of {barrier.name}."
            raise Violation("one phase at a time", sentence, wait)

        waited = array, index

        def act(agent: Agent) -> Blocked | None:
            world, barrier = agent.world, agent.home.arrays[array][index]
            blocked = barrier.wait(world, agent, parity, wait)
            if blocked is None:
                agent.waited = waited
                world.steps += 1
                if world.steps > world.watched:
                    world.watch(agent, wait, "waited for {}", barrier.name, agent.waits[barrier])
            return blocked

        return act

    return Step(run, by=(slot, phase))


def arrive_rule(decoder: Decoder, arrive: hopper.Arrive) -> Step:
    """Arrive by some threads at this block's barrier, or at that of each block of the cluster."""
    array, slot = decoder.arrays[arrive.barriers], decoder.number(arrive.slot)
    elect = elected(arrive.by.data, arrive)
    spread = arrive.cluster.data if arrive.cluster is not None else 0

    def run(script: Script) -> Action:
        index, _ = barrier_at(script, array, slot, arrive)

        def act(agent: Agent) -> Blocked | None:
            if not (count := elect(agent)):
                return None
            world, barrier = agent.world, agent.home.arrays[array][index]
            if barrier.contested and (held := world.hold(agent, arrive)):
                return held
            world.steps += 1
            if world.steps > world.watched:
                world.watch(agent, arrive, "arrives at {}", barrier.name, barrier.done)
            if not spread:
                barrier.arrive(world, agent, count, agent.known, arrive)
            for block in range(spread):
                known = agent.known
                if block != agent.block:
                    # No release at cluster scope: finished asynchronous work is covered, accesses
                    # by threads are not.
                    event = world.event()
                    known = known & ~world.by_threads | event
                    world.remote.append((event, block, f"an arrival of {agent.label}", arrive))
                there: Mbarrier = world.blocks[block].arrays[array][index]
                there.arrive(world, agent, count, known, arrive)
            return None

        cluster = script.world.cluster
        if spread and spread != cluster:
            sentence = f"{script.label} arrives in {spread} blocks of a cluster of {cluster}."
            raise Violation("form", sentence, arrive)
        return act

    return Step(run, by=(slot,))


_COUNTS: dict[str, Callable[[Agent], int]] = {
    "warp": lambda agent: len(agent.warps),
    "warpgroup": attrgetter("leader"),
    "role": attrgetter("first"),
    "all": attrgetter("threads"),
}


def elected(by: str, operation: Operation) -> Callable[[Agent], int]:
    """Return what tells how many threads of an agent perform an operation, by its `by`."""
    alone = by == "thread"
    if not alone and by not in _COUNTS:
        raise Violation("form", f'{operation.name} by "{by}".', operation)
    count = _COUNTS.get(by, lambda agent: 1)

    def elect(agent: Agent) -> int:
        if agent.single is not alone:
            inside = "inside" if agent.single else "outside"
            sentence = f'{operation.name} by "{by}" stands {inside} the body of one thread.'
            raise Violation("all threads of a warp", sentence, operation)
        return count(agent)

    return elect


def expect_rule(decoder: Decoder, expect: hopper.Expect) -> Step:
    """One arrival that adds expected bytes."""
    array, slot = decoder.arrays[expect.barriers], decoder.number(expect.slot)
    count = expect.bytes.data
    expects = f"expects {count} bytes at {{}}"

    def run(script: Script) -> Action:
        index, _ = barrier_at(script, array, slot, expect)

        def act(agent: Agent) -> Blocked | None:
            if not agent.single:
                raise by_all(agent, expect)
            world, barrier = agent.world, agent.home.arrays[array][index]
            if barrier.contested and (held := world.hold(agent, expect)):
                return held
            agent.fills(array, index)
            world.step(agent, expect, expects, barrier.name, barrier.done)
            barrier.expect(count)
            barrier.arrive(world, agent, 1, agent.known, expect)
            return None

        return act

    return Step(run, by=(slot,))


def by_all(agent: Agent, operation: Operation) -> Violation:
    """Return what is wrong where all threads execute what one of them is to do."""
    sentence = f"{operation.name} is executed by all threads of {agent.label}, not by one."
    return Violation("all threads of a warp", sentence, operation)


def by_one(agent: Agent | Script, operation: Operation) -> Violation:
    """Return what is wrong where one thread executes what whole warps are to do."""
    sentence = f"{operation.name} is executed by one thread of {agent.label} only."
    return Violation("all threads of a warp", sentence, operation)


def next_program_rule(decoder: Decoder, ask: hopper.NextProgram) -> Step:
    """One thread takes a program: a number that nobody else is given."""
    given = fresh(ask, decoder.number(ask.result))

    def act(agent: Agent) -> None:
        if not agent.single:
            raise by_all(agent, ask)

    def run(script: Script) -> Action:
        given.run(script)
        return act

    return Step(run, by=(), prepares=given.run)


def named_barrier_rule(decoder: Decoder, meet: hopper.NamedBarrier) -> Step:
    """Meet at a hardware barrier, or only announce oneself there."""
    first, threads, scope = meet.id.data, meet.threads.data, meet.scope.data
    wait = meet.kind.data == "sync"

    def act(agent: Agent) -> Blocked | None:
        if agent.single:
            raise by_one(agent, meet)
        number = first + (agent.group if scope == "warpgroup" else 0)
        barrier = agent.home.named[number]
        if not wait:
            if barrier.contested and (held := agent.world.hold(agent, meet)):
                return held
            agent.world.step(agent, meet, "arrives at named barrier {}", number, barrier.done)
            barrier.arrive(agent.world, agent, threads, meet)
            return None
        blocked = barrier.sync(agent.world, agent, threads, meet)
        if blocked is None:
            agent.world.step(agent, meet, "met at named barrier {}", number)
        return blocked

    return Step(lambda script: act, by=())


def turn_rule(decoder: Decoder, turn: hopper.Turn) -> Step:
    """Take the turn at one's own barrier, pass it on at that of the next warpgroup."""
    first, groups, kind = turn.id.data, turn.groups.data, turn.kind.data
    threads = 2 * _WARPGROUP_THREADS

    def act(agent: Agent) -> Blocked | None:
        if agent.single:
            raise by_one(agent, turn)
        if (kind == "open" and agent.group != groups - 1) or (kind == "close" and agent.group):
            return None
        if kind in ("take", "close"):
            number = first + agent.group
            blocked = agent.home.named[number].sync(agent.world, agent, threads, turn)
            if blocked is None:
                agent.world.step(agent, turn, "takes its turn at named barrier {}", number)
            return blocked
        number = first + (agent.group + 1) % groups
        barrier = agent.home.named[number]
        if barrier.contested and (held := agent.world.hold(agent, turn)):
            return held
        agent.world.step(agent, turn, "passes its turn at named barrier {}", number, barrier.done)
        barrier.arrive(agent.world, agent, threads, turn)
        return None

    return Step(lambda script: act, by=())


def set_registers_rule(decoder: Decoder, change: hopper.SetRegisters) -> Step:
    """Give registers back or take them."""
    count, direction = change.count.data, change.direction.data
    has = f"has {count} registers a thread"
    late = direction == "dec" and _has_waited(role_of(change), change)

    def act(agent: Agent) -> Blocked | None:
        if agent.single:
            raise by_one(agent, change)
        have = agent.registers
        if (direction == "dec") != (count <= have) and count != have:
            sentence = f'{agent.label} has {have} registers a thread; "{direction}" to {count}.'
            raise Violation("register budget", sentence, change)
        if late:
            agent.home.pool.give_late(agent, change)
        blocked = agent.home.pool.move(agent.world, agent, count, change)
        if blocked is None:
            agent.world.step(agent, change, has)
        return blocked

    return Step(lambda script: act, by=())


_WAITS = (hopper.Wait, hopper.NamedBarrier, hopper.Turn, hopper.WgmmaWait)


def _has_waited(role: hopper.Role, change: hopper.SetRegisters) -> bool:
    """Tell whether a role may wait for others before it changes its registers."""
    for operation in role.walk():
        if operation is change:
            return False
        takes = isinstance(operation, hopper.SetRegisters) and operation.direction.data == "inc"
        if takes or isinstance(operation, _WAITS):
            return True
    return True


def proxy_fence_rule(decoder: Decoder, fence: hopper.ProxyFence) -> Step:
    """Order the executing threads' accesses before later asynchronous ones, and the copies of
    others (cp.async) that they know to be done: a fence anywhere on the way from one access to the
    other orders them (PTX ISA, "Causality order").
    """

    def act(agent: Agent) -> None:
        world = agent.world
        world.step(agent, fence, "fences the proxy")
        # One thread fences its own accesses only, not those of the rest of its warp.
        agent.fenced |= agent.unfenced_one
        agent.unfenced_one = 0
        if not agent.single:
            agent.fenced |= agent.unfenced | (agent.known & world.copied)
            agent.unfenced = 0

    return Step(lambda script: act, by=())


def sync_rule(decoder: Decoder, sync: hopper.BlockSync | hopper.ClusterSync) -> Step:
    """A meeting of the block or the cluster has no place inside a role."""
    raise Violation("form", f"{sync.name} stands inside a role.", sync)
