"""The scales of attention: of 8-bit operands, one number for all of q, of k and of v; of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tawa.errors import ArgumentError


def check_descale(
    descale: tuple[float, float, float] | None, dtype: str, options: Sequence[str]
) -> tuple[float, float, float]:
    """Return what q, k and v are multiplied by: 1 but for 8-bit arrays.

    `options` are the names of those a problem has. Raises `ArgumentError` for what no kernel does.
    """
    narrow = dtype.startswith("f8")
    if descale is not None and not narrow:
        raise ArgumentError(
            f"descale beside arrays of {dtype}",
            why="it says what the elements of 8-bit arrays are multiplied by",
            remedy="drop it, or fold it into scale",
        )
    if narrow and options:
        raise ArgumentError(
            f"{', '.join(options)} beside arrays of {dtype}",
            why="8-bit operands go through the plain kernel, causal or not",
            remedy="convert q, k and v to bf16",
        )
    if descale is None:
        return 1.0, 1.0, 1.0
    if len(descale) != 3:
        raise ArgumentError(
            f"descale has {len(descale)} numbers", why="one each for all of q, of k and of v"
        )
    of_q, of_k, of_v = map(float, descale)
    return of_q, of_k, of_v


def check_factor(factor: float) -> None:
    """Raise `ArgumentError` for what scores cannot be multiplied by."""
    if not 0 < factor < math.inf:
        raise ArgumentError(
            f"scores would be multiplied by {factor}",
            why="the largest of a row is found before; scale and descale are positive numbers",
            remedy="for a negative scale pass -q",
        )
