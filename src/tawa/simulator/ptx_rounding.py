"""Rounding of floats in a direction, and once (PTX ISA, "Rounding Modifiers")."""

# Arrays of any float type are computed with.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Excess = Callable[..., Fraction | None]
"""What a result exceeds the exact one of its operands by, in sign; None where there is none."""
DIRECTIONS = ("rz", "rm", "rp")


def directed(mode: str, found: Any, excess: Excess, operands: Sequence[Any]) -> Any:
    """Step from the nearest results to the one on the side that `mode` asks for."""
    made, infinity = np.array(found), found.dtype.type(np.inf)
    for place in np.flatnonzero(np.all([np.isfinite(item) for item in operands], axis=0)):
        given = [Fraction(float(item[place])) for item in operands]
        near = made[place]
        beyond = np.isinf(near)
        more = excess(Fraction(0 if beyond else float(near)), *given) if near == near else None
        if more is None:
            continue
        # What is beyond all numbers came of a number: it is further out than that.
        more = near if beyond else more
        down = mode == "rm" or (mode == "rz" and near > 0)
        up = mode == "rp" or (mode == "rz" and near < 0)
        if (down and more > 0) or (up and more < 0):
            made[place] = np.nextafter(near, -infinity if down else infinity)
    return made


def over_quotient(found: Fraction, a: Fraction, b: Fraction) -> Fraction | None:
    """Tell the excess of a / b, of the sign of what is left of a."""
    return None if b == 0 else (found * b - a) * (1 if b > 0 else -1)


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in float64, rounded as if once but for halves (Dekker's product, Knuth's sum)."""
    high, total = a * b, a * b + c
    (ah, al), (bh, bl) = ((h := (t := 134217729.0 * x) - (t - x), x - h) for x in (a, b))
    part = total - high
    rest = (high - (total - part)) + (c - part)
    rest = rest + (((ah * bh - high) + ah * bl + al * bh) + al * bl)
    return np.where((rest == 0) | ~np.isfinite(rest), total, total + rest)
