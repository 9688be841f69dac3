"""Running a program over lanes: on this CPU, on a GPU, or in the interpreter."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from tawa.errors import ModelError, StackError
from tawa.ppl.emit.llvm import emit
from tawa.ppl.emit.machine import C_TYPES, STORED, Machine
from tawa.ppl.ir.core import Kind, Program
from tawa.ppl.ir.interpret import interpret
from tawa.ppl.ir.operations import FAULTS, HEAP
from tawa.ppl.ir.verify import verify
from tawa.ppl.math.library import library
from tawa.ppl.passes.hoist import hoist
from tawa.ppl.passes.parts import has_sums, in_blocks, on_threads
from tawa.ppl.passes.rows import rows

if TYPE_CHECKING:
    from tawa.ppl.emit.gpu import Lanes

Device = Literal["cpu", "cuda", "interpreter"]
_LOCK = threading.Lock()
CALLERS_STACK = 1 << 15
"""Bytes that are left on the stack of whoever calls: as few as a thread of Python may have."""
Array = np.ndarray[Any, Any]
Buffers = Mapping[str, Array | int]
"""Arrays, or of how many rows of zeros a buffer is at the start."""
Running: TypeAlias = "OnHost | Lanes"
"""A program with its data and buffers on a device, for as long as a `with` lasts; `memory` has the
buffers as other programs of the device take them.
"""


@lru_cache(maxsize=128)
def machine(text: str, cpu: str = "") -> Machine:
    """Return the machine code of LLVM IR, compiled once in a process."""
    return Machine(text, cpu)


class Executable:
    """A program that is ready to run on a device."""

    def __init__(self, program: Program, device: Device, cpu: str = "") -> None:
        program.buffers.setdefault("fault", "i32")
        verify(program, handled=True)
        program = rows(program)
        self.before: Executable | None = None
        if device != "interpreter":
            program, before = hoist(program)
            self.before = Executable(before, "cpu", cpu) if before else None
        self.program = program
        self.device: Device = device
        self.cpu = cpu
        self.text, self.stack = "", 0
        if device == "cpu":
            self.text, self.stack = emit(in_blocks(program), library, gpu=False)
        self.shared = has_sums(program)
        self.kernels: dict[int, str] = {}

    def kernel(self, threads: int) -> str:
        """Return LLVM IR of a kernel with so many threads a lane."""
        if threads not in self.kernels:
            shared = on_threads(self.program, threads)
            self.kernels[threads], _ = emit(shared, library, gpu=True)
        return self.kernels[threads]

    def run(
        self, arguments: Sequence[Any], buffers: Buffers, lanes: int, threads: int | None = None
    ) -> dict[str, Array]:
        """Run all lanes; return the buffers: on the CPU, those that were arrays are these.

        Raises StackError or ModelError where a lane could not go on.
        """
        with self.on(arguments, buffers, lanes, threads, long=True) as running:
            running.launch()
            made = {name: running.rows(name) for name in buffers}
            self.check(running)
            return made

    def on(
        self,
        arguments: Sequence[Any],
        buffers: Mapping[str, Any],
        lanes: int,
        threads: int | None = None,
        *,
        long: bool = False,
        single: bool = False,
    ) -> Running:
        """Return the program with its data and buffers on its device, for many launches.

        A buffer is an array, the memory of another running program, or a number of rows of zeros.
        `threads=None` are as many as there are cores; a single one is the caller's, but of a `long`
        launch, that of a whole run, which a signal (Ctrl-C) may interrupt.
        """
        arguments, buffers = self.given(arguments), {"fault": 2, **buffers}
        ordered = {name: buffers[name] for name in self.program.buffers}
        if self.device == "cuda":
            from tawa.ppl.emit.gpu import Lanes, threads_of_a_lane

            # A launch of a step loads and saves what a lane has, each of its threads all of it:
            # `single` are lanes with large records (tile plates: 0.71 ms with four, 0.30 with one).
            several = (self.shared or long) and not single
            many = threads_of_a_lane(lanes, self.kernel, shared=self.shared) if several else 1
            return Lanes(self.kernel(many), self.program, arguments, ordered, lanes, many)
        return OnHost(self, arguments, ordered, lanes, threads, long=long)

    def check(self, running: Running) -> None:
        """Raise StackError or ModelError where a lane could not go on."""
        check_faults(self.program, running.rows("fault", 0, 2))

    def given(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return what the program takes: its arguments, and what depends on these alone."""
        if not self.before:
            return arguments
        made = self.program.params[len(arguments) :]
        with self.before.on(arguments, {v.name: v.type.size for v in made}, 1) as running:
            running.launch()
            return (*arguments, *(running.rows(value.name) for value in made))

    def function(self) -> Callable[..., None]:
        """Return the machine code, of the first lane, the one behind the last, how many all are,
        arguments and buffers.
        """
        types: list[Any] = [ctypes.c_int64] * 3
        for param in self.program.params:
            types.append(ctypes.c_void_p if param.type.shape else C_TYPES[param.type.kind])
        types += [ctypes.c_void_p] * len(self.program.buffers)
        return machine(self.text, self.cpu).function(types)


