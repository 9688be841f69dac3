"""How a kernel of a public bug report is tried: compiled, proved, and run against the oracle.

`tried` compiles, runs the program as written, and the specialized program under schedules that a
GPU might take: late copies and products, random ones, each role starved in turn. Inputs are small
integers, so that every order of sums is exact and equality is bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tawa
from tawa.ir import hopper
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.dispatch import simulate_stage

BF16 = ml_dtypes.bfloat16


def long(*values: Any) -> list[Any]:
    """Parameters that only the long run tries."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def integers(*shape: int, dtype: Any = np.float16, low: int = -2, high: int = 3) -> np.ndarray:
    random = np.random.default_rng(sum(shape) + len(shape))
    return random.integers(low, high, shape).astype(np.float32).astype(dtype)


def blank(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, np.nan, dtype)


def blocks(array: np.ndarray, *block: int) -> tawa.TensorDescriptor:
    return tawa.TensorDescriptor.from_tensor(array, list(block))


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tawa.TensorDescriptor):
        return tawa.TensorDescriptor(
            value.base.copy(), value.shape, value.strides, value.block_shape, value.padding
        )
    return value


def array_of(value: Any) -> np.ndarray | None:
    """Return the array of an argument, None for a number."""
    base = getattr(value, "base", None) if isinstance(value, tawa.TensorDescriptor) else value
    return base if isinstance(base, np.ndarray) else None


def _run(
    kernel: CompiledKernel, arguments: Mapping[str, Any], grid: tuple[int, ...], level: str, **how
) -> dict[str, np.ndarray]:
    copies = {name: _copy(value) for name, value in arguments.items()}
    simulate_stage(kernel.asm.program(level), copies, grid, level, **how)
    arrays = {name: array_of(value) for name, value in copies.items()}
    return {name: np.asarray(a, np.float64) for name, a in arrays.items() if a is not None}


def tried(
    function: Any,
    arguments: Mapping[str, Any],
    grid: tuple[int, ...],
    *,
    close: float = 0.0,
    multiprocessors: int = 2,
    **options: Any,
) -> CompiledKernel:
    """Return the compiled kernel after it gave the oracle's result under every schedule.

    `close` is the relative error allowed where exponentials are summed in another order.
    """
    kernel = tawa.jit(function).compile(**arguments, **options)
    assert kernel.proof.ok
    names = [n for n in tawa.jit(function).arg_names if n in arguments]
    given = {name: arguments[name] for name in names}
    want = _run(kernel, given, grid, "tile")
    roles = [role.label for role in kernel.plan.roles]
    ways = [{"late": "late"}, {"seed": 1}, {"seed": 2, "late": "early"}]
    ways += [{"schedule": f"starve={role}", "late": "late"} for role in roles]
    for way in ways:
        got = _run(kernel, given, grid, "hopper", multiprocessors=multiprocessors, **way)
        for name, array in want.items():
            if close:
                error = np.linalg.norm(got[name] - array) / max(1e-30, np.linalg.norm(array))
                assert error <= close, (name, way)
            else:
                np.testing.assert_array_equal(got[name], array, err_msg=f"{name} {way}")
    return kernel


def result(
    function: Any, arguments: Mapping[str, Any], grid: tuple[int, ...], name: str, **options
):
    """Return an array as the specialized program leaves it."""
    kernel = tawa.jit(function).compile(**arguments, **options)
    names = [n for n in tawa.jit(function).arg_names if n in arguments]
    return _run(kernel, {n: arguments[n] for n in names}, grid, "hopper", multiprocessors=2)[name]


def operations(kernel: CompiledKernel, kind: type) -> list[Any]:
    """Return the operations of a class in the final hopper IR."""
    return [op for op in kernel.asm.program("hopper").walk() if isinstance(op, kind)]


def producer_loads(kernel: CompiledKernel) -> int:
    """Return how many TMA loads and asynchronous copies stand in the role that loads."""
    program = kernel.asm.program("hopper")
    roles = [op for op in program.walk() if isinstance(op, hopper.Role)]
    (load,) = (role for role in roles if role.label.data == "load")
    return sum(isinstance(op, (hopper.TmaLoad, hopper.CopyAsync)) for op in load.walk())


def declined(kernel: CompiledKernel) -> dict[str, str]:
    """Return what the planner and the passes declined, with the reasons."""
    return {item.feature: item.reason for item in (*kernel.plan.declined, *kernel.declined)}
