"""Fusion: a function of elements and rows as one kernel; a whole program as kernels and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tawa.axon.fuse.launch import Kernels, Launch
from tawa.axon.fuse.plan import Plan
from tawa.axon.fuse.trace import Axis, Cuts, Node, Traced, computed, refused
from tawa.axon.fuse.whole import meaning
from tawa.axon.load.graph import Graph
from tawa.axon.module import Function
from tawa.axon.run.values import NAMES, key_of
from tawa.axon.types.kinds import DEFAULT, Product, Tensor, Type
from tawa.errors import AxonError, AxonGuard
from tawa.runtime.arrays import look

__all__ = ["Compiled", "Fused", "compile", "fuse"]
_LONG = {"i1": "bool", **{short: long for long, short in NAMES.items()}}
_SHORT = {long: short for short, long in _LONG.items()}


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
        self._traces: dict[Any, tuple[Launch, bool]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Compile where no kernel fits yet, and launch; return new arrays, as the function does."""
        arguments = tuple([_plain(each) for each in arguments])
        arrays = _arrays(self.function, arguments)
        key = key_of(arguments)
        if key not in self._traces:
            self._traces[key] = self._trace(arguments)
        launch, single = self._traces[key]
        results = launch(arrays)
        return results[0] if single else tuple(results)

    def _trace(self, arguments: tuple[Any, ...]) -> tuple[Launch, bool]:
        kind = self.function.check(*arguments)
        leaves: list[Traced] = []

        def leaf(shape: tuple[int, ...], dtype: str) -> Traced:
            axes = tuple([Axis(int(size)) for size in shape])
            node = Node("load", (), computed(dtype), axes=axes, argument=len(leaves))
            leaves.append(Traced(node, axes, dtype))
            return leaves[-1]

        found: Any = self.function.run(*_traced(arguments, leaf))
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
    its rows. What moves elements, and what neither computes, is a step of NumPy or torch. Takes
    what the function takes; raises AxonGuard for arguments that do not fit, AxonError for sizes
    that depend on data, ArgumentError for what the library refuses.

    Example::

        net = compile(axon.load("fun net (w, b) x = softmax (relu (linear x w + b))").net)
        net((w, b), x)
        print(net.plan((w, b), x))
    """

    def __init__(self, function: Function | Graph) -> None:
        self.function = function.function if isinstance(function, Graph) else function
        self._graph = function if isinstance(function, Graph) else None
        self.kernels: Kernels = {}
        self._plans: dict[Any, Plan] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Check the guards and plan, once for each shape, and run."""
        plan, arrays = self._planned(arguments)
        return plan(arrays)

    def plan(self, *arguments: Any) -> Plan:
        """Return the steps that arguments of such shapes take; `print` shows them."""
        return self._planned(arguments)[0]

    def _planned(self, arguments: tuple[Any, ...]) -> tuple[Plan, list[Any]]:
        arguments = self._graph.near(arguments) if self._graph else arguments
        arguments = tuple([_plain(each) for each in arguments])
        arrays = _arrays(self.function, arguments)
        if any(getattr(array, "requires_grad", False) for array in arrays):
            raise AxonGuard(
                f"an argument of {self.function.name} requires a gradient",
                why="a compiled program computes none",
                remedy="pass .detach()",
            )
        key = key_of(arguments)
        if key not in self._plans:
            self._plans[key] = self._plan(arguments)
        return self._plans[key], arrays

    def _plan(self, arguments: tuple[Any, ...]) -> Plan:
        self.function.check(*arguments)
        cuts, leaves = Cuts(), list[Traced]()

        def leaf(shape: tuple[int, ...], dtype: str) -> Traced:
            leaves.append(cuts.array(shape, dtype, len(leaves)))
            return leaves[-1]

        try:
            found = self.function.run(*_traced(arguments, leaf), meaning=meaning)
            return Plan(cuts, leaves, found, self.kernels, _SHORT)
        except RecursionError:
            raise AxonGuard(
                f"{self.function.name} is nested too deeply to be compiled",
                remedy="name parts of it with `let`",
            ) from None


def _traced(value: Any, leaf: Callable[[tuple[int, ...], str], Traced]) -> Any:
    """Return arguments whose arrays are traced."""
    if isinstance(value, tuple | list):
        return tuple([_traced(item, leaf) for item in value])  # pyright: ignore
    return leaf(value.shape, _LONG[look(value).dtype]) if hasattr(value, "shape") else value


def _plain(value: Any) -> Any:
    """Return arguments with numbers of NumPy, which have shapes and no memory, as Python's."""
    if isinstance(value, tuple | list):
        return tuple([_plain(each) for each in value])  # pyright: ignore
    return value.item() if isinstance(value, np.generic) else value  # pyright: ignore


def _arrays(function: Function, value: Any) -> list[Any]:
    def flat(value: Any) -> list[Any]:
        if isinstance(value, tuple | list):
            return [each for item in value for each in flat(item)]  # pyright: ignore
        return [value] if hasattr(value, "shape") else []

    if found := flat(value):
        return found
    raise AxonGuard(f"{function.name} is given no array to compute with")


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
