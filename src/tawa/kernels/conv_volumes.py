"""`conv3d` and its gradients: convolutions of volumes, over windows that TMA counts in place.

To the planner, and to all that follows the sum, a volume is an image whose rows are those of all
its slices: only the windows have three axes. So these are the functions of images, of arrays that
have five axes.
"""

from __future__ import annotations

from typing import Any

from tawa.errors import ArgumentError
from tawa.kernels.conv import conv2d
from tawa.kernels.conv_gradients import (
    conv2d_input_gradient,
    conv2d_weight_gradient,
    conv_transpose2d,
)


def conv3d(x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    """Return activation(scale * conv(x, w) + bias + residual) of volumes.

    torch and CuPy: x (N, C, D, H, W), torch's in channels_last_3d memory, w (Co, C/groups, Fd, Fh,
    Fw); NumPy: x (N, D, H, W, C), w (Co, Fd, Fh, Fw, C/groups). Options are those of
    `tawa.kernels.conv.conv2d`: `stride` and `dilation` are an int or three, `padding` an int,
    three, three pairs (before, after), "same" or "valid"; there is no `method` to choose.

    Raises:
        ArgumentError: shapes, types or strides do not fit together; or TMA does not count the
            windows: channels that are no multiple of 16 bytes, strides above 8, padding above 16.
    """
    return conv2d(_volumes("x", x), w, bias, **options)


def conv3d_input_gradient(x_shape: tuple[int, ...], w: Any, dy: Any, **options: Any) -> Any:
    """Return dx, of `x_shape`, for dy, the gradient of conv3d(x, w)'s result.

    As `tawa.kernels.conv_gradients.conv2d_input_gradient`, of arrays as `conv3d` takes them.
    """
    return conv2d_input_gradient(x_shape, w, _volumes("dy", dy), **options)


def conv3d_weight_gradient(x: Any, w_shape: tuple[int, ...], dy: Any, **options: Any) -> Any:
    """Return dw, of `w_shape`, for dy, the gradient of conv3d(x, w)'s result.

    As `tawa.kernels.conv_gradients.conv2d_weight_gradient`, of arrays as `conv3d` takes them.
    """
    return conv2d_weight_gradient(_volumes("x", x), w_shape, dy, **options)


def conv_transpose3d(x: Any, w: Any, **options: Any) -> Any:
    """Return the transposed convolution of volumes, as `conv_transpose2d` that of images."""
    return conv_transpose2d(_volumes("x", x), w, **options)


def _volumes(name: str, array: Any) -> Any:
    if len(array.shape) != 5:
        raise ArgumentError(
            f"{name} has shape {tuple(array.shape)}", why="a convolution in 3D has 5 axes"
        )
    return array
