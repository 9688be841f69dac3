"""Lemmas 1 and 2: all roles run together once, for every launch at the same time.

Synchronization leaves no choice: what an agent waits for is not taken from it by another. So if one
order of the agents ends, every order does (R. Keller, "A fundamental theorem of asynchronous
parallel computation", 1975), and one is looked at: the last agent that can go on goes on. What
decides loops and conditions is asked of `Decisions`, which leaves out no launch; numbers of rings
are counted from the least that an agent has still to do with. Places where runs meet again are
found to be known, so that all trip counts are looked at in finitely many steps.

An agent waits for, and arrives at, one number of a ring after the other: which slots and phases
these have is a matter of each role by itself (`cursors.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

import tawa.verify.agents as do
from tawa.verify.decisions import EXACT, Known, Labels, Loop, Place, Question, answered
from tawa.verify.rules import Refused, rule
from tawa.verify.system import System

Fork = tuple[Question, int]
HOLDS, HANDED = 1, 2
"""Of a turn: an agent holds it, an instance has handed it on."""
_MOST = 20_000
"""Ways in which the roles may stand to one another; a kernel with more is refused as such."""


@dataclass(slots=True)
class State:
    """Where all agents are. Numbers of a ring are counted from the least that somebody is at."""

    at: list[int]
    labels: list[Labels]
    loops: list[tuple[Loop, ...]]
    waits: list[int]
    """By waiter: how often it has waited."""
    arrivals: list[int]
    """By arriver: for how many numbers it has arrived."""
    turn: list[int]
    """By agent: whether its warpgroup, or its instance, holds the turn."""
    known: Known
    announced: frozenset[int] = frozenset()
    """Named barriers that have been announced and not yet taken."""

    def copy(self, known: Known) -> State:
        """Return a state that goes its own way."""
        return State(
            list(self.at),
            list(self.labels),
            list(self.loops),
            list(self.waits),
            list(self.arrivals),
            list(self.turn),
            known,
            self.announced,
        )

    def key(self) -> tuple[object, ...]:
        """Return what tells a state from others."""
        return (
            tuple(self.at),
            tuple(self.labels),
            tuple(self.waits),
            tuple(self.arrivals),
            tuple(self.turn),
            frozenset(self.known.items()),
            self.announced,
        )


@dataclass(slots=True)
class Choreography:
    """All roles of a kernel, run together."""

    system: System
    seen: set[tuple[object, ...]] = field(default_factory=set[tuple[object, ...]])
    unit: int = 1

    def run(self) -> None:
        """Look at all that the agents may do. Raises Refused where one waits for ever."""
        system = self.system
        agents = system.agents
        self.unit = lcm(*(agent.share for agent in agents)) if agents else 1
        first = State(
            at=[0] * len(agents),
            labels=[()] * len(agents),
            loops=[()] * len(agents),
            waits=[0] * len(system.waiters),
            arrivals=[0] * len(system.arrivers),
            turn=[-1 if a.groups > 1 and a.group == a.groups - 1 else 0 for a in agents],
            known={},
        )
        work = [first]
        while work:
            self._follow(work.pop(), work)

    def _follow(self, state: State, work: list[State]) -> None:
        """Let one agent after the other go on, until all have ended or nobody can."""
        while True:
            for who in self._order(state):
                result = self._step(state, who)
                if result == "blocked":
                    continue
                while result == "on" and not self._begins(state, who):
                    result = self._step(state, who)
                break
            else:
                return self._finish(state)
            match result:
                case "known":
                    return None
                case (question, number):
                    sure = self.system.decisions.follows(
                        question, number, state.known, state.labels[who]
                    )
                    # First where loops end: launches are small.
                    for holds in (True, False) if sure is None else (sure,):
                        known = answered(state.known, question, number, holds=holds)
                        work.append(state.copy(known))
                    return None
                case _:
                    continue

    def _order(self, state: State) -> list[int]:
        """Who goes on first: the last agents, but an iteration begins when nobody else can go on,
        that of who has made the fewest."""
        agents = range(len(self.system.agents) - 1, -1, -1)
        heads = [who for who in agents if self._begins(state, who)]
        heads.sort(key=lambda who: [(tag != EXACT, n) for tag, n in state.labels[who]])
        return [who for who in agents if who not in heads] + heads

    def _begins(self, state: State, who: int) -> bool:
        return isinstance(self.system.agents[who].code[state.at[who]], do.Head)

    # --- steps ------------------------------------------------------------------------------------

    def _step(self, state: State, who: int) -> str | Fork:
        system = self.system
        step = system.agents[who].code[state.at[who]]
        match step:
            case do.Wait():
                if not self._wait(state, who, step):
                    return "blocked"
            case do.Arrive(_, ring):
                state.arrivals[system.arrivers.index((who, ring))] += 1
                state.at[who] += 1
                return "told"
            case do.Branch(condition, otherwise, _):
                holds = system.decisions.ask(condition, state.known, state.labels[who])
                if not isinstance(holds, bool):
                    return holds
                if not holds:
                    state.at[who] = otherwise
                    return "on"
            case do.Jump(target):
                state.at[who] = target
                return "on"
            case do.Enter(loop):
                state.labels[who] += ((EXACT, 0),)
                state.loops[who] += (loop,)
            case do.Head():
                if self._is_known(state, who):
                    return "known"
            case do.Next(target):
                *before, (tag, number) = state.labels[who]
                state.labels[who] = (*before, (tag, number + 1))
                state.at[who] = target
                return "on"
            case do.Leave():
                state.labels[who] = state.labels[who][:-1]
                state.loops[who] = state.loops[who][:-1]
            case do.Choose(targets):
                tag, number = state.labels[who][0]
                state.turn[who] = HOLDS if (tag, number) == (EXACT, 0) else 0
                state.at[who] = targets[number % len(targets)]
                return "on"
            case do.Meet():
                if not self._meet(state, who, step):
                    return "blocked"
                return "told"
            case do.Turn():
                if not self._turn(state, who, step):
                    return "blocked"
                state.at[who] += 1
                return "told"
            case do.Token():
                if not self._token(state, who, step):
                    return "blocked"
                state.at[who] += 1
                return "told"
            case do.End():
                return "blocked"
        state.at[who] += 1
        return "on"

    def _wait(self, state: State, who: int, step: do.Wait) -> bool:
        """Wait for the agent's next number; False where that has not come."""
        system, ring = self.system, step.ring
        place = system.waiters.index((who, ring))
        number = state.waits[place] - system.leads[ring]
        if any(state.arrivals[each] <= number for each in system.arrivers_of[ring]):
            return False
        if system.agents[who].share > 1 and state.turn[who] != HOLDS:
            raise Refused(
                rule("meetings"),
                f"{system.agents[who].name} waits for {system.label(ring)} while it is another "
                "instance's turn",
                step.operation,
            )
        state.waits[place] += 1
        return True

    # --- meetings ---------------------------------------------------------------------------------

    def _meet(self, state: State, who: int, step: do.Meet) -> bool:
        """Warpgroups of a role wait for one another."""
        agents = self.system.agents
        own = [n for n, each in enumerate(agents) if each.roles == agents[who].roles]
        at = [agents[n].code[state.at[n]] for n in own]
        if not all(isinstance(s, do.Meet) and s.operation is step.operation for s in at):
            return False
        for agent in own:
            state.at[agent] += 1
        return True

    def _turn(self, state: State, who: int, step: do.Turn) -> bool:
        kind, held = step.operation.kind.data, state.turn[who]
        wanted, after = {"open": (-1, 0), "take": (0, 1), "pass": (1, 0), "close": (0, -2)}[kind]
        if held != wanted:
            raise Refused(
                rule("meetings"),
                f"{self.system.agents[who].name} does not open, take, pass and close in turn",
                step.operation,
            )
        if step.waits:
            if step.barrier not in state.announced:
                return False
            state.announced -= {step.barrier}
        else:
            if step.barrier in state.announced:
                raise Refused(
                    rule("meetings"), "a turn is passed that is not taken", step.operation
                )
            state.announced |= {step.barrier}
        state.turn[who] = after
        return True

    def _token(self, state: State, who: int, step: do.Token) -> bool:
        """Instances hand on from tile to tile the right to wait."""
        number, sync = step.operation.id.data, step.operation.kind.data == "sync"
        if sync and number not in state.announced:
            return False
        if state.turn[who] != (0 if sync else HOLDS) or (not sync and number in state.announced):
            raise Refused(
                rule("meetings"),
                f"{self.system.agents[who].name} does not take and hand on its turn once in a tile",
                step.operation,
            )
        state.turn[who] = HOLDS if sync else HANDED
        state.announced = state.announced - {number} if sync else state.announced | {number}
        return True

    # --- places that are known --------------------------------------------------------------------

    def _is_known(self, state: State, who: int) -> bool:
        """Write a state in its normal form; tell whether it has been here, knowing no more."""
        self._settle(state)
        key = state.key()
        if key in self.seen:
            return True
        if len(self.seen) > _MOST:
            raise Refused(
                rule("order"),
                f"the roles may stand in more than {_MOST} ways to one another",
                self.system.agents[who].roles[0],
            )
        self.seen.add(key)
        return False

    def _settle(self, state: State) -> None:
        system = self.system
        for waiters, arrivers in zip(system.waiters_of, system.arrivers_of, strict=True):
            counts = [state.waits[each] for each in waiters]
            origin = min(counts + [state.arrivals[each] for each in arrivers], default=0)
            for each in waiters:
                state.waits[each] -= origin
            for each in arrivers:
                state.arrivals[each] -= origin
        places = [
            Place(
                state.labels[n],
                state.loops[n],
                system.ahead[n][state.at[n]],
                isinstance(agent.code[state.at[n]], do.End),
            )
            for n, agent in enumerate(system.agents)
        ]
        state.known, state.labels = system.decisions.settled(state.known, places, self.unit)

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, state: State) -> None:
        """All have ended, and nothing is left; or those who have not wait for one another."""
        system = self.system
        stuck = [
            (agent, agent.code[state.at[n]])
            for n, agent in enumerate(system.agents)
            if not isinstance(agent.code[state.at[n]], do.End)
        ]
        if stuck:
            told = "; ".join(
                f"{agent.name} waits for {self._waited(step)}" for agent, step in stuck
            )
            ended = [agent.name for agent in system.agents if agent not in dict(stuck)]
            told += f"; {' and '.join(ended)} ended" * bool(ended)
            place = next(
                (
                    s.operation
                    for _, s in stuck
                    if isinstance(s, do.Wait | do.Turn | do.Token | do.Meet)
                ),
                None,
            )
            raise Refused(rule("order"), f"nobody goes on: {told}{self._with(state)}", place)
        for ring in range(len(system.rings)):
            numbers = {state.waits[each] for each in system.waiters_of[ring]}
            numbers |= {state.arrivals[each] for each in system.arrivers_of[ring]}
            if len(numbers) > 1:
                raise self._left(state, ring)
        held = [
            n for n, agent in enumerate(system.agents) if agent.share == 1 and state.turn[n] > 0
        ]
        if state.announced or held:
            raise Refused(rule("meetings"), "a turn is left that nobody takes", None)

    def _with(self, state: State) -> str:
        told = self.system.decisions.told(state.known)
        return f" (with {told})" if told else ""

    def _left(self, state: State, ring: int) -> Refused:
        """What agents did at a ring since they last agreed there."""
        system = self.system
        waits = (
            f"{system.agents[system.waiters[each][0]].name} waits for {state.waits[each]}"
            for each in system.waiters_of[ring]
        )
        arrives = (
            f"{system.agents[system.arrivers[each][0]].name} arrives {state.arrivals[each]} times"
            for each in system.arrivers_of[ring]
        )
        told = "; ".join((*waits, *arrives))
        return Refused(
            rule("left"),
            f"the roles part at {system.label(ring)}: {told}{self._with(state)}",
            system.rings[ring],
        )

    def _waited(self, step: object) -> str:
        match step:
            case do.Wait(_, ring):
                return self.system.label(ring)
            case do.Turn():
                return f"its turn at named barrier {step.barrier}"
            case do.Token():
                return f"named barrier {step.operation.id.data}"
            case _:
                return "the other warpgroups"
