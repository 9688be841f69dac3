"""Which rings and meetings of roles stand in a loop or condition, and which roles turn them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Block, Operation

from tawa.analysis.naming import unlabelled
from tawa.ir import hopper
from tawa.simulator.proof.closed import is_same
from tawa.simulator.proof.counting import carries_scalar
from tawa.simulator.proof.decode import Decoder
from tawa.simulator.proof.ways import controls

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
        self._written = decoder.written
        self._roles: dict[object, set[Operation | None]] = {}
        for use in self._census.of(*_TURNS):
            self._roles.setdefault(self._ring(use), set()).add(role_of(use))
        self._inside: dict[Operation, set[object]] = {}
        self._common: dict[tuple[Operation, ...], bool] = {}

    def rings(self, control: Operation) -> set[object]:
        """Return the rings that are turned in a loop or condition, and where roles meet there."""
        if control not in self._inside:
            uses = self._census.of(*_TURNS, within=control)
            self._inside[control] = {self._ring(use) for use in uses}
        return self._inside[control]

    def is_met(self, use: Operation) -> bool:
        """Tell whether an operation turns a ring that another role turns as well."""
        return isinstance(use, _TURNS) and len(self._roles[self._ring(use)]) > 1

    def is_alone(self, control: Operation) -> bool:
        """Tell whether no other role turns the rings of a loop."""
        return all(len(self._roles[ring]) == 1 for ring in self.rings(control))

    def is_common(self, askers: Iterable[Operation]) -> bool:
        """Tell whether all roles that turn a ring in a loop or condition that asked something turn
        it where they asked the same: what one does there by the answer, the others do.
        """
        key = tuple(askers)
        found = self._common.get(key)
        if found is None:
            found = self._common[key] = self._is_common(key)
        return found

    def _is_common(self, askers: Iterable[Operation]) -> bool:
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

    def is_even(self, branch: Operation) -> bool:
        """Tell whether both sides of a condition turn rings in the same way, as where a product
        under a condition gives back what it read: no other role can tell the two apart. One in a
        loop is none: what the sides access besides is run in some of its trips only.
        """
        if not isinstance(branch, scf.IfOp) or not branch.false_region.blocks:
            return False
        if any(isinstance(each, (scf.ForOp, scf.WhileOp)) for each, _ in controls(branch)):
            return False
        yes, no = (self._turned(region.block) for region in branch.regions)
        if yes is None or no is None or not self._alike(yes, no):
            return False
        ends = (region.block.last_op for region in branch.regions)
        pairs = zip(*(end.operands for end in ends if end is not None))
        return all(
            is_same(one, other, self._written) for one, other in pairs if carries_scalar(one)
        )

    def _turned(self, block: Block) -> list[tuple[Operation, Operation | None]] | None:
        """Return what turns a ring in a block, in order, with what chooses one thread for it; None
        where some do so under a loop or condition.
        """
        found: list[tuple[Operation, Operation | None]] = []
        for operation in block.ops:
            if isinstance(operation, _TURNS):
                found.append((operation, None))
            elif operation.regions and self.rings(operation):
                if not isinstance(operation, hopper.OneThread):
                    return None
                inside = self._turned(operation.body.block)
                if inside is None:
                    return None
                found += [(use, operation) for use, _ in inside]
        return found

    def _alike(
        self,
        one: Sequence[tuple[Operation, Operation | None]],
        other: Sequence[tuple[Operation, Operation | None]],
    ) -> bool:
        """Tell whether two sequences do the same to the same slots, by as many threads."""
        return len(one) == len(other) and all(
            _is_alike(a, b)
            and _is_alike(alone, single)
            and all(is_same(x, y, self._written) for x, y in zip(a.operands, b.operands))
            for (a, alone), (b, single) in zip(one, other)
        )

    def _ring(self, use: Turning) -> object:
        """Return what a ring is called, or a barrier at which roles meet."""
        if not isinstance(use, hopper.NamedBarrier):
            return self._arrays[use.barriers]
        return ("named", use.id.data) if use.scope.data == "roles" else use


def _is_alike(one: Operation | None, other: Operation | None) -> bool:
    """Tell whether two operations do the same, or neither is there."""
    if one is None or other is None:
        return one is other
    kinds = type(one) is type(other)
    return kinds and unlabelled(one) == unlabelled(other) and one.properties == other.properties


def role_of(operation: Operation) -> Operation | None:
    """Return the role in which an operation stands."""
    around: Operation | None = operation
    while around is not None and not isinstance(around, hopper.Role):
        around = around.parent_op()
    return around
