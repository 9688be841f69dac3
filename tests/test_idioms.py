"""Kernels as users bring them: the program as written, the simulator and the generated text give
what NumPy does.
"""

from __future__ import annotations

import pytest

import idiom_corners
import idiom_inductor
import idiom_language
import idiom_libraries
import idiom_products
import idiom_scalars
import idiom_serving
from codegen_emulator import needs_compiler
from idiom_case import Idiom

FILES = [
    idiom_corners,
    idiom_inductor,
    idiom_language,
    idiom_libraries,
    idiom_products,
    idiom_scalars,
    idiom_serving,
]
CASES: dict[str, Idiom] = {name: case for file in FILES for name, case in file.CASES.items()}
SHORT = {**idiom_corners.CASES, **idiom_language.CASES}


@pytest.mark.parametrize("name", CASES)
def test_simulated(name):
    CASES[name].simulate("tile")
    CASES[name].simulate("hopper")


@needs_compiler
@pytest.mark.parametrize("name", SHORT)
def test_the_generated_text(name):
    CASES[name].emulate()


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CASES.keys() - SHORT.keys()))
def test_the_generated_text_of_others(name):
    CASES[name].emulate()
