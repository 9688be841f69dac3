"""How functions of one number go on: far from zero they repeat, or gain the same again and again.

Comparisons, quotients and sums of ``x`` change as they like near their constants. Beyond a bound,
``f(x + period)`` is ``f(x) + gain``, on either side of zero for itself. That far a function must be
looked at to know all of it: ``x / 8 / 8 > 3`` changes at 256, and ``64 * (x / 64) / 64`` repeats
after 64 and not after 4096.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd, lcm


@dataclass(frozen=True, slots=True)
class Tail:
    """A function on one `side` of zero, 1 or -1, beyond `bound`: it takes on `gain` with every
    `period`, and is ``gain / period`` times its argument but for `error` at most. `value` is what
    it is where that is one number.
    """

    side: int
    bound: int = 0
    period: int = 1
    gain: int = 0
    error: int = 0
    value: int | None = None

    @property
    def settled(self) -> Tail | None:
        """The sign of the function, from where on it has one; None where it goes on changing."""
        if self.value is not None:
            return constant(self.side, _sign(self.value), self.bound)
        if not self.gain:
            return None
        bound = max(self.bound, self.error * self.period // abs(self.gain))
        return constant(self.side, _sign(self.gain * self.side), bound)

    def repeated(self) -> Tail:
        """Return what follows from what it is: 0 or 1, where the function itself repeats."""
        return replace(self, gain=0, error=1, value=None)


def constant(side: int, value: int, bound: int = 0) -> Tail:
    """Return a function that is one number."""
    return Tail(side, bound, error=abs(value), value=value)


def total(side: int, parts: Iterable[tuple[int, Tail]], number: int) -> Tail:
    """Return the sum of functions, each times a factor, and of a number."""
    found = constant(side, number)
    for factor, tail in parts:
        period = lcm(found.period, tail.period)
        gain = found.gain * (period // found.period)
        known = found.value is not None and tail.value is not None
        found = Tail(
            side,
            max(found.bound, tail.bound),
            period,
            gain + factor * tail.gain * (period // tail.period),
            found.error + abs(factor) * tail.error,
            found.value + factor * tail.value if known else None,  # pyright: ignore
        )
    return found


def down(tail: Tail, by: int) -> Tail:
    """Return a function divided by a positive number, rounded down."""
    if tail.value is not None:
        return constant(tail.side, tail.value // by, tail.bound)
    times = by // gcd(tail.gain, by)
    return replace(
        tail,
        period=tail.period * times,
        gain=tail.gain * times // by,
        error=-(-tail.error // by) + 1,
    )


def rounded(tail: Tail, by: int) -> Tail:
    """Return whether a function is negative and no multiple of a number."""
    if tail.value is not None:
        return constant(tail.side, int(tail.value < 0 and tail.value % by != 0), tail.bound)
    sign = tail.settled
    if sign is None:
        return tail.repeated()
    if sign.value == 1:
        return constant(tail.side, 0, sign.bound)
    times = by // gcd(tail.gain, by)
    return replace(tail, bound=sign.bound, period=tail.period * times).repeated()


def positive(tail: Tail) -> Tail:
    """Return whether a function is positive."""
    return _told(tail, 1)


def zero(tail: Tail) -> Tail:
    """Return whether a function is zero."""
    return _told(tail, 0)


def above(tail: Tail) -> Tail:
    """Return a function, or zero where it is negative."""
    sign = tail.settled
    if sign is None:
        return tail
    return (
        replace(tail, bound=sign.bound) if sign.value == 1 else constant(tail.side, 0, sign.bound)
    )


def unlike(one: Tail, other: Tail) -> Tail:
    """Return whether two functions differ."""
    return total(one.side, [(-1, zero(total(one.side, [(1, one), (-1, other)], 0)))], 1)


def times(one: Tail, other: Tail) -> Tail | None:
    """Return the product of two functions; None where both change, and one of them gains."""
    if one.value is None:
        one, other = other, one
    bound, period = max(one.bound, other.bound), lcm(one.period, other.period)
    if one.value is not None:
        return replace(total(one.side, [(one.value, other)], 0), bound=bound)
    if one.gain or other.gain:
        return None
    return Tail(one.side, bound, period, error=one.error * other.error)


def _told(tail: Tail, sign: int) -> Tail:
    """Return whether a function has a sign."""
    found = tail.settled
    if found is None:
        return tail.repeated()
    return constant(tail.side, int(found.value == sign), found.bound)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
