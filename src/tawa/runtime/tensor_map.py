"""Tensor maps (CUtensorMap): the rules TMA puts on a tensor, and the encoding by the driver.

Rules: CUDA driver API, "cuTensorMapEncodeTiled" and "cuTensorMapEncodeIm2col" (of windows). A
tensor with a dimension of 0 has no map: the kernel gets 128 zero bytes and never uses them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from tawa.codegen.parameters import TensorMapParameter
from tawa.errors import DescriptorError
from tawa.layouts.windows import Window
from tawa.runtime.arrays import View, look, reach
from tawa.runtime.descriptors import is_descriptor
from tawa.runtime.dtypes import BYTES

MAP_BYTES = 128
_MAP_ALIGNMENT = 64
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_FLOATS = ("f16", "bf16", "f32", "f64")

MAP_TYPES = {
    **dict.fromkeys(("i1", "i8", "u8", "f8e4m3", "f8e5m2"), 0),
    **dict.fromkeys(("i16", "u16"), 1),
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
}
"""CUtensorMapDataType of each element type; fp8 and booleans move as bytes."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by bytes."""
_L2_PROMOTION = {128: 2, 256: 3}
_FILL_ZERO, _FILL_NAN = 0, 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a map describes: `extents` and `strides` in elements, slowest first, at `address`.

    `array` is the array of a descriptor argument; a kernel's own descriptors are of pointers.
    """

    name: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    array: View | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to load or store."""
        return 0 in self.extents


def describe(
    name: str, address: int, extents: Sequence[Any], strides: Sequence[Any], value: Any = None
) -> Tensor:
    """Return what a map describes; `value` is the argument that a descriptor was passed as: the
    descriptor, or, where its form is known from before, its array alone.
    """
    array = None if value is None else look(value.base if is_descriptor(value) else value)
    sizes, steps = (tuple(int(number) for number in numbers) for numbers in (extents, strides))
    return Tensor(name, address, sizes, steps, array)


def check(parameter: TensorMapParameter, tensor: Tensor) -> None:
    """Raise DescriptorError, with the names and numbers, for what TMA cannot take."""
    rank, name, window = len(tensor.extents), tensor.name, parameter.window
    described = len(parameter.box) if window is None else window.rank
    if not 1 <= rank <= 5 or rank != described or rank != len(tensor.strides):
        raise DescriptorError(
            f"{name} has {rank} dimensions and its block_shape {described}",
            why="TMA moves tiles of 1 to 5 dimensions, as many as the tensor has",
            remedy="reshape the tensor, or give block_shape one entry for each dimension",
        )
    _check_box(parameter, name)
    if tensor.empty:
        return
    if tensor.address % 16:
        raise DescriptorError(
            f"{name}: TMA needs a base address that is a multiple of 16 bytes, got an address"
            f" {tensor.address % 16} bytes past one",
            remedy="copy the tensor, or slice it at a multiple of 16 bytes",
        )
    _check_extents(tensor)
    _check_strides(parameter, tensor)
    _check_array(tensor)
    if window is not None:
        _check_windows(window, tensor)


def _check_box(parameter: TensorMapParameter, name: str) -> None:
    itemsize = BYTES[parameter.dtype]
    for axis, extent in enumerate(parameter.box):
        if not 1 <= extent <= 256:
            raise DescriptorError(
                f"{name}: a TMA box extends 1 to 256 elements a dimension, got {extent} along"
                f" dimension {axis}",
                remedy="use a smaller block_shape",
            )
    inner = parameter.box[-1] * itemsize
    if inner % 16:
        raise DescriptorError(
            f"{name}: TMA needs rows of block_shape that are multiples of 16 bytes, got {inner}"
            f" ({parameter.box[-1]} x {parameter.dtype})",
            remedy=f"make the last entry of block_shape a multiple of {16 // itemsize}",
        )
    if parameter.swizzle and inner > parameter.swizzle:
        raise DescriptorError(
            f"{name}: a box row of {inner} bytes does not fit the swizzle of"
            f" {parameter.swizzle} bytes",
            why="cuTensorMapEncodeTiled: the inner box dimension is at most the swizzle",
        )
    if parameter.padding == "nan" and parameter.dtype not in _FLOATS:
        raise DescriptorError(
            f'{name}: padding="nan" needs elements of f16, bf16, f32 or f64, got {parameter.dtype}',
            remedy='use padding="zero"',
        )


