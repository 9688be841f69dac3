"""Kernels as users bring them: the program as written, the simulator and the generated text give
what NumPy does.
"""

from __future__ import annotations

from functools import cache

import pytest

import idiom_corners
import idiom_inductor
import idiom_language
import idiom_libraries
import idiom_products
import idiom_recurrent
import idiom_scalars
import idiom_servers
import idiom_serving
import idiom_sparse
import idiom_templates
import idiom_training
from codegen_emulator import needs_compiler
from idiom_case import Idiom
from tawa.codegen import CudaSource

CUBINS = True

FILES = [
    idiom_corners,
    idiom_inductor,
    idiom_language,
    idiom_libraries,
    idiom_products,
    idiom_scalars,
    idiom_serving,
]
FURTHER = [idiom_recurrent, idiom_servers, idiom_sparse, idiom_templates, idiom_training]
CASES: dict[str, Idiom] = {
    name: case for file in (*FILES, *FURTHER) for name, case in file.CASES.items()
}
SLOW = {"chunk_states", "delta_states", "extend_with_mask", "latent_decoding", "pieces_of_a_chunk",
        "selected_attention"}  # fmt: skip
SHORT = {**idiom_corners.CASES, **idiom_language.CASES}


@pytest.mark.parametrize("name", [name for name in CASES if name not in SLOW])
def test_simulated(name):
    CASES[name].simulate("tile")
    CASES[name].simulate("hopper")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SLOW))
def test_slow_ones_simulated(name):
    CASES[name].simulate("tile")
    CASES[name].simulate("hopper")


TOGETHER = 12
"""Texts that are compiled at once: most of what a small one takes is the start of the compiler."""


@cache
def texts(batch: int) -> list[CudaSource]:
    return [CASES[name].source for name in list(SHORT)[batch * TOGETHER : (batch + 1) * TOGETHER]]


@needs_compiler
@pytest.mark.parametrize("name", SHORT)
def test_the_generated_text(name):
    CASES[name].emulate(among=texts(list(SHORT).index(name) // TOGETHER))


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CASES.keys() - SHORT.keys()))
def test_the_generated_text_of_others(name):
    CASES[name].emulate()
