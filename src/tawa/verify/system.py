"""The system that a kernel's roles are: agents, rings, and who waits and arrives where; and that a
wait which knows the parity of a phase alone waits for that phase (Lemma 3b).

A wait for completion n of a barrier of a ring of D, done in the order of the numbers, is mistaken
only if completion n + D comes before it has seen n. So an arrival of completion n + D must come
after the wait: in the order of its agent, or because it waits itself for what comes after the wait,
and so on. `least` says how many waits an agent has at least behind it before each of its arrivals.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects import scf
from xdsl.ir import SSAValue

import tawa.verify.agents as do
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of
from tawa.verify.agents import Agent, Compiler, Step
from tawa.verify.cursors import Numbers
from tawa.verify.decisions import Ahead, Decisions
from tawa.verify.rings import slots_of
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Conditions, Holds
from tawa.verify.values import Values

Place = tuple[int, int]
"""An agent and a ring."""
Pair = tuple[int, int, int]
"""An agent, the ring that it waits for, the ring that it arrives at."""


@dataclass(slots=True)
class System:
    """Agents and rings by number. `waiters` wait at a ring, `arrivers` arrive there."""

    decisions: Decisions
    rings: list[hopper.Barriers]
    agents: list[Agent]
    leads: list[int]
    """By ring: how many waits the phases before the first arrival answer."""
    waiters: list[Place] = field(default_factory=list[Place])
    arrivers: list[Place] = field(default_factory=list[Place])
    waiters_of: list[list[int]] = field(default_factory=list[list[int]])
    arrivers_of: list[list[int]] = field(default_factory=list[list[int]])
    """By ring: places in the lists of all."""
    ahead: list[list[tuple[Ahead, ...]]] = field(default_factory=list[list[tuple[Ahead, ...]]])
    """By agent and step, for each depth up to its own: what is ahead."""

    def label(self, ring: int) -> str:
        """Return what a ring's barriers are called."""
        return self.rings[ring].label.data

    def check_parity(self, numbers: Numbers) -> None:
        """Refuse waits that may take one phase for another (Lemma 3b)."""
        ring_of: dict[SSAValue, int] = {each.result: n for n, each in enumerate(self.rings)}
        roles = {role: agent.roles[0] for agent in self.agents for role in agent.roles}
        names = {
            agent.roles[0]: "+".join(role.label.data for role in agent.roles)
            for agent in self.agents
        }
        who = {role: n for n, role in enumerate(names)}
        behind: dict[Pair, set[int | None]] = {}
        for (role, waited, arrived), least in numbers.behind.items():
            pair = who[roles[role]], ring_of[waited], ring_of[arrived]
            behind.setdefault(pair, set()).add(least)
        labels = list(names.values())

        def at(places: list[Place], of: list[list[int]]) -> dict[int, list[int]]:
            return {
                ring: list(dict.fromkeys(who[self.agents[places[n][0]].roles[0]] for n in each))
                for ring, each in enumerate(of)
            }

        parity = Parity(
            [slots_of(each.result) for each in self.rings],
            {ring: lead for ring, lead in enumerate(self.leads) if self.waiters_of[ring]},
            at(self.waiters, self.waiters_of),
            at(self.arrivers, self.arrivers_of),
            {
                pair: min(number for number in each if number is not None)
                for pair, each in behind.items()
                if None not in each
            },
            {n for n, each in enumerate(self.rings) if each.arrivals.data > 1},
        )
        for ring, agent in parity.hasty():
            raise Refused(
                rule("phase"),
                f"{labels[agent]} may arrive at {self.label(ring)} for the next phase but "
                f"{slots_of(self.rings[ring].result)} while one is open that others have not "
                "arrived for: nothing that it waits for comes after the end of that phase",
                self.rings[ring],
            )
        for ring, agent in parity.mistaken():
            raise Refused(
                rule("phase"),
                f"{labels[agent]} waits for {self.label(ring)}, which may complete a later phase "
                "of the same parity before it has seen this one",
                self.rings[ring],
            )


def read_system(kernel: tile.Kernel, values: Values, leads: dict[SSAValue, int]) -> System:
    """Make the system of a kernel."""
    rings = all_of(kernel, hopper.Barriers)
    depths = [slots_of(barriers.result) for barriers in rings]
    conditions = Conditions(values.terms)
    # Nobody is further ahead of who gives.
    decisions = Decisions(conditions, patience=max(depths, default=0), slots=sum(depths))
    numbers: dict[SSAValue, int] = {each.result: number for number, each in enumerate(rings)}
    agents = Compiler(values, conditions, decisions, numbers).agents(kernel)
    system = System(decisions, rings, agents, [leads.get(each.result, 0) for each in rings])
    branches = [step for agent in agents for step in agent.code if isinstance(step, do.Branch)]
    for step in branches:
        decisions.open(step.condition)
    for step in branches:
        decisions.learn(step.condition, guards=isinstance(step.operation, scf.IfOp))
    _find_sides(system)
    system.ahead = [_ahead(agent.code, decisions) for agent in agents]
    return system


