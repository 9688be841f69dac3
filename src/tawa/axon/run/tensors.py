"""Tensors of torch as arrays that NumPy's functions take, so that one table says what operators do.

NumPy hands its functions over to arrays of other libraries (NEP 13 and 18): `Tensor` computes them
by torch, on the device where the data is. Convolutions and pools, which `library/windows.py` spells
out tap by tap, are torch's own.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tawa.axon.library import reference
from tawa.axon.library.untyped import JOINS, fixed, is_untyped, met
from tawa.axon.library.windows import each
from tawa.axon.run.values import NAMES
from tawa.errors import AxonGuard

# What torch calls otherwise; functions of elements have torch's names but for these.
_NAMES = {"equal": "eq", "power": "pow", "rint": "round"}


class Tensor(NDArrayOperatorsMixin):
    """A tensor of torch, `data`; `untyped` as arrays in `library/untyped.py`."""

    def __init__(self, data: Any, untyped: bool = False) -> None:
        self.data = data
        self.untyped = untyped
        self.shape = tuple(data.shape)
        self.ndim: int = data.ndim
        self.size: int = data.numel()
        self.dtype = data.dtype

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The transpose."""
        return self.transpose(*reversed(range(self.ndim)))

    def astype(self, dtype: Any) -> Tensor:
        """Return the elements as another type, of torch or NumPy."""
        name = str(dtype).removeprefix("torch.")
        name = name if name in NAMES else np.dtype(dtype).name
        return Tensor(self.data.to(getattr(_torch(), name)))

    def reshape(self, *shape: Any) -> Tensor:
        """Return the elements in another shape."""
        return Tensor(self.data.reshape(*shape), self.untyped)

    def transpose(self, *order: int) -> Tensor:
        """Return the axes in another order."""
        return Tensor(self.data.permute(*order), self.untyped)

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.data[_plain(key, self.data)], self.untyped)

    def __index__(self) -> int:
        return operator.index(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Tensor]:
        return (Tensor(item, self.untyped) for item in self.data)

    def as_untyped(self) -> Tensor:
        """Return the elements as ones of no type."""
        return Tensor(self.data, True)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[key] = _plain(value, self.data)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: tuple[Tensor, ...] = (), **options: Any
    ) -> Tensor:
        name: str = ufunc.__name__.partition(" ")[0]
        if method != "__call__" or options:
            return NotImplemented
        given, loose = met(_tensors(inputs, self.data), numbers=True)
        made = _pointwise(_NAMES.get(name, name), *given)
        for place in out:  # a sum in place
            place.data.copy_(made)
        return out[0] if out else _wrapped(made, loose)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        name: str = function.__name__
        made = _functions().get(name) or getattr(_torch(), name)
        given, loose = met(_tensors(inputs, self.data), numbers=name in JOINS)
        return _wrapped(made(*[_plain(each, self.data) for each in given], **options), loose)


def _torch() -> Any:
    return sys.modules["torch"]  # has made what is computed with


def _plain(value: Any, near: Any) -> Any:
    """Return a value with torch's tensors in it, on the device of another."""
    match value:
        case Tensor():
            return value.data
        case list() | tuple():
            return type(value)([_plain(item, near) for item in value])
        case np.ndarray() if near is not None:
            return _tensor(value, near.device)
        case _:
            return value


def _tensor(array: np.ndarray[Any, Any], device: Any) -> Any:
    """Return an array of NumPy as a tensor, which has no steps backwards, and may be written to."""
    whole = min(array.strides, default=0) >= 0 and array.flags.writeable
    forward = array if whole else array.copy()
    return _torch().as_tensor(fixed(forward), device=device)


def _tensors(value: Any, near: Any) -> Any:
    """Return a value with NumPy's arrays in it as tensors on the device of another."""
    if isinstance(value, list | tuple):
        return type(value)([_tensors(item, near) for item in value])
    if not isinstance(value, np.ndarray):
        return value
    return Tensor(_tensor(value, near.device), is_untyped(value))


