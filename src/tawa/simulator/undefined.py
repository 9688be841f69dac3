"""What a kernel stores of elements that have no value: those a load without `other` masks out.

Triton leaves them undefined, and the simulator makes them NaN, which spreads to what is computed
from them. Where a launch leaves NaN, it is run again with zeros in their place: what is no NaN then
depends on them, and the user is told so, with the line of the load.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, TypeAlias, TypeVar

import numpy as np
from xdsl.ir import Operation

from tawa.errors import TawaError
from tawa.ir import tile
from tawa.simulator.memory import HostDescriptor, open_loads
from tawa.simulator.races import written_arguments
from tawa.simulator.values import FLOATS, Array, place_of

R = TypeVar("R")
Defined: TypeAlias = frozenset[Operation]
"""Loads that give zero where they are masked out."""

_ASKED = 8
"""Loads that are told apart by a run for each."""


class UndefinedValue(UserWarning):
    """What a launch stored depends on elements that have no value."""


def run_told(
    kernel: tile.Kernel, arguments: Mapping[str, object], run: Callable[[Defined], R]
) -> R:
    """Run a launch; warns where what it stored depends on undefined elements."""
    loads = open_loads(kernel)
    arrays = _written(kernel, arguments) if loads else {}
    before = [array.copy() for array in arrays.values()]
    result = run(frozenset())
    after = [array.copy() for array in arrays.values()]
    nan = [_is_nan(array) for array in after]
    if not any(bad.any() for bad in nan):
        return result

    def undefined(defined: Sequence[tile.Load]) -> list[Array]:
        """Return where NaN goes away when loads give zero instead."""
        _put(arrays, before)
        try:
            with redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
                run(frozenset(defined))
            return [bad & ~_is_nan(new) for bad, new in zip(nan, arrays.values())]
        except TawaError:  # zeros lead it elsewhere: nothing is known
            return [np.zeros(old.shape, np.bool_) for old in after]
        finally:
            _put(arrays, after)

    found = {name: int(bad.sum()) for name, bad in zip(arrays, undefined(loads)) if bad.any()}
    if found:
        asked = loads[:_ASKED] if len(loads) > 1 else []
        guilty = [load for load in asked if any(bad.any() for bad in undefined([load]))]
        _warn(found, guilty or loads)
    return result


def _written(kernel: tile.Kernel, arguments: Mapping[str, object]) -> dict[str, Array]:
    """Return the arrays that a launch may write, by argument."""
    found: dict[str, Array] = {}
    for name in sorted(written_arguments(kernel)):
        value: Any = arguments[name]
        array = value.base if isinstance(value, HostDescriptor) else value
        if isinstance(array, np.ndarray) and array.flags.writeable:
            found[name] = array
    return found


def _is_nan(array: Array) -> Array:
    return np.isnan(array) if array.dtype in FLOATS else np.zeros(array.shape, np.bool_)


def _put(arrays: Mapping[str, Array], contents: Sequence[Array]) -> None:
    for array, content in zip(arrays.values(), contents):
        array[...] = content


def _warn(found: Mapping[str, int], loads: Sequence[tile.Load]) -> None:
    """Warn at the line of the first load of what arrays hold."""
    stored = ", ".join(f"{count} of {name}" for name, count in found.items())
    places = list(dict.fromkeys(place for load in loads if (place := place_of(load)) is not None))
    lines = [
        f"stored elements depend on what a load masks out and gives no value: {stored}",
        *(place.render() for place in places),
        "  why: without `other` they are undefined on the GPU; the simulator makes them NaN",
        "  do:  pass other=, or mask what is computed from them",
    ]
    file, line = (places[0].file, places[0].line) if places else ("kernel", 0)
    warnings.warn_explicit("\n".join(lines), UndefinedValue, file, line)