class OnHost:
    """Lanes on the CPU or in the interpreter, whose buffers are arrays."""

    def __init__(
        self,
        executable: Executable,
        arguments: Sequence[Any],
        buffers: Mapping[str, Any],
        lanes: int,
        threads: int | None,
        *,
        long: bool,
    ) -> None:
        self.executable, self.lanes = executable, lanes
        program = executable.program
        self.memory: dict[str, Any] = {
            name: self.zeros((held, lanes), program.buffers[name])
            if isinstance(held, int)
            else held
            for name, held in buffers.items()
        }
        self.given = [*arguments, *self.memory.values()]
        names = [*(param.name for param in program.params), *self.memory]
        self.places = {name: k for k, name in enumerate(names)}
        self.workers: ThreadPoolExecutor | None = None
        if executable.device == "interpreter":
            return
        for name, array in self.memory.items():
            _check_buffer(name, program.buffers[name], array, lanes)
        self.values = [x.ctypes.data if isinstance(x, np.ndarray) else x for x in self.given]
        self.function = executable.function()
        count = max(1, min(threads or len(os.sched_getaffinity(0)), lanes))
        edges = [lanes * k // count for k in range(count + 1)]
        self.parts = list(pairwise(edges))
        # The caller's thread takes a part where it may: to wake another one takes longer than a
        # launch of few lanes.
        self.own = 0 if long or executable.stack > CALLERS_STACK else 1
        if count > self.own:
            self.workers = workers(executable.stack, count - self.own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.memory.clear()
        if not any(error):  # else a thread may work on them still: `_part`
            self.given.clear()
        if self.workers:
            self.workers.shutdown(wait=False)  # one that was interrupted goes on to its end

    def put(self, array: Array) -> Array:
        """Return the array."""
        return array

    def zeros(self, shape: tuple[int, ...], kind: Kind) -> Array:
        """Return an array of zeros."""
        return np.zeros(shape, STORED[kind])

    def launch(self, **numbers: int | float) -> None:
        """Run all lanes."""
        program, lanes = self.executable.program, self.lanes
        if self.executable.device == "interpreter":
            for name, number in numbers.items():
                self.given[self.places[name]] = number
            arguments = self.given[: len(program.params)]
            interpret(program, arguments, self.memory, range(lanes), library)
            return
        for name, number in numbers.items():
            self.values[self.places[name]] = number
        mine, others = self.parts[: self.own], self.parts[self.own :]
        running = (
            [self.workers.submit(self._part, *part) for part in others] if self.workers else []
        )
        for part in mine:
            self._part(*part)
        for done in running:
            done.result()

    def _part(self, first: int, end: int) -> None:
        # A method: arrays live on for as long as a thread works on them.
        self.function(first, end, self.lanes, *self.values)

    def rows(self, name: str, row: int = 0, count: int | None = None) -> Array:
        """Return a view of rows of a buffer."""
        return self.memory[name][row : None if count is None else row + count]

    def give(self, name: str, array: Array, row: int = 0) -> None:
        """Copy rows to a buffer."""
        self.memory[name][row : row + len(array)] = array

    def swap(self, one: str, other: str) -> None:
        """Make two buffers change places."""
        memory = self.memory
        memory[one], memory[other] = memory[other], memory[one]
        if self.executable.device != "interpreter":
            a, b = self.places[one], self.places[other]
            self.values[a], self.values[b] = self.values[b], self.values[a]


def _check_buffer(name: str, kind: Kind, array: Array, lanes: int) -> None:
    fits = array.shape[-1] == lanes or len(array) == 1  # of one row any lane's item can be read
    if array.dtype != STORED[kind] or not fits or not array.flags.c_contiguous:
        raise ModelError(
            f"buffer {name} is {array.dtype}{list(array.shape)}, not {kind}[..., {lanes}]"
        )


def workers(stack: int, count: int) -> ThreadPoolExecutor:
    """Return threads whose stacks hold a lane's memory."""
    with _LOCK:
        page = 1 << 16
        before = threading.stack_size((4 << 20) + (2 * stack + page - 1) // page * page)
        try:
            made = ThreadPoolExecutor(count)
            together = threading.Barrier(count)  # a thread is made where no other is idle
            for ready in [made.submit(together.wait) for _ in range(count)]:
                ready.result()
        finally:
            threading.stack_size(before)
    return made


def check_faults(program: Program, faults: Array) -> None:
    """Raise the error of the first lane that could not go on."""
    bad = np.flatnonzero(faults[0])
    if not bad.size:
        return
    code, depth = FAULTS[int(faults[0, bad[0]])], int(faults[1, bad].max())
    lanes = f"{bad.size} of {faults.shape[1]} lanes"
    match code:
        case "stack":
            words = program.variables["stack"].size
            raise StackError(
                f"{program.name}: the stack of {words} words ran out at depth {depth} in {lanes}",
                why="each call that is not finished keeps its values on the stack of its lane",
                remedy=f"pass stack={4 * words} or more to ppl.infer, or recur less deeply",
            )
        case "heap":
            words = program.variables[HEAP].size
            raise StackError(
                f"{program.name}: lists took more than {words} words in {lanes}",
                why="each item is its words and one more, kept to the end of a run of the model",
                remedy=f"pass stack={4 * words} or more to ppl.infer, or make fewer items",
            )
        case "list":
            raise ModelError(
                f"{program.name}: head or tail of an empty list in {lanes}",
                remedy="ask ppl.empty before",
            )
        case "trace":
            raise StackError(
                f"{program.name}: a trace has more than "
                f"{program.variables['trace_site'].size // 2} values in {lanes}",
                why="mh keeps every value that a run of the model drew",
                remedy="pass trace= with a larger number to ppl.infer",
            )
        case _:
            raise ModelError(
                f"{program.name}: an index was outside of its vector in {lanes}",
                why="a vector's items are 0 to its length less one",
                remedy="check the index, or ask with an if before it is used",
            )


def seeded(seed: int) -> dict[str, int]:
    """Return the key of a launch that has another one than the arguments."""
    return dict(zip(("seed0", "seed1"), seed_words(seed), strict=True))


def seed_words(seed: int) -> tuple[int, int]:
    """Return the two words of the key, signed."""
    if not 0 <= seed < 2**64:
        raise ModelError(f"seed={seed} is not a number of 64 bits", remedy="0 <= seed < 2**64")
    low, high = seed & 0xFFFFFFFF, seed >> 32
    return low - (low >> 31 << 32), high - (high >> 31 << 32)
