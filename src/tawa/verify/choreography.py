"""Lemmas 1 to 3: all roles run together once, for every launch at the same time.

Synchronization leaves no choice: what an agent waits for is not taken from it by another. So if one
order of the agents ends, every order does (R. Keller, "A fundamental theorem of asynchronous parallel
computation", 1975), and one is looked at: the last agent that can go on goes on. What decides loops
and conditions is asked of `Decisions`, which leaves out no launch; numbers of rings are counted from
the least that an agent has still to do with. Places where runs meet again are found to be known, so
that all trip counts are looked at in finitely many steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm


from tawa.ir import hopper
from tawa.verify.agents import (
    Access,
    Agent,
    Arrive,
    Branch,
    Choose,
    Compute,
    Copy,
    Done,
    End,
    Enter,
    Head,
    Jump,
    Leave,
    Meet,
    Move,
    Moves,
    Next,
    Ref,
    Token,
    Turn,
    Wait,
)
from tawa.verify.cursors import NOTHING, Cursors, Fact, Facts, Operand
from tawa.verify.decisions import (
    EXACT,
    Decisions,
    Known,
    Label,
    Labels,
    Place,
    Question,
    answered,
)
from tawa.verify.rules import Refused, rule
from tawa.verify.system import System
from tawa.verify.terms import Term

Env = dict[int, Facts]
Fork = tuple[Question, int]
_HANDED, _MAY = 2, 1
_TRACKED = {"add": 0, "xor": 0, "select": 2}
"""By function: the operand that is a slot or a phase, also where it is a number in the text."""


@dataclass(slots=True)
class State:
    """Where all agents are. Numbers of a ring are counted from where the run last set its origin."""

    at: list[int]
    labels: list[Labels]
    loops: list[tuple[int, ...]]
    waits: list[int]
    units: list[int]
    early: list[frozenset[tuple[int, int]]]
    """By arriver: (number, arrivals) of numbers whose turn has not come."""
    last: list[int]
    """By arriver: the number at which bytes are expected."""
    ahead: list[int]
    """By pair of a wait and an arrival of one agent: waits done less numbers arrived."""
    safe: list[int]
    """The same, of waits that all threads of the agent have behind them."""
    owed: list[int]
    """By arriver: bytes that are expected and not yet copied."""
    exact: list[bool]
    """By ring: whether its origin is still the beginning."""
    turn: list[int]
    """By agent: whether its warpgroup, or its instance, holds the turn."""
    known: Known
    env: list[Env]
    parked: list[dict[int, Env]]
    """What instances that are not at work know, counted from the beginning of the tile."""
    active: list[int]
    announced: frozenset[int] = frozenset()
    """Named barriers that have been announced and not yet taken."""

    def copy(self, known: Known) -> State:
        """Return a state that goes its own way."""
        return State(
            list(self.at),
            list(self.labels),
            list(self.loops),
            list(self.waits),
            list(self.units),
            list(self.early),
            list(self.last),
            list(self.ahead),
            list(self.safe),
            list(self.owed),
            list(self.exact),
            list(self.turn),
            known,
            [dict(each) for each in self.env],
            [dict(each) for each in self.parked],
            list(self.active),
            self.announced,
        )

    def key(self) -> tuple[object, ...]:
        """Return all but what scalars stand for."""
        return (
            tuple(self.at),
            tuple(self.labels),
            tuple(self.waits),
            tuple(self.units),
            tuple(self.early),
            tuple(n for n, owed in zip(self.last, self.owed, strict=True) if owed),
            tuple(self.ahead),
            tuple(self.safe),
            tuple(self.owed),
            tuple(self.exact),
            tuple(self.turn),
            frozenset(self.known.items()),
            tuple(self.active),
            self.announced,
        )


@dataclass(slots=True)
class Choreography:
    """All roles of a kernel, run together."""

    system: System
    decisions: Decisions
    cursors: Cursors
    seen: dict[tuple[object, ...], tuple[list[Env], list[dict[int, Env]]]] = field(
        default_factory=dict[tuple[object, ...], tuple[list[Env], list[dict[int, Env]]]]
    )
    moves: dict[tuple[object, ...], Facts] = field(default_factory=dict[tuple[object, ...], Facts])
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
            last=[0] * len(system.arrivers),
            ahead=[0] * len(system.pairs),
            safe=[0] * len(system.pairs),
            owed=[0] * len(system.arrivers),
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
                    for holds in (False, True):
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
        return isinstance(self.system.agents[who].code[state.at[who]], Head)

    # --- steps ------------------------------------------------------------------------------------

    def _step(self, state: State, who: int) -> str | Fork:
        step = self.system.agents[who].code[state.at[who]]
        match step:
            case Compute():
                fork = self._compute(state, who, step)
                if fork is not None:
                    return fork
            case Wait():
                if not self._wait(state, who, step):
                    return "blocked"
            case Arrive():
                self._arrive(state, who, step)
                state.at[who] += 1
                return "told"
            case Copy():
                self._copy(state, who, step)
            case Access():
                self._access(state, who, step)
            case Move(moves):
                self._move(state, who, moves)
            case Branch(condition, otherwise, _):
                holds = self.decisions.ask(condition, state.known, state.labels[who])
                if not isinstance(holds, bool):
                    return holds
                if not holds:
                    state.at[who] = otherwise
                    return "on"
            case Jump(target):
                state.at[who] = target
                return "on"
            case Enter(loop):
                state.labels[who] += ((EXACT, 0),)
                state.loops[who] += (loop,)
            case Head():
                if self._is_known(state, who):
                    return "known"
            case Next(target):
                *before, (tag, number) = state.labels[who]
                state.labels[who] = (*before, (tag, number + 1))
                state.at[who] = target
                return "on"
            case Leave():
                state.labels[who] = state.labels[who][:-1]
                state.loops[who] = state.loops[who][:-1]
            case Choose(targets):
                state.at[who] = targets[self._choose(state, who, len(targets))]
                return "on"
            case Done():
                self._done(state, who, step)
            case Meet():
                if not self._meet(state, who, step):
                    return "blocked"
                return "told"
            case Turn():
                if not self._turn(state, who, step):
                    return "blocked"
                state.at[who] += 1
                return "told"
            case Token():
                if not self._token(state, who, step):
                    return "blocked"
                state.at[who] += 1
                return "told"
            case End():
                return "blocked"
        state.at[who] += 1
        return "on"

    def _operand(self, state: State, who: int, ref: Ref) -> Operand:
        return ref[0] if isinstance(ref, tuple) else state.env[who].get(ref, NOTHING)

    def _compute(self, state: State, who: int, step: Compute) -> Fork | None:
        env, name = state.env[who], step.name
        inputs = [ref[0] if isinstance(ref, tuple) else env.get(ref, NOTHING) for ref in step.inputs]
        place = _TRACKED.get(name)
        if place is not None and isinstance(number := inputs[place], int):
            if name == "select" or not _is_about(inputs[1], "slot", "phase"):
                inputs[place] = self._constant(state, who, number, step.result)
        amount: Term | None = None
        if step.skip is not None:
            labels = state.labels[who]
            found = self.system.amount(step.skip, self.decisions, state.known, labels)
            if isinstance(found, tuple):
                return found
            amount = found
        asked = name, tuple(inputs), amount
        facts = self.computed.get(asked)
        if facts is None:
            facts = self.computed[asked] = self.cursors.apply(name, inputs, amount)
        if facts:
            env[step.result] = facts
        else:
            env.pop(step.result, None)
        return None

    def _move(self, state: State, who: int, moves: Moves) -> None:
        env = state.env[who]
        moved: list[tuple[int, Facts]] = []
        for source, target in moves:
            found = self._operand(state, who, source)
            if isinstance(found, int):
                found = self._constant(state, who, found, target)
            moved.append((target, found))
        for target, facts in moved:
            if facts:
                env[target] = facts
            else:
                env.pop(target, None)

    def _constant(self, state: State, who: int, number: int, value: int) -> Facts:
        """What a number in the text stands for, while all is counted from the beginning."""
        found: set[Fact] = set()
        for ring, counts in self.system.counters[who].items():
            if state.exact[ring] and ring in self.system.about.get(value, ()):
                now = {self._count(state, counter) for counter in counts}
                found |= set(self.cursors.constant(number, ring, now))
        return frozenset(found)

    def _count(self, state: State, counter: tuple[str, int]) -> int:
        kind, place = counter
        if kind == "wait":
            return state.waits[place]
        return state.units[place] // self.system.needs[place]

    # --- rings ------------------------------------------------------------------------------------

    def _slots(self, state: State, who: int, value: Ref, ring: int) -> set[int]:
        """Return which numbers a slot may be, each for all that are whole revolutions away."""
        depth = self.system.depths[ring]
        found = self._operand(state, who, value)
        if isinstance(found, int):
            if not 0 <= found < depth or not (depth == 1 or state.exact[ring]):
                return set()
            return {found}
        if depth == 1:
            return {0}
        return {
            each.at % depth
            for each in found
            if each.kind == "slot" and each.ring == ring and each.far == self.system.zero
        }

    def _is_slot(
        self, state: State, who: int, value: Ref, ring: int, number: int
    ) -> bool:
        return number % self.system.depths[ring] in self._slots(state, who, value, ring)

    def _wait(self, state: State, who: int, step: Wait) -> bool:
        system, ring, operation = self.system, step.ring, step.operation
        place = system.waiter[who, ring]
        number, depth = state.waits[place], system.depths[step.ring]
        found = self._operand(state, who, step.phase)
        if isinstance(found, int):
            flips = {(found ^ (number // depth)) & 1} if state.exact[ring] else set[int]()
        else:
            near = (
                self.cursors.moved(each, number)
                for each in found
                if each.kind == "phase" and each.ring == ring and each.far == system.zero
            )
            flips = {each.flip for each in near if each is not None}
        if len(flips) != 1 or not self._is_slot(state, who, step.slot, ring, number):
            raise self._misplaced(who, step.operation, ring, "waits")
        (flip,) = flips
        lead = system.leads.setdefault(ring, flip * depth)
        if lead != flip * depth:
            raise self._misplaced(who, step.operation, ring, "waits")
        if not self._is_complete(state, ring, number - lead):
            return False
        if system.agents[who].share > 1 and state.turn[who] != _MAY:
            raise Refused(
                rule("meetings"),
                f"{self._active(state, who)} waits for {system.label(ring)} while it is another "
                "instance's turn",
                operation,
            )
        state.waits[place] += 1
        for pair in system.pairs_of_wait[place]:
            if pair in system.dead:
                continue
            state.ahead[pair] += 1
            self._bound(state, pair, depth)
            if pair in system.own and (step.alone or system.is_one_warp(who)):
                state.safe[pair] += 1
        return True

    def _bound(self, state: State, pair: int, depth: int) -> None:
        """A wait and an arrival that part by more than a revolution are no ring of one another."""
        if abs(state.ahead[pair]) > depth:
            self.system.dead.add(pair)
        if pair in self.system.dead:
            state.ahead[pair] = state.safe[pair] = 0

    def _is_complete(self, state: State, ring: int, number: int) -> bool:
        needs = self.system.needs
        return number < 0 or all(
            number < state.units[place] // needs[place]
            or (number, needs[place]) in state.early[place]
            for place in self.system.arrivers_of[ring]
        )

    def _arrive(self, state: State, who: int, step: Arrive) -> None:
        """Arrive for the number that the slot says, which is one of the next revolution."""
        system, ring = self.system, step.ring
        place = system.arriver[who, ring]
        need, depth = system.needs[place], system.depths[ring]
        done = state.units[place] // need
        slots = self._slots(state, who, step.slot, ring)
        if len(slots) != 1:
            raise self._misplaced(who, step.operation, ring, "arrives")
        (slot,) = slots
        number = done + (slot - done) % depth
        for pair in system.pairs_of_arrival[place]:
            ahead = state.safe[pair] if pair in system.own else state.ahead[pair]
            system.note(pair, ahead - (number - done))
        if step.bytes:
            if state.owed[place]:
                raise self._bytes(ring, state.owed[place], step)
            state.owed[place], state.last[place] = step.bytes, number
        early = dict(state.early[place])
        units = step.units + (early.pop(number, 0) if number > done else state.units[place] % need)
        if units > need:
            raise Refused(
                rule("arrivals"),
                f"{system.agents[who].name} arrives {units} times at {system.label(ring)}, where "
                f"{need} arrivals are its part of a phase",
                step.operation,
            )
        if number > done:
            early[number] = units
        else:
            state.units[place] += step.units
            while state.units[place] % need == 0 and (now := state.units[place] // need) in early:
                state.units[place] += early.pop(now)
            for pair in system.pairs_of_arrival[place]:
                if pair in system.dead:
                    continue
                less = state.units[place] // need - done
                state.ahead[pair] -= less
                self._bound(state, pair, depth)
                if pair in system.own:  # a revolution behind is too late already
                    state.safe[pair] = max(state.safe[pair] - less, -depth)
        state.early[place] = frozenset(early.items())

    def _copy(self, state: State, who: int, step: Copy) -> None:
        """A copy completes on the barrier of the number at which its bytes are expected."""
        system, ring = self.system, step.ring
        place = system.arriver.get((who, ring))
        owed = state.owed[place] if place is not None else 0
        if place is None or owed < step.bytes:
            raise self._bytes(ring, owed - step.bytes, step)
        number = state.last[place]
        if not self._is_slot(state, who, step.slot, ring, number):
            raise self._misplaced(who, step.operation, ring, "copies")
        state.owed[place] -= step.bytes
        self._access(state, who, step, ring, number)

    def _bytes(self, ring: int, left: int, step: Arrive | Copy) -> Refused:
        what = f"{left} bytes too many" if left > 0 else f"{-left} bytes too few"
        return Refused(
            rule("bytes"), f"{self.system.label(ring)} expects {what} in a phase", step.operation
        )

    def _misplaced(
        self, who: int, operation: Wait | object, ring: int, what: str
    ) -> Refused:
        return Refused(
            rule("cursor"),
            f"{self.system.agents[who].name} {what} at {self.system.label(ring)} where slot and "
            "phase are not shown to be those of its number",
            operation,  # type: ignore[arg-type]
        )

    # --- buffers ----------------------------------------------------------------------------------

    def _access(
        self,
        state: State,
        who: int,
        step: Access | Copy,
        ring: int | None = None,
        number: int = 0,
    ) -> None:
        """A slot of a buffer that agents share is used by who holds it: leave of the rings that may
        keep them apart those of which this is so."""
        possible = self.system.shared.get(step.buffer)
        if possible is None:
            return
        kept = {
            rings
            for rings in possible
            if (ring is None or rings[0] == ring)
            and self._holds(state, who, step.index, rings, None if ring is None else number)
        }
        if not kept:
            label = step.buffer.owner
            name = label.label.data if isinstance(label, hopper.Shared) else "a buffer"
            raise Refused(
                rule("held"),
                f"{self.system.agents[who].name} uses a slot of {name} that it is not shown to hold",
                step.operation,
            )
        if len(kept) < len(possible):
            self.system.shared[step.buffer] = kept

    def _holds(
        self, state: State, who: int, slot: Ref, rings: tuple[int, int], copied: int | None
    ) -> bool:
        """Tell whether an agent holds the slot: between its wait for one of two rings and its
        arrival at the other. A copy has arrived already, and is `copied`, that number."""
        filled, freed = rings
        system = self.system
        if freed < 0:
            return self._holds_own(state, who, slot, filled, copied)
        ways = ((freed, filled), (filled, freed))  # a producer's, a consumer's
        for waited, arrived in ways if copied is None else ways[:1]:
            waiter = system.waiter.get((who, waited))
            arriver = system.arriver.get((who, arrived))
            pair = system.pair.get((waiter, arriver)) if waiter is not None else None
            if pair is None or arriver is None or waiter is None or pair in system.dead:
                continue
            ahead = state.ahead[pair]
            done = state.units[arriver] // system.needs[arriver]
            early = {number for number, _ in state.early[arriver]}
            held = {n for n in range(done, done + ahead) if n not in early}
            if copied is not None:
                held = {copied} if copied < done + ahead else set()
            depth, more = system.depths[filled], state.waits[waiter] - ahead - done
            at, other = (self._slots(state, who, slot, ring) for ring in (arrived, waited))
            if any(n % depth in at and (n + more) % depth in other for n in held):
                return True
        return False

    def _holds_own(
        self, state: State, who: int, slot: Ref, ring: int, copied: int | None
    ) -> bool:
        """The same of a ring that an agent fills and takes itself: what is copied has been used, a
        revolution before; what is used has come, and is not yet copied anew."""
        system = self.system
        waiter, arriver = system.waiter.get((who, ring)), system.arriver.get((who, ring))
        if waiter is None or arriver is None:
            return False
        waits, depth = state.waits[waiter], system.depths[ring]
        begun = -(-state.units[arriver] // system.needs[arriver])
        held = range(begun - depth, waits)
        if copied is not None:
            held = range(copied, copied + (copied - depth < waits))
        slots = self._slots(state, who, slot, ring)
        return any(number % depth in slots for number in held)

    # --- meetings ---------------------------------------------------------------------------------

    def _meet(self, state: State, who: int, step: Meet) -> bool:
        """Warpgroups of a role wait for one another; what its threads waited for is behind all."""
        agents = self.system.agents
        own = [n for n, each in enumerate(agents) if each.roles == agents[who].roles]
        at = [agents[n].code[state.at[n]] for n in own]
        if not all(isinstance(s, Meet) and s.operation is step.operation for s in at):
            return False
        for agent in own:
            for pair in self.system.pairs_of_agent[agent]:
                if pair in self.system.own:
                    state.safe[pair] = state.ahead[pair]
            state.at[agent] += 1
        return True

    def _turn(self, state: State, who: int, step: Turn) -> bool:
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
                raise Refused(rule("meetings"), "a turn is passed that is not taken", step.operation)
            state.announced |= {step.barrier}
        state.turn[who] = after
        return True

    def _token(self, state: State, who: int, step: Token) -> bool:
        """Instances hand on from tile to tile the right to wait."""
        number, sync = step.operation.id.data, step.operation.kind.data == "sync"
        if sync and number not in state.announced:
            return False
        if state.turn[who] != (0 if sync else _MAY) or (not sync and number in state.announced):
            raise Refused(
                rule("meetings"),
                f"{self._active(state, who)} does not take and hand on its turn once in a tile",
                step.operation,
            )
        state.turn[who] = _MAY if sync else _HANDED
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
        state.turn[who] = _MAY if first else 0
        state.env[who] = {
            value: self._relative(state, who, facts, 1)
            for value, facts in state.parked[who].pop(active).items()
        }
        return active

    def _relative(self, state: State, who: int, facts: Facts, sign: int) -> Facts:
        """Count numbers from the beginning of the tile, or (1) from the origin again."""
        counts = {
            ring: self._count(state, each[0]) for ring, each in self.system.counters[who].items()
        }
        return frozenset(
            fact._replace(at=fact.at + sign * counts[fact.ring])
            for fact in facts
            if fact.over is None
        )

    def _done(self, state: State, who: int, step: Done) -> None:
        """A tile is done: all is given back, and the others' numbers are a tile further behind."""
        system = self.system
        for pair in system.pairs_of_agent[who]:
            if state.ahead[pair]:
                raise Refused(
                    rule("held"),
                    f"{self._active(state, who)} holds slots at the end of a tile",
                    step.operation,
                )
        state.parked[who] = {
            other: {
                value: frozenset(self._tile_later(who, fact) for fact in facts)
                for value, facts in env.items()
            }
            for other, env in state.parked[who].items()
        }
        state.parked[who][state.active[who]] = {
            value: self._relative(state, who, facts, -1)
            for value, facts in state.env[who].items()
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
                state.last[place] -= origin
                state.early[place] = frozenset((n - origin, u) for n, u in state.early[place])
            for ring, origin in enumerate(origins):
                state.exact[ring] = state.exact[ring] and not origin
        for agent, env in enumerate(state.env):
            counts = {
                ring: self._count(state, each[0]) for ring, each in system.counters[agent].items()
            }
            moves = tuple(origins), tuple(counts.items())
            for value, facts in env.items():
                moved = self.moves.get((facts, *moves))
                if moved is None:
                    moved = frozenset(self._moved(fact, origins, counts) for fact in facts)
                    self.moves[facts, *moves] = moved
                env[value] = moved
        places = [
            Place(
                state.labels[n],
                state.loops[n],
                system.enters[n][state.at[n]],
                isinstance(agent.code[state.at[n]], End),
            )
            for n, agent in enumerate(system.agents)
        ]
        state.known, state.labels = self.decisions.settled(state.known, places, self.unit)

    def _moved(self, fact: Fact, origins: list[int], counts: dict[int, int]) -> Fact:
        """Count a fact's numbers from the new origin of its ring."""
        origin = origins[fact.ring]
        over = fact.over and (fact.over[0] - origin, fact.over[1])
        fact = fact._replace(at=fact.at - origin, over=over)
        return self.cursors.near(fact, counts[fact.ring])

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, state: State) -> None:
        """All have ended, and nothing is left; or those who have not wait for one another."""
        system = self.system
        stuck = [
            (agent, agent.code[state.at[n]])
            for n, agent in enumerate(system.agents)
            if not isinstance(agent.code[state.at[n]], End)
        ]
        if stuck:
            told = "; ".join(
                f"{agent.name} waits for {self._waited(step)}" for agent, step in stuck
            )
            place = next((s.operation for _, s in stuck if isinstance(s, Wait | Turn | Token | Meet)), None)
            raise Refused(rule("order"), f"nobody goes on: {told}", place)
        done: dict[int, int] = {}
        for place, (who, ring) in enumerate(system.arrivers):
            number, rest = divmod(state.units[place], system.needs[place])
            if rest or state.early[place] or done.setdefault(ring, number) != number:
                raise self._left(who, ring, "arrives at")
            if state.owed[place]:
                raise Refused(
                    rule("bytes"),
                    f"{system.label(ring)} expects {state.owed[place]} bytes too many in a phase",
                    system.barriers(ring),
                )
        for place, (who, ring) in enumerate(system.waiters):
            if state.waits[place] != done.get(ring, state.waits[place]):
                raise self._left(who, ring, "waits for")
        held = [n for n, agent in enumerate(system.agents) if agent.share == 1 and state.turn[n] > 0]
        if state.announced or held:
            raise Refused(rule("meetings"), "a turn is left that nobody takes", None)

    def _left(self, who: int, ring: int, what: str) -> Refused:
        return Refused(
            rule("left"),
            f"{self.system.agents[who].name} {what} {self.system.label(ring)} unlike often as its "
            "phases complete",
            self.system.barriers(ring),
        )

    def _waited(self, step: object) -> str:
        match step:
            case Wait(_, ring):
                return self.system.label(ring)
            case Turn():
                return f"its turn at named barrier {step.barrier}"
            case Token():
                return f"named barrier {step.operation.id.data}"
            case _:
                return "the other warpgroups"


def _is_about(operand: Operand, *kinds: str) -> bool:
    return isinstance(operand, frozenset) and any(each.kind in kinds for each in operand)


__all__ = ["Choreography", "Label", "State"]