def _check_windows(window: Window, tensor: Tensor) -> None:
    count = tensor.extents[0] * prod(window.counts(tensor.extents[1:-1]))
    if not 0 < count < 1 << 31:
        raise DescriptorError(
            f"{tensor.name}: images of shape {list(tensor.extents)} have {count} windows",
            why="they are counted in 31 bits, and TMA takes no box of none",
            remedy="describe fewer images at once",
        )


def _check_extents(tensor: Tensor) -> None:
    for axis, extent in enumerate(tensor.extents):
        if not 0 <= extent < 1 << 32:
            raise DescriptorError(
                f"{tensor.name}: TMA takes sizes from 0 up to 2^32 - 1, got {extent} along"
                f" dimension {axis}"
            )


def _check_strides(parameter: TensorMapParameter, tensor: Tensor) -> None:
    itemsize, dtype = BYTES[parameter.dtype], parameter.dtype
    if tensor.strides[-1] != 1 and tensor.extents[-1] != 1:
        raise DescriptorError(
            f"{tensor.name}: TMA needs a contiguous last dimension, got a stride of"
            f" {tensor.strides[-1]} elements",
            remedy="transpose the tensor and block_shape, or copy it with .contiguous()",
        )
    for axis, (stride, extent) in enumerate(zip(tensor.strides[:-1], tensor.extents)):
        size = stride * itemsize
        if extent == 1:  # never stepped along
            continue
        if size % 16:
            step = 16 // itemsize
            raise DescriptorError(
                f"{tensor.name}: TMA needs strides that are multiples of 16 bytes, got {size}"
                f" ({stride} x {dtype}) along dimension {axis}",
                remedy=f"pad the rows of {tensor.name} to {-(-stride // step) * step} elements, or"
                " load it through pointers",
            )
        if not 0 <= size < 1 << 40:
            raise DescriptorError(
                f"{tensor.name}: TMA takes strides from 0 up to 2^40 - 1 bytes, got {size} along"
                f" dimension {axis}"
            )


def _check_array(tensor: Tensor) -> None:
    """Raise DescriptorError for a descriptor of more than its array: TMA would go beyond it."""
    if (array := tensor.array) is None:
        return
    own, said = reach(array.shape, array.strides), reach(tensor.extents, tensor.strides)
    if said.start < own.start or own.stop < said.stop:
        raise DescriptorError(
            f"{tensor.name}: the descriptor has shape {list(tensor.extents)} and strides"
            f" {list(tensor.strides)}, its array shape {list(array.shape)} and strides"
            f" {list(array.strides)}",
            why=f"it describes elements {said.start} to {said.stop - 1} from the array's first one,"
            f" and the array has elements {own.start} to {own.stop - 1}",
            remedy="describe what the array has, or pass the larger array",
        )


def byte_strides(parameter: TensorMapParameter, tensor: Tensor) -> tuple[int, ...]:
    """Return the strides, in bytes, of all but the last dimension, slowest first.

    A dimension of extent 1 is never stepped along, whatever its library says: any legal stride.
    """
    itemsize = BYTES[parameter.dtype]
    return tuple(
        16 if extent == 1 else stride * itemsize
        for stride, extent in zip(tensor.strides[:-1], tensor.extents)
    )


