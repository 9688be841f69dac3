"""The grid of a launch: a tuple, a list, an int or a function of the meta-parameters.

Arithmetic for grids on the host, as Triton names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from tawa.errors import ArgumentError, PlanError
from tawa.runtime.compiled import CompiledKernel
from tawa.target import PROGRAMS, WALKED


def resolve_grid(kernel: str, grid: Any, meta: Mapping[str, Any]) -> tuple[int, ...]:
    """Return a grid as a tuple: from a callable of the meta-parameters, a list or an int."""
    given: Any = grid(meta) if callable(grid) else grid
    if _is_plain(given):
        return given
    if isinstance(given, int):
        given = (given,)
    is_sequence = isinstance(given, tuple | list)
    extents = list[Any](given) if is_sequence else []  # pyright: ignore[reportUnknownArgumentType]
    if not 1 <= len(extents) <= 3:
        raise ArgumentError(
            f"the grid of {kernel} is {given!r}",
            why="a grid is 1 to 3 integers, or a function of the meta-parameters that returns them",
            remedy=f"launch with {kernel}[(programs,)](...)",
        )
    return tuple(whole(kernel, extent) for extent in extents)


def _is_plain(given: object) -> TypeGuard[tuple[int, ...]]:
    """Tell whether a grid is a tuple of ints already."""
    return type(given) is tuple and len(given) <= 3 and {*map(type, given)} == {int}  # pyright: ignore[reportUnknownArgumentType]


def whole(kernel: str, extent: Any) -> int:
    """Return a grid extent as an int; ArgumentError for what is not whole."""
    number = getattr(extent, "item", lambda: extent)()
    if isinstance(number, int):
        return int(number)
    raise ArgumentError(
        f"the grid of {kernel} has the extent {extent!r}, a {type(extent).__name__}",
        why="extents are integers",
        remedy="divide with // or tawa.cdiv",
    )


def launches(kernel: CompiledKernel, grid: Sequence[int]) -> bool:
    """Return False for a grid of no programs; raise for one CUDA cannot launch."""
    extents = [whole(kernel.name, extent) for extent in grid]
    for axis, (extent, limit) in enumerate(zip(extents, PROGRAMS)):
        if extent < 0 or (extent > limit and (axis or not kernel.launch.persistent)):
            raise ArgumentError(
                f"the grid of {kernel.name} is {tuple(extents)}",
                why=f"extent {axis} may be 0 to {limit}",
                remedy="put the largest extent first, or let a program do more",
            )
    if 0 in extents:
        return False
    size = kernel.launch.cluster
    if not kernel.launch.persistent and extents[0] % size:
        raise PlanError(
            f"the grid of {kernel.name} is {tuple(extents)}, and its cluster {size} blocks",
            why="the first extent must be a multiple of the cluster",
            remedy="compile with persistent=True or cluster=1",
        )
    programs = extents[0] * (extents[1] if len(extents) > 1 else 1)
    programs *= extents[2] if len(extents) > 2 else 1
    if kernel.launch.persistent and programs > WALKED:
        raise ArgumentError(
            f"the grid of {kernel.name} has {programs} programs",
            why=f"a persistent kernel counts them in 32 bits, up to {WALKED}",
            remedy="let a program do more, or compile with persistent=False",
        )
    return True


# --- arithmetic for grids -------------------------------------------------------------------------


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
