"""Functions of elements, as NumPy computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tawa.errors import InternalError
from tawa.ir import tile
from tawa.ir.functions import FUNCTIONS
from tawa.simulator.values import F32, NARROW, DType, convert, dtype_of


def element_function(name: str, inputs: DType, result: DType) -> Callable[..., Any]:
    """Return a row of the table as a function of arrays or scalars of dtype `inputs`.

    16- and 8-bit floats are computed in f32 and rounded once. `inputs` is the type of the operands
    computed with (of a select: the two it chooses between).
    """
    apply = FUNCTIONS[name].numpy
    if inputs in NARROW and name != "select":

        def narrow(*operands: Any) -> Any:
            wide = apply(np, *[operand.astype(F32) for operand in operands])
            return convert(np.asarray(wide), result)[()]

        return narrow

    def native(*operands: Any) -> Any:
        value = apply(np, *operands)
        return value if value.dtype == result else value.astype(result)

    def plain(*operands: Any) -> Any:
        return native(*operands)[()]

    return plain


def elementwise(operation: tile.Elementwise) -> Callable[..., Any]:
    """Return the function that an operation applies; it checks what is promised of the result."""
    name = operation.function.data
    result = dtype_of(operation.result.type)
    apply = element_function(name, dtype_of(operation.inputs[-1].type), result)
    return apply if operation.within is None else _bounded(operation, apply)


def _bounded(operation: tile.Elementwise, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose results must lie in a range: something was compiled upon that."""
    assert operation.within is not None
    low, high = (bound.data for bound in operation.within.data)

    def run(*operands: Any) -> Any:
        found = apply(*operands)
        if not (low <= np.min(found) and np.max(found) <= high):
            raise InternalError(
                f"{operation.name} gives {found}",
                why=f"it is said to lie within {low} and {high}",
                remedy="this is a fault of the compiler: please report it with the kernel",
            )
        return found

    return run
