"""Running a program over lanes: on this CPU, on a GPU, or in the interpreter."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Protocol, Self

import numpy as np

from tawa.errors import ModelError, StackError
from tawa.ppl.emit.llvm import emit
from tawa.ppl.emit.machine import C_TYPES, STORED, Machine
from tawa.ppl.ir.core import Kind, Program
from tawa.ppl.ir.interpret import interpret
from tawa.ppl.ir.operations import FAULTS
from tawa.ppl.ir.verify import verify
from tawa.ppl.math.library import library
from tawa.ppl.passes.hoist import hoist

Device = Literal["cpu", "cuda", "interpreter"]
_LOCK = threading.Lock()
Buffers = Mapping[str, np.ndarray[Any, Any]]


@lru_cache(maxsize=128)
def machine(text: str, cpu: str = "") -> Machine:
    """Return the machine code of LLVM IR, compiled once in a process."""
    return Machine(text, cpu)


class Executable:
    """A program that is ready to run on a device."""

    def __init__(self, program: Program, device: Device, cpu: str = "") -> None:
        program.buffers.setdefault("fault", "i32")
        verify(program, handled=True)
        self.before: Executable | None = None
        if device != "interpreter":
            program, before = hoist(program)
            self.before = Executable(before, "cpu", cpu) if before else None
        self.program = program
        self.device = device
        self.cpu = cpu
        self.text, self.stack = ("", 0)
        if device != "interpreter":
            self.text, self.stack = emit(program, library, gpu=device == "cuda")

    def run(
        self, arguments: Sequence[Any], buffers: Buffers, lanes: int, threads: int | None = None
    ) -> None:
        """Run all lanes. Raises StackError or ModelError where a lane could not go on."""
        with self.on(arguments, buffers, lanes, threads) as running:
            running.launch()
            for name, array in buffers.items():
                running.fetch(name, array)
            self.check(running)

    def on(
        self,
        arguments: Sequence[Any],
        buffers: Mapping[str, Any],
        lanes: int,
        threads: int | None = None,
    ) -> Running:
        """Return the program with its data and buffers on its device, for many launches.

        A buffer is an array, the memory of another running program, or a number of rows of zeros.
        """
        arguments, buffers = self.given(arguments), {"fault": 2, **buffers}
        ordered = {name: buffers[name] for name in self.program.buffers}
        if self.device == "cuda":
            from tawa.ppl.emit.gpu import Lanes

            return Lanes(self.text, self.program, arguments, ordered, lanes)
        return OnHost(self, arguments, ordered, lanes, threads)

    def check(self, running: Running) -> None:
        """Raise StackError or ModelError where a lane could not go on."""
        check_faults(self.program, running.rows("fault", 0, 2))

    def launch(
        self, arguments: Sequence[Any], buffers: Buffers, lanes: int, threads: int | None
    ) -> None:
        """Run all lanes on the CPU or in the interpreter."""
        if self.device == "interpreter":
            interpret(self.program, arguments, buffers, range(lanes), library)
        else:
            self._on_cpu(arguments, buffers, lanes, threads)

    def given(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return what the program takes: its arguments, and what depends on these alone."""
        if not self.before:
            return arguments
        made = self.program.params[len(arguments) :]
        arrays = {v.name: np.zeros((v.type.size, 1), STORED[v.type.kind]) for v in made}
        self.before.run(arguments, arrays, 1)
        return (*arguments, *arrays.values())

    def _on_cpu(
        self, arguments: Sequence[Any], buffers: Buffers, lanes: int, threads: int | None
    ) -> None:
        types: list[Any] = [ctypes.c_int64] * 3
        values: list[Any] = []
        for param, given in zip(self.program.params, arguments, strict=True):
            types.append(ctypes.c_void_p if param.type.shape else C_TYPES[param.type.kind])
            values.append(given.ctypes.data if param.type.shape else given)
        for name, array in buffers.items():
            _check_buffer(name, self.program.buffers[name], array, lanes)
            types.append(ctypes.c_void_p)
            values.append(array.ctypes.data)
        kernel = machine(self.text, self.cpu).function(types)
        count = max(1, min(threads or len(os.sched_getaffinity(0)), lanes))
        edges = [lanes * k // count for k in range(count + 1)]
        parts = list(pairwise(edges))
        in_threads(self.stack, [lambda p=p: kernel(p[0], p[1], lanes, *values) for p in parts])


class Running(Protocol):
    """A program with its data and buffers on a device, for as long as a `with` lasts.

    `memory` has the buffers as other programs of the device take them.
    """

    lanes: int
    memory: dict[str, Any]

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """Return an array where the lanes are."""
        ...

    def zeros(self, shape: tuple[int, ...], kind: Kind) -> Any:
        """Return an array of zeros where the lanes are."""
        ...

    def launch(self, **numbers: int | float) -> None:
        """Run all lanes, with other numbers than before for some arguments."""
        ...

    def fetch(self, name: str, array: np.ndarray[Any, Any], row: int = 0) -> None:
        """Copy a buffer here, from a row on; `array` may be the buffer."""
        ...

    def rows(self, name: str, row: int, count: int) -> np.ndarray[Any, Any]:
        """Return rows of a buffer, on the CPU a view of them."""
        ...

    def give(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Copy an array to a buffer of its size."""
        ...

    def swap(self, one: str, other: str) -> None:
        """Make two buffers change places."""
        ...


class OnHost:
    """Lanes on the CPU or in the interpreter, whose buffers are arrays."""

    def __init__(
        self,
        executable: Executable,
        arguments: Sequence[Any],
        buffers: Mapping[str, Any],
        lanes: int,
        threads: int | None,
    ) -> None:
        self.executable, self.lanes, self.threads = executable, lanes, threads
        program = executable.program
        self.arguments = list(arguments)
        self.places = {param.name: k for k, param in enumerate(program.params)}
        self.memory: dict[str, Any] = {
            name: self.zeros((held, lanes), program.buffers[name])
            if isinstance(held, int)
            else held
            for name, held in buffers.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.clear()

    def put(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array."""
        return array

    def zeros(self, shape: tuple[int, ...], kind: Kind) -> np.ndarray[Any, Any]:
        """Return an array of zeros."""
        return np.zeros(shape, STORED[kind])

    def launch(self, **numbers: int | float) -> None:
        """Run all lanes."""
        for name, number in numbers.items():
            self.arguments[self.places[name]] = number
        self.executable.launch(self.arguments, self.memory, self.lanes, self.threads)

    def fetch(self, name: str, array: np.ndarray[Any, Any], row: int = 0) -> None:
        """Copy a buffer, from a row on."""
        if array is not self.memory[name]:
            array[:] = self.rows(name, row, len(array))

    def rows(self, name: str, row: int, count: int) -> np.ndarray[Any, Any]:
        """Return a view of rows of a buffer."""
        return self.memory[name][row : row + count]

    def give(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Copy an array to a buffer."""
        self.memory[name][:] = array

    def swap(self, one: str, other: str) -> None:
        """Make two buffers change places."""
        memory = self.memory
        memory[one], memory[other] = memory[other], memory[one]


def _check_buffer(name: str, kind: Kind, array: np.ndarray[Any, Any], lanes: int) -> None:
    fits = array.shape[-1] == lanes or len(array) == 1  # of one row any lane's item can be read
    if array.dtype != STORED[kind] or not fits or not array.flags.c_contiguous:
        raise ModelError(
            f"buffer {name} is {array.dtype}{list(array.shape)}, not {kind}[..., {lanes}]"
        )


def in_threads(stack: int, work: Sequence[Callable[[], None]]) -> None:
    """Run functions in threads whose stacks hold a lane's memory; raise what one of them raised."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    with _LOCK:
        page = 1 << 16
        before = threading.stack_size((4 << 20) + (2 * stack + page - 1) // page * page)
        try:
            threads = [threading.Thread(target=guarded, args=(w,)) for w in work]
            for thread in threads:
                thread.start()
        finally:
            threading.stack_size(before)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def check_faults(program: Program, faults: np.ndarray[Any, Any]) -> None:
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
        case "trace":
            raise StackError(
                f"{program.name}: a trace has more than "
                f"{program.variables['new_value'].size} values in {lanes}",
                why="mh keeps every value that a run of the model drew",
                remedy="pass trace= with a larger number to ppl.infer",
            )
        case _:
            raise ModelError(
                f"{program.name}: an index was outside of its vector in {lanes}",
                why="a vector's items are 0 to its length less one",
                remedy="check the index, or ask with an if before it is used",
            )


def seed_words(seed: int) -> tuple[int, int]:
    """Return the two words of the key, signed."""
    if not 0 <= seed < 2**64:
        raise ModelError(f"seed={seed} is not a number of 64 bits", remedy="0 <= seed < 2**64")
    low, high = seed & 0xFFFFFFFF, seed >> 32
    return low - (low >> 31 << 32), high - (high >> 31 << 32)
