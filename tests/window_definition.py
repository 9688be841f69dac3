"""What windows see, by definition: the oracle of the simulator, the emulator and the GPU."""

from __future__ import annotations

import numpy as np

from tawa.layouts.windows import Window


def seen(
    x: np.ndarray, window: Window, first: int, channel: int, tap: tuple[int, ...],
    block: tuple[int, int], outside: float = 0,
) -> np.ndarray:  # fmt: skip
    """The block [windows, channels] from window `first` and `channel` on, at one tap."""
    counts = (x.shape[0], *window.counts(x.shape[1:-1]))
    found = np.full(block, outside, x.dtype)
    width = min(block[1], x.shape[-1] - channel)
    for row, number in enumerate(range(first, first + block[0])):
        if number >= np.prod(counts) or width <= 0:
            break
        image, *at = np.unravel_index(number, counts)
        place = [
            int(a) * step - before + t * apart
            for a, step, (before, _), t, apart in zip(
                at, window.stride, window.padding, tap, window.dilation, strict=True
            )
        ]
        if all(0 <= p < extent for p, extent in zip(place, x.shape[1:-1])):
            found[row, :width] = x[(image, *place)][channel : channel + width]
    return found


def drawn(random: np.random.Generator) -> tuple[tuple[int, ...], Window]:
    """Images' pixels [N, (D, (H,)) W] and windows over them, of every rank, that TMA takes."""
    axes = int(random.integers(1, 4))
    while True:
        numbers = lambda low, high: tuple(map(int, random.integers(low, high + 1, axes)))  # noqa: E731
        pixels = (int(random.integers(1, 4)), *numbers(1, (60, 14, 7)[axes - 1]))
        sides = tuple(zip(numbers(-1, 4), numbers(-1, 4)))
        window = Window(numbers(1, 4), numbers(1, random.choice((2, 8))), sides, numbers(1, 3))
        if not window.objection and 0 not in window.counts(pixels[1:]):
            return pixels, window
