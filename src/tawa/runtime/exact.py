"""Integers of 64 bits in arrays that raise where NumPy's wrap, or divide by zero.

A condition of a launch proves something only if its numbers are the true ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_LEAST = -(1 << 63)
# A float64 result is off by at most 2^-52 of itself: what is nearer to 2^63 is computed exactly.
_MOST = 2.0**63 * (1 - 2.0**-50)
_ARITHMETIC = {np.add, np.subtract, np.multiply, np.left_shift}
_DIVISIONS = {np.floor_divide, np.remainder}


class Whole(np.ndarray[Any, Any]):
    """An array of int64, or of bool for comparisons, whose operators are exact or raise
    ArithmeticError.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute on plain arrays; look whether 64 bits hold the result."""
        if method != "__call__":
            return getattr(ufunc, method)(*map(np.asarray, inputs), **options)
        plain = [_plain(each) for each in inputs]
        if ufunc in _ARITHMETIC:
            first, second = (each.astype(np.float64) for each in plain)
            if ufunc is np.left_shift:
                if (plain[1] < 0).any():
                    raise ArithmeticError("a shift by less than 0")
                if (plain[1] > 63).any():
                    raise OverflowError("a number leaves 64 bits")
                ufunc_of, second = np.multiply, np.exp2(second)
            else:
                ufunc_of = ufunc
            if (np.abs(ufunc_of(first, second)) >= _MOST).any():
                found = np.asarray(ufunc(*(each.astype(object) for each in plain)))
                if ((found < _LEAST) | (found > ~_LEAST)).any():
                    raise OverflowError("a number leaves 64 bits")
            plain = [each.astype(np.int64) for each in plain]
        elif ufunc is np.right_shift:
            if (plain[1] < 0).any():
                raise ArithmeticError("a shift by less than 0")
            plain[1] = np.minimum(plain[1], 63)
        elif ufunc in _DIVISIONS and (plain[1] == 0).any():
            raise ZeroDivisionError("a division by zero")
        elif ufunc in (np.negative, np.absolute, np.floor_divide) and (plain[0] == _LEAST).any():
            raise OverflowError("a number leaves 64 bits")
        return np.asarray(ufunc(*plain, **options)).view(Whole)


def _plain(value: Any) -> Any:
    """Return a plain array; raises OverflowError for what int64 does not hold."""
    found = np.asarray(value)
    return found if found.dtype == np.bool_ else np.asarray(value, np.int64)


def whole(value: Any) -> Whole:
    """Return numbers as exact ones."""
    return _plain(value).view(Whole)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller number of each pair."""
    return np.minimum(whole(a), whole(b))


def maximum(a: Any, b: Any) -> Any:
    """Return the larger number of each pair."""
    return np.maximum(whole(a), whole(b))


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return `a` where the condition holds, else `b`; both are computed everywhere."""
    return whole(np.where(_plain(condition), _plain(a), _plain(b)))


def divide(a: Any, b: Any) -> Any:
    """C division, towards zero."""
    a, b = whole(a), whole(b)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def remainder(a: Any, b: Any) -> Any:
    """Return C's remainder, of the sign of `a`."""
    return whole(a) - divide(a, b) * whole(b)
