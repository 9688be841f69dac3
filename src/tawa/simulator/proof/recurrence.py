"""Whether slots and phases recur: each value with which a loop ended began a trip of it as well.

So no run meets a slot and phase that none was run with (docs/design/proof.md, U3).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from xdsl.ir import Operation

from tawa.ir import line_of
from tawa.simulator.proof.configuration import Configuration
from tawa.simulator.proof.orbits import Group, Orbit, Values
from tawa.simulator.proof.run import Run


@dataclass(frozen=True, slots=True)
class Ended:
    """How a loop ended: under which configuration, with the numbers of the launch as given."""

    loop: Operation
    configuration: Configuration


class Recurrence:
    """The values of the scalars that must recur in all runs so far; loops that are `fixed` make the
    same trips in each.
    """

    def __init__(self, fixed: Collection[Operation]) -> None:
        self._fixed = fixed
        self._orbits: dict[Group, Orbit] = {}
        self._ended: dict[Group, dict[Values, Configuration]] = {}
        self._given: dict[Configuration, Configuration] = {}
        # With lines of loops, and whether it was decided: in few steps.
        self._looked_at: set[tuple[Configuration, int, bool]] = set()

    def note(self, run: Run) -> None:
        """Keep with which values the loops of a run began trips, and with which they ended."""
        for group, orbit in run.orbits.items():
            kept = self._orbits.setdefault(group, Orbit())
            kept.begun |= orbit.begun
            kept.ended |= orbit.ended
            ended = self._ended.setdefault(group, {})
            for values in sorted(orbit.ended - ended.keys(), key=repr):
                ended[values] = run.configuration
                self._given[run.configuration] = _given(run)

    def missing(self) -> Operation | None:
        """Return a loop that ended with slots or phases with which no trip was seen to begin."""
        for group, orbit in self._orbits.items():
            if group.loop not in self._fixed and orbit.ended - orbit.begun:
                return group.loop
        return None

    def astray(self, decided: bool) -> Ended | None:
        """Return what ended a loop so, once for each line and configuration: `decided` ones made no
        trips by choice, or all their numbers were given, so that it is known what their tiles do.
        """
        for group, ended in self._ended.items():
            loop, begun = group.loop, self._orbits[group].begun
            for values, configuration in ended.items():
                once = configuration, line_of(loop), decided
                if values in begun or loop in self._fixed or once in self._looked_at:
                    continue
                if not decided or not any(map(any, configuration.outcomes.values())):
                    self._looked_at.add(once)
                    return Ended(loop, self._given[configuration])
        return None


def _given(run: Run) -> Configuration:
    """Return the configuration of a run with the numbers that its launch had."""
    configuration = run.configuration
    return replace(configuration, given={**configuration.given, **run.scalars.of_launch()})
