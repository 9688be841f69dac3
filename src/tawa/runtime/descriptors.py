"""Host descriptors: a tensor, how it lies in memory, and the block a kernel moves at once.

Triton's own class is understood by its attributes; ours is the same with sizes of 0 allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tawa.errors import DescriptorError
from tawa.layouts.windows import Window
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

    __slots__ = ("base", "block_shape", "padding", "shape", "strides", "window")

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> None:
        self.window: Window | None = None
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
        made = object.__new__(type(self))
        made.base = base
        made.shape, made.strides = self.shape, self.strides
        made.block_shape, made.window = self.block_shape, self.window
        made.padding = self.padding
        return made

    def __repr__(self) -> str:
        window = f", window={str(self.window)!r}" if self.window else ""
        return (
            f"{type(self).__name__}(shape={self.shape}, strides={self.strides},"
            f" block_shape={self.block_shape}, padding={self.padding!r}{window})"
        )


class WindowDescriptor(TensorDescriptor):
    """Windows over images [N, W, C], [N, H, W, C] or [N, D, H, W, C], in blocks of [BM, BK].

    In a kernel ``desc.load([window, channel], tap=(row, column))`` gives what BM consecutive
    windows, counted over all images with the last axis fastest, see through one of their taps, BK
    channels of it. Where a window leaves its image, and behind the last image, that is the padding.
    `desc.shape` is that of the images; `desc.counts` has the windows of an image, by axis.

    `window`, `stride`, `dilation` are ints or one for each axis; `padding` an int or, for each
    axis, one or a pair (before, after). All are part of the compiled kernel. TMA counts windows
    itself (im2col mode), so that no memory is taken and nothing is rounded up to boxes.

    Raises `DescriptorError` for windows that TMA does not count: strides above 8, or corners and
    taps beyond their range (`tawa.layouts.windows`); its rules on memory are checked at a launch.

    >>> import tawa
    >>> x = tawa.array((2, 9, 9, 64), "f16")
    >>> tawa.WindowDescriptor(x, (3, 3), block=[128, 64], stride=2, padding=1).counts
    (5, 5)
    """

    __slots__ = ()

    def __init__(
        self,
        x: Any,
        window: int | Sequence[int],
        block: Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int | Sequence[int]] = 0,
        dilation: int | Sequence[int] = 1,
        outside: str = "zero",
    ) -> None:
        view = look(x)
        axes = len(view.shape) - 2
        found = Window(
            _each(window, axes), _each(stride, axes), _sides(padding, axes), _each(dilation, axes)
        )
        why = found.objection
        if not why and axes != found.axes:
            why = f"the images have shape {list(view.shape)}: {axes} axes of pixels"
        if not why and len(block) != 2:
            why = f"a block is [windows, channels], not {list(block)}"
        if not why and 0 in found.counts(view.shape[1:-1]):
            why = f"none fits images of {'x'.join(map(str, view.shape[1:-1]))} pixels"
        if why:
            raise DescriptorError(f"TMA counts no windows of {found}", why=why)
        super().__init__(x, view.shape, view.strides, view.shape, outside)
        self.block_shape = list(block)
        self.window = found

    @classmethod
    def over(
        cls, x: Any, window: Window, block: Sequence[int], outside: str = "zero"
    ) -> WindowDescriptor:
        """Describe images by windows that are known as one value."""
        return cls(
            x,
            window.size,
            block,
            stride=window.stride,
            padding=window.padding,
            dilation=window.dilation,
            outside=outside,
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """How many windows an image has, by axis."""
        assert self.window is not None, "set when it is made"
        return self.window.counts(self.shape[1:-1])


def _each(given: int | Sequence[int], axes: int) -> tuple[int, ...]:
    return (given,) * axes if isinstance(given, int) else tuple(given)


def _sides(given: int | Sequence[int | Sequence[int]], axes: int) -> tuple[tuple[int, int], ...]:
    each = (given,) * axes if isinstance(given, int) else given
    pairs = ((side, side) if isinstance(side, int) else tuple(side) for side in each)
    return tuple((before, after) for before, after in pairs)


def is_descriptor(value: object) -> bool:
    """Tell whether a value is a host descriptor: ours or Triton's."""
    kind = type(value)
    return isinstance(value, TensorDescriptor) or (
        kind.__name__ == "TensorDescriptor" and kind.__module__.startswith("triton.")
    )


def window_of(value: Any) -> Window | None:
    """Return the windows that a descriptor is of; Triton's have none."""
    return value.window if isinstance(value, TensorDescriptor) else None


def copy_of(value: Any) -> TensorDescriptor:
    """Return a descriptor with sizes of its own, of Triton's class too, whose `base` is None."""
    made = TensorDescriptor(None, value.shape, value.strides, value.shape, value.padding)
    if isinstance(value, TensorDescriptor):
        made = value.of(None)
    made.shape, made.strides = tuple(value.shape), tuple(value.strides)
    made.block_shape = tuple(value.block_shape)
    return made


def like(value: Any) -> Any:
    """Return what an argument is without its data: a placeholder, a descriptor of one, a number."""
    if is_descriptor(value):
        return copy_of(value).of(like(value.base))
    if not is_array(value):
        return value
    view = look(value)
    alignment = view.address & -view.address & 15 or 16
    return array(view.shape, view.dtype, strides=view.strides, alignment=alignment)
