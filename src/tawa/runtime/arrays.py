"""What an array argument is: element type, shape, strides, address and device, of any library.

torch tensors, NumPy arrays, objects with ``__cuda_array_interface__`` (CuPy, Numba) or DLPack
(JAX), whatever has a ``dtype`` and a method ``data_ptr()``, as Triton asks, and placeholders for
compiling without data. No library is imported: an object that exists has been made by a library
that is loaded.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from tawa.errors import ArgumentError
from tawa.runtime.dtypes import BYTES, dtype_name
from tawa.runtime.tensors import check_storage


@dataclass(frozen=True, slots=True)
class Device:
    """Where data lives: `kind` "cuda", "cpu" or "none" (a placeholder); `ordinal` of the GPU."""

    kind: str
    ordinal: int = 0

    def __str__(self) -> str:
        return {"cpu": "the CPU", "none": "nowhere (a placeholder)"}.get(
            self.kind, f"cuda:{self.ordinal}"
        )


CPU = Device("cpu")
NOWHERE = Device("none")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An array that is only a type, a shape and strides (elements): for compiling without data."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    alignment: int = 16


@dataclass(frozen=True, slots=True)
class View:
    """An array as the runtime sees it; `strides` in elements, `address` in bytes (0: none)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: Device

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return BYTES[self.dtype]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense array whose last dimension is contiguous."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> range:
    """Return the places, in elements from the first, from the lowest to the highest element."""
    if 0 in shape:
        return range(0)
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides)]
    return range(sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + 1)


def array(
    shape: Sequence[int],
    dtype: object,
    *,
    strides: Sequence[int] | None = None,
    alignment: int = 16,
) -> Placeholder:
    """Stand for an array of `shape` and `dtype` when compiling; it has no data.

    `strides` are in elements (default: dense rows), `alignment` of the base address in bytes.

    >>> array((4, 8), "bf16").strides
    (8, 1)
    """
    extents = tuple(int(extent) for extent in shape)
    steps = row_major(extents) if strides is None else tuple(int(step) for step in strides)
    if len(steps) != len(extents):
        raise ArgumentError(
            f"a placeholder of {len(extents)} dimensions has {len(steps)} strides",
            remedy="give one stride, in elements, for each dimension",
        )
    return Placeholder(extents, dtype_name(dtype), steps, alignment)


def is_tensor(value: object) -> bool:
    """Tell whether a value is a torch tensor (without importing torch)."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Tell whether an argument is an array of some library, or a placeholder."""
    return (
        isinstance(value, Placeholder)
        or is_tensor(value)
        or _is_numpy(value)
        or hasattr(type(value), "__dlpack__")
        or hasattr(type(value), "__cuda_array_interface__")
        or "__cuda_array_interface__" in getattr(value, "__dict__", ())
        or _is_reinterpreted(value)
        or _is_pointer(value)
    )


def _is_pointer(value: object) -> bool:
    """Tell whether a value is a pointer as Triton takes it: ``dtype`` and ``data_ptr()``."""
    return callable(getattr(type(value), "data_ptr", None)) and hasattr(value, "dtype")


def _is_reinterpreted(value: object) -> bool:
    """Tell whether a value is an array under another type, as ``triton.reinterpret`` makes it."""
    kind = type(value)
    return kind.__name__ == "TensorWrapper" and kind.__module__.startswith("triton.")


def _reinterpreted_as(value: Any) -> str:
    """Return the type of a reinterpreted array; raises ArgumentError if its width is another."""
    name, base = dtype_name(value.dtype), look(value.base)
    if BYTES[name] != base.itemsize:
        raise ArgumentError(
            f"an array of {base.dtype} is reinterpreted as {name}",
            why=f"elements of {base.itemsize} bytes would have {BYTES[name]}, and its shape and "
            "strides count elements",
            remedy="view the array itself as the other type, as in x.view(torch.uint8)",
        )
    return name


