"""Tensors: the type itself, and the functions that change shape or element type."""

from __future__ import annotations

from typing import Any, NoReturn

from tawa.language.dtypes import dtype as dtype_type
from tawa.language.stub import builtin, refuse


class tensor:  # noqa: N801
    """A scalar or a tensor of elements inside a kernel; in host code only an annotation.

    It has `dtype`, `shape` (constants), `type`, `numel` and `T`, the operators of Python, indexing
    with ``None``, ``:`` and ``...``, and as methods every function of the language that takes a
    tensor first: ``x.to(tl.float16)``, ``x.sum(0)``, ``x.reshape(4, 8)`` ...
    """

    def __init__(self, *args: Any) -> None:
        """Refuse: tensors come from the functions of the language."""
        refuse("tensor")

    def __getattr__(self, name: str) -> NoReturn:
        refuse(f"tensor.{name}")


class tensor_descriptor:  # noqa: N801
    """A tensor in global memory that is read and written in tiles.

    It has `shape` (int32), `strides` (int64), `block_shape` and `dtype` (constants) and the methods
    below. A kernel gets one as an argument or makes it with `make_tensor_descriptor`.
    """

    def __init__(self, *args: Any) -> None:
        """Refuse: descriptors come from `make_tensor_descriptor` or from the host."""
        refuse("tensor_descriptor")

    @builtin
    def load(self, offsets: Any) -> tensor:
        """Load the tile at `offsets` (int32, elements); what lies outside reads as padding."""
        ...

    @builtin
    def store(self, offsets: Any, value: tensor) -> None:
        """Store a tensor, converted to the element type; what lies outside is dropped."""
        ...

    @builtin
    def gather(self, x_offsets: tensor, y_offset: Any) -> tensor:
        """Load the rows `x_offsets`, from column `y_offset` on; `block_shape` is one row."""
        ...

    @builtin
    def scatter(self, value: tensor, x_offsets: tensor, y_offset: Any) -> None:
        """Store the rows `x_offsets`, from column `y_offset` on; `block_shape` is one row."""
        ...

    @builtin
    def atomic_add(self, offsets: Any, value: tensor) -> None:
        """Add the tensor to memory, element by element, each as one step."""
        ...

    @builtin
    def atomic_max(self, offsets: Any, value: tensor) -> None:
        """Replace memory by the larger values, element by element, each as one step."""
        ...

    @builtin
    def atomic_min(self, offsets: Any, value: tensor) -> None:
        """Replace memory by the smaller values, element by element, each as one step."""
        ...

    @builtin
    def atomic_and(self, offsets: Any, value: tensor) -> None:
        """Combine memory by bitwise and, element by element, each as one step."""
        ...

    @builtin
    def atomic_or(self, offsets: Any, value: tensor) -> None:
        """Combine memory by bitwise or, element by element, each as one step."""
        ...

    @builtin
    def atomic_xor(self, offsets: Any, value: tensor) -> None:
        """Combine memory by bitwise exclusive or, element by element, each as one step."""
        ...

    def __getattr__(self, name: str) -> NoReturn:
        refuse(f"tensor_descriptor.{name}")


tensor_descriptor_base = tensor_descriptor


class const:  # noqa: N801
    """An annotation of a pointer that is only read; the compiler sees that by itself."""


class tuple:  # noqa: N801
    """A tuple of values inside a kernel; in host code only an annotation."""

    def __init__(self, *args: Any) -> None:
        """Refuse: write a Python tuple instead."""
        refuse("tuple")


@builtin
def broadcast(input: tensor, other: tensor) -> Any:
    """Give both tensors the shape that fits both."""
    ...


@builtin
def broadcast_to(input: tensor, *shape: Any) -> tensor:
    """Repeat `input` along its dimensions of extent 1 until it has `shape`."""
    ...


@builtin
def expand_dims(input: tensor, axis: Any) -> tensor:
    """Insert dimensions of extent 1 so that the result has them at `axis` (int or tuple)."""
    ...


@builtin
def squeeze(x: tensor, dim: int) -> tensor:
    """Remove the dimension `dim`, of extent 1."""
    ...


@builtin
def unsqueeze(x: tensor, dim: int) -> tensor:
    """Insert a dimension of extent 1 so that the result has it at `dim`."""
    ...


@builtin
def reshape(input: tensor, *shape: Any, can_reorder: bool = False) -> tensor:
    """Give the elements, in row-major order, another shape."""
    ...


@builtin
def view(input: tensor, *shape: Any) -> tensor:
    """Give the elements another shape; here the order of the elements is kept."""
    ...


@builtin
def ravel(x: tensor, can_reorder: bool = False) -> tensor:
    """Give the elements as one dimension."""
    ...


@builtin
def item(input: tensor) -> tensor:
    """Turn a tensor of one element into a scalar."""
    ...


@builtin
def trans(input: tensor, *dims: Any) -> tensor:
    """Permute dimensions; without `dims` swap the last two."""
    ...


@builtin
def permute(input: tensor, *dims: Any) -> tensor:
    """Permute dimensions: dimension i of the result is dimension ``dims[i]`` of `input`."""
    ...


@builtin
def join(a: tensor, b: tensor) -> tensor:
    """Stack two tensors along a new last dimension of extent 2."""
    ...


@builtin
def split(a: tensor) -> Any:
    """Take apart the last dimension, of extent 2, into two tensors."""
    ...


@builtin
def interleave(a: tensor, b: tensor) -> tensor:
    """Alternate the elements of two tensors along the last dimension."""
    ...


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False) -> tensor:
    """Put two one-dimensional tensors of equal length one after the other."""
    ...


@builtin
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """Choose elements of `src` along `axis` by an integer `index`, whose shape the result has."""
    ...


@builtin
def cast(
    input: tensor,
    dtype: dtype_type,
    fp_downcast_rounding: str | None = None,
    bitcast: bool = False,
) -> tensor:
    """Convert to `dtype`: to nearest even ("rtz": to zero); `bitcast`: the same bits as `dtype`."""
    ...


@builtin
def where(condition: tensor, x: Any, y: Any) -> tensor:
    """Take `x` where the condition holds and `y` elsewhere; both sides are computed."""
    ...


@builtin
def dot(
    input: tensor,
    other: tensor,
    acc: tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: dtype_type | None = None,
) -> tensor:
    """Multiply matrices: ``input @ other + acc``, shapes ``[.., M, K]`` and ``[.., K, N]``.

    `input_precision` says how float32 operands are multiplied: "tf32" (their upper 19 bits), "ieee"
    (fused multiply-add), or by several products of narrow parts: "tf32x3", "bf16x3", "bf16x6".
    `max_num_imprecise_acc` bounds how many fp8 products are added up before a float32 addition.
    `out_dtype` is float32 unless given (int32 for int8 operands).
    """
    ...


@builtin
def swizzle2d(i: tensor, j: tensor, size_i: Any, size_j: Any, size_g: Any) -> Any:
    """Renumber the tile (i, j) of a grid so that groups of `size_g` rows are walked by column."""
    ...
