"""Kernels as users bring them: the program as written, the simulator and the generated text give
what NumPy does.
"""

from __future__ import annotations

import pytest

import idiom_language
from codegen_emulator import needs_compiler
from tawa.runtime import nvrtc

FILES = [idiom_language]
CASES = {name: case for file in FILES for name, case in file.CASES.items()}


@pytest.mark.parametrize("level", ["tile", "hopper"])
@pytest.mark.parametrize("name", CASES)
def test_simulated(name, level):
    CASES[name].simulate(level)


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_the_generated_text(name):
    CASES[name].emulate()


@pytest.mark.long
@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", CASES)
def test_built(name):
    source = CASES[name].source
    nvrtc.build(source.text, source.name)
