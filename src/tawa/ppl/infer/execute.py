"""Running a program over lanes: on this CPU, on a GPU, or in the interpreter."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from tawa.errors import ModelError, StackError
from tawa.ppl.emit.llvm import emit
from tawa.ppl.emit.machine import Machine
from tawa.ppl.ir.core import Kind, Program
from tawa.ppl.ir.interpret import interpret
from tawa.ppl.ir.operations import FAULTS
from tawa.ppl.ir.verify import verify
from tawa.ppl.math.library import library
from tawa.ppl.passes.hoist import hoist

Device = Literal["cpu", "cuda", "interpreter"]
STORED: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.uint8,
}
_C: dict[str, Any] = {
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "bool": ctypes.c_bool,
}
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
        arguments = self.given(arguments)
        faults = np.zeros((2, lanes), np.int32)
        everything = {**buffers, "fault": faults}
        ordered = {name: everything[name] for name in self.program.buffers}
        match self.device:
            case "interpreter":
                interpret(self.program, arguments, ordered, range(lanes), library)
            case "cpu":
                self._on_cpu(arguments, ordered, lanes, threads)
            case _:
                from tawa.ppl.emit.gpu import launch

                launch(self.text, self.program, arguments, ordered, lanes)
        check_faults(self.program, faults)

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
            types.append(ctypes.c_void_p if param.type.shape else _C[param.type.kind])
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


def _check_buffer(name: str, kind: Kind, array: np.ndarray[Any, Any], lanes: int) -> None:
    if array.dtype != STORED[kind] or array.shape[-1] != lanes or not array.flags.c_contiguous:
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
