"""Descriptors of overlapping windows: what they hold, and why one is refused."""

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa import TensorDescriptor
from tawa.errors import DescriptorError


@tawa.jit
def one_block(x_desc, out_ptr, row, SIZE: tl.constexpr):
    seen = x_desc.load([1, 1, row, 2, 0]).reshape(4, SIZE)
    at = tl.arange(0, 4)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out_ptr + at, seen)


@pytest.mark.parametrize("stride", [1, (2, 1), (1, 2)])
def test_a_block_is_a_row_of_each_window(stride):
    down, across = (stride, stride) if isinstance(stride, int) else stride
    x = np.random.default_rng(0).integers(-9, 9, (2, 9, 11, 16)).astype(np.float16)
    out = np.full((4, 32), np.nan, np.float16)
    windows = TensorDescriptor.windows(x, (3, 2), [1, 1, 1, 4, 32], stride=stride)
    one_block[(1,)](windows, out, 2, SIZE=32)
    count = (11 - 2) // across + 1
    for column in range(4):
        first = (2 + column) * across
        want = np.zeros(32, np.float16)
        if 2 + column < count:
            want = x[1, down + 2, first : first + 2].reshape(-1)
        assert np.array_equal(out[column], want)


def test_what_a_map_of_windows_needs():
    pixels = tawa.array((2, 9, 9, 3), "f16")
    with pytest.raises(DescriptorError, match="6 bytes apart"):
        TensorDescriptor.windows(pixels, (3, 3), [1, 1, 1, 8, 16])
    assert TensorDescriptor.windows(pixels, (3, 3), [1, 1, 1, 8, 16], stride=8).strides[3] == 24
    planes = tawa.array((2, 9, 9, 16), "f16", strides=(1296, 9, 1, 81))
    with pytest.raises(DescriptorError, match="elements apart"):
        TensorDescriptor.windows(planes, (3, 3), [1, 1, 1, 8, 16])
    with pytest.raises(DescriptorError, match="do not fit"):
        TensorDescriptor.windows(pixels, (3, 10), [1, 1, 1, 8, 16])
    with pytest.raises(DescriptorError, match="at least 1"):
        TensorDescriptor.windows(pixels, (3, 3), [1, 1, 1, 8, 16], stride=0)
    with pytest.raises(DescriptorError, match=r"\[N, H, W, C\]"):
        TensorDescriptor.windows(tawa.array((9, 9, 16), "f16"), (3, 3), [1, 1, 1, 8, 16])
