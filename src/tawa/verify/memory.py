"""H5: what lies where in shared memory.

Buffers and barriers lie in bytes of their own, inside of what the launch asks for. Two buffers may
share bytes where one role alone uses them, by threads and engines that its own order separates
(`role_flow`): scratch memory that is used one after the other. Starts and boxes of tensor maps are
rules of each declaration (`declared`).
"""

from __future__ import annotations

from itertools import combinations

from tawa.ir import hopper, tile
from tawa.ir.types import BarriersType, BufferType
from tawa.ir.walk import all_of
from tawa.verify.rings import Rings
from tawa.verify.rules import Refused, rule

_BARRIER_BYTES = 8


def check_memory(kernel: tile.Kernel, rings: Rings, most: int) -> None:
    """Raise Refused where something lies over something else, or beyond the `most` bytes that the
    launch asks for.
    """
    spans: list[tuple[int, int, hopper.Shared | hopper.Barriers]] = []
    for operation in all_of(kernel, hopper.Shared, hopper.Barriers):
        kind, first = operation.result.type, operation.offset.data
        if isinstance(operation, hopper.Barriers):
            assert isinstance(kind, BarriersType)
            size = _BARRIER_BYTES * kind.count.data
            if first % _BARRIER_BYTES:
                raise Refused(
                    rule("in place"),
                    f"barriers {operation.label.data} start at byte {first}, no multiple of 8",
                    operation,
                )
        else:
            assert isinstance(kind, BufferType)
            size = kind.bytes
        spans.append((first, first + size, operation))
    for first, end, operation in spans:
        if first < 0 or end > most:
            raise Refused(
                rule("in place"),
                f"{operation.label.data} ends at byte {end}; the launch asks for {most}",
                operation,
            )
    for (first, end, one), (start, stop, other) in combinations(spans, 2):
        if first < stop and start < end and not _is_scratch(rings, one, other):
            raise Refused(
                rule("in place"),
                f"{one.label.data} and {other.label.data} share the bytes from "
                f"{max(first, start)} to {min(end, stop)}",
                other,
            )


def _is_scratch(rings: Rings, *both: hopper.Shared | hopper.Barriers) -> bool:
    """Tell whether one role alone uses two buffers, which nobody hands on."""
    roles: set[hopper.Role] = set()
    for each in both:
        ring = rings.buffers.get(each.result)
        if ring is None or ring.filled is not None:
            return False
        roles |= ring.roles
    return len(roles) <= 1


__all__ = ["check_memory"]
