"""Lemmas 1 to 3: all roles run together once, for every launch at the same time.

Synchronization leaves no choice: what an agent waits for is not taken from it by another. So if one
order of the agents ends, every order does (R. Keller, "A fundamental theorem of asynchronous
parallel computation", 1975), and one is looked at: the last agent that can go on goes on. What
decides loops and conditions is asked of `Decisions`, which leaves out no launch; numbers of rings
are counted from the least that an agent has still to do with. Places where runs meet again are
found to be known, so that all trip counts are looked at in finitely many steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

import tawa.verify.steps as do
from tawa.verify.cursors import NOTHING, TRACKED, Fact, Facts, Operand
from tawa.verify.decisions import EXACT, Place, Question, answered
from tawa.verify.ring_steps import HANDED, HOLDS, Env, Rings, State
from tawa.verify.rules import Refused, rule
from tawa.verify.steps import Moves
from tawa.verify.system import System
from tawa.verify.terms import Term

Fork = tuple[Question, int]
_MOST = 20_000
"""Ways in which the roles may stand to one another; a kernel with more is refused as such."""


@dataclass(slots=True)
class Choreography:
    """All roles of a kernel, run together."""

    system: System
    rings: Rings
    seen: dict[tuple[object, ...], tuple[list[Env], list[dict[int, Env]]]] = field(
        default_factory=dict[tuple[object, ...], tuple[list[Env], list[dict[int, Env]]]]
    )
    moves: dict[tuple[object, ...], dict[Facts, Facts]] = field(
        default_factory=dict[tuple[object, ...], dict[Facts, Facts]]
    )
    computed: dict[tuple[object, ...], Facts] = field(
        default_factory=dict[tuple[object, ...], Facts]
    )
    unit: int = 1

    def run(self) -> None:
        """Look at all that the agents may do. Raises Refused where one waits for ever, or an
        operation is not that of its number."""
        system = self.system
        agents = system.agents
        self.unit = lcm(*(agent.share for agent in agents)) if agents else 1
        first = State(
            at=[0] * len(agents),
            labels=[()] * len(agents),
            loops=[()] * len(agents),
            waits=[0] * len(system.waiters),
            units=[0] * len(system.arrivers),
            early=[frozenset()] * len(system.arrivers),
            ahead=[0] * len(system.pairs),
            exact=[True] * len(system.rings),
            turn=[-1 if a.groups > 1 and a.group == a.groups - 1 else 0 for a in agents],
            known={},
            env=[{} for _ in agents],
            parked=[{} for _ in agents],
            active=[0] * len(agents),
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
                    for holds in (True, False):  # first where loops end: launches are small
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
        step = self.system.agents[who].code[state.at[who]]
        match step:
            case do.Compute():
                fork = self._compute(state, who, step)
                if fork is not None:
                    return fork
            case do.Wait():
                if not self.rings.wait(state, who, step):
                    return "blocked"
            case do.Arrive():
                self.rings.arrive(state, who, step)
                state.at[who] += 1
                return "told"
            case do.Move(moves):
                self._move(state, who, moves)
            case do.Branch(condition, otherwise, _):
                holds = self.system.decisions.ask(condition, state.known, state.labels[who])
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
                state.at[who] = targets[self._choose(state, who, len(targets))]
                return "on"
            case do.Done():
                self._done(state, who, step)
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

    def _compute(self, state: State, who: int, step: do.Compute) -> Fork | None:
        env, name = state.env[who], step.name
        inputs = [self.rings.operand(state, who, ref) for ref in step.inputs]
        place = TRACKED.get(name)
        number = inputs[place] if place is not None else None
        other = NOTHING if name == "select" else inputs[-1]
        if place is not None and isinstance(number, int) and not _is_cursor(other):
            inputs[place] = self.rings.constant(state, who, number, step.result)
        amount: Term | None = None
        if step.skip is not None:
            labels = state.labels[who]
            found = self.system.amount(step.skip, self.system.decisions, state.known, labels)
            if isinstance(found, tuple):
                return found
            amount = found
        asked = name, tuple(inputs), amount
        facts = self.computed.get(asked)
        if facts is None:
            facts = self.computed[asked] = self.rings.cursors.apply(name, inputs, amount)
        if facts:
            env[step.result] = facts
        else:
            env.pop(step.result, None)
        return None

    def _move(self, state: State, who: int, moves: Moves) -> None:
        env = state.env[who]
        moved: list[tuple[int, Facts]] = []
        for source, target in moves:
            found = self.rings.operand(state, who, source)
            if isinstance(found, int):
                found = self.rings.constant(state, who, found, target)
            moved.append((target, found))
        for target, facts in moved:
            if facts:
                env[target] = facts
            else:
                env.pop(target, None)

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
                f"{self._active(state, who)} does not take and hand on its turn once in a tile",
                step.operation,
            )
        state.turn[who] = HOLDS if sync else HANDED
        state.announced = state.announced - {number} if sync else state.announced | {number}
        return True

    # --- instances --------------------------------------------------------------------------------

    def _active(self, state: State, who: int) -> str:
        return self.system.agents[who].roles[state.active[who]].label.data

    def _choose(self, state: State, who: int, share: int) -> int:
        tag, number = state.labels[who][0]
        first = (tag, number) == (EXACT, 0)
        if first:
            for each in range(share):
                state.parked[who][each] = {
                    value: self._relative(state, who, facts, -1)
                    for value, facts in state.env[who].items()
                    if self.system.owners[value] == each
                }
        active = number % share
        state.active[who] = active
        state.turn[who] = HOLDS if first else 0
        state.env[who] = {
            value: self._relative(state, who, facts, 1)
            for value, facts in state.parked[who].pop(active).items()
        }
        return active

    def _relative(self, state: State, who: int, facts: Facts, sign: int) -> Facts:
        """Count numbers from the beginning of the tile, or (1) from the origin again."""
        counts = self.rings.counts(state, who)
        return frozenset(
            fact._replace(at=fact.at + sign * counts[fact.ring])
            for fact in facts
            if fact.over is None
        )

    def _done(self, state: State, who: int, step: do.Done) -> None:
        """A tile is done: all is given back, and the others' numbers are a tile further behind."""
        system = self.system
        for pair in system.pairs_of_agent[who]:
            if state.ahead[pair] and pair in system.handed.values():
                raise Refused(
                    rule("held"),
                    f"{self._active(state, who)} holds slots at the end of a tile",
                    step.operation,
                )
            if state.ahead[pair]:
                system.dead.add(pair)
                state.ahead[pair] = 0
        state.parked[who] = {
            other: {
                value: frozenset(self._tile_later(who, fact) for fact in facts)
                for value, facts in env.items()
            }
            for other, env in state.parked[who].items()
        }
        state.parked[who][state.active[who]] = {
            value: self._relative(state, who, facts, -1) for value, facts in state.env[who].items()
        }
        state.env[who] = {}

    def _tile_later(self, who: int, fact: Fact) -> Fact:
        """Count a fact's numbers from the beginning of the next tile."""
        terms, tile_ = self.system.terms, self.system.tile(who, fact.ring)
        number = terms.offset(tile_)
        far = terms.sub(fact.far, terms.sub(tile_, terms.constant(number)))
        return fact._replace(at=fact.at - number, far=far)

    # --- places that are known --------------------------------------------------------------------

    def _is_known(self, state: State, who: int) -> bool:
        """Write a state in its normal form; tell whether it has been here, knowing no more."""
        self._settle(state, who)
        key = state.key()
        before = self.seen.get(key)
        if before is None:
            if len(self.seen) > _MOST:
                raise Refused(
                    rule("order"),
                    f"the roles may stand in more than {_MOST} ways to one another",
                    self.system.agents[who].roles[0],
                )
            self.seen[key] = [dict(e) for e in state.env], [dict(e) for e in state.parked]
            return False
        envs, parked = before
        same = True
        for mine, theirs in [
            *zip(state.env, envs, strict=True),
            *(
                (mine, old[number])
                for own, old in zip(state.parked, parked, strict=True)
                for number, mine in own.items()
            ),
        ]:
            for value, facts in list(theirs.items()):
                both = facts & mine.get(value, NOTHING)
                if both != facts:
                    same = False
                    if both:
                        theirs[value] = both
                    else:
                        del theirs[value]
        if same:
            return True
        state.env = [dict(each) for each in envs]
        state.parked = [dict(each) for each in parked]
        return False

    def _settle(self, state: State, who: int) -> None:
        system = self.system
        live = system.live[who][state.at[who]]
        state.env[who] = {v: facts for v, facts in state.env[who].items() if v in live}
        origins = [0] * len(system.rings)
        for ring in range(len(system.rings)):
            if ring in system.once:
                continue
            counts = [state.waits[place] for place in system.waiters_of[ring]]
            counts += [
                state.units[place] // system.needs[place] for place in system.arrivers_of[ring]
            ]
            origins[ring] = min(counts, default=0)
        if any(origins):
            for place, (_, ring) in enumerate(system.waiters):
                state.waits[place] -= origins[ring]
            for place, (_, ring) in enumerate(system.arrivers):
                origin = origins[ring]
                state.units[place] -= origin * system.needs[place]
                state.early[place] = frozenset((n - origin, u) for n, u in state.early[place])
        for ring, origin in enumerate(origins):
            if state.exact[ring] and ring not in system.once:
                places = enumerate(state.at)
                asked = any(-1 - ring in system.live[agent][at] for agent, at in places)
                state.exact[ring] = asked and not origin
        for agent, env in enumerate(state.env):
            counts = self.rings.counts(state, agent)
            moves = self.moves.setdefault((*origins, *counts.items()), {})
            for value, facts in env.items():
                moved = moves.get(facts)
                if moved is None:
                    moved = frozenset(self._moved(fact, origins, counts) for fact in facts)
                    moves[facts] = moved
                env[value] = moved
        places = [
            Place(
                state.labels[n],
                state.loops[n],
                system.ahead[n][state.at[n]],
                isinstance(agent.code[state.at[n]], do.End),
            )
            for n, agent in enumerate(system.agents)
        ]
        state.known, state.labels = self.system.decisions.settled(state.known, places, self.unit)

    def _moved(self, fact: Fact, origins: list[int], counts: dict[int, int]) -> Fact:
        """Count a fact's numbers from the new origin of its ring."""
        origin = origins[fact.ring]
        over = fact.over and (fact.over[0] - origin, fact.over[1])
        fact = fact._replace(at=fact.at - origin, over=over)
        return self.rings.cursors.near(fact, counts[fact.ring])

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
            arrivals = [
                divmod(state.units[each], system.needs[each]) for each in system.arrivers_of[ring]
            ]
            numbers = {state.waits[each] for each in system.waiters_of[ring]}
            numbers.update(number for number, _ in arrivals)
            early = any(state.early[each] for each in system.arrivers_of[ring])
            if early or len(numbers) > 1 or any(rest for _, rest in arrivals):
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
            f"{system.agents[system.arrivers[each][0]].name} arrives "
            f"{state.units[each] + sum(n for _, n in state.early[each])} times, "
            f"{system.needs[each]} for a phase"
            for each in system.arrivers_of[ring]
        )
        told = "; ".join((*waits, *arrives))
        return Refused(
            rule("left"),
            f"the roles part at {system.label(ring)}: {told}{self._with(state)}",
            system.barriers(ring),
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


def _is_cursor(operand: Operand) -> bool:
    return isinstance(operand, frozenset) and any(e.kind in ("slot", "phase") for e in operand)
