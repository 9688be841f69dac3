"""Every launch of a test is made under an adversarial schedule.

A test launches kernels as users do and asserts what they leave. `Schedules` stands in for the
stage of a launch in the simulator: it picks the schedule and the seed by the test's name, or, where
`all_of_them`, runs the launch under each schedule from the same memory and compares what they left;
then the generated text runs against the emulation of the device functions, and the test sees what
that leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import numpy as np

from codegen_emulator import COMPILER, emulate
from tawa.ir import hopper, tile
from tawa.runtime.dispatch import host_argument
from tawa.simulator.memory import HostDescriptor
from tawa.simulator.scheduler import adversarial
from tawa.simulator.trace import Trace

Stage = Callable[..., Trace]
SMALL = 1 << 22
"""Bytes of all arrays of a launch that is emulated."""


class Schedules:
    """A `simulate_stage` under the schedule and seed of a test; who says how is left alone."""

    def __init__(self, stage: Stage, test: str, all_of_them: bool) -> None:
        self.stage, self.test, self.all_of_them = stage, test, all_of_them
        self.ran: list[str] = []

    def __call__(
        self,
        program: tile.Kernel,
        arguments: Mapping[str, Any],
        grid: tuple[int, ...],
        level: str,
        **how: Any,
    ) -> Trace:
        usual = {"seed": 0, "schedule": "random", "cluster": None}
        if level != "hopper" or not how.items() <= usual.items():
            return self.stage(program, arguments, grid, level, **how)
        random, ways = Random(self.test), adversarial(program)
        last, seed = random.choice(ways), random.randrange(1000)

        def run(way: str) -> Trace:
            self.ran.append(way)
            return self.stage(program, arguments, grid, level, schedule=way, seed=seed)

        if not self.all_of_them:
            return run(last)
        memory = list(owners(arguments.values()))
        before = [array.copy() for array in memory]
        left: dict[str, list[bytes]] = {}
        for way in [other for other in ways if other != last] + [last]:
            for array, content in zip(memory, before):
                array[...] = content
            trace = run(way)
            left[way] = [array.tobytes() for array in memory]
        if not any(in_any_order(op) for op in program.walk()):
            differ = [way for way, content in left.items() if content != left[last]]
            assert not differ, f"schedules that differ from {last}: {differ}"
        given = {name: host_argument(arguments[name]) for name in program.argument_names}
        if COMPILER is not None and can_be_emulated(given, memory):
            for array, content in zip(memory, before):
                array[...] = content
            self.ran.append("emulated")
            emulate(program, given, (*grid, 1, 1)[:3], blocks=2, seed=seed)
        return trace


def in_any_order(op: object) -> bool:
    """Whether an operation changes memory that other programs change, whoever comes first."""
    match op:
        case tile.Atomic() | tile.DescAtomic():
            return True
        case hopper.TmaStore():
            return op.reduce is not None
        case _:
            return False


def can_be_emulated(arguments: Mapping[str, Any], memory: list[np.ndarray]) -> bool:
    """Whether arrays are small, whole and apart: the emulation lays each out anew."""
    arrays = [getattr(value, "base", None) if isinstance(value, HostDescriptor) else value
              for value in arguments.values()]  # fmt: skip
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    places = {array.ctypes.data: array.nbytes for array in arrays}
    whole = sum(places.values()) == sum(array.nbytes for array in memory) <= SMALL
    return whole and all(array.flags.c_contiguous and array.flags.writeable for array in arrays)


def owners(values: Any) -> Iterator[np.ndarray]:
    """The arrays that own the memory of arguments, each once."""
    found: dict[int, np.ndarray] = {}
    for value in values:
        array = host_argument(value)
        array = getattr(array, "base", None) if not isinstance(array, np.ndarray) else array
        while isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
            array = array.base
        if isinstance(array, np.ndarray) and array.flags.writeable:
            found[id(array)] = array
    yield from found.values()
