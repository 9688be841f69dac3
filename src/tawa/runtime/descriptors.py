"""Host descriptors: a tensor, how it lies in memory, and the block a kernel moves at once.

Triton's own class is understood by its attributes; ours is the same with sizes of 0 allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tawa.errors import DescriptorError
from tawa.runtime.arrays import array, is_array, is_tensor, look

if TYPE_CHECKING:  # what a kernel does with a parameter that is annotated so
    from tawa.language import values

    InKernel = values.tensor_descriptor
else:
    InKernel = object


class TensorDescriptor(InKernel):
    """A tensor of `shape` and `strides` (elements) at `base`, accessed in blocks.

    Mutable, since a configuration's pre-hook sets `block_shape`; therefore the rules of TMA
    (alignment, strides, box) are checked when a kernel is launched, not here. `padding` is what a
    load yields outside of the tensor: "zero" or "nan". A dimension may be 0: nothing is loaded.
    """

    __slots__ = ("base", "block_shape", "padding", "shape", "strides")

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> None:
        if not len(shape) == len(strides) == len(block_shape):
            raise DescriptorError(
                "a descriptor's shape, strides and block_shape differ in length",
                why=f"they have {len(shape)}, {len(strides)} and {len(block_shape)} entries",
                remedy="give one entry for each dimension",
            )
        if padding not in ("zero", "nan"):
            raise DescriptorError(
                f"padding={padding!r} is not a padding", remedy='use "zero" or "nan"'
            )
        self.base = base
        self.shape: Sequence[int] = list(shape)
        self.strides: Sequence[int] = list(strides)
        self.block_shape: Sequence[int] = list(block_shape)
        self.padding = padding

    @classmethod
    def from_tensor(
        cls, tensor: Any, block_shape: Sequence[int], padding: str = "zero"
    ) -> TensorDescriptor:
        """Describe a whole array of any library, or a placeholder.

        >>> import tawa
        >>> TensorDescriptor.from_tensor(tawa.array((128, 64), "f16"), [64, 64]).strides
        [64, 1]
        """
        if is_tensor(tensor):  # often made anew at each launch
            return cls(tensor, tensor.shape, tensor.stride(), block_shape, padding)
        view = look(tensor)
        return cls(tensor, view.shape, view.strides, block_shape, padding)

    def of(self, base: Any) -> TensorDescriptor:
        """Return the same description of another array; sizes are shared, so let them be tuples."""
        made = object.__new__(TensorDescriptor)
        made.base = base
        made.shape, made.strides = self.shape, self.strides
        made.block_shape = self.block_shape
        made.padding = self.padding
        return made

    def __repr__(self) -> str:
        return (
            f"TensorDescriptor(shape={self.shape}, strides={self.strides},"
            f" block_shape={self.block_shape}, padding={self.padding!r})"
        )


def is_descriptor(value: object) -> bool:
    """Tell whether a value is a host descriptor: ours or Triton's."""
    kind = type(value)
    return isinstance(value, TensorDescriptor) or (
        kind.__name__ == "TensorDescriptor" and kind.__module__.startswith("triton.")
    )


def like(value: Any) -> Any:
    """Return what an argument is without its data: a placeholder, a descriptor of one, a number."""
    if is_descriptor(value):
        held = TensorDescriptor(None, value.shape, value.strides, value.block_shape, value.padding)
        held.base = like(value.base)
        return held
    if not is_array(value):
        return value
    view = look(value)
    alignment = view.address & -view.address & 15 or 16
    return array(view.shape, view.dtype, strides=view.strides, alignment=alignment)
