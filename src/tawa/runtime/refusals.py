"""The errors of a launch that was made ready but not taken: the slow path of a launcher."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tawa.codegen.parameters import ScalarParameter
from tawa.errors import ArgumentError
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.driver import launch_error
from tawa.runtime.dtypes import BITS, PACK
from tawa.runtime.grid import resolve_grid
from tawa.runtime.recent import Recent


class Describes(Protocol):
    """What knows the driver's errors by their codes, and the launches before this one."""

    recent: Recent

    def describe(self, code: int) -> str:
        """Return the name and meaning of an error."""
        ...


def refuse(reason: Exception, kernel: CompiledKernel, grid: Any, values: Mapping[str, Any]) -> None:
    """Raise the error for arguments that could not be packed, naming the one at fault."""
    resolve_grid(kernel.name, grid, values)
    for parameter in kernel.parameters:
        match parameter:
            case ScalarParameter() if parameter.expression in values:
                _check_scalar(kernel.name, parameter, values[parameter.expression])
            case _:
                pass
    raise ArgumentError(
        f"the arguments of {kernel.name} cannot be passed: {reason}",
        why=f"arguments: {spell_arguments(values)}",
    ) from reason


def _check_scalar(kernel: str, parameter: ScalarParameter, value: Any) -> None:
    made = BITS.get(parameter.dtype)
    bits = value if made is None else made(value)
    try:
        struct.pack("<" + PACK[parameter.dtype], bits)
    except (struct.error, OverflowError) as error:
        raise ArgumentError(
            f"{kernel}: the argument '{parameter.expression}' = {value!r} does not fit"
            f" {parameter.dtype}",
            why=str(error),
        ) from error


def fail(
    code: int,
    kernel: CompiledKernel,
    machine: Describes,
    grid: Sequence[int],
    values: Mapping[str, Any],
) -> None:
    """Raise the error for a launch that the driver refused."""
    arguments = f"grid {tuple(grid)}; {spell_arguments(values)}"
    raise launch_error(kernel.name, machine.describe(code), code, arguments, machine.recent)


def spell_arguments(values: Mapping[str, Any]) -> str:
    """Return the arguments of a call as a line of an error message."""
    return ", ".join(f"{name}={_spell(value)}" for name, value in values.items())


def _spell(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{dtype}{list(shape)}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
