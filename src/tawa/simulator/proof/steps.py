"""Steps of a script: one operation each, run in order; the actions of several are made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from tawa.simulator.proof.machine import Action, Script, Source

Control: TypeAlias = Callable[[Script], "Source | None"]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation to execute. `run` returns the action of its agents, if they have one; where it
    is `control` the source of those of its parts. A `late` one computes from what agents have done
    before: it waits until they come so far.
    """

    run: Callable[[Script], Any]
    control: bool = False
    late: bool = False


def run_steps(steps: Iterable[Step]) -> Control:
    """Return the function that runs steps in order: it makes their actions, and yields the sources
    of loops and conditions, to be run before it goes on.
    """
    parts = [_Part([])]
    for step in steps:
        if step.late:
            parts.append(_Part([]))
        if step.control:
            parts[-1].control = step.run
            parts.append(_Part([]))
        else:
            parts[-1].steps.append(step.run)
    if len(parts) == 1:
        return partial(_make, parts[0].steps)

    def run(script: Script) -> Source:
        for part in parts:
            _make(part.steps, script)
            yield None if part.control is None else part.control(script)

    return run


@dataclass(eq=False, slots=True)
class _Part:
    """Steps whose actions are made at once, and a loop or condition after them."""

    steps: list[Callable[[Script], Action | None]]
    control: Control | None = None


def _make(steps: list[Callable[[Script], Action | None]], script: Script) -> None:
    actions = script.actions
    for step in steps:
        action = step(script)
        if action is not None:
            actions.append(action)


def in_turn(script: Script, *parts: Control) -> Source:
    """Run parts of a program one after the other."""
    for part in parts:
        yield part(script)


def both(check: Step, step: Step) -> Step:
    """Return the step that takes two: the first has no action."""

    def run(script: Script) -> Action | None:
        check.run(script)
        return step.run(script)

    return Step(run, late=step.late)
