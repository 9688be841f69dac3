"""Who acts during one run: agents, what they know, and the order in which they take turns.

An *agent* stands for warps that do the same and that nothing orders among themselves. The agents of
a role follow one `Script`: the actions of the role in the order of the program, slots and phases
worked out, made when the first of them comes so far (where the role's one thread is alone in a loop
or condition, it has another). Knowledge is
a set of events, kept as the bits of an integer: an agent knows an event exactly if it happened
before whatever the agent does next. `known` orders accesses by threads, and completions of
asynchronous work; `fenced` holds those accesses by threads that also happened before what the
async proxy does next.

Arguments for "one run decides". Every wait is shown to name one phase only (the next cannot
complete before it: rule "one phase at a time"), every arrival to belong to one phase only (rule
"arrivals of one phase"), and counts are fixed. Then whether a wait is answered does not depend on
the order in which agents run, and a run that ends proves that all end; the knowledge passed along
is the same in all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.expressions import Facts
from tawa.simulator.proof.rules import Row, Unproved, Violation
from tawa.simulator.proof.scalars import Scalars
from tawa.simulator.proof.tables import new_dict

if TYPE_CHECKING:
    from tawa.simulator.proof.barriers import Mbarrier

WARP = 32
_IDLE = 64  # parts of a program that make no actions, side by side, before they count as steps


@dataclass(frozen=True, slots=True)
class Waiting:
    """What an agent waits for, as the trace shows it."""

    what: str
    phase: str
    need: str
    sentence: str
    operation: Operation


class Blocked:
    """An agent that must wait in a queue; `report` says for what, if it waits for ever."""

    __slots__ = ("queue", "report")

    def __init__(self, queue: list[Agent], report: Callable[[], Waiting]) -> None:
        self.queue = queue
        self.report = report


Action: TypeAlias = "Callable[[Agent], Blocked | int | None]"
"""What an agent does in one step: None when it is done, a `Blocked` to be tried again, a number of
actions that are not for this agent, and are skipped.
"""

Source: TypeAlias = "Iterator[Source | None]"
"""What makes the actions of a part of the program: it yields where it need not go on before they
are done, and the sources of the parts inside.
"""


@dataclass(eq=False, slots=True)
class Script:
    """What the agents of a role in one block do: `actions`, as far as they have been made; those
    between two choices are made at once, a choice when the first agent comes to it.

    `env` holds the scalars and the names of registers, which are the role's own business: they
    follow from the program and the configuration, in whatever order the agents run. `turns` counts
    how often an operation was met, `program` tells the program at hand from others. `registers`
    follows the wgmmas of the program; `follows` says that it checks the registers they own.
    """

    world: Any  # the Run it is part of: typed where it is used
    home: Any  # the BlockState it runs on
    label: str
    block: int
    role: int
    follows: bool
    alone: bool
    registers: Any
    env: list[Any]
    actions: list[Action] = field(default_factory=lambda: [])
    turns: dict[Operation, int] = field(default_factory=lambda: {})
    program: int = 0
    facts: Facts = None
    sources: list[Source] = field(default_factory=lambda: [])

    def extend(self) -> bool:
        """Make the next actions; False at the end of the role. Where one cannot be made, to say so
        is what the agents do in its place.
        """
        try:
            return self._go_on()
        except (Violation, Unproved) as found:
            self.fail(found)
            return True

    def fail(self, found: Violation | Unproved) -> None:
        """Let what cannot be made be said where agents come to it."""
        self.actions.append(partial(self._fail, found))

    def _fail(self, found: Violation | Unproved, agent: Agent) -> None:
        if isinstance(found, Violation) and found.operation is not None and not found.rows:
            what = found.operation.name.removeprefix("hopper.")
            line = line_of(found.operation)
            found.rows = (Row(self.world.steps + 1, self.label, line, what),)
        raise found

    def _go_on(self) -> bool:
        sources, actions = self.sources, self.actions
        made, idle = len(actions), 0
        while sources and len(actions) == made:
            idle += 1
            if idle > _IDLE:
                self.world.count()
            for inner in sources[-1]:
                if inner is not None:
                    sources.append(inner)
                break
            else:
                sources.pop()
        return len(actions) > made

    def turn(self, operation: Operation) -> int:
        """Count an execution of an operation; return which it is, from 1."""
        return _count(self.turns, operation)


@dataclass(eq=False, slots=True)
class Agent:
    """Warps of one warpgroup of a role. `leader` holds the elected thread of its warpgroup,
    `first` that of the role, `origin` thread 0 of the block. `place` is how far it is in its
    script, `engine` the queue of wgmmas of its warpgroup, if it is a whole one; `waited` is the
    (array, slot) of its last wait, until it fills a slot. `turns` counts how often it wrote by an
    operation, `started` and `finished` how many wgmmas it has started, and how often it has waited
    for some.
    """

    label: str
    block: int
    role: int
    group: int
    warps: tuple[int, ...]
    leader: bool
    first: bool
    origin: bool
    world: Any  # the Run it is part of: typed where it is used
    home: Any  # the BlockState it runs on
    script: Script
    engine: Any = None
    bulk: Any = None
    copies: Any = None
    number: int = 0
    registers: int = 0
    place: int = 0
    known: int = 0
    fenced: int = 0
    unfenced: int = 0
    unfenced_one: int = 0
    waits: dict[Mbarrier, int] = field(default_factory=new_dict)
    gets: dict[int, int] = field(default_factory=new_dict)
    puts: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=new_dict)
    waited: tuple[int, int] | None = None
    meeting: int = -1
    single: bool = False
    blocked: Blocked | None = None
    turns: dict[Operation, int] = field(default_factory=new_dict)
    started: int = 0
    finished: int = 0

    @property
    def threads(self) -> int:
        """Threads of the agent that execute an operation now: one inside `OneThread`."""
        return 1 if self.single else WARP * len(self.warps)

    def fills(self, array: int, slot: int) -> None:
        """Note that copies complete on a slot of `array`, and what was waited for before them.

        What gives slots back has completed a phase less than these had copies: one whose phase for
        the copies at hand was waited for before them is filled by others.
        """
        waited, self.waited = self.waited, None
        freed = None
        if waited is not None and waited[1] == slot:
            arrays: list[list[Mbarrier]] = self.home.arrays
            if self.waits[arrays[waited[0]][slot]] < arrays[array][slot].done:
                freed = waited[0]
        self.world.pairs.setdefault(array, set()).add(freed)

    def turn(self, operation: Operation) -> int:
        """Count an execution of an operation; return which it is, from 1."""
        return _count(self.turns, operation)

    def advance(self) -> Blocked | None:
        """Go on until the end of the script, or to what must be waited for."""
        script, start = self.script, self.place
        actions = script.actions
        while True:
            end = len(actions)
            for place, action in enumerate(actions[start:], start):
                blocked = action(self)
                if blocked is not None:
                    if isinstance(blocked, Blocked):
                        self.place = place
                        return blocked
                    end = place + blocked + 1
                    break
            start = end
            if start >= len(actions) and not script.extend():
                self.place = start
                return None


def _count(turns: dict[Operation, int], operation: Operation) -> int:
    turn = turns[operation] = turns.get(operation, 0) + 1
    return turn


class World:
    """One run: its agents, its events, and the numbers its unknowns are bound to."""

    def __init__(self, scalars: Scalars, trace: bool = False) -> None:
        self.scalars = scalars
        self.agents: list[Agent] = []
        self.ready: deque[Agent] = deque()
        self.events = 0
        self.steps: int = 0
        self.by_threads = 0
        self.copied = 0  # by cp.async
        self.pairs: dict[int, set[int | None]] = {}  # arrays filled: those waited for before
        self.remote: list[tuple[int, int, str, Operation]] = []
        self.trace: list[Row] | None = [] if trace else None

    def event(self) -> int:
        """Return a new event, as a bit."""
        made = self.events
        self.events = made + 1
        return 1 << made

    def event_of(self, owner: object, number: int) -> int:
        """Return the event of what `owner` does for the `number`-th time, whoever is the cause."""
        made = self.events
        self.events = made + 1
        return 1 << made

    def wake(self, queue: list[Agent]) -> None:
        """Let the agents of a queue try again."""
        if queue:
            self.ready.extend(queue)
            queue.clear()

    def run(self) -> None:
        """Run all agents until each has ended. Raises Violation "no hang"."""
        self.ready.extend(self.agents)
        while self.ready:
            agent = self.ready.popleft()
            agent.blocked = agent.advance()
            if agent.blocked is not None:
                agent.blocked.queue.append(agent)
        self.check_hang()

    def check_hang(self) -> None:
        """Raise Violation "no hang" where agents wait for what nobody will do."""
        stuck = [agent for agent in self.agents if agent.blocked is not None]
        if stuck:
            raise self._hang(stuck)

    def _hang(self, stuck: list[Agent]) -> Violation:
        alike: dict[tuple[Operation, str, str], list[tuple[Agent, Waiting]]] = {}
        for agent in stuck:
            assert agent.blocked is not None
            item = agent.blocked.report()
            alike.setdefault((item.operation, item.what, item.phase), []).append((agent, item))
        rows: list[Row] = []
        sentences: list[str] = []
        for agents in alike.values():
            first, item = agents[0]
            label, what = first.label, f"waits for {item.what}"
            rows.append(Row(0, label, line_of(item.operation), what, item.phase, item.need))
            more = f" (and {len(agents) - 1} more like it)" if len(agents) > 1 else ""
            sentences.append(f"{label}{more} waits for {item.sentence}")
        text = "; ".join(sentences) + ": nobody can go on."
        return Violation("no hang", text, next(iter(alike))[0], tuple(rows))
