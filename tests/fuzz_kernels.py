"""Random kernels for the fuzz tests: Triton-language source, arguments, launch options and pins.

`case_of(number)` is one kernel, the same in every process; `cases()` a hypothesis strategy of them.
All data are small integers and every narrow value is clamped, so each order of sums is exact and
runs agree bit for bit.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import fuzz_further
import fuzz_further_values
import fuzz_products
import fuzz_values
import fuzz_wider
import fuzz_wider_values
from fuzz_case import Array, Case, written

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Array", "Case", "case_of", "cases", "wishes_of", "written"]

HINTS: dict[str, tuple[Any, ...]] = {
    "num_stages": (2, 1, 3, 4, 5),
    "num_warps": (4, 8),
}
_MORE_WISHES: dict[str, tuple[Any, ...]] = {"launch_pdl": (True,)}
_PINS: dict[str, tuple[Any, ...]] = {
    "depth": (2, 1, 3, 4, 5),
    "mma_depth": (1, 2, 3),
    "consumers": (1, 2, 3),
    "specialize": (True, False),
    "persistent": (False, True),
    "schedule": ("fine", "coarse", "none"),
    "cluster": (2,),
    "arrangement": ("pingpong", "cooperative"),
    "store": ("registers", "tma"),
    "parts": (2, 4),
    "strict": (True,),
}


WIDER = 1_000_000
"""Kernels of lower numbers are drawn without what `fuzz_wider` adds: results name some of them."""
FURTHER = 10_000_000
"""Those of lower numbers without what `fuzz_further` adds."""
_MORE_PINS: dict[str, tuple[Any, ...]] = {
    "store": ("slot", "registers", "tma"),
    "group": (0, 2, 3),
    "grouped": ("columns",),
    "walk": ("serpentine", "dynamic"),
    "places": (2,),
}


_TOGETHER: tuple[dict[str, Any], ...] = (
    {"arrangement": "pingpong", "persistent": True},
    {"consumers": 2, "persistent": True},
    {"persistent": True, "walk": "dynamic"},
    {"cluster": 2, "launch_pdl": True},
    {"specialize": False, "launch_pdl": True},
)
"""Options that say more with each other."""


def _options(random: Random, menus: list[dict[str, tuple[Any, ...]]]) -> dict[str, Any]:
    """Wishes and pins: most launches have few."""
    menu = {name: choices for each in menus for name, choices in each.items()}
    names = random.sample(list(menu), random.choice((0, 0, 1, 1, 2)))
    return {name: random.choice(menu[name]) for name in names}


def wishes_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a launch that no plan can refuse."""
    return {k: v for k, v in options.items() if k in HINTS or k in _MORE_WISHES}


_WRITERS: tuple[tuple[int, type[Any], type[Any]], ...] = (
    (FURTHER, fuzz_further.FurtherWriter, fuzz_further_values.FurtherValues),
    (WIDER, fuzz_wider.WiderWriter, fuzz_wider_values.WiderValues),
    (0, fuzz_products.Writer, fuzz_values.Writer),
)
"""By the first number: who writes products, and who writes values."""


def case_of(number: int) -> Case:
    """Kernel `number` with its arguments, grid, options and a seed for data and schedules."""
    random = Random(number)
    products = random.random() < 0.75
    further, wider = number >= FURTHER, number >= WIDER
    of_products, of_values = next(kinds for first, *kinds in _WRITERS if number >= first)
    writer = (of_products if products else of_values)(random)
    source, constants = writer.kernel()
    menus = [HINTS, *([_MORE_WISHES] if further else [])]
    if products:
        menus += [_PINS, _MORE_PINS] if wider else [_PINS]
    if further and products and random.random() < 0.15:
        options = dict(random.choice(_TOGETHER))
    else:
        options = _options(random, menus)
    return Case(source, writer.arguments, constants, writer.grid, options, number)


def cases() -> SearchStrategy[Case]:
    """Kernels of all numbers; hypothesis says which."""
    from hypothesis import strategies as st

    return st.integers(0, 1 << 32).map(case_of)
