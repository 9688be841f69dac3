"""Scalars that the compiler can compute: numbers made of constants by operations without effects.

A function of the language gives a tensor, of constants too: ``tl.cdiv(8, 3)``. Where a number is
needed when the kernel is compiled, this finds it, by the same table that the oracle runs.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import OpResult, SSAValue

from tawa.ir import tile
from tawa.ir.build.types import dtype_of
from tawa.ir.build.values import Const, Tensor, Value
from tawa.ir.functions import FUNCTIONS
from tawa.ir.types import Real
from tawa.language.dtypes import dtype


def known(value: Value) -> Value:
    """Return the constant that a scalar is; any other value as it is."""
    if not isinstance(value, Tensor) or value.is_block:
        return value
    number = _number(value.ssa)
    return value if number is None else Const(number.item())


def _number(value: SSAValue) -> Any:
    """Return a scalar as a NumPy number of its type, or None where it is not known."""
    if not isinstance(value, OpResult):
        return None
    match value.owner:
        case tile.Constant(value=IntAttr(data=number)) | tile.Constant(value=Real(data=number)):
            return _typed(number, dtype_of(value.type))
        case tile.Cast(value=source):
            inner = _number(source)
            return None if inner is None else _typed(inner, dtype_of(value.type))
        case tile.Elementwise(function=name, inputs=inputs):
            inner = [_number(operand) for operand in inputs]
            if any(operand is None for operand in inner):
                return None
            import numpy as np

            with np.errstate(all="ignore"):
                found = FUNCTIONS[name.data].numpy(np, *inner)
            return _typed(found, dtype_of(value.type))
        case _:
            return None


def _typed(number: Any, kind: dtype) -> Any:
    """Return a number as one of NumPy; None for types that NumPy has not."""
    import numpy as np

    if kind.is_bool():
        return np.bool_(number)
    name = kind.name if kind.is_int() else {"fp32": "float32", "fp64": "float64"}.get(kind.name)
    if name is None or (kind.is_int() and not np.isfinite(number)):
        return None
    return np.asarray(number).astype(name)[()]
