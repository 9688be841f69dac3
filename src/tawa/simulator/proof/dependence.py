"""On what the scalars of a kernel depend, through control flow: each is looked at once."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tawa.ir import tile
from tawa.simulator.proof.leaves import Leaves, Origin, origin_of


class Dependence:
    """What scalars depend on, as far as it was asked for."""

    def __init__(self) -> None:
        self._origins: dict[SSAValue, Origin] = {}
        self._parts: dict[Origin, tuple[tuple[Origin, ...], bool]] = {}
        # With the conditions that choose between values, and without.
        self._found: dict[bool, dict[SSAValue, Leaves]] = {False: {}, True: {}}
        self._known: dict[bool, dict[Origin, Leaves]] = {False: {}, True: {}}

    def leaves(self, value: SSAValue, conditions: bool = True) -> Leaves:
        """Return what a scalar depends on; `conditions` that choose between its values count."""
        answers = self._found[conditions]
        found = answers.get(value)
        if found is None:
            found = answers[value] = self._gather(self._origin(value), conditions)
        return found

    def plain_leaves(self, value: SSAValue) -> Leaves:
        """Return what a scalar depends on, whatever chooses between its values."""
        return self.leaves(value, False)

    def counts_trips(self, value: SSAValue) -> bool:
        """Tell whether the number of a trip is in a scalar by no recurrence."""
        seen: set[Origin] = set()
        work = [self._origin(value)]
        while work:
            item = work.pop()
            if item.loop is not None:
                return True
            if item not in seen and item.carried is None:
                seen.add(item)
                work += self._parts_of(item)[0]
        return False

    def _gather(self, origin: Origin, conditions: bool) -> Leaves:
        known, parts = self._known[conditions], self._parts
        found = known.get(origin)
        if found is not None:
            return found
        found = Leaves()
        seen: set[Origin] = set()
        work = [origin]
        while work:
            item = work.pop()
            if item in seen:
                continue
            seen.add(item)
            if (whole := known.get(item)) is not None:
                found.add(whole)
                continue
            inputs, tells = parts.get(item) or self._parts_of(item)
            work += inputs
            if tells:
                item.add_to(found)
                if conditions and item.branch is not None:
                    work.append(self._origin(item.branch.cond))
        known[origin] = found
        return found

    def _parts_of(self, item: Origin) -> tuple[tuple[Origin, ...], bool]:
        """Return what a scalar is computed from, and whether it adds anything itself."""
        found = self._parts.get(item)
        if found is None:
            inputs = [
                self._origin(value)
                for value in item.values
                if not isinstance(value.owner, tile.Constant)  # which depends on nothing
            ]
            noted = (item.loop, item.ended, item.branch, item.carried)
            tells = item.open or item.reads or any(each is not None for each in noted)
            found = self._parts[item] = tuple(inputs), tells
        return found

    def _origin(self, value: SSAValue) -> Origin:
        found = self._origins.get(value)
        if found is None:
            found = self._origins[value] = origin_of(value)
        return found
