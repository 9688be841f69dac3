"""Views of NHWC images in which a tensor map reads windows in place, and why one is refused.

| view | dimensions | takes |
|---|---|---|
| window | [N * Ho * Wo, C] at each tap: TMA counts windows (im2col mode) | strides to 8, all else |
| rows | (N, Ho, Fh, Wo, Fw * C) | any stride, no padding; K runs over whole rows of a window |
| taps | (N, H, W, g, C/g) | stride 1, padding, dilation, groups |

In the view window a tile is any run of output pixels, in the others a box of them. In the views
taps coordinates are shifted by the tap; what lies outside is zero. In rows neighbouring
windows share memory, which loads may; packed images are read in it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tawa
from tawa.kernels.arrays import View
from tawa.kernels.conv_geometry import Geometry, Packing
from tawa.layouts.windows import Window

VIEWS = ("window", "rows", "taps")
"""The views in place."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A view: its dimensions, the taps of a window and the elements that lie together in each.

    `whole`: a step of K takes elements of a tap alone, since others follow them.
    """

    view: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    taps: int
    k: int
    whole: bool = False
    window: Window | None = None

    def cut(self, g: Geometry) -> tuple[int, int, int]:
        """Return the images, rows and columns of the output that boxes are cut from."""
        if self.window is not None:
            return 1, 1, g.pixels
        if self.view == "rows":
            return self.shape[0], self.shape[1], self.shape[3]
        return g.n, g.ho, g.wo

    def descriptor(self, base: Any, box: tuple[int, int, int], k: int) -> Any:
        """Describe `base` in blocks of a box of pixels by `k`."""
        images, rows, columns = box
        if self.window is not None:
            return tawa.WindowDescriptor.over(base, self.window, [columns, k])
        block = [images, rows, columns, 1, k]
        if self.view != "taps":
            block = [images, rows, 1, columns, k]
        return tawa.TensorDescriptor(base, self.shape, self.strides, block)


def windows(view: str, geometry: Geometry, x: View) -> Windows:
    """Return a view in place of `x`, which `refusal` does not refuse."""
    g = geometry
    if view == "window":
        name = view if g.volume is None else "volume"
        return Windows(name, x.shape, x.strides, g.fh * g.fw, g.channels, g.groups > 1, g.over)
    image, row, pixel, _ = x.strides
    if view == "rows":
        shape = (g.n, g.ho, g.fh, g.wo, g.fw * g.c)
        strides = (image, g.stride[0] * row, row, g.stride[1] * pixel, 1)
        return Windows(view, shape, strides, g.fh, g.fw * g.c)
    shape, strides = (g.n, g.h, g.w, g.groups, g.channels), (image, row, pixel, g.channels, 1)
    return Windows(view, shape, strides, g.fh * g.fw, g.channels)


def packed_view(form: str, g: Geometry, how: Packing) -> Windows:
    """Return the view of packed images ("im2win", "im2col", "padded") in which windows lie."""
    buffer, line, far = how.images, how.images.pitch, g.stride[1] * how.images.column
    if form == "im2col":
        k = buffer.used
        return Windows("rows", (1, 1, 1, g.pixels, k), (*[buffer.column] * 4, 1), 1, k)
    k = (g.fw - 1) * buffer.column + buffer.used
    if form == "im2win":
        return Windows("rows", (1, buffer.lines, 1, g.wo, k), (*[line] * 3, far, 1), 1, k)
    strides = (buffer.lines // g.n * line, g.stride[0] * line, line, far, 1)
    return Windows("rows", (g.n, g.ho, g.fh, g.wo, k), strides, g.fh, k)


def refusal(view: str, geometry: Geometry, x: View) -> str:
    """Return why a view cannot be had of `x`; "" where it can."""
    g, size = geometry, x.itemsize
    if g.volume is not None and view != "window":
        return "volumes are read in windows that TMA counts"
    image, *_, row, pixel, channel = x.strides
    if channel != 1 and g.c > 1:
        return f"channels lie {channel} elements apart, and TMA needs them side by side"
    if x.address % 16:
        return "the images' address is not a multiple of 16 bytes, which TMA needs"
    steps = {"images": (g.n, image), "rows": (x.shape[-3], row), "pixels": (x.shape[-2], pixel)}
    if g.volume is not None:
        steps["slices"] = x.shape[1], x.strides[1]
    if view == "rows":
        steps |= {
            "windows": (g.wo, g.stride[1] * pixel),
            "pixels": (1, pixel),
            "windows' rows": (g.ho, g.stride[0] * row),
        }
    if view == "taps" and g.groups > 1:
        steps["groups"] = (g.groups, g.channels)
    for name, (extent, step) in steps.items():
        if extent > 1 and (step * size % 16 or not 0 <= step * size < 1 << 40):
            return f"{name} lie {step * size} bytes apart, and TMA steps by multiples of 16"
    match view:
        case "window":
            if reason := g.over.objection:
                return reason
            if g.pixels >= 1 << 31:
                return f"{g.pixels} pixels need more than 31 bits"
            if g.groups > 1 and g.channels * size % 16:
                return (
                    f"{g.channels} channels a group are {g.channels * size} bytes, no step of TMA"
                )
        case "rows":
            if g.padding != (0, 0, 0, 0):
                return f"a row of a window is read in one, so that padding {g.padding} has no place"
            if g.dilation[1] != 1 or g.dilation[0] != 1:
                return f"dilation {g.dilation}: a window's pixels do not lie side by side"
            if g.groups > 1:
                return f"{g.groups} groups: a group's channels do not lie side by side"
            if pixel != g.c and g.w > 1:
                return f"pixels of {g.c} channels lie {pixel} elements apart"
        case "taps":
            if g.stride != (1, 1):
                return f"stride {g.stride}: neighbouring pixels of a tap are not neighbours in x"
        case _:
            raise AssertionError(f"no view is called {view!r}")
    return ""


def depth_of(windows: Windows, itemsize: int) -> int:
    """Return how many elements of K a step takes: 128 bytes, the widest swizzle, or less.

    Less where a tap has less; and a divisor of them where what follows a tap's channels is another
    pixel or group.
    """
    if windows.whole:
        depth = 128 // itemsize
        while windows.k % depth:
            depth //= 2
        return depth
    return shortened(windows.k, itemsize)


def shortened(k: int, itemsize: int) -> int:
    """Return how many elements a step over `k` that lie together takes: 32 to 128 bytes."""
    depth = 128 // itemsize
    while depth > 32 // itemsize and depth // 2 >= k:
        depth //= 2
    return depth
