"""The search of what is not conflict-free: where the order of the agents may matter, all orders.

A run of one order that meets a conflict names a barrier. All orders of the operations there are run
(`orders`); barriers that turn out to be contested on the way are added, and the search begins anew.
A fault of one order is a violation. Where no order has one, the configuration is as good as proved;
the theorem about trip counts is none about contested barriers, so that loops around them, and
conditions, must be such that no input decides them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.model import Model
from tawa.simulator.proof.orders import Orders, OutOfStates
from tawa.simulator.proof.rules import Contest, Contested, OutOfSteps, Unproved, Violation

STATES = 20_000
"""States of all searches of a kernel together before it is called unproved."""

STEPS = 40_000
"""Steps of one search."""


class Search:
    """The searches of a kernel. `run` is the one at hand, `states` and `ends` count the states and
    the orders that came to their end, `contested` is what was found to be so.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.contested: frozenset[Contested] = frozenset()
        self.states = 0
        self.ends = 0
        self.run: Orders | None = None
        self.conflict: Contest | None = None

    def decide(self, configuration: Configuration, conflict: Contest) -> Orders:
        """Run all orders of a configuration in which a conflict was met. Raises Violation where one
        is wrong, Unproved where there are too many.
        """
        self.conflict = self.conflict or conflict
        found = conflict
        while True:
            self.contested |= {found.barrier}
            fresh = replace(configuration, outcomes={})
            left = STATES - self.states
            run = self.run = Orders(self.model, fresh, STEPS, self.contested, left)
            try:
                run.execute()
            except Contest as more:
                found = more
                continue
            except Violation as wrong:
                raise _in_one_order(conflict, wrong) from None
            except (OutOfStates, OutOfSteps) as much:
                raise self._too_many(conflict, run) from much
            finally:
                self.states += len(run.store.seen)
            self.ends += run.ends
            return run

    def close(self) -> None:
        """Raise Unproved where inputs decide how often contested barriers are met."""
        if self.conflict is None:
            return
        fixed = self.model.decoder.uniform.fixed
        for operation in self._operations():
            around = _controls(operation)
            if (control := next((one for one in around if one not in fixed), None)) is not None:
                raise Unproved(
                    f"{self.conflict.sentence} None of {self.ends} orders ({self.states} states) "
                    f"hangs or races, but {control.name} around {operation.name} depends on the "
                    "input: what more trips do is not known.",
                    self.conflict.operation,
                )

    def describe(self) -> str:
        """Return what was searched, for the verdict; nothing where all was conflict-free."""
        if self.conflict is None:
            return ""
        count = len(self.contested)
        barriers = "barrier" if count == 1 else "barriers"
        return f"; {self.ends} orders at {count} contested {barriers} ({self.states} states)"

    def _too_many(self, conflict: Contest, run: Orders) -> Unproved:
        return Unproved(
            f"{conflict.sentence} None of {self.ends + run.ends} orders ({len(run.store.seen)} "
            f"states, {run.steps} steps) hangs or races, but there are more than are searched.",
            conflict.operation,
        )

    def _operations(self) -> Iterator[Operation]:
        """Yield the operations on the arrays, and the named barriers, that are contested."""
        decoder = self.model.decoder
        arrays = {number for kind, _, number, _ in self.contested if kind == "mbarrier"}
        named = {number for kind, _, number, _ in self.contested if kind == "named"}
        pools = any(kind == "registers" for kind, *_ in self.contested)
        for role in self.model.roles:
            for operation in role.operation.walk():
                match operation:
                    case (
                        hopper.Wait()
                        | hopper.Arrive()
                        | hopper.Expect()
                        | hopper.TmaLoad()
                        | hopper.CopyAsyncArrive()
                    ):
                        if decoder.arrays[operation.barriers] in arrays:
                            yield operation
                    case hopper.NamedBarrier() | hopper.Turn() if named:
                        yield operation
                    case hopper.SetRegisters() if pools:
                        yield operation
                    case _:
                        continue


def _in_one_order(conflict: Contest, wrong: Violation) -> Violation:
    """Return what is wrong: the conflict, and what comes of it in one order."""
    sentence = f"{conflict.sentence} In one order of the roles {wrong.sentence}"
    return Violation(conflict.rule.name, sentence, conflict.operation, wrong.rows)


def _controls(operation: Operation) -> Iterator[Operation]:
    parent = operation.parent_op()
    while parent is not None and not isinstance(parent, hopper.Role):
        if isinstance(parent, (scf.ForOp, scf.IfOp, scf.WhileOp)):
            yield parent
        parent = parent.parent_op()
