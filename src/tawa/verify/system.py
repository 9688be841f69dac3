"""The system that a kernel's roles are: agents, rings, and what is counted of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

import tawa.verify.steps as do
from tawa.ir import hopper, tile
from tawa.ir.walk import all_of
from tawa.verify.agents import Compiler, made_of, relevant_scalars
from tawa.verify.conditions import Conditions, Holds
from tawa.verify.cursors import TRACKED, Parity
from tawa.verify.decisions import Ahead, Decisions, Known, Labels, Question
from tawa.verify.forwarded import loops_around, role_of
from tawa.verify.rings import Rings, slots_of
from tawa.verify.rules import Refused, rule
from tawa.verify.steps import Agent, Ref, Step
from tawa.verify.terms import Term, Terms
from tawa.verify.values import Span, Values

Counter = tuple[str, int]


@dataclass(slots=True)
class System:
    """Agents and rings by number. A *waiter* is an (agent, ring) that waits, an *arriver* one that
    arrives; a *pair* is a waiter and an arriver of one agent that may go equally often."""

    values: Values
    conditions: Conditions
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
    dead: set[int] = field(default_factory=set[int])
    """Pairs of which the run has found that they part."""
    about: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """Of which rings a scalar may be a slot or a phase."""
    known: dict[int, int] = field(default_factory=dict[int, int])
    """By pair whose waits and arrivals are not of the same threads: how many waits the arriving
    ones know of at most (`role_memory.py`: of that for the slot which they hand on)."""
    handed: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """By agent and the ring at which it hands slots on: the pair of that and of where it waits for
    them."""
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
        rings = list(self.leads)  # who waits nowhere arrives nowhere
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
            answer = decisions.ask(self.conditions.positive(left), known, labels)
            if isinstance(answer, tuple):
                return answer
            return terms.constant(number) if answer else None
        return self.values.of(owner.result)

    def tile(self, who: int, ring: int) -> Term:
        """Return how many numbers of a ring a tile has, which is the same for all tiles: as many as
        it waits for, there or where it waits for what it hands on there.
        """
        waited = ring
        pair = self.handed.get((who, ring))
        if pair is not None and pair not in self.dead:
            waited = self.waiters[self.pairs[pair][0]][1]
        if (who, waited) not in self._tiles:
            tiles = self.agents[who].tiles
            found = {self._waits(each.body.block, self.rings[waited].result) for each in tiles}
            term = found.pop() if len(found) == 1 and (who, waited) in self.waiter else None
            if term is None or ("iteration", 0) in self.terms.support(term):
                raise Refused(
                    rule("form"),
                    f"tiles are not shown to have equally many numbers of {self.label(ring)}",
                    self.rings[ring],
                )
            self._tiles[who, waited] = term
        return self._tiles[who, waited]

    def _waits(self, block: Block, ring: SSAValue) -> Term | None:
        """Return how often a block waits at a ring, None where that is no sum of loops."""
        terms, total = self.terms, self.terms.zero
        for operation in block.ops:
            number: Term | None = None
            match operation:
                case hopper.Wait(barriers=barriers) if barriers is ring:
                    number = terms.one
                case hopper.OneThread():
                    number = self._waits(operation.body.block, ring)
                case scf.IfOp():
                    regions = operation.true_region, operation.false_region
                    sides = {
                        self._waits(e.block, ring) if e.blocks else terms.zero for e in regions
                    }
                    number = sides.pop() if len(sides) == 1 else None
                case scf.ForOp():
                    inside, span = (
                        self._waits(operation.body.block, ring),
                        self.values.span(operation),
                    )
                    own = "iteration", len(loops_around(operation))
                    if inside is not None and own not in terms.support(inside):
                        number = terms.mul(inside, self._iterations(span))
                case scf.WhileOp():
                    inside = self._waits(operation.after_region.block, ring)
                    number = inside if inside == terms.zero else None
                case _:
                    continue
            if number is None:
                return None
            total = terms.add(total, number)
        return total

    def _iterations(self, span: Span) -> Term:
        terms = self.terms
        length, step = terms.number(span.length), terms.number(span.step)
        if length is not None and step is not None and step > 0:
            return terms.constant(max(0, -(-length // step)))
        leaves = terms.support_of((span.length, span.step))
        return terms.atom(("iterations", span.length, span.step), leaves)


def read_system(kernel: tile.Kernel, values: Values, handed: Rings) -> System:
    """Make the system of a kernel."""
    rings = all_of(kernel, hopper.Barriers)
    numbers: dict[SSAValue, int] = {each.result: number for number, each in enumerate(rings)}
    relevant = relevant_scalars(kernel)
    depths = tuple(slots_of(barriers.result) for barriers in rings)
    # Nobody is further ahead of who gives.
    conditions = Conditions(values.terms)
    decisions = Decisions(conditions, patience=max(depths, default=0), slots=sum(depths))
    compiler = Compiler(values, conditions, decisions, numbers, relevant)
    agents = compiler.agents(kernel)
    system = System(values, conditions, decisions, rings, agents)
    system.depths = depths
    branches = [step for agent in agents for step in agent.code if isinstance(step, do.Branch)]
    for step in branches:
        decisions.open(step.condition)
    for step in branches:
        decisions.learn(step.condition, guards=isinstance(step.operation, scf.IfOp))
    _find_sides(system)
    _find_pairs(system, handed)
    system.about = _about(system, compiler.scalars)
    instances: dict[Operation | None, int] = {
        role: n for agent in agents for n, role in enumerate(agent.roles)
    }
    system.owners = [instances.get(_role(value), 0) for value in compiler.scalars]
    system.once = set(range(len(rings))).difference(*(_repeated(agent.code) for agent in agents))
    system.live = [_live(agent.code, system.about) for agent in agents]
    every = frozenset[int | Holds]().union(*(decisions.asked(s.condition) for s in branches))
    system.ahead = [_ahead(agent.code, decisions, every) for agent in agents]
    return system


def _find_sides(system: System) -> None:
    """Find who waits and arrives where, and how many arrivals of a phase are whose."""
    agents = system.agents
    system.waiters_of = [[] for _ in system.rings]
    system.arrivers_of = [[] for _ in system.rings]
    units: list[list[int]] = []
    for who, agent in enumerate(agents):
        system.counters.append({})
        system.pairs_of_agent.append([])
        for step in agent.code:
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
                        units.append([])
                    units[system.arriver[who, ring]].append(number)
                case _:
                    continue
    system.needs = [0] * len(system.arrivers)
    for ring in range(len(system.rings)):
        _divide(system, ring, units)


def _divide(system: System, ring: int, units: list[list[int]]) -> None:
    """Divide the arrivals of a phase among who arrives: a role whose steps all arrive alike has
    one step in each phase, and one whose steps do not has what the others leave."""
    barriers, whole = system.rings[ring], system.rings[ring].arrivals.data
    sides: dict[tuple[hopper.Role, ...], list[int]] = {}
    for place in system.arrivers_of[ring]:
        sides.setdefault(system.agents[system.arrivers[place][0]].roles, []).append(place)
    sites = (system.waiters_of[ring], system.waiters), (system.arrivers_of[ring], system.arrivers)
    waits, arrives = ([system.agents[of[each][0]].name for each in found] for found, of in sites)
    if not waits or not arrives:
        if waits or arrives:
            raise Refused(
                rule("left"),
                f"{(waits or arrives)[0]} {'waits' if waits else 'arrives'} at "
                f"{system.label(ring)}, where nobody {'arrives' if waits else 'waits'}",
                barriers,
            )
        return
    own = {roles: _one_step([units[each] for each in places]) for roles, places in sides.items()}
    for roles, places in sides.items():
        others = [each for other, each in own.items() if other is not roles]
        left = own[roles] if None in others else whole - sum(each or 0 for each in others)
        total = sum(sum(units[each]) for each in places)
        for place in places:
            system.needs[place], rest = divmod((left or 0) * sum(units[place]), total)
            if rest or system.needs[place] < 1:
                raise _divided(system, ring)
    if sum(system.needs[each] for each in system.arrivers_of[ring]) != whole:
        raise _divided(system, ring)


def _one_step(units: list[list[int]]) -> int | None:
    """Return how often the agents of a role arrive in a step of each, None where steps differ."""
    return None if any(len(set(each)) > 1 for each in units) else sum(each[0] for each in units)


def _divided(system: System, ring: int) -> Refused:
    arrivals = ", ".join(
        f"{agent.name} {' or '.join(map(str, found))}"
        for who, agent in enumerate(system.agents)
        if (who, ring) in system.arriver
        and (
            found := sorted(
                {s.units for s in agent.code if isinstance(s, do.Arrive) and s.ring == ring}
            )
        )
    )
    return Refused(
        rule("arrivals"),
        f"the arrivals at {system.label(ring)} are not those of a phase, which takes "
        f"{system.rings[ring].arrivals.data}: {arrivals} at a time",
        system.rings[ring],
    )


def _find_pairs(system: System, handed: Rings) -> None:
    by_all, by_one, by_many = (set[tuple[int, int]]() for _ in range(3))
    loops = defaultdict[tuple[type[Step], int, int], set[Operation | None]](set)
    """The innermost loops in which agents wait, and arrive, at a ring."""
    for who, agent in enumerate(system.agents):
        for step in agent.code:
            if isinstance(step, do.Wait) and not step.alone:
                by_all.add((who, step.ring))
            if isinstance(step, do.Arrive):
                (by_one if step.alone else by_many).add((who, step.ring))
            if isinstance(step, do.Wait | do.Arrive):
                around = loops_around(step.operation)
                loops[type(step), who, step.ring].add(around[0] if around else None)
    system.pairs_of_wait = [[] for _ in system.waiters]
    system.pairs_of_arrival = [[] for _ in system.arrivers]
    for waiter, (who, waited) in enumerate(system.waiters):
        for arriver, (other, arrived) in enumerate(system.arrivers):
            if who != other or system.depths[waited] != system.depths[arrived]:
                continue
            back, partners = (handed.partners(system.rings[n].result) for n in (waited, arrived))
            is_handed = system.rings[waited].result in partners
            beside = loops[do.Wait, who, waited] & loops[do.Arrive, who, arrived]
            answers = waited == arrived or (beside and _answer(system, waited, arrived))
            if not is_handed and (back or partners or not answers):
                continue
            number, depth = len(system.pairs), system.depths[waited]
            system.pairs.append((waiter, arriver))
            if is_handed:
                system.handed[who, arrived] = number
            alone = (who, waited) not in by_all, (who, arrived) not in by_many
            unlike = alone[0] != alone[1] or (who, arrived) in by_one or waited == arrived
            if unlike and not all(alone) and not system.is_one_warp(who):
                own = waited == arrived and not partners
                system.known[number] = 1 if is_handed else 1 - depth if own else -depth
            system.pairs_of_wait[waiter].append(number)
            system.pairs_of_arrival[arriver].append(number)
            system.pairs_of_agent[who].append(number)


def _answer(system: System, waited: int, arrived: int) -> bool:
    """Tell whether somebody waits where an agent arrives and arrives where it waits."""
    waiting = (system.waiters[place][0] for place in system.waiters_of[arrived])
    return any((other, waited) in system.arriver for other in waiting)


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
    code: tuple[Step, ...], decisions: Decisions, every: frozenset[int | Holds]
) -> list[tuple[Ahead, ...]]:
    """Tell of each step, for each depth up to its own, whether a loop may still begin there in the
    iteration that it is in, and what may be asked meanwhile. A step over the numbers of other
    instances may ask anything.
    """
    none = frozenset[int | Holds]()
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
