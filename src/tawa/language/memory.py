"""Memory: pointers, descriptors, block pointers, atomics."""

from __future__ import annotations

from typing import Any

from tawa.language.stub import builtin
from tawa.language.values import tensor, tensor_descriptor


@builtin
def load(
    pointer: tensor,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:
    """Load through a pointer, a tensor of pointers or a block pointer.

    Where `mask` is false nothing is read and the element is `other`, or anything without it.
    """
    ...


@builtin
def store(
    pointer: tensor,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Store through a pointer, a tensor of pointers or a block pointer, where `mask` is true."""
    ...


@builtin
def make_tensor_descriptor(
    base: tensor, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> tensor_descriptor:
    """Describe a tensor of 1 to 5 dimensions in global memory.

    `strides` count elements; the last is the constant 1. Blocks of `block_shape` are moved; what
    lies outside `shape` reads as 0 (or NaN with ``padding_option="nan"``) and is not written.
    """
    ...


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> tensor:
    """Load the tile of a descriptor at `offsets` (int32, elements)."""
    ...


@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: tensor) -> None:
    """Store a tensor through a descriptor at `offsets` (int32, elements)."""
    ...


@builtin
def make_block_ptr(
    base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> tensor:
    """Make a pointer to the block at `offsets` of a tensor; `order` is a hint and not used."""
    ...


@builtin
def advance(base: tensor, offsets: Any) -> tensor:
    """Move a block pointer by `offsets` elements in each dimension."""
    ...
