"""Arithmetic for grids on the host, as Triton names it."""

from __future__ import annotations


def cdiv(dividend: int, divisor: int) -> int:
    """Divide and round up.

    >>> cdiv(129, 64)
    3
    """
    return -(-dividend // divisor)


def next_power_of_2(number: int) -> int:
    """Return the smallest power of two that is at least `number` (1 for 0).

    >>> next_power_of_2(100)
    128
    """
    return 1 if number <= 1 else 1 << (number - 1).bit_length()
