"""What a kernel is compiled for: one entry for each parameter, the frontend's only input on types.

A parameter that is a tuple has one for each item besides, under names of their own.

The launcher derives a signature from the arguments of a call; equal signatures share a compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tawa.layouts.windows import Window


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A number passed by value. `dtype` as in `tawa.ir.types.SCALARS`; `divisible` by 16, else
    `by_eight` where by 8: rows of so many 16-bit elements are what TMA can step over.
    """

    dtype: str
    divisible: bool = False
    by_eight: bool = False


@dataclass(frozen=True, slots=True)
class PointerArg:
    """The address of an array's first element; `divisible`: aligned to 16 bytes."""

    dtype: str
    divisible: bool = False


@dataclass(frozen=True, slots=True)
class DescriptorArg:
    """A host descriptor: element type, block shape, padding ("zero" or "nan"); `ragged`: its rows
    end inside 16 bytes, which TMA writes whole; `window` where blocks are of windows over images.
    """

    dtype: str
    block_shape: tuple[int, ...]
    padding: str = "zero"
    ragged: bool = False
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class ConstantArg:
    """A compile-time value: a constexpr parameter, None, or an int specialised to 1."""

    value: object


@dataclass(frozen=True, slots=True)
class TupleArg:
    """A tuple (with `fields`: a named one) of other entries of the signature, by their names."""

    items: tuple[str, ...]
    fields: tuple[str, ...] = ()


Argument: TypeAlias = ScalarArg | PointerArg | DescriptorArg | ConstantArg | TupleArg
Signature: TypeAlias = Mapping[str, Argument]
