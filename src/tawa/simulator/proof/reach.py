"""What the runs of a kernel have reached: an operation that none has is one that no input does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.simulator.proof.closed import is_closed
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.read import STEPPED
from tawa.simulator.proof.run import Entry
from tawa.simulator.proof.ways import controls


class Reach:
    """`entered` are the loops and conditions that runs were in, `asked_in` those in which something
    is asked of the input.
    """

    def __init__(self, decoder: Decoder, roles: Sequence[Operation]) -> None:
        self.decoder = decoder
        self.entered: set[Entry] = set()
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

    def missing(self) -> Operation | None:
        """Return an operation that was not reached though some input may reach it."""
        return next((item for item in self.unreached() if not self.is_dead(item)), None)

    def unreached(self) -> Iterator[Operation]:
        """Yield the operations that were not reached."""
        for operation, around in self.stepped:
            if around is not None and around not in self.entered:
                yield operation

    def is_dead(self, operation: Operation) -> bool:
        """Tell whether the outermost choice that keeps an operation from running is no choice: a
        constant, or decided by conditions around it or by the range of a number.
        """
        blocked: Operation | None = None
        side = 0
        for control, region in controls(operation):
            if (control, region) not in self.entered:
                blocked, side = control, region
        if blocked is None:
            return False
        if isinstance(blocked, scf.IfOp) and is_closed(blocked, side, self.decoder.written):
            return True
        return blocked in self.decoder.uniform.constant

    def dead(self) -> tuple[int, ...]:
        """Return the places in `kernel.walk()` of the operations that no input reaches."""
        places = self.decoder.census.places
        return tuple(places[operation] for operation in self.unreached())
