"""All orders of a run in which some barriers are contested: one after the other, states memoised.

An agent goes on by itself through all that is not contested, as in a run of one order; before each
operation on a contested barrier it waits for its turn. When nobody can go on without one, every
agent whose operation is possible, and everything that may come on its own, is let go on first in
turn. A state that was met before (how far everybody is, the barriers, what is in memory and what is
known of it) is not gone on from again. Events are named by who made them, so that states met in
unlike orders are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xdsl.ir import Operation

from tawa.simulator.proof.barriers import Mbarrier, NamedBarrier, Pool
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.contest import (
    ContestedBarrier,
    ContestedMeeting,
    ContestedPool,
    Landing,
    OrderedBucket,
    OrderedGlobals,
)
from tawa.simulator.proof.leftovers import check_end
from tawa.simulator.proof.machine import Agent, Blocked, Waiting
from tawa.simulator.proof.memory import Bucket
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.rules import Contested, Unproved
from tawa.simulator.proof.run import Run
from tawa.simulator.proof.states import Saved, Shared, States

_SETTING_UP = -1

Path = tuple[int, ...]
"""Which of those who could go on did so, at each choice."""


class OutOfStates(Unproved):
    """There are more states than are searched."""


class Orders(Run):
    """A run in every order of the operations on the `contested` barriers, of at most `most` states;
    with a `path`, in that one order, with a trace.
    """

    def __init__(
        self,
        model: Model,
        configuration: Configuration,
        budget: int,
        contested: frozenset[Contested],
        most: int,
        path: Path | None = None,
    ) -> None:
        self.contested = contested
        self.most = most
        self.path = path or ()
        self.follows = path is not None
        self.ends = 0  # orders that came to their end
        self.held: dict[Agent, Callable[[], bool] | None] = {}
        self.landings: list[Landing] = []
        self.sources: dict[tuple[Bucket, int, int], frozenset[int]] = {}
        self.actor = _SETTING_UP
        self.made: dict[int, int] = {}
        self.store = States()
        self._granted: Agent | None = None
        self._parked: list[Agent] = []
        self._bits: dict[tuple[object, int], int] = {}
        super().__init__(model, configuration, budget, trace=self.follows, short=False)
        self.globals = OrderedGlobals(model.decoder.followed, self.scalars)
        for agent in self.agents:
            self.store.add(agent)
        self.store.add_all(
            part for agent in self.agents for part in (agent.engine, agent.bulk, agent.copies)
        )
        tables = self.made, self.held, self.landings, self.flying, self.remote
        self.store.add(Shared(*tables, self.globals.accesses))
        for block in self.blocks:  # all that states are told apart by is there from the beginning
            block.memory.make_all()

    # --- what is of another kind than in a run of one order --------------------------------------

    def mbarrier(
        self, name: str, block: int, arrivals: int, array: int, slot: int, size: int, shared: bool
    ) -> Mbarrier:
        """Make a barrier, which may be contested."""
        contested = ("mbarrier", block, array, slot) in self.contested
        kind = ContestedBarrier if contested else Mbarrier
        return self.store.add(kind(name, block, arrivals, array, slot, size, shared))

    def named_barrier(self, number: int, block: int) -> NamedBarrier:
        """Make a hardware barrier, which may be contested."""
        contested = ("named", block, number, 0) in self.contested
        kind = ContestedMeeting if contested else NamedBarrier
        return self.store.add(kind(number, block))

    def pool(self, block: int) -> Pool:
        """Make the pool of registers of a block, which may be contested."""
        contested = ("registers", block, 0, 0) in self.contested
        return self.store.add((ContestedPool if contested else Pool)(block))

    def bucket(self, name: str) -> Bucket:
        """Make a piece of shared memory."""
        return self.store.add(OrderedBucket(name))

    def event(self) -> int:
        """Return the next event of who acts: the same bit in every order."""
        count = self.made[self.actor] = self.made.get(self.actor, 0) + 1
        return self.event_of(self.actor, count)

    def event_of(self, owner: object, number: int) -> int:
        """Return the event of what `owner` does for the `number`-th time: the same bit always."""
        key = owner, number
        found = self._bits.get(key)
        if found is None:
            found = self._bits[key] = super().event()
        return found

    def hold(
        self, agent: Agent, operation: Operation, ready: Callable[[], bool] | None = None
    ) -> Blocked | None:
        """Return None when it is the agent's turn; else it waits for it, and until `ready`."""
        if self._granted is agent:
            self._granted = None
            return None
        self.held[agent] = ready
        return Blocked(self._parked, lambda: Waiting("its turn", "-", "-", "its turn", operation))

    def again(self) -> Run:
        """Return the order at hand with a trace, not yet executed."""
        fresh = replace(self.configuration, outcomes={})
        return Orders(self.model, fresh, 2 * self.budget, self.contested, self.most, self.path)

    # --- the search ------------------------------------------------------------------------------

    def execute(self) -> None:
        """Run all orders. Raises Violation for what goes wrong in one, Contest where another
        barrier turns out to be contested, OutOfStates.
        """
        self.set_up()
        self.ready.extend(self.agents)
        self._go_on()
        if self.follows:
            self._follow()
            return
        work = self._choices()
        while work:
            saved, choice, self.path = work.pop()
            self.store.restore(saved)
            self._let(self._possible()[choice])
            if self.store.is_new():
                work += self._choices()

    def _follow(self) -> None:
        for choice in self.path:
            possible = self._possible()
            if choice >= len(possible):
                return
            self._let(possible[choice])
        if not self._possible():
            self._end()

    def _choices(self) -> list[tuple[Saved, int, Path]]:
        """Return what may be next in the state at hand, the first choice last."""
        count = len(self._possible())
        if not count:
            self._end()
            return []
        if len(self.store.seen) > self.most:
            raise OutOfStates(f"there are more than the {self.most} states that are searched")
        saved = self.store.save()
        return [(saved, choice, (*self.path, choice)) for choice in reversed(range(count))]

    def _possible(self) -> list[Agent | Landing]:
        """Return who can go on: agents whose turn it may be, then what may land."""
        agents = [
            agent
            for agent in self.agents
            if agent in self.held and ((ready := self.held[agent]) is None or ready())
        ]
        return [*agents, *self.landings]

    def _let(self, who: Agent | Landing) -> None:
        """Let one of them go on, then all others as far as they come."""
        if isinstance(who, Agent):
            del self.held[who]
            self._granted = who
            self.ready.append(who)
        else:
            self.landings.remove(who)
            self.step(who.agent, who.operation, "lands at {}", who.barrier.name, who.barrier.done)
            who.barrier.land(self, who)
        self._go_on()

    def _go_on(self) -> None:
        while self.ready:
            agent = self.ready.popleft()
            self.actor = agent.number
            agent.blocked = agent.advance()
            if agent.blocked is not None:
                agent.blocked.queue.append(agent)
        self._parked.clear()

    def _end(self) -> None:
        """Nobody can go on: all have ended, or hang."""
        for agent in list(self.held):  # a wait that is not over says what it waits for
            self._granted = agent
            agent.blocked = agent.advance()
        self.check_hang()
        check_end(self)
        self.ends += 1
