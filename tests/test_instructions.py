"""The emulation against the definitions of the PTX manual, one instruction at a time."""

import pytest

from codegen_emulator import emulate, needs_compiler
from instructions_all import PROGRAMS, SOURCES

NUMBERS = [pytest.param(i, id=program.name) for i, program in enumerate(PROGRAMS)]


def run(number: int, seed: int) -> None:
    program = PROGRAMS[number]
    result = program.before()
    arguments = {"given": program.given.copy(), "result": result}
    grid = (program.cluster, 1, 1)
    emulate(SOURCES[number], arguments, grid, seed=seed, among=SOURCES)
    assert not program.wrong(result)


@needs_compiler
@pytest.mark.parametrize("number", NUMBERS)
def test_as_ptx_defines_it(number: int) -> None:
    run(number, seed=number % 3)  # asynchronous work at random, late or early


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_at_other_times(number: int) -> None:
    for seed in range(1, 12):
        run(number, number + seed)
