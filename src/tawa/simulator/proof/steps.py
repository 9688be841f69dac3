"""Steps of a script: one operation each, run in order; the actions of several are made at once.

What agents do there is the same wherever the slots and phases are: it is made once for each of
them, for all trips, runs and blocks. Actions know of the run, the block and the agent only through
who acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, TypeAlias

from xdsl.ir import SSAValue

from tawa.simulator.proof.machine import Action, Script, Source
from tawa.simulator.proof.places import reader
from tawa.simulator.proof.rules import Unproved, Violation

Control: TypeAlias = Callable[[Script], "Source | None"]
Prepare: TypeAlias = Callable[[Script], None]


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

    The action is the same wherever the numbers at the places `by` are, beside what the step
    `prepares` in its script each time; where it is not, `by` is None. A step is `cut` from those
    before it where one of them writes such a place.
    """

    run: Callable[[Script], Any]
    control: bool = False
    late: bool = False
    computes: Computation | None = None
    by: tuple[int, ...] | None = None
    prepares: Prepare | None = None
    cut: bool = False


def silent(run: Prepare, computes: Computation | None = None) -> Step:
    """Return a step without an action."""
    return Step(run, computes=computes, by=(), prepares=run)


def run_steps(steps: Iterable[Step]) -> Control:
    """Return the function that runs steps in order: it makes their actions, and yields the sources
    of loops and conditions, to be run before it goes on.
    """
    parts: list[tuple[list[Step], Control | None]] = []
    straight: list[Step] = []
    for step in _computed_at_once(steps):
        if step.late:
            parts.append((straight, None))
            straight = []
        if step.control:
            parts.append((straight, step.run))
            straight = []
        else:
            straight.append(step)
    if not parts:
        return _made(straight)
    makers = [(_made(part), control) for part, control in (*parts, (straight, None))]

    def run(script: Script) -> Source:
        for make, control in makers:
            make(script)
            yield None if control is None else control(script)

    return run


def _computed_at_once(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps, those that compute one from another as one, where they stand side by side."""
    for computes, group in groupby(steps, lambda step: step.computes is not None):
        for several in _chains(group) if computes else ([step] for step in group):
            yield several[0] if len(several) == 1 else silent(_computed(several))


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


def _made(steps: list[Step]) -> Prepare:
    """Return what makes the actions of steps without loops and conditions."""
    makers = [_kept(part) if part[0].by is not None else _each(part) for part in _pieces(steps)]
    if len(makers) == 1:
        return makers[0]

    def make(script: Script) -> None:
        for maker in makers:
            maker(script)

    return make


def _pieces(steps: list[Step]) -> Iterator[list[Step]]:
    """Yield steps in order, together those whose actions are kept, and those whose are not."""
    piece: list[Step] = []
    for step in steps:
        if piece and (step.cut or (step.by is None) is not (piece[0].by is None)):
            yield piece
            piece = []
        piece.append(step)
    if piece:
        yield piece


def _each(steps: list[Step]) -> Prepare:
    """Return what makes the actions of steps anew each time."""
    runs = [step.run for step in steps]

    def make(script: Script) -> None:
        actions = script.actions
        for run in runs:
            action = run(script)
            if action is not None:
                actions.append(action)

    return make


def _kept(steps: list[Step]) -> Prepare:
    """Return what makes the actions of steps once for all numbers they go by. A traced run has
    actions of its own.
    """
    prepares = [
        (place, step.prepares) for place, step in enumerate(steps) if step.prepares is not None
    ]
    read = reader(tuple(dict.fromkeys(place for step in steps for place in step.by or ())))
    kept: dict[tuple[Any, ...], tuple[tuple[Action, ...], tuple[Action | None, ...]]] = {}

    def make(script: Script) -> None:
        numbers = read(script.env)
        found = kept.get(numbers) if script.world.trace is None else None
        if found is None:
            anew(script, numbers)
            return
        together, each = found
        done = 0
        try:
            for done, prepare in prepares:  # noqa: B007
                prepare(script)
        except (Violation, Unproved):
            script.actions.extend(action for action in each[:done] if action is not None)
            raise
        script.actions.extend(together)

    def anew(script: Script, numbers: tuple[Any, ...]) -> None:
        actions = script.actions
        each: list[Action | None] = []
        for step in steps:
            action = step.run(script)
            each.append(action)
            if action is not None:
                actions.append(action)
        if script.world.trace is None and all(number.__class__ is int for number in numbers):
            together = tuple(action for action in each if action is not None)
            kept[numbers] = together, tuple(each)

    return make


def in_turn(script: Script, *parts: Control) -> Source:
    """Run parts of a program one after the other."""
    for part in parts:
        yield part(script)


def checked(check: Step | None, step: Step) -> Step:
    """Return a step before which something may be checked."""
    return step if check is None else both(check, step)


def both(check: Step, step: Step) -> Step:
    """Return the step that takes two: the first has no action, and so goes by nothing."""
    assert not check.by

    def run(script: Script) -> Action | None:
        check.run(script)
        return step.run(script)

    def prepare(script: Script) -> None:
        check.run(script)
        if step.prepares is not None:
            step.prepares(script)

    by = step.by if check.by is not None else None
    return Step(run, late=step.late, by=by, prepares=prepare)
