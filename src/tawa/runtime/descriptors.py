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

    >>> tile = tawa.TensorDescriptor.from_tensor(tawa.array((512, 256), "bf16"), [128, 64])
    >>> tile.shape, tile.strides, tile.block_shape
    ([512, 256], [256, 1], [128, 64])
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

    @classmethod
    def windows(
        cls,
        x: Any,
        window: tuple[int, int],
        block_shape: Sequence[int],
        *,
        stride: int | tuple[int, int] = 1,
    ) -> TensorDescriptor:
        """Describe all windows of NHWC images: (N, Ho, Fh, Wo, Fw * C), to be loaded from.

        Neighbouring windows share memory, which loads may. A block [i, r, 1, c, k] holds, of i
        images, r rows and c columns of windows, k elements of one row of each. Raises
        `DescriptorError` where windows do not lie so: no padding, pixels side by side, and columns
        `stride` * C elements apart, a multiple of 16 bytes.

        >>> import tawa
        >>> x = tawa.array((2, 9, 9, 64), "f16")
        >>> TensorDescriptor.windows(x, (3, 3), [1, 8, 1, 8, 64]).shape
        [2, 7, 3, 7, 192]
        """
        view = look(x)
        down, across = (stride, stride) if isinstance(stride, int) else stride
        if len(view.shape) != 4 or min(*window, down, across) < 1:
            raise DescriptorError(
                f"windows of {window} at stride {(down, across)} over an array of shape"
                f" {view.shape}",
                why="images are [N, H, W, C]; windows and strides are at least 1",
            )
        (n, h, w, c), (image, row, pixel, channel) = view.shape, view.strides
        rows, columns = (h - window[0]) // down + 1, (w - window[1]) // across + 1
        if rows < 1 or columns < 1:
            raise DescriptorError(f"windows of {window} do not fit images of {h} x {w} pixels")
        if (c > 1 and channel != 1) or (w > 1 and pixel != c):
            raise DescriptorError(
                f"pixels of {c} channels lie {pixel} elements apart, and channels {channel}",
                why="a row of a window is read as one run of elements",
                remedy="copy the images to dense memory, channels last",
            )
        if columns > 1 and across * c * view.itemsize % 16:
            raise DescriptorError(
                f"windows lie {across * c * view.itemsize} bytes apart ({across} x {c} x"
                f" {view.dtype})",
                why="TMA needs strides that are multiples of 16 bytes",
                remedy="fill the channels up with zeros, or pack the windows (tawa.kernels.conv)",
            )
        shape = (n, rows, window[0], columns, window[1] * c)
        return cls(x, shape, (image, down * row, row, across * c, 1), block_shape)

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
