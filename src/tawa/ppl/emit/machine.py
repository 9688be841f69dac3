"""LLVM through llvmlite: machine code of this CPU, or PTX. Of `tawa.ppl` only this imports it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tawa.errors import BuildError

_LOCK = threading.Lock()
STORED: dict[str, Any] = {
    **{"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.uint8}
}
"""How arrays hold a kind."""
C_TYPES: dict[str, Any] = {
    **{"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32},
    **{"i64": ctypes.c_int64, "bool": ctypes.c_bool},
}
"""How a function takes a number of a kind."""


@lru_cache(maxsize=1)
def _binding() -> Any:
    """Return llvmlite's binding. LLVM's options are those of the process: they are given once."""
    try:
        import llvmlite.binding  # type: ignore[import-untyped]
    except ImportError as error:
        raise BuildError(
            "llvmlite is missing",
            why="tawa.ppl and tawa.jax compile with LLVM",
            remedy="install the extra: pip install 'tawa[ppl]' or 'tawa[jax]'",
        ) from error
    llvm: Any = llvmlite.binding
    # A row's code is one long block. With the default, 100 instructions, LLVM loads the data again
    # that lie behind its first use, and of such loads it makes vectors for but a part of the rows.
    llvm.set_option("", "-memdep-block-scan-limit=1000")
    return llvm


def _optimise(llvm: Any, text: str, machine: Any, triple: str, level: int) -> Any:
    # Stores say no alignment: the reader takes that of the layout. Without one it is 4 for a word
    # of 8 bytes, which is then stored by halves, and of these ptxas 13.0 converts the lower one of
    # a double to an integer.
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
    try:
        module = llvm.parse_assembly(head + text)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM refuses the program: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


class Machine:
    """A compiled program: `kernel` takes addresses and numbers.

    Level 3 of LLVM takes up to twice the time of 2 to compile, and the code is not faster.
    """

    def __init__(self, text: str, cpu: str = "", level: int = 2) -> None:
        llvm = _binding()
        with _LOCK:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            target = llvm.Target.from_default_triple()
            name = cpu or llvm.get_host_cpu_name()
            features = "" if cpu else llvm.get_host_cpu_features().flatten()
            machine = target.create_target_machine(cpu=name, features=features, opt=level, jit=True)
            module = _optimise(llvm, text, machine, llvm.get_default_triple(), level)
            self.engine: Any = llvm.create_mcjit_compiler(module, machine)
            self.engine.finalize_object()
            self.address = int(self.engine.get_function_address("kernel"))

    def function(self, types: Sequence[Any]) -> Any:
        """Return the kernel as a function of ctypes; it runs without the interpreter's lock."""
        return ctypes.CFUNCTYPE(None, *types)(self.address)


def ptx(text: str, architecture: str = "sm_90", level: int = 3) -> str:
    """Return PTX of a program. No contraction is allowed: the text has .rn on every operation."""
    llvm = _binding()
    with _LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        triple = "nvptx64-nvidia-cuda"
        target = llvm.Target.from_triple(triple)
        machine = target.create_target_machine(cpu=architecture, features="+ptx80", opt=level)
        module = _optimise(llvm, text, machine, triple, level)
        return str(machine.emit_assembly(module))
