"""Memory: pointers, descriptors, block pointers, atomics."""

from __future__ import annotations

from typing import Any

from tawa.language.stub import builtin
from tawa.language.tensors import tensor, tensor_descriptor


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


@builtin
def atomic_cas(
    pointer: tensor, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Write `val` where memory equals `cmp`, as one step; gives the old value."""
    ...


@builtin
def atomic_xchg(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Write `val`, as one step; gives the old value."""
    ...


@builtin
def atomic_add(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Add `val` to memory, as one step; gives the old value.

    `sem` is "acquire", "release", "acq_rel" (unless given) or "relaxed"; `scope` "gpu" (unless
    given), "cta" or "sys".
    """
    ...


@builtin
def atomic_max(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace memory by the larger value, as one step; gives the old value."""
    ...


@builtin
def atomic_min(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Replace memory by the smaller value, as one step; gives the old value."""
    ...


@builtin
def atomic_and(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Combine memory with `val` by bitwise and, as one step; gives the old value."""
    ...


@builtin
def atomic_or(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Combine memory with `val` by bitwise or, as one step; gives the old value."""
    ...


@builtin
def atomic_xor(
    pointer: tensor, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """Combine memory with `val` by bitwise exclusive or, as one step; gives the old value."""
    ...
