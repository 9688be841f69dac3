"""Random kernels for the fuzz tests: Triton-language source, arguments, launch options and pins.

`case_of(number)` is one kernel, the same in every process; `cases()` a hypothesis strategy of them.
All data are small integers and every narrow value is clamped, so each order of sums is exact and
runs agree bit for bit.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import fuzz_products
import fuzz_values
import fuzz_wider
import fuzz_wider_values
from fuzz_case import Array, Case, written

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["WISHES", "Array", "Case", "case_of", "cases", "written"]

WISHES: dict[str, tuple[Any, ...]] = {
    "num_stages": (2, 1, 3, 4, 5),
    "num_warps": (4, 8),
}
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
_MORE_PINS: dict[str, tuple[Any, ...]] = {
    "store": ("slot", "registers", "tma"),
    "group": (0, 2, 3),
    "grouped": ("columns",),
    "walk": ("serpentine", "dynamic"),
    "places": (2,),
}


def _options(random: Random, menus: list[dict[str, tuple[Any, ...]]]) -> dict[str, Any]:
    """Wishes and pins: most launches have few."""
    menu = {name: choices for each in menus for name, choices in each.items()}
    names = random.sample(list(menu), random.choice((0, 0, 1, 1, 2)))
    return {name: random.choice(menu[name]) for name in names}


def case_of(number: int) -> Case:
    """Kernel `number` with its arguments, grid, options and a seed for data and schedules."""
    random = Random(number)
    products = random.random() < 0.75
    wider = number >= WIDER
    if products:
        writer = (fuzz_wider.WiderWriter if wider else fuzz_products.Writer)(random)
    else:
        writer = (fuzz_wider_values.WiderValues if wider else fuzz_values.Writer)(random)
    source, constants = writer.kernel()
    pins = [_PINS, _MORE_PINS] if wider else [_PINS]
    options = _options(random, [WISHES, *pins] if products else [WISHES])
    return Case(source, writer.arguments, constants, writer.grid, options, number)


def cases() -> SearchStrategy[Case]:
    """Kernels of all numbers; hypothesis says which."""
    from hypothesis import strategies as st

    return st.integers(0, 1 << 32).map(case_of)