def promotion(parameter: TensorMapParameter, tensor: Tensor) -> int:
    """Return how many bytes L2 fetches where TMA asks for 128 that it does not have: 128 or 256.

    Twice what is asked for is worth it where the rest of a row is what a later tile reads. Where
    tiles have rows of 256 bytes, or the tensor has rows of 128, the tile asks for both halves
    itself, and that L2 is told twice costs a tenth of the memory's bandwidth (H200, 4.09 instead of
    4.46 TB/s). Where rows begin inside of lines, each asks for two, and what L2 gives of them falls
    by a sixth (H100, products of 3000 and 5000 cubed).
    """
    itemsize = BYTES[parameter.dtype]
    width = tensor.extents[-1] * itemsize
    steps = zip(tensor.strides[:-1], tensor.extents)
    inside = any(extent > 1 and step * itemsize % 128 for step, extent in steps)
    return 128 if parameter.row >= 256 or width <= 128 or inside else 256


class MapBuffer:
    """128 bytes at `address`, aligned as a CUtensorMap must be; zero until encoded."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT

    def content(self) -> bytes:
        """Return the 128 bytes."""
        return ctypes.string_at(self.address, MAP_BYTES)


class NoContextError(Exception):
    """The thread has no context: the driver encodes nothing (CUDA_ERROR_INVALID_CONTEXT)."""


class Encoders(Protocol):
    """The driver's functions that encode tensor maps."""

    encode_tiled: Callable[..., int]
    encode_im2col: Callable[..., int]


def encode(parameter: TensorMapParameter, tensor: Tensor, encoders: Encoders) -> MapBuffer:
    """Return the tensor map of `tensor`; all zeros when it is empty.

    Raises DescriptorError for what TMA cannot take, NoContextError in a thread without a context.
    """
    buffer = MapBuffer()
    check(parameter, tensor)
    if tensor.empty:
        return buffer
    rank = len(tensor.extents)
    strides = byte_strides(parameter, tensor)
    fast_first = _array(ctypes.c_uint64, tensor.extents)
    steps = _array(ctypes.c_uint64, strides or (0,))
    described = (
        buffer.address,
        MAP_TYPES[parameter.dtype],
        rank,
        tensor.address,
        ctypes.addressof(fast_first),
        ctypes.addressof(steps),
    )
    how = (
        0,  # no interleave
        SWIZZLES[parameter.swizzle],
        _L2_PROMOTION[promotion(parameter, tensor)],
        _FILL_NAN if parameter.padding == "nan" else _FILL_ZERO,
    )
    if (window := parameter.window) is None:
        box = _array(ctypes.c_uint32, parameter.box)
        ones = _array(ctypes.c_uint32, (1,) * rank)
        code = encoders.encode_tiled(
            *described, ctypes.addressof(box), ctypes.addressof(ones), *how
        )
    else:
        lower = _array(ctypes.c_int, window.lower)
        upper = _array(ctypes.c_int, window.upper)
        pixels, channels = parameter.box
        strides_of = _array(ctypes.c_uint32, (1, *window.stride, 1))
        corners = ctypes.addressof(lower), ctypes.addressof(upper)
        code = encoders.encode_im2col(
            *described, *corners, channels, pixels, ctypes.addressof(strides_of), *how
        )
    if code == _NO_CONTEXT:
        raise NoContextError
    if code != 0:
        raise DescriptorError(
            f"the driver made no tensor map of {tensor.name} (error {code})",
            why=f"{parameter.dtype}, sizes {tensor.extents}, strides {strides} bytes, box"
            f" {parameter.box}, swizzle {parameter.swizzle}",
        )
    return buffer


def moved(buffer: MapBuffer, address: int, replace_address: Callable[..., int]) -> MapBuffer:
    """Return a map that describes at `address` what another one does where it lies.

    A tenth of what it costs to check and encode one. Raises as `encode` does.
    """
    found = MapBuffer()
    ctypes.memmove(found.address, buffer.address, MAP_BYTES)
    code = replace_address(found.address, address)
    if code == _NO_CONTEXT:
        raise NoContextError
    if code != 0:
        raise DescriptorError(f"the driver moved no tensor map to {address:#x} (error {code})")
    return found


def _array(kind: Any, values: Sequence[int]) -> Any:
    """Return a C array of values given slowest first, fastest first as the driver wants them."""
    return (kind * len(values))(*reversed(values))
