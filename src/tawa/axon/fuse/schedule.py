"""Schedules: the steps of a traced program in their order, and which arrays they read and make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tawa.axon.fuse.absorb import absorbed
from tawa.axon.fuse.calls import Order
from tawa.axon.fuse.launch import Kernels, Launch, Run
from tawa.axon.fuse.needs import demanded, traced_in
from tawa.axon.fuse.trace import REDUCTIONS, Cuts, Node, Step, Traced, evaluated
from tawa.runtime.arrays import View, is_tensor


@dataclass(frozen=True, slots=True)
class Task:
    """A step of a schedule: what it is called, reads and makes, for arrays that lie anyhow.

    `orders` gives the order of axes in which each that it reads has to be dense, None where it is
    read as it lies, and is told which are there so; `bind` what computes of arrays that lie so;
    `fuses` tells whether that is a kernel made for it.
    """

    name: str
    reads: tuple[Traced, ...]
    makes: tuple[Node, ...]
    orders: Callable[[Sequence[View], Callable[[int, Order], bool]], Sequence[Order | None]]
    bind: Callable[[Sequence[Any]], Run]
    fuses: bool = False


class Schedule:
    """What computes a program for arguments of some shapes: kernels, calls and moves, in order."""

    def __init__(
        self,
        cuts: Cuts,
        leaves: Sequence[Traced],
        results: Any,
        kernels: Kernels,
        short: Mapping[str, str],
    ) -> None:
        self.results = results
        self.leaves = leaves
        self.tasks: list[Task] = []
        self._cuts, self._kernels, self._short = cuts, kernels, short
        self._stored: set[Node] = {leaf.node for leaf in leaves}
        wanted = [each.node for each in traced_in(results)]
        self._wanted = {*wanted}
        self._instead = absorbed(cuts, wanted)
        self._roots = demanded(cuts, wanted, self._instead)
        for root in self._roots:
            self._make(root)

    def _make(self, node: Node) -> None:
        """Add the step that makes an array, where there is none yet."""
        if node in self._stored:
            return
        step = self._instead.get(node) or self._cuts.of.get(node)
        if step is None and not self._leaves(node):
            value = evaluated(node)
            step = Step("constant", lambda: value, ())
        if step is None:
            self._kernel(node)
            return
        self._stored.add(node)
        reads = tuple(traced_in(step.inputs))
        for each in reads:  # what `absorb` made beside the program stands nowhere in its order
            self._make(each.node)
        shown = f"{step.name} {[int(size) for size in self._cuts.known[node].shape]}"

        def orders(views: Sequence[View], free: Any) -> Sequence[Order | None]:
            return step.orders(views) if step.orders else [None] * len(views)

        self.tasks.append(Task(shown, reads, (node,), orders, partial(called, step)))

    def _inner(self, root: Node) -> list[Node]:
        """Return what is computed for an array from those that are there, results first."""
        found: dict[Node, None] = {}
        left = [root]
        while left:
            node = left.pop(0)
            if node.name != "load" and node not in self._stored and node not in found:
                found[node] = None
                left += [each for each in node.inputs if isinstance(each, Node)]
        return list(found)

    def _leaves(self, root: Node) -> list[Node]:
        """Return the arrays that it is computed from."""
        inner = dict.fromkeys(self._inner(root))
        every = [e for node in inner for e in node.inputs if isinstance(e, Node)]
        return [node for node in dict.fromkeys(every) if node not in inner]

    def _kernel(self, root: Node) -> None:
        """Add a kernel for an array, and for what later ones share with it or read with it.

        With a result it makes the other results, too.
        """
        known, made = self._cuts.known, [root]
        inner, leaves = self._inner(root), self._leaves(root)
        self._stored.add(root)
        reads = {*inner, *leaves}
        others = [
            each
            for each in self._roots
            if each not in self._stored and each not in self._instead and each not in self._cuts.of
        ]
        later = {each: self._inner(each) for each in others}
        for node in inner[1:]:
            shared = any(node in nodes for nodes in later.values())
            if not shared or node not in known or not self._alike([*made, node]):
                continue
            if node in others or self._worth(node):
                made.append(node)
                self._stored.add(node)
                later = {each: self._inner(each) for each in others if each not in made}
        for each in others:
            below = {*self._leaves(each)}
            ready = each not in self._stored and below <= self._stored
            near = not below.isdisjoint(reads) or {root, each} <= self._wanted
            if ready and near and self._alike([*made, each]):
                made.append(each)
                self._stored.add(each)
        self._stored.difference_update(made)
        inputs = list(dict.fromkeys(leaf for node in made for leaf in self._leaves(node)))
        self._stored.update(made)
        outputs = [known[node] for node in made]
        name = f"kernel {', '.join(str([int(size) for size in each.shape]) for each in outputs)}"
        launch = Launch(
            [known[node] for node in inputs],
            outputs,
            ["i1" if each.dtype == "bool" else self._short[each.dtype] for each in outputs],
            self._kernels,
        )
        reads = tuple(launch.leaves)
        self.tasks.append(Task(name, reads, tuple(made), launch.orders, launch.bind, True))

    def _worth(self, node: Node) -> bool:
        """Tell whether a shared value is better read than computed again: it takes two arrays."""
        wide = [leaf for leaf in self._leaves(node) if leaf.axes]
        return len(wide) > 1 or any(each.name in REDUCTIONS for each in self._inner(node))

    def _alike(self, nodes: Sequence[Node]) -> bool:
        """Tell whether one kernel makes all: it reduces along one axis, and has the same rows."""
        values = [self._cuts.known[node] for node in nodes]
        columns = {value.reduced[0].root for value in values if value.reduced}
        words = [frozenset(a.root for a in value.axes if not a.one) - columns for value in values]
        return len(columns) <= 1 and len({*words}) == 1


def called(step: Step, near: Sequence[Any]) -> Run:
    """Return what calls the function of a step with arrays in the place of those traced.

    A function of NumPy's functions takes those of torch too; `near` are arrays of the program.
    """
    device = near[0].device if is_tensor(near[0]) else None
    run = step.run if step.plain or device is None else partial(by_numpy, step.run, device)
    places = [n for n, each in enumerate(step.inputs) if isinstance(each, Traced)]
    if len(places) < len(list(traced_in(step.inputs))):  # some are in lists
        return lambda given: (run(*filled(step.inputs, iter(given))),)
    if len(places) == len(step.inputs):
        return lambda given: (run(*given),)
    inputs = [None if n in places else filled(x, iter(())) for n, x in enumerate(step.inputs)]

    def call(given: Sequence[Any]) -> Sequence[Any]:
        held = [*inputs]
        for place, array in zip(places, given):
            held[place] = array
        return (run(*held),)

    return call


def filled(value: Any, arrays: Iterator[Any]) -> Any:
    """Return a value with arrays in the place of those that were traced, in order."""
    match value:
        case Traced():
            return next(arrays)
        case tuple() | list():
            items: Any = value  # pyright: ignore[reportUnknownVariableType]
            return type(items)([filled(each, arrays) for each in items])
        case int():
            return int(value)
        case _:
            return value


def by_numpy(run: Callable[..., Any], device: Any, *inputs: Any) -> Any:
    """Return what a function of NumPy's functions makes of torch's tensors."""
    from tawa.axon.run import tensors

    return tensors.unwrapped(run(*tensors.wrapped(inputs, device)), device)
