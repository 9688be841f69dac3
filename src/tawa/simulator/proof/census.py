"""The operations of a kernel, walked once: by type, and by what they stand in."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TypeVar

from xdsl.ir import Block, Operation

Kind = TypeVar("Kind", bound=Operation)


class Census:
    """The operations in a kernel and its regions, in the order of a walk.

    What stands in an operation follows it, up to the place in `ends`.
    """

    def __init__(self, kernel: Operation) -> None:
        self.operations: list[Operation] = []
        self.places: dict[Operation, int] = {}
        self.ends: list[int] = []
        self._kinds: defaultdict[type[Operation], list[int]] = defaultdict(list)
        self._visit(kernel)

    def _visit(self, operation: Operation) -> None:
        place = self.places[operation] = len(self.operations)
        self.operations.append(operation)
        self.ends.append(place + 1)
        self._kinds[type(operation)].append(place)
        if not operation.regions:
            return
        for region in operation.regions:
            for block in region.blocks:
                for inner in block.ops:
                    self._visit(inner)
        self.ends[place] = len(self.operations)

    def of(self, *kinds: type[Kind], within: Operation | Block | None = None) -> list[Kind]:
        """Return the operations of some types, those of a kernel or of what `within` holds."""
        low, high = 0, len(self.operations)
        if isinstance(within, Block):
            low, high = self._span(within)
        elif within is not None:
            low = self.places[within]
            high = self.ends[low]
        found: list[int] = []
        for kind in kinds:
            places = self._kinds.get(kind, [])
            found += places[bisect_left(places, low) : bisect_left(places, high)]
        if len(kinds) > 1:
            found.sort()
        return [self.operations[place] for place in found]  # pyright: ignore[reportReturnType]

    def holds(self, outer: Operation, inner: Operation) -> bool:
        """Tell whether an operation is another, or stands in it."""
        low = self.places[outer]
        return low <= self.places[inner] < self.ends[low]

    def inside(self, block: Block) -> list[Operation]:
        """Return the operations in a block, and in their regions."""
        low, high = self._span(block)
        return self.operations[low:high]

    def _span(self, block: Block) -> tuple[int, int]:
        first, last = block.first_op, block.last_op
        if first is None or last is None:
            return 0, 0
        return self.places[first], self.ends[self.places[last]]
