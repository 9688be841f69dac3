"""Fusion: a function of elements and rows as one kernel; a whole program as kernels and calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tawa.axon.fuse.arguments import LONG, facts_of, plain, read, refuse_recorded, traced
from tawa.axon.fuse.launch import Kernels, Launch, Run
from tawa.axon.fuse.plan import Plan, Turned
from tawa.axon.fuse.schedule import Schedule
from tawa.axon.fuse.trace import Axis, Cuts, Node, Traced, computed, refused
from tawa.axon.fuse.whole import meaning
from tawa.axon.load.graph import Graph
from tawa.axon.module import Function
from tawa.axon.run import tensors
from tawa.axon.types.kinds import DEFAULT, Product, Tensor, Type
from tawa.errors import AxonError, AxonGuard

__all__ = ["Compiled", "Fused", "compile", "fuse"]
_SHORT = {long: short for short, long in LONG.items()}


class Fused:
    """A function as one kernel, compiled where a graph or an alignment is new, not for each shape.

    Takes what the function takes, with arrays of NumPy (the kernel runs in the simulator) or of a
    GPU. Raises AxonGuard for arguments that do not fit, AxonError for what is not fused: it
    computes element by element, with broadcasting, and reduces along the last axis, any number of
    times. Rows may be of any length. Arithmetic is in float32 where arrays are narrower.

    Example::

        softmax = fuse(axon.load("fun f x = softmax x").f)
        softmax(x)
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.kernels: Kernels = {}
        self._launches: dict[Hashable, tuple[Run, bool]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Compile where no kernel fits yet, and launch; return new arrays, as the function does."""
        key, arrays = read(self.function.name, arguments)
        if key not in self._launches:
            refuse_recorded(self.function.name, arrays)
            launch, single = self._trace(plain(arguments))
            self._launches[key] = launch.bind(arrays), single
        run, single = self._launches[key]
        results = run(arrays)
        return results[0] if single else tuple(results)

    def _trace(self, arguments: tuple[Any, ...]) -> tuple[Launch, bool]:
        kind = self.function.check(*arguments)
        leaves: list[Traced] = []

        def leaf(shape: tuple[int, ...], dtype: str) -> Traced:
            axes = tuple([Axis(int(size)) for size in shape])
            node = Node("load", (), computed(dtype), axes=axes, argument=len(leaves))
            leaves.append(Traced(node, axes, dtype))
            return leaves[-1]

        found: Any = self.function.run(*traced(arguments, leaf))
        single = not isinstance(found, tuple)
        results: list[Any] = [found] if single else [*found]
        elements: list[str] = []
        for result, one in zip(results, _kinds(kind), strict=True):
            if not isinstance(result, Traced):
                raise refused(self.function.name, "a result of it is no array that it computes")
            element = one.element if isinstance(one.element, str) else DEFAULT[one.element.kind]
            elements.append("i1" if element == "bool" else element)
        return Launch(self.function.name, leaves, results, elements, self.kernels), single


class Compiled:
    """A function, or an imported graph, as kernels: what is made for arguments is its `plan`.

    Products and convolutions are the library's (`tawa.kernels`), with a bias and an activation
    that it takes, and so is softmax(q k' s) v; what lies between is one kernel for each shape of
    its rows. What moves elements, and what neither computes, is a step of NumPy or torch. A plan is
    made once for arguments that lie alike in memory; an imported graph's weights are constants.
    Takes what the function takes; raises AxonGuard for arguments that do not fit, AxonError for
    sizes that depend on data, ArgumentError for what the library refuses.

    Example::

        net = compile(axon.load("fun net (w, b) x = softmax (relu (linear x w + b))").net)
        net((w, b), x)
        print(net.plan((w, b), x))
    """

    def __init__(self, function: Function | Graph) -> None:
        self.function = function.function if isinstance(function, Graph) else function
        self._graph = function if isinstance(function, Graph) else None
        self.kernels: Kernels = {}
        self._plans: dict[Hashable, Plan] = {}
        self._turned: Turned = {}

    def __call__(self, *arguments: Any) -> Any:
        """Check the guards and plan, once for each kind of arguments, and run."""
        key, arrays = read(self.function.name, arguments)
        if (plan := self._plans.get(key)) is not None:
            return plan(arrays)
        plan = self._plan(arguments, arrays)
        found = plan.take()  # before another thread has the plan
        self._plans[key] = plan
        return found

    def plan(self, *arguments: Any) -> Plan:
        """Return the steps that such arguments take, which are taken once; `print` shows them."""
        key, arrays = read(self.function.name, arguments)
        if key not in self._plans:
            plan = self._plan(arguments, arrays)
            plan.take()
            self._plans[key] = plan
        return self._plans[key]

    def _plan(self, arguments: tuple[Any, ...], arrays: Sequence[Any]) -> Plan:
        tensors.refuse_captured(arrays[0])
        refuse_recorded(self.function.name, arrays)
        given, weights = len(arguments), list[Any]()
        arguments = plain(self._graph.near(arguments) if self._graph else arguments)
        facts_of(arguments[given:], weights)
        self.function.check(*arguments)
        cuts, leaves = Cuts(), list[Traced]()

        def leaf(shape: tuple[int, ...], dtype: str) -> Traced:
            leaves.append(cuts.array(shape, dtype, len(leaves)))
            return leaves[-1]

        try:
            found = self.function.run(*traced(arguments, leaf), meaning=meaning)
            schedule = Schedule(cuts, leaves, found, self.kernels, _SHORT)
        except RecursionError:
            raise AxonGuard(
                f"{self.function.name} is nested too deeply to be compiled",
                remedy="name parts of it with `let`",
            ) from None
        return Plan(schedule, arrays, weights, self._turned)


def _kinds(kind: Type) -> list[Tensor]:
    kinds = kind.items if isinstance(kind, Product) else (kind,)
    if not all(isinstance(each, Tensor) for each in kinds):
        raise AxonError("a fused kernel gives arrays, or a tuple of them")
    return [each for each in kinds if isinstance(each, Tensor)]


def fuse(function: Function) -> Fused:
    """Return a function as one kernel of the compiler; see `Fused`."""
    return Fused(function)


def compile(function: Function | Graph) -> Compiled:
    """Return a function or an imported graph as kernels; see `Compiled`."""
    return Compiled(function)
