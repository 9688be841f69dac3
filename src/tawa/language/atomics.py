"""Atomic operations on global memory: each element is read and written as one step."""

from __future__ import annotations

from typing import Any, TypeVar

from tawa.language.stub import builtin

T = TypeVar("T")


@builtin
def atomic_cas(
    pointer: T, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None
) -> T:
    """Write `val` where memory equals `cmp`, as one step; gives the old value."""
    ...


@builtin
def atomic_xchg(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Write `val`, as one step; gives the old value."""
    ...


@builtin
def atomic_add(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Add `val` to memory, as one step; gives the old value.

    `sem` is "acquire", "release", "acq_rel" (unless given) or "relaxed"; `scope` "gpu" (unless
    given), "cta" or "sys".
    """
    ...


@builtin
def atomic_max(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Replace memory by the larger value, as one step; gives the old value.

    Of floats bits decide: a NaN is beyond the infinity of its sign, and 0.0 is more than -0.0.
    """
    ...


@builtin
def atomic_min(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Replace memory by the smaller value, as one step; gives the old value.

    Of floats bits decide: a NaN is beyond the infinity of its sign, and 0.0 is more than -0.0.
    """
    ...


@builtin
def atomic_and(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Combine memory with `val` by bitwise and, as one step; gives the old value."""
    ...


@builtin
def atomic_or(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Combine memory with `val` by bitwise or, as one step; gives the old value."""
    ...


@builtin
def atomic_xor(
    pointer: T, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> T:
    """Combine memory with `val` by bitwise exclusive or, as one step; gives the old value."""
    ...
