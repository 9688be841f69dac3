"""What a user fixes in the plan; all that is not fixed the planner decides.

A pin that cannot be honoured raises `PlanError` with the reason. Triton's own options are not pins
but wishes: see `tawa.plan.planner`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tawa.errors import PlanError
from tawa.plan.plan import Arrangement, Plan, Schedule

ByName = int | Mapping[str, int] | tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class Pins:
    """Fixed fields of a plan; None leaves a field to the planner.

    `consumers` counts consumer warpgroups; `depth` is D for all rings or by a load's variable
    (``{"a": 4}`` or ``{"a@12": 4}``), `mma_depth` P for all loops or by a loop's name, `registers`
    a thread's budget by role (``{"load": 40, "mma": 232}``). `plan` is a whole plan, or its text.
    """

    specialize: bool | None = None
    consumers: int | None = None
    arrangement: Arrangement | None = None
    depth: ByName = None
    mma_depth: ByName = None
    schedule: Schedule | None = None
    persistent: bool | None = None
    cluster: int | None = None
    registers: Mapping[str, int] | tuple[tuple[str, int], ...] | None = None
    group: int | None = None
    store: Literal["tma", "registers"] | None = None
    parts: int | None = None
    plan: Plan | str | None = None

    def __post_init__(self) -> None:
        # Mappings become tuples, so that pins are hashable: they are part of a compilation's key.
        for name in ("depth", "mma_depth", "registers"):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, tuple(sorted(value.items())))  # pyright: ignore


def pick(pins: ByName, names: tuple[str, ...], what: str) -> int | None:
    """Return what `pins` fix for a statement that goes by any of `names`.

    A key fits a full name (``a@12``) or the variable alone (``a``). Two keys that fit and differ
    are an error.
    """
    if pins is None or isinstance(pins, int):
        return pins
    table = dict(pins)
    found = {table[key] for key in table if any(fits(key, name) for name in names)}
    if len(found) > 1:
        listed = ", ".join(f"{key}={table[key]}" for key in sorted(table))
        raise PlanError(
            f"{what} of {'+'.join(names)} is pinned twice: {listed}",
            why="these share one ring",
            remedy="pin one of them, or give them the same value",
        )
    return next(iter(found), None)


def fits(key: str, name: str) -> bool:
    """Tell whether a key of a pin speaks of a statement's name."""
    return key in (name, name.split("@")[0], name.split("#")[0])


def check_keys(pins: ByName, names: tuple[str, ...], what: str) -> None:
    """Raise PlanError when a pin names nothing of the kernel."""
    if pins is None or isinstance(pins, int):
        return
    for key in dict(pins):
        if not any(fits(key, name) for name in names):
            raise PlanError(
                f"{what}: the kernel has nothing named {key!r}",
                why=f"names that can be pinned: {', '.join(names) or 'none'}",
                remedy="use one of these names, or drop the pin",
            )
