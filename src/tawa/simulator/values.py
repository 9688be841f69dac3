"""Values of a run: NumPy dtypes for the IR's types, conversion by the device's rules, and poison.

A scalar is a NumPy scalar, a tensor an array, a pointer an int64 address (see `memory`). Poison is
a pattern of one bits: NaN in every float type, so that a value nobody made spreads and is seen.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute

from tawa.element_types import ELEMENT_TYPES, numpy_dtype
from tawa.ir import place_of as place_of
from tawa.ir.types import PtrType, element_type, scalar, shape_of

Array: TypeAlias = NDArray[Any]
DType: TypeAlias = np.dtype[Any]

_DTYPES: dict[str, DType] = {name: numpy_dtype(name) for name in ELEMENT_TYPES}
_BY_TYPE: dict[Attribute, DType] = {scalar(name): dtype for name, dtype in _DTYPES.items()}

F8E4M3 = _DTYPES["f8e4m3"]
F8E5M2 = _DTYPES["f8e5m2"]
F16 = _DTYPES["f16"]
BF16 = _DTYPES["bf16"]
F32 = _DTYPES["f32"]
F64 = _DTYPES["f64"]
_FP8_MAX = {F8E4M3: 448.0, F8E5M2: 57344.0}
NARROW = frozenset({F8E4M3, F8E5M2, F16, BF16})
FLOATS = NARROW | {F32, F64}
_ADDRESS = np.dtype(np.int64)


def dtype_of(kind: Attribute) -> DType:
    """Return the NumPy dtype of a scalar, or of a tensor's elements; pointers are int64."""
    element = element_type(kind)
    if isinstance(element, PtrType | IndexType):
        return _ADDRESS
    return _BY_TYPE[element]


def is_array(value: object) -> TypeGuard[Array]:
    """Tell whether a value is a NumPy array (of any dtype)."""
    return isinstance(value, np.ndarray)


def poison(shape: tuple[int, ...], dtype: DType) -> Array:
    """Return an array that holds no value: every bit one (bool: True)."""
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    count = int(np.prod(shape, dtype=np.int64))
    return np.full(count * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


def filled(kind: Attribute, value: float) -> Any:
    """Return a constant of an IR type; tensors come read-only, integers wrap."""
    dtype = dtype_of(kind)
    if dtype.kind in "iu":
        bits = dtype.itemsize * 8
        element = np.array(int(value) & ((1 << bits) - 1), np.uint64)
        element = element.astype(f"u{dtype.itemsize}").view(dtype)
    elif dtype in NARROW:
        element = convert(np.array(value, np.float64), dtype)
    else:
        element = np.array(value, dtype)
    shape = shape_of(kind)
    return np.broadcast_to(element, shape) if shape else element[()]


def _to_odd(value: Array) -> Array:
    """Round f64 to f32 to odd, so that a second rounding to fewer bits is as good as one."""
    near = value.astype(np.float32)
    bits = np.atleast_1d(near).view(np.int32)
    wide = np.atleast_1d(near).astype(np.float64)
    exact = np.atleast_1d(value)
    finite = np.isfinite(wide)
    away = finite & (np.abs(wide) > np.abs(exact))
    inexact = finite & (wide != exact)
    odd = np.where(inexact, (bits - away) | 1, bits).astype(np.int32)
    return odd.view(np.float32).reshape(near.shape)


def convert(value: Any, dtype: DType) -> Any:
    """Convert elements as the device does.

    Floats round to nearest even; fp8 saturates to its largest finite value (cvt.satfinite); a float
    becomes an integer towards zero and saturates (`_to_integer`); integers wrap; anything becomes
    i1 by comparison with zero.
    """
    source: DType = value.dtype
    if source == dtype:
        return value
    if dtype.kind == "b":
        return value != source.type(0)
    if dtype in NARROW:
        return _narrow(value, dtype)
    if dtype.kind in "iu" and source in FLOATS:
        return _to_integer(value, dtype)
    return value.astype(dtype)


def _narrow(value: Any, dtype: DType) -> Any:
    if dtype == F16 and value.dtype not in NARROW:
        return value.astype(dtype)
    if value.dtype.kind in "iub":
        value = np.asarray(value).astype(np.float64)
    wide = _to_odd(np.asarray(value)) if value.dtype == F64 else value.astype(np.float32)
    if dtype in (F8E4M3, F8E5M2):
        limit = np.float32(_FP8_MAX[dtype])
        wide = np.clip(wide, -limit, limit)
    return np.asarray(wide).astype(dtype)[()]


def _to_integer(value: Any, dtype: DType) -> Any:
    """Convert floats to integers towards zero, saturated. Of 8 and 16 bits there is no conversion:
    the low bits of one to i32 are kept.

    NaN becomes 0; where either type has 64 bits, the number whose highest bit alone is set
    (PTX ISA, "cvt").
    """
    if dtype.itemsize < 4:
        return _to_integer(value, np.dtype(np.int32)).astype(dtype)
    limits = np.iinfo(dtype)
    wide_types = value.dtype == F64 or dtype.itemsize == 8
    of_nan = (limits.min or 1 << limits.bits - 1) if wide_types else 0
    exact = np.asarray(value).astype(np.float64)
    wide = np.trunc(np.where(np.isnan(exact), 0.0, exact))
    low, high = float(limits.min), float(limits.max)
    inside = np.where((wide > low) & (wide < high), wide, 0.0).astype(dtype)
    bounded = np.where(wide <= low, dtype.type(limits.min), inside)
    bounded = np.where(wide >= high, dtype.type(limits.max), bounded)
    return np.where(np.isnan(exact), dtype.type(of_nan), bounded)[()]


def reinterpret(value: Any, dtype: DType) -> Any:
    """Read the bits of each element as another type of the same width."""
    array = np.ascontiguousarray(value)
    return array.view(dtype).reshape(np.shape(value))[()]


def gathered(value: Array, index: Array, axis: int) -> Array:
    """Return the elements of `value` along `axis` at `index`, modulo the extent."""
    return np.take_along_axis(value, index % value.shape[axis], axis)


def counted(value: Array, bins: int, mask: Any) -> Array:
    """Return how often each of 0 .. `bins` - 1 stands in the rows of `value` where `mask` holds."""
    rows = value.reshape(-1, value.shape[-1])
    live = np.broadcast_to((value >= 0) & (value < bins) & mask, value.shape).reshape(rows.shape)
    counts = [np.bincount(row[each], minlength=bins) for row, each in zip(rows, live)]
    return np.array(counts, np.int32).reshape(*value.shape[:-1], bins)
