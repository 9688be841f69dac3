"""What each role does at each barrier, and how often: waits, and the arrivals and bytes it gives.

A role's body is read once, from the inside out: a condition multiplies, a loop sums. Nothing is
run and no number is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tawa.ir import hopper
from tawa.ir.control import yielded
from tawa.ir.walk import walk
from tawa.verify.counts import Count, Counts
from tawa.verify.forwarded import loops_around
from tawa.verify.rules import Refused, rule
from tawa.verify.terms import Term
from tawa.verify.values import Span, Values

Kind: TypeAlias = Literal["wait", "arrive", "meet"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Turns of the warpgroups of a role, or the barrier of the cluster."""

    name: str
    kind: str = ""
    within: hopper.Role | None = None


Event: TypeAlias = tuple[Kind, SSAValue | Meeting]
"""What is counted: waits and arrivals at an array of mbarriers, and meetings: turns and the barrier
of the cluster. What instances tell one another at a named barrier goes over from tile to tile:
`choreography.py` follows it."""

SYNCHRONIZES = (
    hopper.Wait,
    hopper.Arrive,
    hopper.Expect,
    hopper.TmaLoad,
    hopper.CopyAsyncArrive,
    hopper.Turn,
    hopper.ClusterSync,
)


@dataclass(slots=True)
class Reader:
    """Counts the events of the roles of one kernel."""

    values: Values
    counts: Counts
    shared: set[SSAValue] = field(default_factory=set[SSAValue])
    """Barriers that other blocks of the cluster arrive at, or send bytes to."""
    _speaks: set[Operation] = field(default_factory=set[Operation])

    def role(self, role: hopper.Role) -> dict[Event, Count]:
        """Return how often each event of a role happens."""
        self._read(role)
        return self._block(role.body.block, role, False)

    def inside(self, role: hopper.Role, loop: scf.ForOp) -> dict[Event, Count]:
        """Return how often each event happens in an iteration of a loop of a role."""
        self._read(role)
        return self._block(loop.body.block, role, False)

    def _read(self, role: hopper.Role) -> None:
        self._speaks = set()
        for operation in walk(role):
            if isinstance(operation, SYNCHRONIZES):
                parent = operation.parent_op()
                while parent is not None and parent not in self._speaks:
                    self._speaks.add(parent)
                    parent = parent.parent_op()

    def _block(self, block: Block, role: hopper.Role, alone: bool) -> dict[Event, Count]:
        total: dict[Event, Count] = {}
        for operation in block.ops:
            match operation:
                case _ if isinstance(operation, SYNCHRONIZES):
                    for event, times in self._events(operation, role, alone):
                        _add(self.counts, total, event, self.counts.constant(times))
                case _ if operation not in self._speaks:
                    continue
                case hopper.OneThread():
                    for event, count in self._block(operation.body.block, role, True).items():
                        _add(self.counts, total, event, count)
                case scf.IfOp() | scf.ForOp() | scf.WhileOp():
                    for event, count in self._control(operation, role, alone).items():
                        _add(self.counts, total, event, count)
                case _:
                    raise Refused(
                        rule("form"), f"{operation.name} holds synchronization", operation
                    )
        return total

    def _control(
        self, control: scf.IfOp | scf.ForOp | scf.WhileOp, role: hopper.Role, alone: bool
    ) -> dict[Event, Count]:
        counts, values = self.counts, self.values
        if isinstance(control, scf.IfOp):
            condition = counts.condition(values.of(control.cond))
            sides = [
                self._block(region.block, role, alone) if region.blocks else {}
                for region in (control.true_region, control.false_region)
            ]
            return {
                event: counts.choose(
                    condition,
                    sides[0].get(event, counts.constant(0)),
                    sides[1].get(event, counts.constant(0)),
                )
                for event in dict.fromkeys((*sides[0], *sides[1]))
            }
        depth = len(loops_around(control))
        if isinstance(control, scf.ForOp):
            span = values.span(control)
            step = values.terms.number(span.step)
            if step is not None and step <= 0:
                raise Refused(rule("form"), f"a loop has the step {step}", control)
            inside = self._block(control.body.block, role, alone)
            return {event: counts.over(span, depth, each) for event, each in inside.items()}
        before, after = control.before_region.block, control.after_region.block
        last = before.last_op
        assert last is not None
        condition = values.of(last.operands[0])
        total: dict[Event, Count] = {}
        for event, each in self._block(after, role, alone).items():
            _add(counts, total, event, counts.until(depth, condition, each))
        if self._block(before, role, alone):
            raise Refused(rule("form"), "what decides whether a loop goes on synchronizes", control)
        return total

    def course(self, loop: Operation) -> Span | Term:
        """Return what decides how often a loop iterates."""
        if isinstance(loop, scf.ForOp):
            return self.values.span(loop)
        assert isinstance(loop, scf.WhileOp)
        return self.values.of(yielded(loop.before_region.block, 0))

    def around(self, loop: Operation, count: Count) -> Count:
        """Return the sum of a count over the iterations of a loop."""
        depth = len(loops_around(loop))
        if isinstance(loop, scf.ForOp):
            return self.counts.over(self.values.span(loop), depth, count)
        assert isinstance(loop, scf.WhileOp)
        condition = self.values.of(yielded(loop.before_region.block, 0))
        return self.counts.until(depth, condition, count)

    def _events(
        self, operation: Operation, role: hopper.Role, alone: bool
    ) -> list[tuple[Event, int]]:
        match operation:
            case hopper.Wait():
                return [(("wait", operation.barriers), 1)]
            case hopper.Arrive():
                number = arrivals_of(operation.by.data, role, alone)
                if operation.cluster is not None:
                    if operation.cluster.data != self.values.cluster:
                        raise Refused(
                            rule("arrivals"),
                            f"an arrival goes to {operation.cluster.data} blocks of a cluster of "
                            f"{self.values.cluster}",
                            operation,
                        )
                    self.shared.add(operation.barriers)
                    number *= (
                        self.values.cluster
                    )  # each block of the cluster gets one of each block
                return [(("arrive", operation.barriers), number)]
            case hopper.Expect():
                return [(("arrive", operation.barriers), 1)]
            case hopper.TmaLoad():
                if (
                    operation.multicast is not None
                    and operation.multicast.data != self.values.cluster
                ):
                    raise Refused(
                        rule("bytes"),
                        f"a copy goes to {operation.multicast.data} blocks of a cluster of "
                        f"{self.values.cluster}",
                        operation,
                    )
                if operation.multicast is not None:
                    self.shared.add(operation.barriers)
                return []
            case hopper.CopyAsyncArrive():
                return [(("arrive", operation.barriers), 1 if alone else 32 * role.warps.data)]
            case hopper.Turn():
                turn = Meeting(f"turn {operation.id.data}", operation.kind.data, role)
                return [(("meet", turn), 1)]
            case hopper.ClusterSync():
                return [(("meet", Meeting("the cluster")), 1)]
            case _:
                return []


def _add(counts: Counts, total: dict[Event, Count], event: Event, count: Count) -> None:
    known = total.get(event)
    total[event] = count if known is None else counts.add(known, count)


def arrivals_of(by: str, role: hopper.Role, alone: bool) -> int:
    """Return how many threads of a role arrive."""
    if alone or by in ("thread", "role"):
        return 1
    warps = role.warps.data
    return {"warp": warps, "warpgroup": -(-warps // 4), "all": 32 * warps}[by]


__all__ = [
    "SYNCHRONIZES",
    "Event",
    "Kind",
    "Meeting",
    "Reader",
    "arrivals_of",
]
