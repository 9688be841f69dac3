"""The geometry of a convolution: what is read where, how large results and packed windows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from tawa.errors import ArgumentError
from tawa.layouts.windows import Window, each_axis, paddings


def ceil_to(value: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Geometry:
    """Images [n, h, w, c] and filters [co, fh, fw, c / groups]; `padding` is (top, bottom, left,
    right).

    Of a `volume`, (its pixels by axis, its windows), this is the image that stands for it: its rows
    are those of all slices of the output, and its windows have the volume's taps.
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
    volume: tuple[tuple[int, ...], Window] | None = None

    @property
    def over(self) -> Window:
        """The windows, by axis."""
        if self.volume is not None:
            return self.volume[1]
        sides = (self.padding[:2], self.padding[2:])
        return Window((self.fh, self.fw), self.stride, sides, self.dilation)

    @property
    def images(self) -> tuple[int, ...]:
        """The shape of images or volumes, channels last."""
        pixels = (self.h, self.w) if self.volume is None else self.volume[0]
        return (self.n, *pixels, self.c)

    @property
    def results(self) -> tuple[int, ...]:
        """The shape of the output, channels last."""
        return (self.n, *self.over.counts(self.images[1:-1]), self.co)

    @property
    def kernels(self) -> tuple[int, ...]:
        """The shape of the filters, channels last."""
        return (self.co, *self.over.size, self.channels)

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

    def merged(self, count: int) -> Geometry:
        """Return the same with `count` groups side by side as one, whose filters see them all."""
        return replace(self, groups=self.groups // count)

    def abreast(self, most: int) -> int:
        """Return how many groups lie side by side in `most` channels, of images and of results."""
        fitting = most // max(self.channels, self.filters)
        return max((m for m in range(1, fitting + 1) if not self.groups % m), default=1)

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
    """How images are packed, and filters where they are: the buffers, and the windows of either.

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


PACKINGS = ("im2win", "im2col")


def packing(method: str, geometry: Geometry, itemsize: int, column: int = 0) -> Packing:
    """Return how "im2win", "im2col" or "padded" lays images and filters out.

    - im2win: (N, Ho, W, Fh, C), W the columns that windows reach. A column is padded so that
      windows begin at multiples of 16 bytes (stride * column), and a row so that rows do: TMA's
      rules of strides. Filters are (Co, Fw, Fh, C), their columns as long.
    - im2col: (N, Ho, Wo, Fh, Fw, C), windows padded to multiples of 16 bytes; filters as rows.
    - padded: (N, H, W, `column`) with the padding around it, by default as many channels as make a
      stride a multiple of 16 bytes, rows filled up to lines of 128 bytes; filters are not packed.
    """
    g, step = geometry, 16 // itemsize
    if method == "im2col":
        column = ceil_to(g.window, step)
        images = Packed(g.n * g.ho, g.wo, g.window, column, g.wo * column)
        filters = Packed(g.co, 1, g.window, column, column)
        return Packing(images, filters, (g.fh, g.fw), g.stride)
    used = g.fh * g.c if method == "im2win" else g.c
    apart = step // gcd(g.stride[1], step)
    column = column or ceil_to(used, apart)
    if method == "padded":
        lines, columns = g.h + g.padding[0] + g.padding[1], g.w + g.padding[2] + g.padding[3]
        pitch = ceil_to(columns * column, 128 // itemsize)
        none = Packed(0, 0, 0, 0, 0)
        return Packing(Packed(g.n * lines, columns, used, column, pitch), none, (1, 1), (1, 1))
    columns = (g.wo - 1) * g.stride[1] + g.fw
    images = Packed(g.n * g.ho, columns, used, column, ceil_to(columns * column, step))
    filters = Packed(g.co, g.fw, used, column, ceil_to(g.fw * column, step))
    return Packing(images, filters, (g.fh, 1), (g.stride[0], 1))


def geometry_of(
    images: tuple[int, ...],
    filters: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Geometry:
    """Check sizes, channels last, of images or volumes against one another.

    Raises `ArgumentError`.
    """
    n, *pixels, c = images
    co, *size, channels = filters
    steps = each_axis("stride", stride, 1, len(pixels))
    spread = each_axis("dilation", dilation, 1, len(pixels))
    if len(size) != len(pixels):
        raise ArgumentError(
            f"filters of {_by(size)} pixels over images of {_by(pixels)}",
            why="they have as many axes",
        )
    if groups < 1 or c % groups or co % groups:
        raise ArgumentError(
            f"{groups} groups of {c} input and {co} output channels", why="both are divided evenly"
        )
    if channels * groups != c:
        raise ArgumentError(
            f"images of {c} channels, filters of {channels} in {groups} groups",
            why="a filter sees the channels of its group",
            remedy="check the order of axes: NumPy has channels last, torch first",
        )
    if 0 in (c, *size):
        raise ArgumentError(
            f"filters of {_by(size)} pixels and {channels} channels", why="there is no sum"
        )
    sides = paddings(padding, size, steps, spread)
    window = Window(tuple(size), steps, sides, spread)
    if 0 in window.counts(pixels):
        raise ArgumentError(
            f"filters of {_by(size)} (dilation {spread}) do not fit images of {_by(pixels)}",
            why=f"with padding {sides} no window lies inside",
        )
    return geometry_over(window, (n, *pixels, c), co, groups)


def geometry_over(window: Window, images: tuple[int, ...], co: int, groups: int) -> Geometry:
    """Return the geometry of windows over images or volumes, channels last, that they fit."""
    n, *pixels, c = images
    counts, size = window.counts(pixels), window.size
    if len(pixels) == 2:
        around = tuple(side for both in window.padding for side in both)
        two: Any = (*pixels, c, co, *size, window.stride, around, window.dilation)
        return Geometry(n, *two, groups=groups)
    taps, rows, last = size[0] * size[1], counts[0] * counts[1], size[2]
    around, whole = (taps - 1, 0, last - 1, 0), (tuple(pixels), window)
    return Geometry(
        n, rows, counts[2], c, co, taps, last, padding=around, groups=groups, volume=whole
    )


def _by(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))
