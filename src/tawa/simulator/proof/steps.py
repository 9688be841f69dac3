"""Steps of a script: one operation each, run in order; the actions of several are made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, TypeAlias

from xdsl.ir import SSAValue

from tawa.simulator.proof.machine import Action, Script, Source
from tawa.simulator.proof.places import reader

Control: TypeAlias = Callable[[Script], "Source | None"]


@dataclass(frozen=True, slots=True)
class Computation:
    """A scalar that follows from others: `result`, kept at `out`, from what stands at `reads`. Of
    `numbers` alone where what it is of expressions is another matter in each run.
    """

    result: SSAValue
    out: int
    reads: tuple[int, ...]
    numbers: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One operation to execute. `run` returns the action of its agents, if they have one; where it
    is `control` the source of those of its parts. A `late` one computes from what agents have done
    before: it waits until they come so far. One that only computes says what it `computes`.
    """

    run: Callable[[Script], Any]
    control: bool = False
    late: bool = False
    computes: Computation | None = None


def run_steps(steps: Iterable[Step]) -> Control:
    """Return the function that runs steps in order: it makes their actions, and yields the sources
    of loops and conditions, to be run before it goes on.
    """
    parts = [_Part([])]
    for step in _computed_at_once(steps):
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


def _computed_at_once(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps, those that compute one from another as one, where they stand side by side."""
    for computes, group in groupby(steps, lambda step: step.computes is not None):
        for several in _chains(group) if computes else ([step] for step in group):
            yield several[0] if len(several) == 1 else Step(_computed(several))


def _chains(steps: Iterable[Step]) -> list[list[Step]]:
    """Return computations by what they have to do with one another, each part in order."""
    chains: dict[int, list[Step]] = {}  # by the places that are written
    for step in steps:
        assert step.computes is not None
        before = {id(chains[at]): chains[at] for at in step.computes.reads if at in chains}
        linked = [*chain.from_iterable(before.values()), step]
        for each in linked:
            assert each.computes is not None
            chains[each.computes.out] = linked
    return list({id(linked): linked for linked in chains.values()}.values())


def _computed(steps: list[Step]) -> Callable[[Script], None]:
    """Return what takes several steps. What they compute is kept, by what they read: slots, phases
    and tiles recur, in one run and in others.
    """
    computations = [step.computes for step in steps if step.computes is not None]
    places = [each.out for each in computations]
    inside = {each.result.owner for each in computations}
    read = reader(
        tuple(dict.fromkeys(at for each in computations for at in each.reads if at not in places))
    )
    used = [
        each.out
        for each in computations
        if any(use.operation not in inside for use in each.result.uses)
    ]
    give = reader(tuple(used))
    kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    numbers_only = any(each.numbers for each in computations)

    def run(script: Script) -> None:
        env = script.env
        scalars = read(env)
        found = kept.get(scalars)
        if found is not None:
            for place, scalar in zip(used, found):
                env[place] = scalar
            return
        for step in steps:
            step.run(script)
        if numbers_only:
            for scalar in scalars:
                if scalar.__class__ is not int:
                    return
        kept[scalars] = give(env)

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
