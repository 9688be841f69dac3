"""Windows over images: which pixels a tap of consecutive windows sees, as TMA's im2col mode counts.

Images are [N, W, C], [N, H, W, C] or [N, D, H, W, C]. Windows are counted in one number, the
window along the last axis fastest; a tap is one of the places of a window. Rules: CUDA driver API,
"cuTensorMapEncodeIm2col"; PTX ISA, "Tensors", "Im2col mode".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tawa.errors import ArgumentError

_CORNERS = {1: 1 << 15, 2: 1 << 7, 3: 1 << 4}
"""By spatial axes: corners lie in -x .. x - 1, and the place of a tap in its window below 2x."""
_STEP_MOST = 8  # the traversal stride


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of `size` taps, `stride` pixels apart; all by spatial axis, slowest first.

    `padding` is how many pixels windows begin before an image's first and may end behind its last;
    taps lie `dilation` pixels apart.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def axes(self) -> int:
        """How many spatial axes images have, 1 to 3."""
        return len(self.size)

    @property
    def rank(self) -> int:
        """How many dimensions images have: with their number and channels."""
        return len(self.size) + 2

    @property
    def taps(self) -> tuple[int, ...]:
        """The place of the last tap in a window, in pixels."""
        return tuple((extent - 1) * step for extent, step in zip(self.size, self.dilation))

    @property
    def lower(self) -> tuple[int, ...]:
        """Where the first window begins: the lower corner."""
        return tuple(-before for before, _ in self.padding)

    @property
    def upper(self) -> tuple[int, ...]:
        """Where windows begin at most, from an image's last pixel on: the upper corner."""
        return tuple(after - tap for (_, after), tap in zip(self.padding, self.taps))

    def slack(self, axis: int) -> int:
        """Return what is added to an image's extent before it is divided by the stride."""
        return sum(self.padding[axis]) - self.taps[axis] - 1

    def count(self, axis: int, extent: int) -> int:
        """Return how many windows an image of `extent` pixels has along an axis."""
        return max(0, (extent + self.slack(axis)) // self.stride[axis] + 1)

    def counts(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Return how many windows an image has, by axis."""
        return tuple(self.count(axis, extent) for axis, extent in enumerate(extents))

    @property
    def objection(self) -> str:
        """Why TMA counts no such windows; "" where it does."""
        if not 1 <= self.axes <= 3:
            return f"images have 1 to 3 axes of pixels, the window {self.axes}"
        if not len(self.size) == len(self.stride) == len(self.padding) == len(self.dilation):
            return "the window, its stride, padding and dilation differ in their axes"
        if min(*self.size, *self.stride, *self.dilation) < 1:
            return "the window, its stride and its dilation are at least 1"
        if max(self.stride) > _STEP_MOST:
            return f"a stride is at most {_STEP_MOST} pixels"
        most = _CORNERS[self.axes]
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if not all(-most <= each < most for each in corner):
                return (
                    f"the {name} corner is {corner}, which has a range of {-most} to {most - 1} for"
                    f" images of {self.axes} axes"
                )
        if not all(tap < 2 * most for tap in self.taps):
            return f"a tap lies {max(self.taps)} pixels into its window, {2 * most - 1} at most"
        return ""

    def __str__(self) -> str:
        numbers = [_text(self.size), _text(self.stride)]
        numbers.append("x".join(f"{before}:{after}" for before, after in self.padding))
        return " ".join([*numbers, _text(self.dilation)])


_WINDOW = re.compile(r"([\dx]+) ([\dx]+) ([-\d:x]+) ([\dx]+)")


def parse_window(text: str) -> Window:
    """Read a window back from its text. Raises ValueError."""
    if (found := _WINDOW.fullmatch(text)) is None:
        raise ValueError(f"not a window: {text}")
    size, stride, padding, dilation = found.groups()
    sides = [side.split(":") for side in padding.split("x")]
    return Window(
        _numbers(size),
        _numbers(stride),
        tuple((int(before), int(after)) for before, after in sides),
        _numbers(dilation),
    )


def _text(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


# --- options of convolutions, by axis -------------------------------------------------------------
# torch.compile reads these, and nothing of `tawa.kernels`.


def each_axis(name: str, value: Any, least: int, axes: int) -> tuple[int, ...]:
    """Return an int, or one for each axis, by axis; raises `ArgumentError` for all else."""
    values: tuple[Any, ...] = (value,) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= axes
    if len(values) != axes or not all(isinstance(each, int) and each >= least for each in values):
        raise ArgumentError(
            f"{name}={value!r}", why=f"{name} is an int of at least {least}, or {axes} of them"
        )
    return values


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Return an int or a pair of them as a pair; raises `ArgumentError` for all else."""
    one, other = each_axis(name, value, least, 2)
    return one, other


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
    sides: tuple[Any, ...] = (0,) if padding == "valid" else (padding,)
    if not isinstance(padding, int | str):
        sides = tuple(padding)
    if len(sides) == 1:
        sides *= len(window)
    if len(sides) != len(window):
        raise ArgumentError(
            f"padding={padding!r}", why=f"it is an int, or an entry for each of {len(window)} axes"
        )
    return tuple(pair("padding", side, 0) for side in sides)


def transposed(
    pixels: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """Return the pixels by axis of a transposed convolution: `output_padding` more than the fewest
    of which windows of `size` give `pixels`. Raises `ArgumentError`.
    """
    if any(extra >= step for extra, step in zip(output_padding, stride)):
        raise ArgumentError(
            f"output_padding={tuple(output_padding)} at stride {tuple(stride)}",
            why="it is below the stride",
        )
    by_axis = zip(pixels, size, stride, padding, dilation, output_padding, strict=True)
    return [
        (extent - 1) * step - 2 * side + (taps - 1) * spread + 1 + extra
        for extent, taps, step, side, spread, extra in by_axis
    ]