def _wrapped(value: Any, untyped: bool) -> Any:
    if isinstance(value, tuple | list):
        return tuple([_wrapped(each, untyped) for each in value])
    torch = _torch()
    if not isinstance(value, torch.Tensor):
        return value
    return Tensor(value, untyped and value.dtype != torch.bool)


def _pointwise(name: str, *inputs: Any) -> Any:
    """Return a function of elements; numbers have the type of what they meet, as in NumPy."""
    torch, tensors = _torch(), [_plain(each, None) for each in inputs]
    near = next(each for each in tensors if isinstance(each, torch.Tensor))
    tensors = [
        each
        if isinstance(each, torch.Tensor)
        else torch.as_tensor(each, device=near.device)
        if isinstance(each, np.ndarray | np.generic)
        else _number(each, torch.result_type(near, each), near.device)
        for each in tensors
    ]
    return getattr(torch, name)(*tensors)


def _number(value: Any, dtype: Any, device: Any) -> Any:
    torch = _torch()
    if not dtype.is_floating_point and dtype != torch.bool:
        bounds = torch.iinfo(dtype)
        if not bounds.min <= value <= bounds.max:
            raise OverflowError(f"{value} is out of bounds for {str(dtype)[6:]}")
    return torch.full((), value, dtype=dtype, device=device)


