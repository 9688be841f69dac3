"""Fusion: a function of elements and rows as one kernel; a whole program as kernels and calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tawa.axon.fuse.arguments import LONG, facts_of, plain, read, refuse_recorded, traced
from tawa.axon.fuse.launch import Kernels
from tawa.axon.fuse.plan import Plan, Turned
from tawa.axon.fuse.schedule import Schedule
from tawa.axon.fuse.trace import Cuts, Traced
from tawa.axon.fuse.whole import meaning
from tawa.axon.load.graph import Graph
from tawa.axon.module import Function
from tawa.axon.run import tensors
from tawa.errors import AxonError, AxonGuard
from tawa.runtime.arrays import look

__all__ = ["Compiled", "Fused", "compile", "fuse"]
_SHORT = {long: short for short, long in LONG.items()}


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
        self.kernels: Kernels = {}  # compiled so far, by graph and form
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
        self._check(schedule, arrays)
        return Plan(schedule, arrays, weights, self._turned)

    def _check(self, schedule: Schedule, arrays: Sequence[Any]) -> None:
        """Refuse schedules that are not what was asked for."""


class Fused(Compiled):
    """A function as one kernel, compiled where a graph or an alignment is new, not for each shape.

    Takes what the function takes, with arrays of NumPy (the kernel runs in the simulator) or of a
    GPU. Raises AxonGuard for arguments that do not fit, AxonError for what is not one kernel: that
    computes element by element, with broadcasting, and reduces along the last axis, any number of
    times. Rows may be of any length. Arithmetic is in float32 where arrays are narrower.

    Example::

        softmax = fuse(axon.load("fun f x = softmax x").f)
        softmax(x)
    """

    def _check(self, schedule: Schedule, arrays: Sequence[Any]) -> None:
        if [task.fuses for task in schedule.tasks] != [True]:
            names = "; ".join(task.name for task in schedule.tasks)
            raise AxonError(
                f"{self.function.name} is not one kernel",
                why=f"its steps are: {names or 'none'}",
                remedy="take out what moves elements, multiplies matrices, or reduces along another"
                " axis than the last; or `compile` it",
            )
        (task,) = schedule.tasks
        views = [look(arrays[leaf.node.argument]) for leaf in task.reads]
        for view, order in zip(views, task.orders(views, lambda n, order: False)):
            if order is not None and 0 not in view.shape:
                raise AxonError(
                    f"a kernel does not read an array of {list(view.shape)} as it lies",
                    why=f"its strides are {view.strides}; items of the last axis lie side by side,"
                    " and rows in the order of the others",
                    remedy="pass a copy: np.ascontiguousarray(x), or x.contiguous()",
                )


def fuse(function: Function) -> Fused:
    """Return a function as one kernel of the compiler; see `Fused`."""
    return Fused(function)


def compile(function: Function | Graph) -> Compiled:
    """Return a function or an imported graph as kernels; see `Compiled`."""
    return Compiled(function)
