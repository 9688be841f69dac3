"""Reading arguments for a kernel from a command line: placeholders, descriptors and numbers.

a=bf16[8192,4096]            an array of that shape and element type, without data
a=bf16[8192,4096]/t          the same stored transposed (strides 1, 8192)
a=bf16[8192,4096]:128x64     a host descriptor of it with blocks of 128 x 64
K=4096  eps=1e-5  TRANS=True  ACTIVATION='silu'  bias=None
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

from tawa.errors import ArgumentError

_ARRAY = re.compile(r"([a-z][a-z0-9_]*)\[([\d,x ]*)\](/t)?(?::([\dx]+))?", re.IGNORECASE)


def read_arguments(texts: Iterable[str]) -> dict[str, Any]:
    """Return the arguments that ``name=value`` texts spell.

    Raises `ArgumentError` for a text that is none of the forms above.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise ArgumentError(f"{text!r} is no argument", remedy="write NAME=VALUE")
        found[name] = read_value(value.strip())
    return found


def read_value(text: str) -> Any:
    """Return the value one text spells."""
    if (match := _ARRAY.fullmatch(text)) is not None:
        return _array(*match.groups())
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ArgumentError(
            f"{text!r} is no value",
            why="it is neither an array (bf16[128,64]) nor a Python number, word or string",
            remedy="quote strings: ACTIVATION=\"'silu'\"",
        ) from None


def _array(dtype: str, extents: str, transposed: str | None, block: str | None) -> Any:
    from tawa.runtime.arrays import array
    from tawa.runtime.descriptors import TensorDescriptor

    shape = tuple(int(extent) for extent in re.split(r"[,x]", extents) if extent.strip())
    if transposed:
        outer = shape[-2] if len(shape) > 1 else 1
        placeholder = array(shape, dtype, strides=_transposed_strides(shape, outer))
    else:
        placeholder = array(shape, dtype)
    if block is None:
        return placeholder
    return TensorDescriptor.from_tensor(placeholder, [int(size) for size in block.split("x")])


def _transposed_strides(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the strides of a batch of matrices each stored by columns."""
    if len(shape) < 2:
        return (1,) * len(shape)
    strides = [1, rows]
    step = rows * shape[-1]
    for extent in reversed(shape[:-2]):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)
