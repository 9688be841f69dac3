"""What a run may not leave: open phases, copies and products in flight, slots not given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tawa.ir import hopper, line_of
from tawa.simulator.proof.barriers import Mbarrier
from tawa.simulator.proof.copies import Groups
from tawa.simulator.proof.machine import Agent
from tawa.simulator.proof.memory import Bucket
from tawa.simulator.proof.registers import Registers
from tawa.simulator.proof.rules import Row, Violation

if TYPE_CHECKING:
    from tawa.simulator.proof.run import BlockState, Run


def check_end(run: Run) -> None:
    """Raise Violation for whatever a run has left undone."""
    final = any(isinstance(op, hopper.ClusterSync) and op.relaxed is None for op in run.model.final)
    known = [0] * len(run.blocks)
    for agent in run.agents:
        known[agent.block] |= agent.known
        _finish_agent(run, agent)
    everything = 0
    for part in known:
        everything |= part
    for event, agent, operation in run.flying:
        if not everything & event:
            sentence = (
                f"a copy that {agent.label} started is never waited for: the block may end "
                "while it writes to shared memory."
            )
            raise Violation("nothing is left", sentence, operation)
    for event, block, what, operation in run.remote:
        if not final and not known[block] & event:
            sentence = f"block {block} may end before {what} from a peer reaches it."
            raise Violation("peers alive", sentence, operation)
    for block in run.blocks:
        for barriers in block.arrays:
            for barrier in barriers:
                if barrier.init and (barrier.pending != barrier.arrivals or barrier.due):
                    raise _inside(barrier)
        for number, meeting in block.named.items():
            if meeting.arrived:
                sentence = (
                    f"named barrier {number} ends with {meeting.arrived} of {meeting.threads} "
                    "threads."
                )
                raise Violation("nothing is left", sentence)
    _finish_rings(run)
    for block in run.blocks:
        for (_, slot), bucket in block.memory.items():
            _finish_slot(run, block, slot, bucket)


def _finish_slot(run: Run, block: BlockState, slot: int, bucket: Bucket) -> None:
    """A slot was given back after all that read it: a next put, if there were one, would not race.

    What frees the slots of a ring is what its put waits for each time before it expects bytes: for
    the phase of the put before, and what no copy completes on.
    """
    pairs = run.pairs.get(bucket.put[0], ()) if bucket.put is not None else ()
    freed = next(iter(pairs)) if len(pairs) == 1 else None
    if freed is None or freed in run.pairs or not block.arrays[freed][slot].completions:
        return
    barrier = block.arrays[freed][slot]
    known, fenced = barrier.completions[-1]
    by_threads = not any(write.asynchronous for write in bucket.writes.values())
    for read in bucket.reads.values():
        if not read.event & (known if read.asynchronous or by_threads else fenced):
            sentence = (
                f"{read.agent.label} reads {bucket.name} by {read.what}, but phase "
                f"{barrier.done - 1} of {barrier.name}, which gives it back, may come first."
            )
            what = f"{read.what}: {bucket.name}"
            row = Row(read.step, read.agent.label, line_of(read.operation), what)
            raise Violation("early release", sentence, read.operation, (row,))


def _finish_agent(run: Run, agent: Agent) -> None:
    products: Registers = agent.script.registers
    if products.issued > products.finished:
        whole = products.issued == products.committed
        rule = "nothing is left" if whole else "wgmma commit"
        did = "waited for" if whole else "committed"
        sentence = f"{agent.label} ends with wgmmas that were never {did}."
        raise Violation(rule, sentence, products.last, _end(agent))
    bulk: Groups = agent.bulk
    if bulk.open:
        sentence = f"{agent.label} ends with TMA stores that were never committed."
        raise Violation("bulk groups", sentence, bulk.last, _end(agent))
    if bulk.written < len(bulk.reads):
        sentence = (
            f"{agent.label} ends before its TMA stores are known to have been written: "
            "no bulk_wait with read = false covers them."
        )
        raise Violation("nothing is left", sentence, bulk.last, _end(agent))
    copies: Groups = agent.copies
    if copies.open:
        sentence = f"{agent.label} ends with cp.async copies that no arrival stands for."
        raise Violation("nothing is left", sentence, copies.last, _end(agent))


def _end(agent: Agent) -> tuple[Row, ...]:
    return (Row(agent.world.steps, agent.label, 0, "ends"),)


def _inside(barrier: Mbarrier) -> Violation:
    """Return what is wrong where a barrier ends inside a phase."""
    sentence = (
        f"{barrier.name} ends inside phase {barrier.done}: "
        f"{barrier.arrivals - barrier.pending} of {barrier.arrivals} arrivals, "
        f"{barrier.delivered} of {barrier.expected} bytes."
    )
    return Violation("nothing is left", sentence)


def _finish_rings(run: Run) -> None:
    """Every completed phase was waited for, and every slot taken was given back."""
    instances = run.model.shared
    for array, roles in instances.items():
        for block in run.blocks:
            for barrier in block.arrays[array]:
                _finish_shared(run, barrier, roles)
    credits = [
        [any(-1 in barrier.waits for barrier in array) for array in block.arrays]
        for block in run.blocks
    ]
    for agent in run.agents:
        role, block = run.model.roles[agent.role], agent.block
        loads, last_waits = role.loads, agent.waits
        for array in role.waits | role.waits_alone if agent.first else role.waits:
            if array in instances:
                continue
            credit = credits[block][array]
            for barrier in run.blocks[block].arrays[array]:
                last = last_waits.get(barrier)
                count = 0 if last is None else last + 1 + credit
                if count == barrier.done:
                    continue
                # A role that loads may know its slots to be free at first: it skips that wait.
                if loads and not credit and 0 < count == barrier.done - 1:
                    continue
                raise _unequal(agent, barrier, count)


def _unequal(agent: Agent, barrier: Mbarrier, count: int) -> Violation:
    """Return what is wrong where an agent waited more or less often than phases completed."""
    sentence = (
        f"{agent.label} waits {count} times for {barrier.name}, of which {_phases(barrier.done)}: "
    )
    sentence += (
        "a slot it took is never given back."
        if count > barrier.done
        else "what was put there last is never taken."
    )
    need, last = f"{barrier.done}/{count}", agent.waits.get(barrier)
    row = Row(0, agent.label, 0, f"has waited for {barrier.name}", str(last), need)
    return Violation("nothing is left", sentence, None, (row,))


def _phases(count: int) -> str:
    return ("no phase completes", "1 phase completes")[count] if count < 2 else f"{count} complete"


def _finish_shared(run: Run, barrier: Mbarrier, roles: set[int]) -> None:
    """A phase is seen by all roles that wait for the barrier, or by one: its instance."""
    sizes: set[int] = set()
    for phase in range(barrier.done):
        bits = barrier.takers.get(phase, 0)
        takers = {agent.number for agent in run.agents if bits >> agent.number & 1}
        seen = {run.agents[number].role for number in takers}
        sizes.add(len(seen))
        here = [a for a in run.agents if a.role in seen and a.block == barrier.block]
        late = [a for a in here if a.number not in takers and _waits(run, a, barrier)]
        if not seen or late:
            who = late[0].label if late else "any role"
            sentence = f"{barrier.name} completes phase {phase}, which {who} never waits for: "
            raise Violation("nothing is left", sentence + "what was put there is never taken.")
    if len(sizes) > 1 or sizes - {1, len(roles)}:
        sentence = f"the phases of {barrier.name} are taken by {sorted(sizes)} roles each."
        raise Violation("nothing is left", sentence)


def _waits(run: Run, agent: Agent, barrier: Mbarrier) -> bool:
    """Tell whether an agent waits for the barriers a barrier is one of."""
    role = run.model.roles[agent.role]
    arrays = role.waits | role.waits_alone if agent.first else role.waits
    return any(barrier in run.blocks[agent.block].arrays[array] for array in arrays)
