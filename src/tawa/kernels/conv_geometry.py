"""The geometry of a convolution: what is read where, how large results and packed windows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tawa.errors import ArgumentError


def ceil_to(value: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Geometry:
    """Images [n, h, w, c] and filters [co, fh, fw, c / groups]; `padding` is (top, bottom, left,
    right).
    """

    n: int
    h: int
    w: int
    c: int
    co: int
    fh: int
    fw: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def ho(self) -> int:
        """Rows of the output; not above 0 where the filter does not fit."""
        reach = (self.fh - 1) * self.dilation[0] + 1
        return (self.h + self.padding[0] + self.padding[1] - reach) // self.stride[0] + 1

    @property
    def wo(self) -> int:
        """Columns of the output."""
        reach = (self.fw - 1) * self.dilation[1] + 1
        return (self.w + self.padding[2] + self.padding[3] - reach) // self.stride[1] + 1

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.c // self.groups

    @property
    def filters(self) -> int:
        """Output channels of a group."""
        return self.co // self.groups

    @property
    def window(self) -> int:
        """Elements that an output element is the sum over: K of the product."""
        return self.fh * self.fw * self.channels

    @property
    def pixels(self) -> int:
        """Pixels of the output: M of the product."""
        return self.n * self.ho * self.wo

    @property
    def constants(self) -> dict[str, int]:
        """What a kernel's windows are, as its meta-parameters."""
        return {
            "FW": self.fw,
            "STRIDE_H": self.stride[0],
            "STRIDE_W": self.stride[1],
            "PAD_H": self.padding[0],
            "PAD_W": self.padding[2],
            "DILATION_H": self.dilation[0],
            "DILATION_W": self.dilation[1],
        }

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.pixels * self.co * self.window


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed windows: `lines` rows of `columns` columns of `column` elements, `pitch` elements
    apart.

    Of a column the first `used` are x's or zero for padding; the rest is zero.
    """

    lines: int
    columns: int
    used: int
    column: int
    pitch: int

    @property
    def elements(self) -> int:
        """Elements of the buffer."""
        return self.lines * self.pitch


@dataclass(frozen=True, slots=True)
class Packing:
    """How a method packs: the images' buffer, the filters', and the windows of either.

    `window` and `stride` are those of the pixels that lie together in a column of the buffers.
    """

    images: Packed
    filters: Packed
    window: tuple[int, int]
    stride: tuple[int, int]

    @property
    def elements(self) -> int:
        """Elements of both buffers."""
        return self.images.elements + self.filters.elements


PACKINGS = ("im2win", "im2col", "padded")


def packing(method: str, geometry: Geometry, itemsize: int) -> Packing:
    """Return how "im2win", "im2col" or "padded" lays images and filters out.

    - im2win: (N, Ho, W, Fh, C), W the columns that windows reach. A column is padded so that
      windows begin at multiples of 16 bytes (stride * column), and a row so that rows do: TMA's
      rules of strides. Filters are (Co, Fw, Fh, C), their columns as long.
    - im2col: (N, Ho, Wo, Fh, Fw, C), windows padded to multiples of 16 bytes; filters as rows.
    - padded: (N, H, W, C) with the padding around it and channels filled up until a stride is a
      multiple of 16 bytes; filters (Co, Fh, Fw, C) likewise.
    """
    g, step = geometry, 16 // itemsize
    if method == "im2col":
        column = ceil_to(g.window, step)
        images = Packed(g.n * g.ho, g.wo, g.window, column, g.wo * column)
        filters = Packed(g.co, 1, g.window, column, column)
        return Packing(images, filters, (g.fh, g.fw), g.stride)
    used = g.c if method == "padded" else g.fh * g.c
    column = used
    while g.stride[1] * column % step:
        column += 1
    long = ceil_to(g.fw * column, step)
    if method == "padded":
        lines, columns = g.h + g.padding[0] + g.padding[1], g.w + g.padding[2] + g.padding[3]
        images = Packed(g.n * lines, columns, used, column, ceil_to(columns * column, step))
        return Packing(images, Packed(g.co * g.fh, g.fw, used, column, long), (1, 1), (1, 1))
    columns = (g.wo - 1) * g.stride[1] + g.fw
    images = Packed(g.n * g.ho, columns, used, column, ceil_to(columns * column, step))
    return Packing(images, Packed(g.co, g.fw, used, column, long), (g.fh, 1), (g.stride[0], 1))


def each_axis(name: str, value: Any, least: int, axes: int) -> tuple[int, ...]:
    """Return an int, or one for each axis, by axis; raises `ArgumentError` for all else."""
    values: tuple[Any, ...] = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes or not all(isinstance(each, int) and each >= least for each in values):
        raise ArgumentError(
            f"{name}={value!r}", why=f"{name} is an int of at least {least}, or {axes} of them"
        )
    return cast("tuple[int, ...]", values)


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Return an int or a pair of them as a pair; raises `ArgumentError` for all else."""
    return cast("tuple[int, int]", each_axis(name, value, least, 2))


def paddings(
    padding: Any, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return (before, after) by axis for an int, one for each axis, pairs, "same" or "valid".

    "same" keeps the size at stride 1; where what it adds is odd, the end has more, as in torch.
    """
    if padding == "same":
        if max(stride) > 1:
            raise ArgumentError(
                f'padding="same" with stride={tuple(stride)}',
                why="the output has the input's size at stride 1 only",
                remedy="give the padding in numbers",
            )
        added = [(size - 1) * step for size, step in zip(window, dilation)]
        return tuple((each // 2, each - each // 2) for each in added)
    if isinstance(padding, str) and padding != "valid":
        raise ArgumentError(f"padding={padding!r}", why='the words are "same" and "valid"')
    sides = (0 if padding == "valid" else padding,) * len(window)
    if not isinstance(padding, int | str):
        sides = tuple(padding)
    if len(sides) != len(window):
        raise ArgumentError(
            f"padding={padding!r}", why=f"it is an int, or an entry for each of {len(window)} axes"
        )
    return tuple(pair("padding", side, 0) for side in sides)
