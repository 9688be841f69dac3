"""The system that a kernel's roles are: agents, rings, and what is counted of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdsl.ir import Operation, SSAValue

import tawa.verify.steps as do
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of
from tawa.verify.agents import Compiler, made_of, relevant_scalars
from tawa.verify.control import Events
from tawa.verify.counts import Count, Counts
from tawa.verify.cursors import TRACKED, Parity
from tawa.verify.decisions import Ahead, Decisions, Known, Labels, Question
from tawa.verify.events import Reader
from tawa.verify.forwarded import role_of
from tawa.verify.rings import Rings, slots_of
from tawa.verify.rules import Refused, rule
from tawa.verify.steps import Agent, Ref, Step
from tawa.verify.sums import Factor, Ramp
from tawa.verify.terms import Term, Terms
from tawa.verify.values import Values

Counter = tuple[str, int]


@dataclass(slots=True)
class System:
    """Agents and rings by number. A *waiter* is an (agent, ring) that waits, an *arriver* one that
    arrives; a *pair* is a waiter and an arriver of one agent that go equally often."""

    values: Values
    counts: Counts
    decisions: Decisions
    rings: list[hopper.Barriers]
    agents: list[Agent]
    depths: tuple[int, ...] = ()
    waiters: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    arrivers: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    waiter: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    arriver: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    needs: list[int] = field(default_factory=list[int])
    """By arriver: its arrivals of one number."""
    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    pair: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    dead: set[int] = field(default_factory=set[int])
    """Pairs of which the run has found that they part."""
    about: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """Of which rings a scalar may be a slot or a phase."""
    known: dict[int, int] = field(default_factory=dict[int, int])
    """By pair whose waits and arrivals are not of the same threads: how many waits the arriving
    ones know of at most (`role_memory.py`: of that for the slot which they hand on)."""
    pairs_of_wait: list[list[int]] = field(default_factory=list[list[int]])
    pairs_of_arrival: list[list[int]] = field(default_factory=list[list[int]])
    pairs_of_agent: list[list[int]] = field(default_factory=list[list[int]])
    waiters_of: list[list[int]] = field(default_factory=list[list[int]])
    arrivers_of: list[list[int]] = field(default_factory=list[list[int]])
    counters: list[dict[int, list[Counter]]] = field(default_factory=list[dict[int, list[Counter]]])
    """By agent and ring: what it counts there."""
    once: set[int] = field(default_factory=set[int])
    """Rings of which all is done outside of loops: their numbers stay small."""
    leads: dict[int, int] = field(default_factory=dict[int, int])
    """By ring: how many waits the phases before the first arrival answer."""
    least: dict[int, int] = field(default_factory=dict[int, int])
    """By pair: the least number of waits ahead of an arrival."""
    live: list[list[frozenset[int]]] = field(default_factory=list[list[frozenset[int]]])
    """By agent and step: the scalars that are still asked for; -1 - ring where a number in the text
    is yet to be taken for a slot or a phase of a ring."""
    ahead: list[list[tuple[Ahead, ...]]] = field(default_factory=list[list[tuple[Ahead, ...]]])
    """By agent and step, for each depth up to its own: what is ahead."""
    owners: list[int] = field(default_factory=list[int])
    """By scalar: of which instance it is."""
    _tiles: dict[tuple[int, int], Term] = field(default_factory=dict[tuple[int, int], Term])

    @property
    def terms(self) -> Terms:
        """The terms of the kernel."""
        return self.values.terms

    @property
    def zero(self) -> Term:
        """The term 0."""
        return self.values.terms.zero

    def label(self, ring: int) -> str:
        """Return what a ring's barriers are called."""
        return self.rings[ring].label.data

    def barriers(self, ring: int) -> hopper.Barriers:
        """Return the array of barriers of a ring."""
        return self.rings[ring]

    def is_one_warp(self, who: int) -> bool:
        """Tell whether all threads of an agent wait together."""
        return self.agents[who].roles[0].warps.data == 1

    def note(self, pair: int, ahead: int) -> None:
        """Note how many waits are behind an arrival."""
        ahead = min(ahead, self.known.get(pair, ahead))
        self.least[pair] = min(ahead, self.least.get(pair, ahead))

    def check_parity(self) -> None:
        """Refuse waits that may take one phase for another."""
        least = {
            (self.waiters[w][0], self.waiters[w][1], self.arrivers[a][1]): self.least[pair]
            for pair, (w, a) in enumerate(self.pairs)
            if pair in self.least and pair not in self.dead
        }
        rings = range(len(self.rings))
        parity = Parity(
            self.depths,
            self.leads,
            {r: [self.waiters[w][0] for w in self.waiters_of[r]] for r in rings},
            {r: [self.arrivers[a][0] for a in self.arrivers_of[r]] for r in rings},
            least,
            {ring for ring in rings if self.rings[ring].arrivals.data > 1},
        )
        for ring, who in parity.hasty():
            raise Refused(
                rule("phase"),
                f"{self.agents[who].name} may arrive at {self.label(ring)} for the next phase but "
                f"{self.depths[ring] - 1} while one is open that others have not arrived for: "
                "nothing that it waits for comes after the end of that phase",
                self.rings[ring],
            )
        for ring, who in parity.mistaken():
            raise Refused(
                rule("phase"),
                f"{self.agents[who].name} waits for {self.label(ring)}, which may complete a "
                "later phase of the same parity before it has seen this one",
                self.rings[ring],
            )

    def check_begins(self, handed: Rings) -> None:
        """Refuse waits that a phase answers before the first arrival where a slot is to be filled
        first, and those that none answers where all slots are free at the start."""
        numbers: dict[SSAValue, int] = {each.result: n for n, each in enumerate(self.rings)}
        for ring in handed.buffers.values():
            for barriers, slots in ((ring.filled, 0), (ring.freed, 1)):
                if barriers is None:
                    continue
                number = numbers[barriers]
                if self.leads.get(number, wanted := slots * self.depths[number]) != wanted:
                    raise Refused(
                        rule("slots"),
                        f"the first waits for {self.label(number)} are answered "
                        + ("late" if slots else "at once")
                        + f", and {ring.label} "
                        + ("is free at the start" if slots else "is not filled yet"),
                        self.rings[number],
                    )

    # --- instances --------------------------------------------------------------------------------

    def amount(
        self, value: SSAValue, decisions: Decisions, known: Known, labels: Labels
    ) -> Term | tuple[Question, int] | None:
        """Return how many numbers are stepped over, or a question that it depends on."""
        terms, owner = self.terms, value.owner
        if not isinstance(owner, tile.Elementwise):
            return self.values.of(value)
        parts: list[Term] = []
        name = owner.function.data
        if name not in ("add", "sub", "mul", "min", "max"):
            return self.values.of(value)
        for each in owner.inputs:
            found = self.amount(each, decisions, known, labels)
            if found is None or isinstance(found, tuple):
                return found
            parts.append(found)
        a, b = parts
        match name:
            case "add":
                return terms.add(a, b)
            case "sub":
                return terms.sub(a, b)
            case "mul":
                return terms.mul(a, b)
            case _:
                return self._bounded(name, (a, b), owner, decisions, known, labels)

    def _bounded(
        self,
        name: str,
        parts: tuple[Term, Term],
        owner: tile.Elementwise,
        decisions: Decisions,
        known: Known,
        labels: Labels,
    ) -> Term | tuple[Question, int] | None:
        """min(x / s, m) is m where x reaches m steps, which is where there are so many tiles."""
        terms = self.terms
        numbers = [terms.number(each) for each in parts]
        if numbers[0] is not None and numbers[1] is not None:
            choose = min if name == "min" else max
            return terms.constant(choose(numbers[0], numbers[1]))
        for number, other in ((numbers[0], owner.inputs[1]), (numbers[1], owner.inputs[0])):
            quotient = other.owner
            if number is None or not isinstance(quotient, tile.Elementwise) or name != "min":
                continue
            if quotient.function.data != "idiv":
                continue
            x, step = (self.values.of(each) for each in quotient.inputs)
            left = terms.sub(terms.add(x, terms.one), terms.scale(step, number))
            answer = decisions.ask(self.counts.positive(left), known, labels)
            if isinstance(answer, tuple):
                return answer
            return terms.constant(number) if answer else None
        return self.values.of(owner.result)

    def tile(self, who: int, ring: int) -> Term:
        """Return how many numbers of a ring a tile has, which is the same for all tiles."""
        found = self._tiles.get((who, ring))
        if found is None:
            raise Refused(
                rule("form"),
                f"tiles do not have equally many numbers of {self.label(ring)}",
                self.rings[ring],
            )
        return found

    def read_tiles(self, reader: Reader) -> None:
        """Count the numbers of each ring in a tile of agents that are instances."""
        for who, agent in enumerate(self.agents):
            if agent.tiles is None:
                continue
            events = reader.inside(agent.roles[0], agent.tiles)
            counted: dict[int, Count] = {}
            for ring, barriers in enumerate(self.rings):
                found = events.get(("wait", barriers.result))
                if found is None:
                    found = events.get(("arrive", barriers.result))
                    place = self.arriver.get((who, ring))
                    if found is None or place is None:
                        continue
                    need = self.needs[place]
                    if any(times % need for _, times in found):
                        continue
                    found = frozenset((product, times // need) for product, times in found)
                if not self.counts.count_depends(found, ("iteration", 0)):
                    counted[ring] = found
            # A count that is no term is equal to one that is: [K > 0] + iterations(K - step).
            terms = {ring: self._term(count) for ring, count in counted.items()}
            for ring, count in counted.items():
                for other, term in terms.items():
                    if term is not None and self.counts.same(count, counted[other]):
                        self._tiles.setdefault((who, ring), term)

    def _term(self, count: Count) -> Term | None:
        """Return a count of whole loops as a term."""
        terms, total = self.terms, self.terms.zero
        for product, times in count:
            term = terms.constant(times)
            for factor in product:
                if not isinstance(factor, Ramp) or factor.span.share > 1:
                    return None
                length, step = factor.span.length, factor.span.step
                leaves = terms.support_of((length, step))
                term = terms.mul(term, terms.atom(("iterations", length, step), leaves))
            total = terms.add(total, term)
        return total


def read_system(
    kernel: tile.Kernel,
    values: Values,
    counts: Counts,
    roles: Events,
    reader: Reader,
    handed: Rings,
) -> System:
    """Make the system of a kernel of which `roles` counts the events."""
    rings = all_of(kernel, hopper.Barriers)
    numbers: dict[SSAValue, int] = {each.result: number for number, each in enumerate(rings)}
    relevant = relevant_scalars(kernel)
    depths = tuple(slots_of(barriers.result) for barriers in rings)
    # Nobody is further ahead of who gives.
    decisions = Decisions(counts, patience=max(depths, default=0), slots=sum(depths))
    compiler = Compiler(values, counts, decisions, numbers, relevant)
    agents = compiler.agents(kernel)
    system = System(values, counts, decisions, rings, agents)
    system.depths = depths
    branches = [step for agent in agents for step in agent.code if isinstance(step, do.Branch)]
    for step in branches:
        decisions.open(step.condition)
    for step in branches:
        decisions.learn(step.condition)
        if step.operation.name == "scf.if":
            decisions.guard(step.condition)
    _count(system, roles, handed)
    system.read_tiles(reader)
    system.about = _about(system, compiler.scalars)
    instances: dict[Operation | None, int] = {
        role: n for agent in agents for n, role in enumerate(agent.roles)
    }
    system.owners = [instances.get(_role(value), 0) for value in compiler.scalars]
    system.once = set(range(len(rings))).difference(
        *(_repeated(agent.code) for agent in agents),
    )
    system.live = [_live(agent.code, system.about) for agent in agents]
    every = frozenset[int | Factor]().union(*(decisions.asked(s.condition) for s in branches))
    system.ahead = [_ahead(agent.code, decisions, every) for agent in agents]
    return system


def _count(system: System, roles: Events, handed: Rings) -> None:
    """Find who waits and arrives where, and how often."""
    agents, counts = system.agents, system.counts
    system.waiters_of = [[] for _ in system.rings]
    system.arrivers_of = [[] for _ in system.rings]
    units: list[int] = []
    by_all, by_one, by_many = (set[tuple[int, int]]() for _ in range(3))
    for who, agent in enumerate(agents):
        system.counters.append({})
        system.pairs_of_agent.append([])
        for step in agent.code:
            if isinstance(step, do.Wait) and not step.alone:
                by_all.add((who, step.ring))
            if isinstance(step, do.Arrive):
                (by_one if step.alone else by_many).add((who, step.ring))
            match step:
                case do.Wait(_, ring) if (who, ring) not in system.waiter:
                    system.waiter[who, ring] = len(system.waiters)
                    system.waiters_of[ring].append(len(system.waiters))
                    system.counters[who].setdefault(ring, []).append(("wait", len(system.waiters)))
                    system.waiters.append((who, ring))
                case do.Arrive(_, ring, number):
                    if (who, ring) not in system.arriver:
                        system.arriver[who, ring] = len(system.arrivers)
                        system.arrivers_of[ring].append(len(system.arrivers))
                        counter = "arrive", len(system.arrivers)
                        system.counters[who].setdefault(ring, []).append(counter)
                        system.arrivers.append((who, ring))
                        units.append(0)
                    units[system.arriver[who, ring]] += number
                case _:
                    continue

    def given(who: int, kind: str, ring: int) -> Count:
        event = kind, system.rings[ring].result
        found = [roles[role].get(event) for role in agents[who].roles]  # type: ignore[call-overload]
        return counts.sum((each, 1) for each in found if each is not None)

    asked: dict[int, Count] = {}
    for ring in range(len(system.rings)):
        for place in system.waiters_of[ring]:
            asked.setdefault(ring, given(system.waiters[place][0], "wait", ring))
    for place, (who, ring) in enumerate(system.arrivers):
        if ring not in asked:
            raise Refused(
                rule("left"),
                f"{agents[who].name} arrives at {system.label(ring)}, which nobody waits for",
                system.rings[ring],
            )
        agent, whole = agents[who], system.rings[ring].arrivals.data
        same = [
            units[other]
            for other in system.arrivers_of[ring]
            if agents[system.arrivers[other][0]].roles == agent.roles
        ]
        if len(same) == len(system.arrivers_of[ring]):
            number = whole
        else:
            arrived = given(who, "arrive", ring)
            number = next(
                (
                    n
                    for n in range(1, whole + 1)
                    if counts.same(arrived, counts.sum([(asked[ring], n)]))
                ),
                0,
            )
        need, rest = divmod(number * units[place], sum(same))
        if rest or not need:
            raise Refused(
                rule("arrivals"),
                f"{agent.name} does not arrive equally often at each phase of {system.label(ring)}",
                system.rings[ring],
            )
        system.needs.append(need)
    system.pairs_of_wait = [[] for _ in system.waiters]
    system.pairs_of_arrival = [[] for _ in system.arrivers]
    for waiter, (who, waited) in enumerate(system.waiters):
        for arriver, (other, arrived) in enumerate(system.arrivers):
            if who != other or system.depths[waited] != system.depths[arrived]:
                continue
            if waited != arrived and not _answer(system, who, waited, arrived):
                continue
            if arrived in asked and counts.same(asked[waited], asked[arrived]):
                number = len(system.pairs)
                system.pair[waiter, arriver] = number
                system.pairs.append((waiter, arriver))
                alone = (who, waited) not in by_all, (who, arrived) not in by_many
                unlike = alone[0] != alone[1] or (who, arrived) in by_one or waited == arrived
                if unlike and not all(alone) and not system.is_one_warp(who):
                    depth = system.depths[waited]
                    partners = handed.partners(system.rings[arrived].result)
                    if system.rings[waited].result in partners:
                        system.known[number] = 1
                    else:
                        own = waited == arrived and not partners
                        system.known[number] = 1 - depth if own else -depth
                system.pairs_of_wait[waiter].append(number)
                system.pairs_of_arrival[arriver].append(number)
                system.pairs_of_agent[who].append(number)


def _answer(system: System, who: int, waited: int, arrived: int) -> bool:
    """Tell whether somebody else, or the same agent, waits where an agent arrives and arrives where
    it waits."""
    return any((other, waited) in system.arriver for other, _ in _where(system, arrived))


def _where(system: System, ring: int) -> list[tuple[int, int]]:
    return [system.waiters[place] for place in system.waiters_of[ring]]


def _role(value: SSAValue) -> Operation | None:
    owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    return role_of(owner) if owner is not None else None


def _about(system: System, scalars: dict[SSAValue, int]) -> dict[int, set[int]]:
    """Find of which rings scalars may be slots or phases: of those where they are used."""
    found: dict[int, set[int]] = {}
    work: list[tuple[Ref, frozenset[int]]] = []
    values = list(scalars)
    for agent in system.agents:
        for step in agent.code:
            match step:
                case do.Wait(_, ring, _, slot, phase):
                    work += [(each, frozenset({ring})) for each in (slot, phase)]
                case do.Arrive(_, ring, _, slot):
                    work.append((slot, frozenset({ring})))
                case _:
                    pass
    while work:
        value, rings = work.pop()
        if isinstance(value, tuple):
            continue
        known = found.setdefault(value, set())
        if not rings <= known:
            known |= rings
            made = (scalars.get(each) for each in made_of(values[value]))
            work += [(each, frozenset(known)) for each in made if each is not None]
    return found


def _repeated(code: tuple[Step, ...]) -> set[int]:
    """Return the rings at which something is done in a loop."""
    found: set[int] = set()
    depth = 0
    for step in code:
        match step:
            case do.Enter():
                depth += 1
            case do.Leave():
                depth -= 1
            case do.Wait() | do.Arrive() if depth:
                found.add(step.ring)
            case _:
                continue
    return found


def _live(code: tuple[Step, ...], about: dict[int, set[int]]) -> list[frozenset[int]]:
    """Return the scalars that are still asked for, before each step, and the rings of numbers."""
    live: list[frozenset[int]] = [frozenset()] * (len(code) + 1)
    uses = [_uses(step, about) for step in code]
    changed = True
    while changed:
        changed = False
        for place in range(len(code) - 1, -1, -1):
            step = code[place]
            after = frozenset[int]().union(*(live[each] for each in _follows(step, place)))
            used, made = uses[place]
            now = (after - made) | used
            if now != live[place]:
                live[place], changed = now, True
    return live


def _follows(step: Step, place: int) -> Iterable[int]:
    match step:
        case do.Jump(target) | do.Next(target):
            return (target,)
        case do.Branch(_, otherwise, _):
            return place + 1, otherwise
        case _:
            targets = getattr(step, "targets", None)
            return targets if targets is not None else (place + 1,)


def _uses(step: Step, about: dict[int, set[int]]) -> tuple[frozenset[int], frozenset[int]]:
    """Return what a step asks for, and the scalars that it gives anew."""
    match step:
        case do.Wait(_, ring, _, slot, phase):
            asked, made = [(slot, {ring}), (phase, {ring})], ()
        case do.Arrive(_, ring, _, slot):
            asked, made = [(slot, {ring})], ()
        case do.Compute(name, inputs, result):
            rings = about.get(result, set[int]())
            taken = TRACKED.get(name)
            asked = [(ref, rings if n == taken else set[int]()) for n, ref in enumerate(inputs)]
            made = (result,)
        case do.Move(moves):
            asked = [(source, about.get(target, set[int]())) for source, target in moves]
            made = [target for _, target in moves]
        case _:
            asked, made = list[tuple[Ref, set[int]]](), ()
    used = {ref for ref, _ in asked if isinstance(ref, int)}
    used.update(-1 - ring for ref, rings in asked if not isinstance(ref, int) for ring in rings)
    return frozenset(used), frozenset(made)


def _ahead(
    code: tuple[Step, ...], decisions: Decisions, every: frozenset[int | Factor]
) -> list[tuple[Ahead, ...]]:
    """Tell of each step, for each depth up to its own, whether a loop may still begin there in the
    iteration that it is in, and what may be asked meanwhile. A step over the numbers of other
    instances may ask anything.
    """
    none = frozenset[int | Factor]()
    asked = [none] * len(code)
    for place, step in enumerate(code):
        match step:
            case do.Branch(condition):
                asked[place] = decisions.asked(condition)
            case do.Compute(skip=skip) if skip is not None:
                asked[place] = every
            case _:
                continue
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


__all__ = ["System", "read_system"]
