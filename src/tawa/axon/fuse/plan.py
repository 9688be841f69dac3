"""Plans: a schedule for arrays that lie in one way: all that is decided once, then calls alone.

A plan is made by running its schedule. An array that a step does not read as it lies is turned by a
copy, once for all steps that read it so. What is computed of an imported graph's weights alone is
computed then, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tawa.axon.fuse.calls import Order
from tawa.axon.fuse.launch import Run
from tawa.axon.fuse.needs import traced_in
from tawa.axon.fuse.schedule import Schedule, filled
from tawa.axon.fuse.trace import Traced
from tawa.axon.fuse.turn import turning
from tawa.axon.library.untyped import fixed
from tawa.axon.run import tensors
from tawa.runtime.arrays import is_tensor, look
from tawa.runtime.tensors import opaque

Turned = dict[tuple[int, Order], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """What a plan does with its arrays, which have numbers.

    `once`: it computes of weights alone, and was done when the plan was made.
    """

    name: str
    run: Run
    reads: tuple[int, ...]
    makes: range
    once: bool

    def __str__(self) -> str:
        return f"{self.name}, once" if self.once else self.name


class Plan:
    """The steps of a program for arguments that lie as some do; `print` shows them.

    It is made by running them: `take` gives the results of the arguments it was made for, once.
    `turned` keeps weights that are turned, for all plans of a graph.
    """

    def __init__(
        self, schedule: Schedule, arrays: Sequence[Any], weights: Sequence[Any], turned: Turned
    ) -> None:
        self.steps: list[Step] = []
        self._held: list[Any] = [*arrays, *weights]
        self._weights = range(len(arrays), len(self._held))
        self._known = set(self._weights)  # what is computed of weights alone
        self._number = {leaf.node: number for number, leaf in enumerate(schedule.leaves)}
        self._derived: dict[int, dict[Hashable, int]] = {}
        self._turned = turned
        last = {each.node: task for task in schedule.tasks for each in task.reads}
        last |= {each.node: None for each in traced_in(schedule.results)}
        for task in schedule.tasks:
            reads = [self._read(each) for each in task.reads]
            there = partial(self._is_there, reads)
            orders = task.orders([look(self._held[n]) for n in reads], there)
            reads = [n if o is None else self._turn(n, o) for n, o in zip(reads, orders)]
            run = task.bind([self._held[n] for n in reads] or arrays[:1])
            self._number |= zip(task.makes, self._do(task.name, run, reads))
            for each in task.reads:
                if last[each.node] is task:
                    self._free(self._number[each.node])
        self._outcome = schedule.results
        self._results = [self._result(each) for each in traced_in(schedule.results)]
        self._first = self._filled([self._held[n] for n in self._results], arrays[0])
        self.code, scope = self._text(len(arrays))  # of a call
        exec(compile(self.code, "<tawa call of a plan>", "exec"), scope)
        self._run = opaque(scope["plan"])
        tensors.settle(arrays[0])

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Take the steps on arrays; return the results as the program does."""
        return self._filled(self._run(arrays), arrays[0])

    def take(self) -> Any:
        """Return the results of the arguments that the plan was made for."""
        first, self._first = self._first, None
        return first

    def _do(self, name: str, run: Run, reads: Sequence[int], anew: bool = False) -> range:
        """Take a step and note it; return the numbers of what it makes.

        `anew`: by each call, though of weights alone.
        """
        made = run([self._held[n] for n in reads])
        makes = range(len(self._held), len(self._held) + len(made))
        self._held += made
        once = not anew and self._known.issuperset(reads)
        if once:
            self._known.update(makes)
        self.steps.append(Step(name, run, tuple(reads), makes, once))
        return makes

    def _derive(self, number: int, key: Hashable, name: str, run: Callable[[Any], Any]) -> int:
        """Return the number of what a function makes of an array, one for all steps."""
        derived = self._derived.setdefault(number, {})
        if key not in derived:
            (derived[key],) = self._do(name, lambda given: (run(*given),), [number])
        return derived[key]

    def _free(self, number: int) -> None:
        """Let go of an array that no other step reads, and of those derived from it."""
        if number not in self._known:
            self._held[number] = None
            for each in self._derived.get(number, {}).values():
                self._free(each)

    def _read(self, array: Traced) -> int:
        """Return the number of an array in the shape in which it is read."""
        number, shape = self._number[array.node], tuple(map(int, array.shape))
        if tuple(self._held[number].shape) == shape:
            return number
        return self._derive(number, shape, f"reshape {list(shape)}", lambda x: x.reshape(shape))

    def _is_there(self, reads: Sequence[int], place: int, order: Order) -> bool:
        """Tell whether to have one of some arrays in an order costs a call nothing."""
        number = reads[place]
        return number in self._known or ("by", order) in self._derived.get(number, {})

    def _turn(self, number: int, order: Order) -> int:
        """Return the number of an array that is dense in an order of its axes."""
        shape, copy = list(self._held[number].shape), turning(self._held[number], order)

        def turn(array: Any) -> Any:
            if number not in self._weights:
                return copy(array)
            key = id(array), order  # of an array that the graph keeps: one copy for all plans
            if key not in self._turned:
                self._turned[key] = copy(array)
            return self._turned[key]

        return self._derive(number, ("by", order), f"turn {shape} by {list(order)}", turn)

    def _result(self, array: Traced) -> int:
        """Return the number of a result; what is kept is copied, for callers may write to it."""
        number = self._read(array)
        if number not in self._known:
            return number

        def copy(given: Sequence[Any]) -> Sequence[Any]:
            (array,) = given
            return (array.clone() if is_tensor(array) else array.copy(),)

        return self._do("copy", copy, [number], anew=True)[0]

    def _filled(self, results: Sequence[Any], near: Any) -> Any:
        """Return the results of a call as the program does, of the library of an array."""
        found = filled(self._outcome, iter(results))
        if is_tensor(near):
            return tensors.unwrapped(found, near.device)
        return fixed(found)

    def _text(self, given: int) -> tuple[str, dict[str, Any]]:
        """Return the code of a call and what it names: array `n` is ``x{n}``.

        It lets go of each array when the last step has read it.
        """
        last = {n: step for step in self.steps for n in (*step.reads, *step.makes)}
        lines = ["def plan(__given):", f"    {_names(range(given))} = __given"]
        scope: dict[str, Any] = {}
        read = {*self._results}
        for number, step in enumerate(self.steps):
            if step.once:
                continue
            scope[f"__run{number}"] = step.run
            read.update(step.reads)
            lines.append(f"    {_names(step.makes)} = __run{number}(({_names(step.reads)}))")
            every = {*step.reads, *step.makes} - {*self._results} - self._known
            drops = sorted(n for n in every if last[n] is step)
            lines += [f"    x{n} = None" for n in drops]
        lines.append(f"    return ({_names(self._results)})")
        scope |= {f"x{n}": self._held[n] for n in self._known & read}
        self._held.clear()
        return "\n".join(lines) + "\n", scope


def _names(numbers: Iterable[int]) -> str:
    return "".join(f"x{number}, " for number in numbers)
