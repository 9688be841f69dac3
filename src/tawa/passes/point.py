"""Where a pass inserts what it computes: before a statement, at that statement's source line."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue


class Point:
    """Inserts before an operation, at its place in the source."""

    def __init__(self, anchor: Operation) -> None:
        self._anchor = anchor

    def put(self, operation: Operation) -> SSAValue:
        """Insert an operation and return its first result."""
        block = self._anchor.parent
        assert block is not None, "an operation of a kernel stands in a block"
        block.insert_op_before(operation, self._anchor)
        operation.location = self._anchor.location
        return operation.results[0]
