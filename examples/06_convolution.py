"""A residual block of ResNet, fused, on the GPU where there is one and in the simulator where not.

python examples/06_convolution.py

relu(conv3x3(relu(conv3x3(x) * s + b)) * s + b + x): scale and bias are what a batch normalization
becomes at inference. Two calls do all of it: scale, bias, residual and activation follow the sum
while it is in registers. Then the gradient of the first convolution's filters; and a kernel of your
own over windows that TMA counts: each window's mean, over images of any size.
"""

import numpy as np

import tawa
import tawa.language as tl
from tawa.kernels.conv import conv2d
from tawa.kernels.conv_gradients import conv2d_weight_gradient

IMAGES, SIZE, CHANNELS = 2, 14, 64


def expected(x, w):
    """Convolve NHWC images by 3x3 filters, padded by one, in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = ((i, j) for i in range(3) for j in range(3))
    size = x.shape[1] - 2
    return sum(x[:, i : i + size, j : j + size] @ w[:, i, j].astype(np.float64).T for i, j in taps)


@tawa.jit
def window_means(x_desc, y_ptr, BM: tl.constexpr, C: tl.constexpr):
    """y [pixels, C] = the mean of what each 3x3 window sees."""
    first = tl.program_id(0) * BM
    rows, columns = x_desc.counts
    total = tl.zeros((BM, C), tl.float32)
    for tap in range(9):
        total += x_desc.load([first, 0], tap=(tap // 3, tap % 3)).to(tl.float32)
    pixel = first + tl.arange(0, BM)
    at = pixel[:, None] * C + tl.arange(0, C)[None, :]
    inside = (pixel < x_desc.shape[0] * rows * columns)[:, None]
    tl.store(y_ptr + at, (total / 9).to(tl.float16), mask=inside)


def block(x, filters, scale, bias, put):
    """Return the block's output by the library and in float64, both NHWC."""
    first, second = (put(w) for w in filters)
    images, s, b = put(x), put(scale, False), put(bias, False)
    how = {"padding": 1, "scale": s, "activation": "relu"}
    inner = conv2d(images, first, b, **how)
    y = conv2d(inner, second, b, residual=images, **how)
    want = np.maximum(expected(x, filters[0]) * scale + bias, 0)
    want = np.maximum(expected(want, filters[1]) * scale + bias + x, 0)
    return y, want


def main():
    random = np.random.default_rng(0)
    shape = (IMAGES, SIZE, SIZE, CHANNELS)
    x = random.standard_normal(shape).astype(np.float16)
    filters = random.standard_normal((2, CHANNELS, 3, 3, CHANNELS)).astype(np.float16) / 24
    scale = random.uniform(0.5, 1.5, CHANNELS).astype(np.float32)
    bias = random.standard_normal(CHANNELS).astype(np.float16)
    try:
        import torch

        on_gpu = torch.cuda.is_available()
    except ImportError:
        on_gpu = False

    def put(array, pixels=True):
        """Move an array to the GPU; images and filters become (N, C, H, W) in channels_last."""
        if not on_gpu:
            return array
        moved = torch.from_numpy(array).cuda()
        return moved.permute(0, 3, 1, 2) if pixels else moved

    y, want = block(x, filters, scale, bias, put)
    found = np.asarray(y.permute(0, 2, 3, 1).cpu() if on_gpu else y).astype(np.float64)
    error = np.linalg.norm(found - want) / np.linalg.norm(want)
    print(f"the block, {'on the GPU' if on_gpu else 'in the simulator'}: error {error:.1e}")
    assert error < 5e-3

    dy = random.standard_normal(shape).astype(np.float16)
    window = (CHANNELS, CHANNELS, 3, 3) if on_gpu else (CHANNELS, 3, 3, CHANNELS)
    dw = conv2d_weight_gradient(put(x), window, put(dy), padding=1, out_dtype="f32")
    found = np.asarray(dw.permute(0, 2, 3, 1).cpu() if on_gpu else dw)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    seen = padded[:, :SIZE, :SIZE].reshape(-1, CHANNELS)
    want = dy.reshape(-1, CHANNELS).astype(np.float64).T @ seen
    error = np.linalg.norm(found[:, 0, 0] - want) / np.linalg.norm(want)
    print(f"the filters' gradient: error {error:.1e}")
    assert error < 5e-3

    pixels = random.integers(0, 9, (2, 11, 11, CHANNELS)).astype(np.float16)
    images = put(pixels, False)
    seen = tawa.WindowDescriptor(images, 3, [128, CHANNELS], stride=2, padding=1)
    count = 2 * seen.counts[0] * seen.counts[1]
    y = put(np.zeros((count, CHANNELS), np.float16), False)
    window_means[(-(-count // 128),)](seen, y, BM=128, C=CHANNELS)
    want = expected(pixels, np.eye(CHANNELS)[:, None, None].repeat(3, 1).repeat(3, 2) / 9)
    found = np.asarray(y.cpu() if on_gpu else y).reshape(2, *seen.counts, CHANNELS)
    error = np.abs(found - want[:, ::2, ::2]).max()
    print(f"means of windows: error {error:.1e}")
    assert error < 5e-3


if __name__ == "__main__":
    main()