def _is_numpy(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def look(value: Any) -> View:
    """Return the view of an array argument; raises ArgumentError for what has no plain layout."""
    if isinstance(value, Placeholder):
        address = 0 if value.alignment % 16 == 0 else value.alignment
        return View(value.dtype, value.shape, value.strides, address, NOWHERE)
    if is_tensor(value):
        return _look_torch(value)
    if _is_numpy(value):
        return _look_numpy(value)
    if _is_reinterpreted(value):
        return replace(look(value.base), dtype=_reinterpreted_as(value))
    if _is_pointer(value):
        return _look_pointer(value)
    if _lives_on_host(value):
        import numpy

        return _look_numpy(numpy.from_dlpack(value))
    if (view := _look_interface(value)) is not None:
        return view
    return _look_dlpack(value)


def _look_torch(tensor: Any) -> View:
    check_storage(tensor)
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        raise ArgumentError(
            f"a tensor on the device {device} cannot be an argument of a kernel",
            why="kernels run on CUDA GPUs, and in the simulator for arrays of the CPU",
            remedy="move it with .cuda() or .cpu(), or compile with tawa.array(shape, dtype)",
        )
    where = Device("cuda", tensor.get_device()) if device.type == "cuda" else CPU
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return View(dtype_name(tensor.dtype), shape, strides, tensor.data_ptr(), where)


def lies(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and the strides of an array, as `look` has them."""
    if is_tensor(value):
        check_storage(value)
        return value.shape, value.stride()
    view = look(value)
    return view.shape, view.strides


_FAR = 1 << 40
"""Elements that a pointer may reach of which nobody knows how many there are."""


def _look_pointer(value: Any) -> View:
    """Read a pointer's shape and strides (elements) where it has them, as a tensor of torch has."""
    name, address = dtype_name(value.dtype), int(value.data_ptr())
    extents: Any = getattr(value, "shape", None)
    steps: Any = getattr(value, "stride", None)
    shape, strides = (_FAR,), (1,)
    if extents is not None and callable(steps):
        shape, strides = tuple(map(int, extents)), tuple(map(int, cast("Any", steps())))
    kind = getattr(getattr(value, "device", None), "type", "cuda")
    where = CPU if kind == "cpu" else Device("cuda", _ordinal(value, address))
    return View(name, shape, strides, address, where)


def _look_numpy(value: Any) -> View:
    strides = _in_elements(value.strides, value.itemsize)
    return View(dtype_name(value.dtype), value.shape, strides, value.ctypes.data, CPU)


def _in_elements(strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    if any(step % itemsize for step in strides):
        raise ArgumentError(
            f"an array has strides of {tuple(strides)} bytes, which its elements of {itemsize}"
            " bytes do not divide",
            remedy="copy it to a dense array",
        )
    return tuple(step // itemsize for step in strides)


def _lives_on_host(value: Any) -> bool:
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and int(where()[0]) == 1  # kDLCPU


def _look_interface(value: Any) -> View | None:
    """Read ``__cuda_array_interface__`` (version 3), absent where a dtype has no typestr."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        import numpy

        dtype = numpy.dtype(interface["typestr"])
    name = dtype_name(dtype)
    shape = tuple(interface["shape"])
    steps = interface.get("strides")
    strides = row_major(shape) if steps is None else _in_elements(steps, BYTES[name])
    return View(
        name,
        shape,
        strides,
        interface["data"][0],
        Device("cuda", _ordinal(value, interface["data"][0])),
    )


def _ordinal(value: Any, address: int) -> int:
    """Return the GPU of an object of which only memory at an address is known to be on one."""
    if (where := getattr(value, "__dlpack_device__", None)) is not None:
        return int(where()[1])
    device = getattr(value, "device", None)
    ordinal = getattr(device, "id", getattr(device, "index", None))
    if isinstance(ordinal, int):
        return ordinal
    from tawa.runtime.driver import connect

    return connect().device_of(address)


class _DLTensor(ctypes.Structure):
    """The head of DLPack's DLManagedTensor (dlpack.h, "DLTensor")."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def _look_dlpack(value: Any) -> View:
    """Read a DLPack capsule's head. The array itself stays the owner of its memory."""
    capsule = value.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    head = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    if head.device_type not in _DLPACK_CUDA:
        raise ArgumentError(
            f"an array on DLPack device type {head.device_type} cannot be an argument of a kernel",
            remedy="move it to a CUDA GPU, or to the CPU for the simulator",
        )
    shape = tuple(head.shape[axis] for axis in range(head.ndim))
    strides = tuple(head.strides[axis] for axis in range(head.ndim)) if head.strides else None
    return View(
        dtype_name(value.dtype),
        shape,
        strides or row_major(shape),
        (head.data or 0) + head.byte_offset,
        Device("cuda", head.device_id),
    )


def host_array(value: Any) -> Any:
    """Return a NumPy array that shares the memory of an array of the CPU, for the simulator."""
    if _is_reinterpreted(value):
        from tawa.runtime.dtypes import numpy_dtype

        return host_array(value.base).view(numpy_dtype(_reinterpreted_as(value)))
    if _is_pointer(value) and not is_tensor(value):
        return _host_memory(look(value))
    if not is_tensor(value):
        return value if _is_numpy(value) else _from_dlpack(value)
    view = _look_torch(value)
    plain = value.detach()  # and not by its numpy(), after which torch could not free its memory
    if view.dtype in ("bf16", "f8e4m3", "f8e5m2"):  # torch hands these to NumPy only as integers
        torch = sys.modules["torch"]
        carrier = torch.int16 if view.itemsize == 2 else torch.uint8
        from tawa.runtime.dtypes import numpy_dtype

        return _from_dlpack(plain.view(carrier)).view(numpy_dtype(view.dtype))
    return _from_dlpack(plain)


def _host_memory(view: View) -> Any:
    """Return memory of the CPU as an array; raises ArgumentError where its size is not known."""
    import numpy

    from tawa.runtime.dtypes import numpy_dtype

    if view.shape == (_FAR,):
        raise ArgumentError(
            "the simulator is given a pointer without a shape",
            why="it checks that accesses stay inside of an array",
            remedy="give the object `shape` and `stride()`, or pass the array itself",
        )
    steps = tuple(step * view.itemsize for step in view.strides)
    interface = {
        "shape": view.shape,
        "strides": steps,
        "data": (view.address, False),
        "typestr": f"<u{view.itemsize}",
        "version": 3,
    }
    holder: Any = type("Memory", (), {"__array_interface__": interface})()
    kind: Any = numpy_dtype(view.dtype)
    return cast("Any", numpy.asarray(holder)).view(kind)


def _from_dlpack(value: Any) -> Any:
    import numpy

    return numpy.from_dlpack(value)


def empty_beside(
    array: Any, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None
) -> Any:
    """Return a new array of `array`'s library and device, with element type `dtype` ("bf16").

    `strides`, in elements, are those of a dense array, its rows in any order; default: row-major.
    """
    return maker_beside(array, shape, dtype, strides)(array)


def maker_beside(
    array: Any, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None
) -> Callable[[Any], Any]:
    """Return what makes such arrays beside any array of `array`'s class and device."""
    strides = row_major(shape) if strides is None else strides
    if isinstance(array, Placeholder):
        return lambda _: Placeholder(shape, dtype, strides)
    from tawa.runtime.dtypes import numpy_dtype

    kind: Any = numpy_dtype(dtype)
    if is_tensor(array):
        torch: Any = sys.modules["torch"]
        element, device = getattr(torch, kind.name), array.device
        make = torch.empty_strided  # the fastest of torch's ways by a third
        return lambda _: make(shape, strides, dtype=element, device=device)
    library: Any = sys.modules.get("cupy" if look(array).device.kind == "cuda" else "numpy")
    if library is None:
        kind_of = cast("object", type(array))
        raise ArgumentError(
            f"no array can be made beside a {getattr(kind_of, '__name__', kind_of)}",
            why="what a call returns is made by torch, CuPy or NumPy, and CuPy is not loaded",
            remedy="pass arrays of torch, CuPy or NumPy (torch.from_dlpack(array) copies nothing);"
            " for JAX there is tawa.jax",
        )
    make_empty: Any = library.empty
    axes = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))  # as memory goes
    memory, back = [shape[axis] for axis in axes], [axes.index(axis) for axis in range(len(axes))]
    return lambda _: make_empty(memory, dtype=kind).transpose(back)
