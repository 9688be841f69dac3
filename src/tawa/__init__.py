"""tawa: plain tile kernels in, proved warp-specialized Hopper kernels out.

Names resolve when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

from tawa.version import __version__ as __version__

TYPE_CHECKING = False  # as typing has it: importing that costs more than all the rest here
if TYPE_CHECKING:
    from typing import Any

    from tawa import errors as errors
    from tawa import language as language
    from tawa import testing as testing
    from tawa.errors import TawaError as TawaError
    from tawa.frontend.inline import inline as inline
    from tawa.language.constant import aggregate as aggregate
    from tawa.language.constant import constexpr_function as constexpr_function
    from tawa.plan.plan import Plan as Plan
    from tawa.runtime.arrays import array as array
    from tawa.runtime.compiled import CompiledKernel as CompiledKernel
    from tawa.runtime.config import Config as Config
    from tawa.runtime.decorators import autotune as autotune
    from tawa.runtime.decorators import heuristics as heuristics
    from tawa.runtime.decorators import jit as jit
    from tawa.runtime.descriptors import TensorDescriptor as TensorDescriptor
    from tawa.runtime.descriptors import WindowDescriptor as WindowDescriptor
    from tawa.runtime.grid import cdiv as cdiv
    from tawa.runtime.grid import next_power_of_2 as next_power_of_2
    from tawa.runtime.jit import JitFunction as JitFunction
    from tawa.runtime.program import Buffer as Buffer
    from tawa.runtime.program import Program as Program
    from tawa.runtime.program import Step as Step
    from tawa.runtime.simulation import simulate as simulate
    from tawa.runtime.tile_function import compile_ir as compile_ir

_HOMES = {
    "Buffer": "tawa.runtime.program",
    "CompiledKernel": "tawa.runtime.compiled",
    "Config": "tawa.runtime.config",
    "JitFunction": "tawa.runtime.jit",
    "Plan": "tawa.plan.plan",
    "Program": "tawa.runtime.program",
    "Step": "tawa.runtime.program",
    "TawaError": "tawa.errors",
    "TensorDescriptor": "tawa.runtime.descriptors",
    "WindowDescriptor": "tawa.runtime.descriptors",
    "aggregate": "tawa.language.constant",
    "array": "tawa.runtime.arrays",
    "autotune": "tawa.runtime.decorators",
    "cdiv": "tawa.runtime.grid",
    "compile_ir": "tawa.runtime.tile_function",
    "constexpr_function": "tawa.language.constant",
    "heuristics": "tawa.runtime.decorators",
    "inline": "tawa.frontend.inline",
    "jit": "tawa.runtime.decorators",
    "next_power_of_2": "tawa.runtime.grid",
    "simulate": "tawa.runtime.simulation",
}
_MODULES = ("errors", "kernels", "language", "testing", "tools", "torch")

__all__ = [
    "Buffer", "CompiledKernel", "Config", "JitFunction", "Plan", "Program", "Step", "TawaError",
    "TensorDescriptor", "WindowDescriptor", "aggregate", "array", "autotune", "cdiv", "compile_ir",
    "constexpr_function", "errors", "heuristics", "inline", "jit", "language", "next_power_of_2",
    "simulate", "testing",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tawa.{name}")
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'tawa' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
