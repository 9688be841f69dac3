"""What numbers are at least, whatever the input is, as the text of the kernel says.

Numbers of blocks, programs and tiles are not negative and extents at least 1; arguments and memory
may be anything. Nothing is taken from a run, whose numbers say nothing about other inputs.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue

from tawa.ir import hopper, tile
from tawa.simulator.proof.counting import constant_of

_FROM_ZERO = frozenset({"block_id", "cluster_id"})
_FROM_ONE = frozenset({"num_blocks", "num_clusters", "grid_extent"})
_DEEP = 40
"""Operations, one on the other, through which it is asked what a value is at least."""


def least_of_unknown(kind: str, key: tuple[object, ...]) -> int | None:
    """Return what an unknown is at least."""
    if kind in _FROM_ZERO:
        return 0
    if kind in _FROM_ONE:
        return 1
    return 0 if kind == "value" and isinstance(key[0], hopper.NextProgram) else None


def least_of_value(value: SSAValue) -> int | None:
    """Return what a value of the kernel is at least, whatever the input is."""
    return _Leasts().of(value, _DEEP)


class _Leasts:
    """What values are at least, each asked for once."""

    def __init__(self) -> None:
        self.known: dict[SSAValue, int | None] = {}

    def of(self, value: SSAValue, deep: int) -> int | None:
        if not deep or str(value.type) not in ("i32", "i64"):
            return None
        if value not in self.known:
            self.known[value] = self._find(value, deep - 1)
        return self.known[value]

    def _find(self, value: SSAValue, deep: int) -> int | None:
        match value.owner:
            case tile.Constant():
                return constant_of(value)
            case hopper.BlockId():
                return 0
            case hopper.NumBlocks() | hopper.GridExtent():
                return 1
            case tile.Elementwise() as operation:
                parts = [self.of(part, deep) for part in operation.operands]
                return _least_of(operation.function.data, parts)
            case Block() as body:
                loop = body.parent_op()
                if not isinstance(loop, scf.ForOp) or value is not body.args[0]:
                    return None
                rises = (self.of(loop.step, deep) or 0) > 0
                return self.of(loop.lb, deep) if rises else None
            case _:
                return None


def _least_of(function: str, least: list[int | None]) -> int | None:
    """Return what a function of numbers is at least, of which that is known."""
    match function, least:
        case "add", [int(a), int(b)]:
            return a + b
        case "mul", [int(a), int(b)] if a >= 0 and b >= 0:
            return a * b
        case "idiv", [int(a), int(b)] if a >= 0 and b >= 0:
            return 0
        case "irem", [int(a), _] if a >= 0:
            return 0
        case "min", [int(a), int(b)]:
            return min(a, b)
        case "max", [a, b]:
            return max((item for item in (a, b) if item is not None), default=None)
        case "select", [_, int(a), int(b)]:
            return min(a, b)
        case _:
            return None
