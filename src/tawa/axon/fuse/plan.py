"""Plans: the steps of a traced program in their order, and which arrays they read and make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tawa.axon.fuse.absorb import absorbed
from tawa.axon.fuse.launch import Kernels, Launch
from tawa.axon.fuse.needs import demanded, traced_in
from tawa.axon.fuse.trace import REDUCTIONS, Cuts, Node, Step, Traced, evaluated
from tawa.axon.library.untyped import fixed


@dataclass(frozen=True, slots=True)
class Done:
    """A step of a plan: what it is called, reads, makes, and what is of no use after it."""

    name: str
    run: Callable[[dict[Node, Any]], None]
    reads: tuple[Node, ...]
    makes: tuple[Node, ...]

    def __str__(self) -> str:
        return self.name


class Plan:
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
        self.steps: list[Done] = []
        self._cuts, self._kernels, self._short = cuts, kernels, short
        self._stored: set[Node] = {leaf.node for leaf in leaves}
        wanted = [each.node for each in traced_in(results)]
        self._instead = absorbed(cuts, wanted)
        self._roots = demanded(cuts, wanted, self._instead)
        self._within: dict[Node, list[Node]] = {}  # the roots that need a node
        for root in self._roots:
            for node in self._inner(root):
                self._within.setdefault(node, []).append(root)
        for root in self._roots:
            self._make(root)
        last = {node: step for step in self.steps for node in (*step.reads, *step.makes)}
        kept = {*wanted, *(leaf.node for leaf in leaves)}
        self._drops = {
            id(step): [n for n in (*step.reads, *step.makes) if last[n] is step and n not in kept]
            for step in self.steps
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Run the steps on arrays; return the results as the program does."""
        values: dict[Node, Any] = {leaf.node: a for leaf, a in zip(self.leaves, arrays)}
        self._near = arrays[0]
        for step in self.steps:
            step.run(values)
            for node in self._drops[id(step)]:
                values.pop(node, None)
        from tawa.axon.run import tensors

        found = read(self.results, values)
        if tensors.is_tensor(self._near):
            return tensors.unwrapped(found, self._near.device)
        return fixed(found)

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
        reads = tuple([each.node for each in traced_in(step.inputs)])
        shown = f"{step.name} {[int(size) for size in self._cuts.known[node].shape]}"
        self.steps.append(Done(shown, partial(self._call, node, step), reads, (node,)))

    def _call(self, node: Node, step: Step, values: dict[Node, Any]) -> None:
        inputs = read(step.inputs, values)
        values[node] = step.run(*inputs) if step.plain else by_numpy(step.run, inputs, self._near)

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
        """Add a kernel for an array, and for what later ones share with it or read with it."""
        known, made = self._cuts.known, [root]
        inner, leaves = self._inner(root), self._leaves(root)
        self._stored.add(root)
        reads = {*inner, *leaves}
        others = [
            each
            for each in dict.fromkeys(r for node in reads for r in self._within.get(node, ()))
            if each not in self._stored and each not in self._instead
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
            if ready and below & reads and self._alike([*made, each]):
                made.append(each)
                self._stored.add(each)
        self._stored.difference_update(made)
        inputs = list(dict.fromkeys(leaf for node in made for leaf in self._leaves(node)))
        self._stored.update(made)
        outputs = [known[node] for node in made]
        name = f"kernel {', '.join(str([int(size) for size in each.shape]) for each in outputs)}"
        launch = Launch(
            "a kernel of it",
            [known[node] for node in inputs],
            outputs,
            ["i1" if each.dtype == "bool" else self._short[each.dtype] for each in outputs],
            self._kernels,
            copies=True,
        )

        def run(values: dict[Node, Any]) -> None:
            values.update(zip(made, launch([values[node] for node in inputs])))

        self.steps.append(Done(name, run, tuple(inputs), tuple(made)))

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


def read(value: Any, values: Mapping[Node, Any]) -> Any:
    """Return a value with arrays in the place of those that were traced."""
    match value:
        case Traced():
            array, shape = values[value.node], tuple(map(int, value.shape))
            return array if tuple(array.shape) == shape else array.reshape(shape)
        case tuple() | list():
            items: Any = value  # pyright: ignore[reportUnknownVariableType]
            return type(items)([read(each, values) for each in items])
        case int():
            return int(value)
        case _:
            return value


def by_numpy(run: Callable[..., Any], inputs: tuple[Any, ...], near: Any) -> Any:
    """Return what a function of NumPy's functions makes of arrays, those of torch too."""
    from tawa.axon.run import tensors

    if not tensors.is_tensor(near):
        return run(*inputs)
    found = run(*tensors.wrapped(inputs, near.device))
    return tensors.unwrapped(found, near.device)