def _reduction(name: str, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    if axis == ():  # which are all axes for torch
        x, axis = x.unsqueeze(0), 0
        return getattr(_torch(), name)(x, axis)
    axis = tuple(range(x.ndim)) if axis is None else axis
    return getattr(_torch(), name)(x, axis, keepdims) if x.ndim else _reduction(name, x, ())


def _extremum(name: str, x: Any, axis: int, keepdims: bool = False, initial: Any = None) -> Any:
    if initial is not None and not x.shape[axis]:
        shape = list(x.shape)
        shape[axis : axis + 1] = [1] if keepdims else []
        return x.new_full(shape, initial)
    return getattr(_torch(), name)(x, axis, keepdims)


def _product(x: Any, axis: Sequence[int], keepdims: bool) -> Any:
    for place in sorted(axis, reverse=True):
        x = x.prod(place, keepdims)
    return x


def _expanded(x: Any, axis: int | Sequence[int]) -> Any:
    for place in sorted([axis] if isinstance(axis, int) else axis):
        x = x.unsqueeze(place)
    return x


def _taken(x: Any, index: Any, axis: int, mode: str = "raise") -> Any:
    index = index % x.shape[axis] if mode == "wrap" else index
    return x[(*[slice(None)] * axis, index)]


def _padded(x: Any, widths: Sequence[tuple[int, int]], constant_values: Any = 0) -> Any:
    flat = [width for pair in reversed(widths) for width in pair]
    return _torch().nn.functional.pad(x, flat, value=constant_values)


def _filled(value: Any, x: Any, dtype: Any = None, shape: Any = None) -> Any:
    return x.new_full(x.shape if shape is None else shape, value, dtype=dtype)


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Functions of NumPy that torch calls otherwise, or whose arguments it has otherwise."""
    torch = _torch()
    return {
        **{name: partial(_reduction, name) for name in ("sum", "any", "all")},
        "max": partial(_extremum, "amax"),
        "min": partial(_extremum, "amin"),
        "prod": _product,
        "where": partial(_pointwise, "where"),
        "clip": lambda x, low, high: _pointwise("minimum", _pointwise("maximum", x, low), high),
        "ndim": lambda x: x.ndim,
        "expand_dims": _expanded,
        "transpose": torch.permute,
        "take": _taken,
        "take_along_axis": torch.take_along_dim,
        "pad": _padded,
        "split": lambda x, parts, axis: (
            x.split(max(1, x.shape[axis] // parts), axis) if x.shape[axis] else (x,) * parts
        ),
        "repeat": torch.repeat_interleave,
        "flip": lambda x, axis: x.flip(axis),
        "sort": lambda x, axis: x.sort(axis).values,
        "argsort": lambda x, axis, stable: x.argsort(dim=axis, stable=stable),
        "diagonal": lambda x, axis1, axis2: x.diagonal(dim1=axis1, dim2=axis2),
        "sliding_window_view": lambda x, size, axis: x.unfold(axis, size, 1),
        "zeros_like": partial(_filled, 0),
        "ones_like": partial(_filled, 1),
        "round": torch.round,
    }


def _convolution(name: str, w: Any, x: Any, groups: int, **options: Any) -> Tensor:
    near = next(each.data for each in (w, x) if isinstance(each, Tensor))
    (w, x), loose = met(_tensors((w, x), near), numbers=True)
    rank = x.ndim - 2
    run = getattr(_torch().nn.functional, f"{name}{rank}d", None)
    if run is None or not x.size or not w.size:  # torch refuses some of those
        return reference.meaning(name)(w, x, groups=groups, **options)
    names = {"pad": "padding", "extra": "output_padding"}
    given = {names.get(k, k): each(v, rank) for k, v in options.items() if k != "kernel"}
    return Tensor(run(x.data, w.data, groups=groups, **given), loose)


def _pool(name: str, x: Tensor, size: Any, stride: Any, pad: Any) -> Tensor:
    rank = x.ndim - 2
    run = getattr(_torch().nn.functional, f"{name}{rank}d", None)
    if run is None or not x.size:
        return reference.meaning(name)(x, size=size, stride=stride, pad=pad)
    return Tensor(run(x.data, *(each(number, rank) for number in (size, stride, pad))))


def _cast_like(like: Any, x: Any) -> Any:
    if not isinstance(like, Tensor):
        return reference.meaning("cast_like")(like, x)
    return Tensor(_torch().as_tensor(_plain(x, None), dtype=like.dtype, device=like.data.device))


_OWN: dict[str, Callable[..., Any]] = {
    "cast_like": _cast_like,
    **{name: partial(_convolution, name) for name in ("conv", "conv_transpose")},
    **{name: partial(_pool, name) for name in ("max_pool", "avg_pool")},
}


def meaning(name: str) -> Callable[..., Any]:
    """Return what an operator computes with tensors."""
    return _OWN.get(name) or reference.meaning(name)


def is_tensor(value: Any) -> bool:
    """Tell whether a value is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def device_of(value: Any) -> Any:
    """Return the device of the tensors in a value, None where there are none.

    Raises AxonGuard where they are on several.
    """
    match value:
        case tuple() | list():
            found = {each for item in value if (each := device_of(item)) is not None}
            if len(found) > 1:
                raise AxonGuard(
                    f"tensors are on {' and '.join(sorted(map(str, found)))}",
                    remedy="move them to one device: x.to(device)",
                )
            return next(iter(found), None)
        case _:
            return value.device if is_tensor(value) else None


def records() -> bool:
    """Tell whether torch records gradients now."""
    return _torch().is_grad_enabled()


def refuse_captured(near: Any) -> None:
    """Raise AxonGuard where work is captured into a CUDA graph: what is to be kept would not be."""
    if is_tensor(near) and near.is_cuda and _torch().cuda.is_current_stream_capturing():
        raise AxonGuard(
            "the first call with such arguments is inside a CUDA graph capture",
            why="its plan keeps what it computes of weights, which replays alone would compute",
            remedy="call it once before the capture",
        )


def settle(near: Any) -> None:
    """Wait for the work beside a tensor, whose results calls on other streams read, too."""
    if is_tensor(near) and near.is_cuda:
        _torch().cuda.current_stream(near.device).synchronize()


def wrapped(value: Any, device: Any) -> Any:
    """Return arguments whose arrays, of NumPy too, are tensors on a device."""
    match value:
        case tuple() | list():
            return tuple([wrapped(item, device) for item in value])
        case np.ndarray():
            return Tensor(_tensor(value, device), is_untyped(value))
        case _:
            return Tensor(value.to(device)) if is_tensor(value) else value


def unwrapped(value: Any, device: Any) -> Any:
    """Return results with torch's tensors."""
    match value:
        case tuple() | list():
            return tuple([unwrapped(item, device) for item in value])
        case Tensor():
            return value.data
        case np.ndarray() | np.generic():
            return _tensor(np.asarray(value), device)
        case _:
            return value
