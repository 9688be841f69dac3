"""Runs one random kernel every way there is, and says how it went.

The oracle (tile IR, one statement after the other) defines the result; the simulated hopper IR
under several seeds and schedules, and the generated text run on the host, must give the same bits.
A kernel may be declined instead, by an error that names the reason.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from codegen_emulator import emulate
from fuzz_case import Case
from fuzz_kernels import wishes_of
from tawa.errors import (
    BuildError,
    InternalError,
    OverBudget,
    PlanError,
    ProtocolError,
    TawaError,
    UnprovedProtocol,
)
from tawa.ir import parse
from tawa.plan.text import parse_plan, print_plan
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.dispatch import guards_hold, simulate_stage
from tawa.runtime.grid import launches
from tawa.runtime.jit import JitFunction
from tawa.runtime.store import DiskStore

MULTIPROCESSORS = 2
"""Blocks resident at a time: persistent kernels walk over several tiles."""
TIMINGS = 3
"""Of asynchronous work in the emulation, by the seed: at random, as late or as early as can be."""


class Counterexample(AssertionError):
    """A kernel that runs otherwise than the oracle, or whose compilation fails by accident."""


@dataclass(frozen=True)
class Outcome:
    """How a case went: "equal" or "declined", and why. `refused` is why its pins were, before it
    ran without them.
    """

    verdict: str
    reason: str = ""
    refused: str = ""
    specialized: bool = False
    runs: int = 0
    states: int = 0
    unproved: tuple[str, ...] = ()
    """Why the proof refused a plan, before another one was taken."""


class NoStore(DiskStore):
    """Keeps nothing: every case is compiled."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, body: bytes) -> None:
        return None


def same(want: dict[str, Any], got: dict[str, Any], how: str, case: Case) -> None:
    """Raise Counterexample unless all arrays agree bit for bit."""
    for name, array in want.items():
        if not isinstance(array, np.ndarray):
            continue
        # Through float64: NaNs of all kinds are equal, and so are zeros of both signs.
        expected, actual = (np.asarray(x, np.float64) for x in (array, got[name]))
        if np.array_equal(expected, actual, equal_nan=True):
            continue
        wrong = (expected != actual) & ~(np.isnan(expected) & np.isnan(actual))
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Counterexample(
            f"{how}: {name}{list(first)} is {actual[first]}, the oracle's is {expected[first]}; "
            f"{int(wrong.sum())} of {wrong.size} differ\n{case}"
        )


def schedules(case: Case, seeds: int, compiled: Any) -> list[dict[str, Any]]:
    """The ways a case is simulated: a seed each, the first of them drawn from all schedules."""
    random = Random(case.seed)
    roles = [role.label for role in compiled.plan.roles] or ["main"]
    ways = ["random", *(f"starve={role}" for role in roles)]
    return [
        {
            "seed": random.randrange(1 << 30),
            "schedule": random.choice(ways),
            "late": random.choice(("random", "late", "early")),
        }
        for _ in range(seeds)
    ]


def run_case(case: Case, *, seeds: int = 2, emulated: bool = False, nvrtc: bool = False) -> Outcome:
    """Compile and run a case; raises Counterexample. `nvrtc` builds the text as well."""
    with ExitStack() as stack:
        if not nvrtc:
            stack.enter_context(mock.patch("tawa.runtime.nvrtc.is_available", return_value=False))
        return _run(case, seeds, emulated)


def compile_case(case: Case, *, plain: bool = False) -> CompiledKernel:
    """Compile a case, `plain` without what its arguments must hold for.

    Raises Counterexample where the compiler fails by accident.
    """
    kernel = JitFunction(case.function(), store=NoStore())
    try:
        given = case.given(case.data())
        compile_ = kernel.compile_plain if plain else kernel.compile
        return compile_(*given.values(), **keywords(case))
    except UnprovedProtocol:
        raise
    except (InternalError, ProtocolError) as error:
        raise Counterexample(f"{type(error).__name__}: {error}\n{case}") from error
    except TawaError:
        raise
    except Exception as error:
        raise Counterexample(f"compile: {type(error).__name__}: {error}\n{case}") from error


def assert_not_serialised(kernel: CompiledKernel) -> None:
    """Assert that a kernel built by NVRTC kept its roles, and its products overlap."""
    assert kernel.plan.specialized
    serialised = [line for line in kernel.declined if "serialised" in line.reason]
    assert not serialised, serialised


def keywords(case: Case) -> dict[str, Any]:
    """What a launch of a case is given by name."""
    return {**case.constants, **case.options, "grid": case.grid}


def _run(case: Case, seeds: int, emulated: bool) -> Outcome:
    """Run a case; one whose pins are refused runs without them."""
    refused = ""
    try:
        try:
            made = compile_case(case)
        except (PlanError, OverBudget, BuildError) as error:
            hints = wishes_of(case.options)
            if hints == case.options:
                raise
            refused = reason_of(error)
            case = replace(case, options=hints)
            made = compile_case(case)
    except TawaError as error:
        return Outcome("declined", reason_of(error), refused)
    if parse_plan(print_plan(made.plan)) != made.plan:
        raise Counterexample(f"the plan's text reads back otherwise\n{made.plan}\n{case}")
    if not made.proof.ok:
        raise Counterexample(f"not proved, and compiled: {made.proof.verdict}\n{case}")

    def ran(how: str, call: Any) -> dict[str, Any]:
        data = case.data()
        try:
            call(data)
        except Exception as error:
            text = f"{how}: {type(error).__name__}: {error}"
            raise Counterexample(f"{text}\n{case}") from error
        return data

    def simulated(kernel: CompiledKernel, level: Any, **how: Any) -> dict[str, Any]:
        program = kernel.asm.program(level)
        how |= {"multiprocessors": MULTIPROCESSORS}
        return ran(
            f"{level} {how}",
            lambda data: simulate_stage(program, case.given(data), case.grid, level, **how),
        )

    expected = simulated(made, "tile")
    if not guards_hold(made, case.given(case.data()), case.grid):
        try:
            made = compile_case(case, plain=True)
        except TawaError as error:
            return Outcome("declined", f"without descriptors: {reason_of(error)}", refused)
    try:
        launches(made, case.grid)
    except PlanError as error:  # a cluster that this grid has no whole number of
        return Outcome("declined", reason_of(error), refused)
    ways = schedules(case, seeds, made)
    for how in ways:
        same(expected, simulated(made, "hopper", **how), f"hopper {how}", case)
    if emulated:
        program = parse(made.asm.text("hopper"))

        for timing in range(TIMINGS):
            seed = TIMINGS * (case.seed // TIMINGS) + timing
            how = f"emulated, seed {seed}"
            run = partial(emulate, program, grid=case.grid, blocks=MULTIPROCESSORS, seed=seed)
            same(expected, ran(how, run), how, case)
    runs = len(ways) + TIMINGS * emulated
    plans = [each.reason for each in made.declined if each.feature.startswith("plan ")]
    unproved = tuple(_bare(each) for each in plans if "is not proved" in each)
    return Outcome("equal", "", refused, made.plan.specialized, runs, made.proof.states, unproved)


def reason_of(error: TawaError) -> str:
    """The class of an error and the first words of its reason, numbers left out."""
    text = f"{error.what}: {error.why}" if error.why else error.what
    return f"{type(error).__name__}: {_bare(text)}"


def _bare(text: str) -> str:
    return re.sub(r"[0-9][0-9,.]*", "N", text)[:140]


def commit() -> str:
    """The commit at hand, nothing where there is no repository."""
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
