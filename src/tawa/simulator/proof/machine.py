"""Who acts during one run: agents, what they know, and the order in which they take turns.

An *agent* stands for warps that do the same and that nothing orders among themselves. Knowledge is
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
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.rules import Row, Violation
from tawa.simulator.proof.scalars import Scalars

if TYPE_CHECKING:
    from tawa.simulator.proof.barriers import Mbarrier

WARP = 32


@dataclass(frozen=True, slots=True)
class Blocked:
    """What an agent waits for, as the trace shows it."""

    what: str
    phase: str
    need: str
    sentence: str
    operation: Operation
    queue: list[Agent]


@dataclass(eq=False, slots=True)
class Agent:
    """Warps of one warpgroup of a role. `leader` holds the elected thread of its warpgroup,
    `first` that of the role, `origin` thread 0 of the block.
    """

    label: str
    block: int
    role: int
    group: int
    warps: tuple[int, ...]
    leader: bool
    first: bool
    origin: bool
    number: int = 0
    env: list[Any] = field(default_factory=list[Any])
    known: int = 0
    fenced: int = 0
    unfenced: int = 0
    unfenced_one: int = 0
    steps: int = 0
    seen: dict[Mbarrier, int] = field(default_factory=lambda: {})
    waits: dict[Mbarrier, int] = field(default_factory=lambda: {})
    gets: dict[int, int] = field(default_factory=dict[int, int])
    puts: dict[tuple[Operation, int, int], tuple[int, int]] = field(default_factory=lambda: {})
    meeting: int = -1
    program_index: int = 0
    registers: int = 0
    single: bool = False
    program: Generator[Blocked, None, None] | None = None
    blocked: Blocked | None = None
    turns: dict[Operation, int] = field(default_factory=dict[Operation, int])
    world: Any = None  # the Run it is part of: typed where it is used
    home: Any = None  # the BlockState it runs on
    products: Any = None
    bulk: Any = None
    copies: Any = None

    @property
    def threads(self) -> int:
        """Threads of the agent that execute an operation now: one inside `OneThread`."""
        return 1 if self.single else WARP * len(self.warps)

    def knows(self, event: int) -> bool:
        """Tell whether an event (a single bit) happened before what the agent does next."""
        return bool(self.known & event)


class World:
    """One run: its agents, its events, and the numbers its unknowns are bound to."""

    def __init__(self, scalars: Scalars, trace: bool = False) -> None:
        self.scalars = scalars
        self.agents: list[Agent] = []
        self.ready: deque[Agent] = deque()
        self.events = 0
        self.steps: int = 0
        self.by_threads = 0
        self.remote: list[tuple[int, int, str, Operation]] = []
        self.trace: list[Row] | None = [] if trace else None

    def event(self) -> int:
        """Return a new event, as a bit."""
        self.events += 1
        return 1 << (self.events - 1)

    def wake(self, queue: list[Agent]) -> None:
        """Let the agents of a queue try again."""
        if queue:
            self.ready.extend(queue)
            queue.clear()

    def run(self, start: Callable[[Agent], Generator[Blocked, None, None]]) -> None:
        """Run all agents until each has ended. Raises Violation "no hang"."""
        for agent in self.agents:
            agent.program = start(agent)
        self.ready.extend(self.agents)
        while self.ready:
            agent = self.ready.popleft()
            assert agent.program is not None
            agent.blocked = next(agent.program, None)
            if agent.blocked is not None:
                agent.blocked.queue.append(agent)
        stuck = [agent for agent in self.agents if agent.blocked is not None]
        if stuck:
            raise self._hang(stuck)

    def _hang(self, stuck: list[Agent]) -> Violation:
        alike: dict[tuple[Operation, str, str], list[Agent]] = {}
        for agent in stuck:
            item = agent.blocked
            assert item is not None
            alike.setdefault((item.operation, item.what, item.phase), []).append(agent)
        rows: list[Row] = []
        sentences: list[str] = []
        for agents in alike.values():
            item, label = agents[0].blocked, agents[0].label
            assert item is not None
            what = f"waits for {item.what}"
            rows.append(Row(0, label, line_of(item.operation), what, item.phase, item.need))
            more = f" (and {len(agents) - 1} more like it)" if len(agents) > 1 else ""
            sentences.append(f"{label}{more} waits for {item.sentence}")
        text = "; ".join(sentences) + ": nobody can go on."
        first = stuck[0].blocked
        assert first is not None
        return Violation("no hang", text, first.operation, tuple(rows))