def _find_sides(system: System) -> None:
    """Find who waits and arrives where: the arrivals for a number are those of a phase, as many by
    each agent each time."""
    units: dict[Place, set[int]] = {}
    for who, agent in enumerate(system.agents):
        for step in agent.code:
            match step:
                case do.Wait(_, ring) if (who, ring) not in system.waiters:
                    system.waiters.append((who, ring))
                case do.Arrive(_, ring, number):
                    units.setdefault((who, ring), set()).add(number)
                case _:
                    continue
    system.arrivers = list(units)
    for ring, barriers in enumerate(system.rings):
        waits, arrives = (
            [place for place, (_, at) in enumerate(places) if at == ring]
            for places in (system.waiters, system.arrivers)
        )
        system.waiters_of.append(waits)
        system.arrivers_of.append(arrives)
        if bool(waits) != bool(arrives):
            who, _ = system.waiters[waits[0]] if waits else system.arrivers[arrives[0]]
            raise Refused(
                rule("left"),
                f"{system.agents[who].name} {'waits' if waits else 'arrives'} at "
                f"{system.label(ring)}, where nobody {'arrives' if waits else 'waits'}",
                barriers,
            )
        found = {system.arrivers[each]: units[system.arrivers[each]] for each in arrives}
        alike = all(len(each) == 1 for each in found.values())
        if found and not (alike and sum(map(sum, found.values())) == barriers.arrivals.data):
            told = ", ".join(
                f"{system.agents[who].name} {' or '.join(map(str, sorted(each)))}"
                for (who, _), each in found.items()
            )
            raise Refused(
                rule("arrivals"),
                f"the arrivals at {system.label(ring)} are not those of a phase, which takes "
                f"{barriers.arrivals.data}: {told} at a time",
                barriers,
            )


def _ahead(code: tuple[Step, ...], decisions: Decisions) -> list[tuple[Ahead, ...]]:
    """Tell of each step, for each depth up to its own, whether a loop may still begin there in the
    iteration that it is in, and what may be asked meanwhile.
    """
    none = frozenset[int | Holds]()
    asked = [
        decisions.asked(step.condition) if isinstance(step, do.Branch) else none for step in code
    ]
    found: list[tuple[Ahead, ...]] = [()] * len(code)
    heads: list[int] = []
    """Where the loops around a step begin."""
    ahead = [Ahead(False, none, none)]
    for place in range(len(code) - 1, -1, -1):
        match code[place]:
            case do.Next(head) if not heads or heads[-1] != head:  # each instance has one
                heads.append(head)
                ahead[-1] = replace(ahead[-1], again=none.union(*asked[head:place]))
                ahead.append(Ahead(False, none, none))
            case do.Enter():
                heads.pop()
                ahead.pop()
                ahead[-1] = Ahead(True, ahead[-1].asks | ahead[-1].again, none)
            case _:
                ahead[-1] = replace(ahead[-1], asks=ahead[-1].asks | asked[place])
        found[place] = tuple(ahead)
    return found


# --- parity ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parity:
    """Rings by number: `depths`, and `leads`, how many waits the first phases answer at once."""

    depths: Sequence[int]
    leads: Mapping[int, int]
    waiters: Mapping[int, Sequence[int]]
    arrivers: Mapping[int, Sequence[int]]
    least: Mapping[Pair, int]
    """Waits done less numbers arrived, when an arrival is made: the least there is."""

    several: Container[int] = ()
    """Rings at which several threads arrive for one phase."""

    def mistaken(self) -> list[tuple[int, int]]:
        """Return the (ring, agent) of waits that may take one phase for another."""
        return [
            (ring, agent)
            for ring, agents in self.waiters.items()
            for agent in agents
            if not self._is_behind(ring, self.arrivers.get(ring, ()), [agent])
        ]

    def hasty(self) -> list[tuple[int, int]]:
        """Return the (ring, agent) of arrivals that may be counted for the phase before theirs: a
        barrier counts arrivals, whoever makes them, so each waits, perhaps by way of others, for
        what came after the completion a revolution ago.
        """
        return [
            (ring, agent)
            for ring, agents in self.arrivers.items()
            if ring in self.several
            for agent in agents
            if not self._is_behind(ring, [agent], self.waiters.get(ring, ()))
        ]

    def _is_behind(self, ring: int, arriving: Sequence[int], waiting: Sequence[int]) -> bool:
        """Tell whether arrivals of some agents at a number come after a wait of one of others for
        the number a revolution before; follow what they come after, counting from the arrival.
        """
        behind: dict[tuple[int, int], int] = {}
        arrivals: list[tuple[int, int, int]] = [(agent, ring, 0) for agent in arriving]
        steps = 0
        while arrivals and steps < 4 * (len(self.least) + 1):
            steps += 1
            agent, at, number = arrivals.pop(0)
            for (who, waited, arrived), least in self.least.items():
                if who != agent or arrived != at:
                    continue
                # Arrival m comes after wait m + least - 1.
                seen = number + least - 1
                if seen <= behind.get((who, waited), seen - 1):
                    continue
                behind[who, waited] = seen
                if waited not in self.leads:
                    continue
                done = seen - self.leads[waited]
                arrivals += [(other, waited, done) for other in self.arrivers.get(waited, ())]
        needed = self.leads.get(ring, 0) - self.depths[ring]
        return any(behind.get((agent, ring), needed - 1) >= needed for agent in waiting)
