"""What the runs of a kernel have reached: an operation that none has is one that no input does.

A run with free ends of loops does more than any input can. Where such runs alone have come to,
inputs are looked for, and what is asked there is heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.simulator.proof.closed import is_closed, is_same
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.read import STEPPED
from tawa.simulator.proof.run import Entry, Run
from tawa.simulator.proof.sharing import Sharing
from tawa.simulator.proof.spans import Spans
from tawa.simulator.proof.ways import controls


class Reach:
    """`entered` are the loops and conditions that runs were in, `launched` those that runs of an
    input were in, `asked_in` those in which something is asked of the input.
    """

    def __init__(
        self, decoder: Decoder, roles: Sequence[Operation], sharing: Sharing, spans: Spans
    ) -> None:
        self.decoder, self._spans = decoder, spans
        self.entered: set[Entry] = set()
        self.launched: set[Entry] = set()
        census = decoder.census
        open_ones = [
            control
            for role in roles
            for control in census.of(scf.ForOp, scf.IfOp, scf.WhileOp, within=role)
            if control not in decoder.uniform.fixed
        ]
        asking = (*open_ones, *decoder.uniform.chosen)
        self.asked_in = {entry for operation in asking for entry in controls(operation)}
        # What counts as steps, and what it stands in: it is reached where that is entered.
        self.stepped = [
            (operation, next(controls(operation), None))
            for role in roles
            for operation in census.of(*STEPPED, within=role)
        ]
        self._met = [(use, around) for use, around in self.stepped if sharing.is_met(use)]
        self._may: dict[Operation, bool] = {}
        self._sides: dict[Entry, bool] = {}

    def note(self, run: Run) -> None:
        """Keep what a run has entered."""
        self.entered |= run.entered
        if not run.configuration.free:
            self.launched |= run.entered

    def missing(self) -> Operation | None:
        """Return an operation that was not reached though some input may reach it."""
        return next((item for item in self.unreached() if not self.is_dead(item)), None)

    def unreached(self) -> Iterator[Operation]:
        """Yield the operations that were not reached."""
        for operation, around in self.stepped:
            if around is not None and around not in self.entered:
                yield operation

    def unlaunched(self) -> dict[Operation, Entry]:
        """Return the operations at which roles meet that no run of an input has reached, though
        nothing known excludes it, and what they stand in.
        """
        return {
            operation: around
            for operation, around in self._met
            if around is not None and around not in self.launched and self._may_run(operation)
        }

    def untaken(self, branches: Iterable[scf.IfOp]) -> scf.IfOp | None:
        """Return a condition of which no run of an input has taken one side, though nothing known
        excludes it; where nothing comes to the condition that is another matter.
        """
        for branch in branches:
            for side in (0, 1):
                taken = (branch, side) in self.launched or (branch, 1 - side) not in self.launched
                if not taken and self._may_take(branch, side):
                    return branch
        return None

    def _may_take(self, branch: scf.IfOp, side: int) -> bool:
        found = self._sides.get((branch, side))
        if found is None:
            found = branch not in self.decoder.uniform.constant
            found = found and not is_closed(branch, side, self.decoder.written)
            found = self._sides[branch, side] = found and self._spans.may_take(branch, side)
        return found

    def _may_run(self, operation: Operation) -> bool:
        if self._is_dead(operation, self.launched):
            return False
        found = self._may.get(operation)
        if found is None:
            found = self._may[operation] = self._spans.may_run(operation)
        return found

    def is_dead(self, operation: Operation) -> bool:
        """Tell whether the outermost choice that keeps an operation from running is no choice: a
        constant, or decided by conditions around it or by the range of a number.
        """
        return self._is_dead(operation, self.entered)

    def _is_dead(self, operation: Operation, entered: set[Entry]) -> bool:
        blocked: Operation | None = None
        side = 0
        for control, region in controls(operation):
            if (control, region) not in entered:
                blocked, side = control, region
        if blocked is None:
            return False
        written = self.decoder.written
        if isinstance(blocked, scf.IfOp) and is_closed(blocked, side, written):
            return True
        if isinstance(blocked, scf.ForOp) and is_same(blocked.lb, blocked.ub, written):
            return True  # whatever wraps: it ends where it begins
        return blocked in self.decoder.uniform.constant

    def dead(self) -> tuple[int, ...]:
        """Return the places in `kernel.walk()` of the operations that no input reaches."""
        places = self.decoder.census.places
        return tuple(places[operation] for operation in self.unreached())
