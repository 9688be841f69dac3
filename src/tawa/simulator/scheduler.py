"""The seeded scheduler: tasks (roles as coroutines) and events (asynchronous work in flight).

One choice is made at a time, by a generator seeded once, so equal seeds give equal runs. A task
yields None where others may run between its operations, or `Blocked` where it cannot go on. When
no task can run and nothing is in flight, the run is a deadlock and is reported as a table.

Named schedules: which role waits for the others, and when asynchronous work completes.

``random``         one choice at a time, by the seed
``late``           asynchronous work completes only when no role can go on
``early``          it completes before any role goes on
``starve=ROLE``    the role runs only when nothing else can
``starve=ROLE+late``, ``starve=ROLE+early``   both
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from xdsl.ir import Operation

from tawa.errors import ArgumentError, LaunchError, ProtocolError, TawaError
from tawa.ir import aref, hopper, line_of, tile
from tawa.simulator.values import place_of

# The task that owns a block's set-up and then waits for its roles: no line in a deadlock's table.
BLOCK = "block"


# Turns of others that a starved role waits through before it gets one.
_PATIENCE = 5000


@dataclass(frozen=True, slots=True)
class Need:
    """What a task waits for: one row of the deadlock table, and the sentence about it.

    `of_kernel`: the text of the kernel asks for it, not what the compiler makes of it.
    """

    what: str
    phase: str = "-"
    arrived: str = "-"
    sentence: str = ""
    of_kernel: bool = False


@dataclass(eq=False, slots=True)
class Blocked:
    """A wait: over when `ready()`; whoever changes what it depends on wakes `queue`."""

    ready: Callable[[], bool]
    queue: list[Task]
    need: Callable[[], Need]
    operation: Operation


@dataclass(eq=False, slots=True)
class Task:
    """A coroutine, its name in reports and what to do when it has ended."""

    label: str
    where: str
    body: Generator[Any, None, None]
    on_end: Callable[[], None]
    blocked: Blocked | None = None
    since: int = 0


@dataclass(eq=False, slots=True)
class Event:
    """A piece of asynchronous work that may happen at any time from now on."""

    what: str
    run: Callable[[], None]


@dataclass(eq=False)
class Scheduler:
    """Runs tasks and events until none is left.

    `schedule` is a name of `tawa.simulator.scheduler`; `late` says when asynchronous work completes
    where the name does not: "random", "late" (only when every task waits) or "early" (before any
    task goes on). `later` blocks begin only when others have ended, of which `resident` run.
    """

    seed: int = 0
    schedule: str = "random"
    late: str = "random"
    limit: int = 20_000_000
    later: int = 0
    resident: int = 0
    step: int = 0
    ready: list[Task] = field(default_factory=list[Task])
    events: list[Event] = field(default_factory=list[Event])
    waiting: dict[Task, None] = field(default_factory=dict[Task, None])

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._turns = 0
        named = read_schedule(self.schedule)
        self._starved, self._starves = named.starved, bool(named.starved)
        if named.completions != "random":
            self.late = named.completions
        if self.late not in ("random", "late", "early"):
            raise ArgumentError(f"late={self.late!r}", remedy='use "random", "late" or "early"')

    def start(self, task: Task) -> None:
        """Let a task run from now on."""
        self.ready.append(task)

    def post(self, what: str, run: Callable[[], None]) -> None:
        """Put asynchronous work in flight."""
        self.events.append(Event(what, run))

    def wake(self, queue: list[Task]) -> None:
        """Let those tasks of a queue go on whose wait is over."""
        if not queue:
            return
        still: list[Task] = []
        for task in queue:
            if task.blocked is not None and task.blocked.ready():
                task.blocked = None
                del self.waiting[task]
                self.ready.append(task)
            else:
                still.append(task)
        queue[:] = still

    def run(self) -> None:
        """Run to the end; raises ProtocolError for a deadlock or a run that does not end, and
        LaunchError where the kernel waits for what nobody does.
        """
        self.drain()
        if self.waiting:
            raise self._deadlock()

    def drain(self) -> None:
        """Run until all that is left waits; raises ProtocolError for a run that does not end."""
        while self.ready or self.events:
            self.step += 1
            if self.step > self.limit:
                raise ProtocolError(
                    f"the run did not end in {self.limit} steps",
                    why="a role polls for something that never happens, or the launch is too large",
                    remedy="simulate a smaller problem, or look for a loop that polls memory",
                )
            if (index := self._choose()) < 0:
                self._take(self.events, -index - 1).run()
            else:
                self._advance(self._take(self.ready, index))

    def _take(self, items: list[Any], index: int) -> Any:
        items[index], items[-1] = items[-1], items[index]
        return items.pop()

    def _choose(self) -> int:
        """Return the index of a ready task, or -1 - the index of an event."""
        tasks, events = len(self.ready), len(self.events)
        if events and (not tasks or self.late == "early"):
            return -1 - self.random.randrange(events)
        if self._starves:
            return self._choose_but(self._starved, events)
        if self.late == "late" or not events:
            return self.random.randrange(tasks)
        at = self.random.randrange(tasks + events)
        return at if at < tasks else tasks - at - 1

    def _choose_but(self, label: str, events: int) -> int:
        others = [i for i, task in enumerate(self.ready) if task.label != label]
        # A role that polls memory for the starved one would poll for ever.
        self._turns = self._turns + 1 if len(others) < len(self.ready) else 0
        if self._turns > _PATIENCE:
            self._turns = 0
            others = [i for i, task in enumerate(self.ready) if task.label == label]
            return self.random.choice(others)
        if self.late == "late" and others:
            return self.random.choice(others)
        choices = others + [-1 - i for i in range(events)]
        return self.random.choice(choices) if choices else self.random.randrange(len(self.ready))

    def _advance(self, task: Task) -> None:
        try:
            blocked = next(task.body)
        except StopIteration:
            task.on_end()
            return
        if blocked is None or blocked.ready():
            self.ready.append(task)
            return
        task.blocked, task.since = blocked, self.step
        self.waiting[task] = None
        blocked.queue.append(task)

    def _deadlock(self) -> TawaError:
        header = ("step", "role", "line", "waits for", "phase", "arrived/needed")
        rows: list[tuple[str, ...]] = [header]
        sentences: dict[str, list[str]] = {}
        polling: list[Operation] = []
        first = None
        for task in self.waiting:
            if (blocked := task.blocked) is None or task.label == BLOCK:
                continue
            need = blocked.need()
            line = line_of(blocked.operation)
            cells = (str(task.since), task.where, str(line) if line else "-")
            rows.append((*cells, need.what, need.phase, need.arrived))
            if need.sentence:
                sentences.setdefault(need.sentence, []).append(task.where)
            if need.of_kernel:
                polling.append(blocked.operation)
            first = first or place_of(blocked.operation)
        said = [f"{_several(who)} {sentence}" for sentence, who in sentences.items()]
        table, why = _table(rows), "; ".join(said[:4]) + "; nobody is left to do it"
        if not polling:
            return ProtocolError(f"deadlock: every role waits\n{table}", place=first, why=why)
        if self.later:
            why += f": {self.later} blocks begin only when some of the {self.resident} that run end"
        return LaunchError(
            f"the launch hangs: nobody writes what a loop waits for\n{table}",
            place=place_of(polling[0]),
            why=why,
            remedy="let programs wait for those before them only, or launch as many as run at once"
            if self.later
            else "let a program write it that does not wait itself",
        )


def _several(who: list[str]) -> str:
    return f"{who[0]} waits" if len(who) == 1 else f"{who[0]} (and {len(who) - 1} more) waits"


_ROWS = 12


def _table(rows: list[tuple[str, ...]]) -> str:
    """Return rows in columns, the first of very many."""
    shown = rows[: _ROWS + 1]
    widths = [max(len(row[i]) for row in shown) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in shown]
    if len(rows) > len(shown):
        lines.append(f"and {len(rows) - len(shown)} more")
    return "\n".join(f"  {line}" for line in lines)


# --- schedules ------------------------------------------------------------------------------------


_COMPLETIONS = ("random", "late", "early")
_REMEDY = 'use "random", "late", "early", "starve=ROLE", or two of them: "starve=ROLE+late"'


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a schedule's name says: the starved role, or none, and when work completes."""

    starved: str = ""
    completions: str = "random"


