"""In which order the tiles of attention come: how many heads are walked together."""

from __future__ import annotations

import math

from tawa.kernels.arrays import BYTES
from tawa.kernels.attention_operands import Problem
from tawa.target import H200

# Heads walked side by side under a causal mask keep their keys and values in this share of L2.
_L2_SHARE = 0.5
_L2_BYTES = 50 << 20
# Programs of a sequence and head that share what each reads of its keys.
_SHARING = 1.5


def side_by_side(problem: Problem, walk: str = "") -> int:
    """Return how many heads are walked together: all programs that are long start early then.

    Under a mask on the right as many as leave their keys and values in L2; else one at a time.
    Where tiles are dealt out in fixed rounds (`walk` "serpentine") all heads: only rounds whose
    lengths fall from first to last come out even.
    """
    if not problem.causal and not problem.options.right:
        return 1
    if walk == "serpentine":
        return problem.batch * problem.heads
    return _dividing(problem, _in_cache(problem))


def _in_cache(problem: Problem) -> float:
    """Return how many heads' keys and values L2 holds beside all else."""
    each = 2 * problem.keys * problem.head_dim * BYTES[problem.dtype] / problem.groups
    return _L2_SHARE * _L2_BYTES / max(1.0, each)


def _dividing(problem: Problem, most: float) -> int:
    """Return the largest divisor of all heads that is at most so many, 1 at least."""
    pairs = problem.batch * problem.heads
    return max(n for n in range(1, int(min(max(1, most), pairs)) + 1) if pairs % n == 0)


def packed_side_by_side(problem: Problem, rows: int, sequences: int) -> int:
    """Return how many heads of packed sequences are walked together.

    One long sequence may be half of all: the last heads then have work for every multiprocessor
    until its first tile is done. More than L2 holds come together only where several programs of
    each sequence run at a time, and so read keys that others brought.
    """
    if not problem.causal and not problem.options.right:
        return 1
    processors = H200.multiprocessors
    needed = 4 * rows * processors / max(1, problem.keys)
    sharing = problem.groups * processors / (_SHARING * max(1, sequences))
    return _dividing(problem, max(_in_cache(problem), min(math.ceil(needed), sharing)))
