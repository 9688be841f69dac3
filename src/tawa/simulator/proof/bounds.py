"""What a scalar is at least: conditions that hold for every input, whatever is chosen.

Numbers of blocks, programs and tiles are not negative and extents at least 1; arguments and memory
may be anything. A branch that such a condition closes is dead, and needs no input that reaches it.
"""

from __future__ import annotations

from tawa.ir import hopper
from tawa.simulator.proof.scalars import Expr, Scalar

_FROM_ZERO = frozenset({"block_id", "cluster_id"})
_FROM_ONE = frozenset({"num_blocks", "num_clusters", "grid_extent"})


def surely_holds(condition: Scalar) -> bool:
    """Tell whether a comparison with a constant holds whatever its unknowns are."""
    if not isinstance(condition, Expr):
        return False
    match condition.function, condition.args:
        case ("lt", (int(low), high)) | ("gt", (high, int(low))):
            least = at_least(high)
            return least is not None and least > low
        case ("le", (int(low), high)) | ("ge", (high, int(low))):
            least = at_least(high)
            return least is not None and least >= low
        case _:
            return False


def at_least(scalar: object) -> int | None:
    """Return a number that a scalar is never less than, None where nothing is known."""
    if isinstance(scalar, int):
        return scalar
    if not isinstance(scalar, Expr):
        return None
    if scalar.unknown:
        return _unknown_at_least(scalar)
    least = [at_least(item) for item in scalar.args]
    match scalar.function, least:
        case "add", [int(a), int(b)]:
            return a + b
        case "mul", [int(a), int(b)] if a >= 0 and b >= 0:
            return a * b
        case ("idiv", [int(a), int(b)]) if a >= 0 and b >= 0:
            return 0
        case ("irem", [int(a), _]) if a >= 0:
            return 0
        case "min", [int(a), int(b)]:
            return min(a, b)
        case "max", [a, b]:
            return max((item for item in (a, b) if item is not None), default=None)
        case "select", [_, int(a), int(b)]:
            return min(a, b)
        case _:
            return None


def _unknown_at_least(scalar: Expr) -> int | None:
    if scalar.function in _FROM_ZERO:
        return 0
    if scalar.function in _FROM_ONE:
        return 1
    asked = scalar.function == "value" and isinstance(scalar.args[0], hopper.NextProgram)
    return 0 if asked else None
