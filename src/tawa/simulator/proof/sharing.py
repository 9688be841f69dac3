"""Which rings and meetings of roles stand in a loop or condition, and which roles turn them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation

from tawa.ir import hopper
from tawa.simulator.proof.decode import Decoder

Turning: TypeAlias = (
    hopper.Wait | hopper.Arrive | hopper.Expect | hopper.CopyAsyncArrive | hopper.NamedBarrier
)
_TURNS: tuple[type[Turning], ...] = (
    *(hopper.Wait, hopper.Arrive, hopper.Expect, hopper.CopyAsyncArrive),
    hopper.NamedBarrier,
)


class Sharing:
    """The rings of a kernel, by what turns them."""

    def __init__(self, decoder: Decoder) -> None:
        self._census, self._arrays = decoder.census, decoder.arrays
        self._roles: dict[object, set[Operation | None]] = {}
        for use in self._census.of(*_TURNS):
            self._roles.setdefault(self._ring(use), set()).add(role_of(use))
        self._inside: dict[Operation, set[object]] = {}

    def rings(self, control: Operation) -> set[object]:
        """Return the rings that are turned in a loop or condition, and where roles meet there."""
        if control not in self._inside:
            uses = self._census.of(*_TURNS, within=control)
            self._inside[control] = {self._ring(use) for use in uses}
        return self._inside[control]

    def is_alone(self, control: Operation) -> bool:
        """Tell whether no other role turns the rings of a loop."""
        return all(len(self._roles[ring]) == 1 for ring in self.rings(control))

    def is_common(self, askers: Iterable[Operation]) -> bool:
        """Tell whether all roles that turn a ring in a loop or condition that asked something turn
        it where they asked the same: what one does there by the answer, the others do.
        """
        asked: dict[object, set[Operation | None]] = {}
        for control in askers:
            if not isinstance(control, (scf.ForOp, scf.IfOp, scf.WhileOp)):
                return False
            for ring in self.rings(control):
                asked.setdefault(ring, set()).add(role_of(control))
        return all(self._roles[ring] == roles for ring, roles in asked.items())

    def is_shared(self, askers: Iterable[Operation]) -> bool:
        """Tell whether all roles that turn some ring ask the same for it, or no other role turns
        what one turns by the answer.
        """
        asked: dict[object, set[Operation | None]] = {}
        for asker in askers:
            for ring in self.decided(asker):
                asked.setdefault(ring, set()).add(role_of(asker))
        shared = [ring for ring in asked if len(self._roles[ring]) > 1]
        return any(self._roles[ring] == asked[ring] for ring in shared) or not shared

    def decided(self, asker: Operation) -> set[object]:
        """Return the rings that an operation turns, or decides about."""
        if isinstance(asker, _TURNS):
            return {self._ring(asker)}
        return self.rings(asker) if asker.regions else set()

    def _ring(self, use: Turning) -> object:
        """Return what a ring is called, or a barrier at which roles meet."""
        if not isinstance(use, hopper.NamedBarrier):
            return self._arrays[use.barriers]
        return ("named", use.id.data) if use.scope.data == "roles" else use


def role_of(operation: Operation) -> Operation | None:
    """Return the role in which an operation stands."""
    around: Operation | None = operation
    while around is not None and not isinstance(around, hopper.Role):
        around = around.parent_op()
    return around
