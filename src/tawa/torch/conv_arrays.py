# torch's annotations are partial, and what it offers to those that extend it is in torch._C.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
"""Images, volumes and filters of torch as the kernels of convolutions read them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tawa.errors import ArgumentError

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def pixels_last(images: Tensor) -> Tensor:
    """Return images, volumes or filters with channels last in memory, aligned."""
    last = _LAST[images.dim()]
    found = images.contiguous(memory_format=last)
    aligned = isinstance(found, torch._subclasses.FakeTensor) or found.data_ptr() % 16 == 0
    return found if aligned else found.clone(memory_format=last)


def check_precision(x: Tensor) -> None:
    """Raise `ArgumentError` for float32 where torch is told to convolve it in float32."""
    if x.dtype is not torch.float32:
        return
    try:
        allowed = torch.backends.cudnn.allow_tf32
    except RuntimeError:  # it was set by the new name, which the old one does not read
        backend: Any = torch.backends.cudnn
        allowed = backend.conv.fp32_precision == "tf32"
    if not allowed:
        raise ArgumentError(
            "a convolution of float32 with torch.backends.cudnn.allow_tf32 = False",
            why="the kernels multiply float32 through tf32",
            remedy="set it to True, use float16 or bfloat16, or torch's own convolution",
        )


def filled(given: Tensor, axis: int) -> Tensor:
    """Return an array whose channels are filled up with zeros to what TMA steps by: 16 bytes."""
    missing = -given.shape[axis] % (16 // given.element_size())
    if not missing:
        return given
    ends = [0, 0] * (given.dim() - 1 - axis) + [0, missing]
    return functional.pad(given, ends)


def cut(found: Tensor, extent: int, axis: int) -> Tensor:
    """Return what is there without zeros that were added, in memory of its own."""
    if found.shape[axis] == extent:
        return found
    return found.narrow(axis, 0, extent).clone(memory_format=_LAST[found.dim()])


def rim(layer: Any, input: Tensor) -> tuple[Tensor, Any]:
    """Return the images with a rim that is no zeros, as torch's layer adds it, and the padding
    that is left to the kernel.
    """
    if layer.padding_mode == "zeros":
        return input, layer.padding
    rim = layer._reversed_padding_repeated_twice
    return functional.pad(input, rim, mode=layer.padding_mode), 0