def read_schedule(text: str) -> Schedule:
    """Return the schedule of a name; raises ArgumentError for one that means nothing."""
    starved, completions = "", ""
    for word in text.split("+"):
        role = word.removeprefix("starve=")
        if role != word and role and not starved:
            starved = role
        elif word in _COMPLETIONS and not completions:
            completions = word
        else:
            raise ArgumentError(f"schedule={text!r} is not known", remedy=_REMEDY)
    return Schedule(starved, completions or "random")


def roles_of(kernel: tile.Kernel) -> tuple[str, ...]:
    """Return the labels of a kernel's roles, in order."""
    found = [op.label.data for op in kernel.walk() if isinstance(op, (hopper.Role, aref.Role))]
    return tuple(dict.fromkeys(found))


def check_schedule(kernel: tile.Kernel, text: str) -> Schedule:
    """Return the schedule of a name; raises ArgumentError where it starves a role there is not."""
    schedule, roles = read_schedule(text), roles_of(kernel)
    if schedule.starved and schedule.starved not in roles:
        raise ArgumentError(
            f"schedule={text!r} starves a role that the program does not have",
            why=f"its roles are {', '.join(roles)}" if roles else "it has no roles",
        )
    return schedule


def adversarial(kernel: tile.Kernel) -> tuple[str, ...]:
    """Return the schedules that try a program hardest: each role starved in turn, asynchronous work
    at random, as late and as early as legal.
    """
    completions = ("", "+late", "+early")
    starved = [f"starve={role}{when}" for role in roles_of(kernel) for when in completions]
    return ("random", "late", "early", *starved)
