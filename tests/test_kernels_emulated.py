"""Every kernel of the tests and of the library through the emulated CUDA C++, at small sizes.

The simulator moves whole tiles and does not see layouts; the emulated text moves every element.
"""

from __future__ import annotations

from functools import cache

import pytest

from codegen_emulator import emulate, needs_compiler
from emulator_twins import DEFINITION
from instructions_all import SOURCES
from kernel_runs import SUBJECTS
from proof_kernels import KERNELS, shortened
from tawa.codegen import CudaSource
from tawa.codegen.generate import generate

pytestmark = needs_compiler
TIMINGS = 3
"""Of asynchronous work, by the seed: at random, as late or as early as can be."""


TOGETHER = 12
"""Texts that are compiled at once."""
SHORT = [name for name in shortened() if isinstance(name, str)]


@cache
def texts(batch: int) -> list[CudaSource]:
    """Those of `TOGETHER` kernels, at their usual sizes."""
    chosen = SHORT[batch * TOGETHER : (batch + 1) * TOGETHER]
    return [generate(KERNELS[name]()) for name in chosen]


def run(name: str, seed: int, extent: int | None = None, blocks: int = 2) -> None:
    subject = SUBJECTS[name]
    ready = subject.at(extent)
    got, source = ready.fresh(), generate(ready.kernel)
    assert instructions(source) <= instructions(SOURCES[0]), "an instruction without a program"
    among = texts(SHORT.index(name) // TOGETHER) if name in SHORT else []
    how = {"among": among} if source in among else {}
    emulate(source, got, ready.grid, blocks=blocks, seed=seed, **how)
    subject.same(ready.expected(), got)


def instructions(source: CudaSource) -> set[str]:
    """The device functions of a text that are PTX instructions; hints have nothing to show."""
    found = (DEFINITION.search(part) for part in source.text.split("\n\n") if "asm" in part)
    return {part[2] for part in found if part} - {"prefetch_map"}


def test_no_kernel_is_left_out() -> None:
    assert SUBJECTS.keys() == KERNELS.keys()


@pytest.mark.parametrize("name", shortened())
def test_the_text_gives_the_result_of_the_oracle(name: str) -> None:
    run(name, seed=list(SUBJECTS).index(name))


@pytest.mark.long
@pytest.mark.parametrize("name", SUBJECTS)
def test_at_other_times_and_sizes(name: str) -> None:
    first = list(SUBJECTS).index(name)
    step = SUBJECTS[name].step
    for more, extent in enumerate((None, None, step and 2 * step, step and 5 * step), 1):
        run(name, seed=first + more, extent=extent or None, blocks=1 + more % 3)
