"""Global memory: what the kernel's arguments are, byte by byte, with bounds.

Each array argument is a *segment*: the bytes from its lowest to its highest element, seen through
the array's own memory, so that two arguments on one memory alias as on the device. A pointer is an
int64 address whose high bits name the segment and whose low bits are the byte offset from the first
element; pointers of one tensor may thus come from several arguments, and an access out of bounds
names the argument the pointer was made from.

Length: one class holds every way to reach memory, with the checks that all of them share.

Loads that leave elements undefined: with a mask, and nothing given for what it leaves out.

The memory of one array argument, as bytes and as elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from tawa.errors import ArgumentError, LaunchError
from tawa.ir import line_of, tile
from tawa.ir.walk import all_of, reach
from tawa.layouts.windows import Window
from tawa.simulator.scheduler import Task
from tawa.simulator.values import F32, FLOATS, Array, DType, convert, is_array, place_of, poison

_SHIFT = 40  # bytes an offset may span, as a power of two
_MIDDLE = 1 << (_SHIFT - 1)  # offset 0 lies in the middle, so that negative offsets keep their name

# Told of each access: segment, element indices, element size, kind ("read", "poll" by a volatile
# load, "write", "rewrite" of the bits that are there, "atomic"), the operation, and which elements
# of its tile these are (flat positions; None: all, in order).
Watch: TypeAlias = Callable[["Segment", Any, int, str, Operation, Any], None]


@dataclass(frozen=True, slots=True)
class HostDescriptor:
    """A descriptor argument: `base` array, `shape` and `strides` in elements, slowest first.

    `block_shape` is one access; `padding` ("zero" or "nan") what is read outside of `shape`.
    """

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor at run time: the address of its first element and what `HostDescriptor` says."""

    address: int
    dtype: DType
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str
    window: Window | None = None


class GlobalMemory:
    """All segments of one launch, and every way to read and write them.

    `changes` counts the accesses that left other bytes than they found; after each, those of
    `waiting` are woken. The loads of `defined` give zero for what has no value.
    """

    def __init__(
        self, wake: Callable[[list[Task]], None], defined: frozenset[Operation] = frozenset()
    ) -> None:
        self.segments: list[Segment] = []
        self.changes = 0
        self.waiting: list[Task] = []
        self._wake, self._defined = wake, defined

    def bind(self, name: str, array: Any, element: DType) -> np.int64:
        """Make an array addressable and return the address of its first element."""
        if not is_array(array):
            raise ArgumentError(
                f"argument {name} is a {type(array).__name__}",
                why="the simulator addresses NumPy arrays",
                remedy=f"pass a NumPy array of {element} for {name}",
            )
        if array.dtype != element:
            raise ArgumentError(
                f"argument {name} holds {array.dtype}, the kernel was compiled for {element}",
                remedy=f"pass {name} as {element}, or compile for {array.dtype}",
            )
        data, low, beyond = bytes_of(array)
        self.segments.append(
            Segment(name, low, element.itemsize, data, beyond, bool(array.flags.writeable))
        )
        return np.int64((len(self.segments) << _SHIFT) + _MIDDLE)

    def segment(self, address: int, operation: Operation) -> Segment:
        """Return the segment a pointer was made from."""
        number = (address >> _SHIFT) - 1
        if not 0 <= number < len(self.segments):
            raise LaunchError(
                "access through a pointer that no argument gave",
                place=place_of(operation),
                why=f"address {address:#x} belongs to no argument",
                remedy="derive pointers from the kernel's arguments",
            )
        return self.segments[number]

    def _parts(self, addresses: Array, operation: Operation) -> Iterator[tuple[Segment, Any]]:
        """Yield each segment the addresses fall into and which of them (True: all)."""
        if addresses.size == 0:
            return
        numbers = addresses >> _SHIFT
        first = int(numbers.flat[0])
        if (numbers == first).all():
            yield self.segment(int(addresses.flat[0]), operation), True
            return
        for number in np.unique(numbers):
            chosen = numbers == number
            yield self.segment(int(addresses[chosen][0]), operation), chosen

    def _index(
        self,
        segment: Segment,
        at: Array,
        dtype: DType,
        operation: Operation,
        *,
        beyond: bool = False,
    ) -> Array:
        """Return element indices into `segment.typed(dtype, beyond=beyond)`, checked."""
        offset = (at & ((1 << _SHIFT) - 1)) - _MIDDLE
        view, first = segment.typed(dtype, beyond=beyond)
        index, rest = np.divmod(offset, dtype.itemsize)
        index = index + first
        if rest.any():
            raise LaunchError(
                f"{operation.name} through {segment.name} at a misaligned address",
                place=place_of(operation),
                why=f"byte offset {int(offset[rest != 0].flat[0])} is no multiple of "
                f"{dtype.itemsize}, the size of {dtype}",
            )
        outside = (index < 0) | (index >= view.size)
        if outside.any():
            worst = int((index - first)[outside].flat[0])
            raise LaunchError(
                f"{operation.name} outside of argument {segment.name}",
                place=place_of(operation),
                why=f"element {worst} of {segment.name}, which spans elements {-first} to "
                f"{view.size - first - 1}; {int(outside.sum())} of {index.size} accesses are out"
                + _from_undefined(operation),
                remedy="mask the access, or pass a larger array",
            )
        return index

    def _changed(self) -> None:
        self.changes += 1
        self._wake(self.waiting)

    def _writable(self, segment: Segment, operation: Operation) -> None:
        if not segment.writable:
            raise LaunchError(
                f"store to argument {segment.name}, which is read-only",
                place=place_of(operation),
                remedy=f"pass a writable array for {segment.name}",
            )

    def gather(
        self,
        addresses: Any,
        dtype: DType,
        mask: Any,
        other: Any,
        operation: Operation,
        watch: Watch | None = None,
        kind: str = "read",
    ) -> Any:
        """Load an element from each address where `mask`; elsewhere `other`, or poison."""
        at = np.asarray(addresses)
        if mask is None:
            out = np.empty(at.shape, dtype)
            live: Any = ...
        else:
            if other is None:
                other = dtype.type(0) if operation in self._defined else poison(at.shape, dtype)
            out = np.array(other, dtype)
            out = out if out.shape == at.shape else np.broadcast_to(out, at.shape).copy()
            live = np.asarray(mask)
        chosen = np.atleast_1d(at[live])
        result = np.empty(chosen.shape, dtype)
        for segment, part in self._parts(chosen, operation):
            select = ... if part is True else part
            index = self._index(segment, chosen[select], dtype, operation)
            if watch is not None:
                where = _positions(mask, at.shape, part)
                watch(segment, index, dtype.itemsize, kind, operation, where)
            result[select] = segment.typed(dtype)[0][index]
        out[live] = result if at.ndim or mask is not None else result[0]
        return out[()]

    def scatter(
        self,
        addresses: Any,
        values: Any,
        mask: Any,
        operation: Operation,
        watch: Watch | None = None,
    ) -> None:
        """Store an element at each address where `mask`."""
        at, data = np.asarray(addresses), np.asarray(values)
        live: Any = ... if mask is None else np.asarray(mask)
        chosen, new = np.atleast_1d(at[live]), np.atleast_1d(data[live])
        for segment, part in self._parts(chosen, operation):
            self._writable(segment, operation)
            select = ... if part is True else part
            index = self._index(segment, chosen[select], data.dtype, operation)
            view = segment.typed(data.dtype)[0]
            same = _same(view[index], new[select])
            if watch is not None:
                where = _positions(mask, at.shape, part)
                kind = "rewrite" if same else "write"
                watch(segment, index, data.dtype.itemsize, kind, operation, where)
            if not same:
                view[index] = new[select]
                self._changed()

    def update(
        self,
        addresses: Any,
        step: Callable[[Any, Any], Any],
        values: Any,
        mask: Any,
        operation: Operation,
        watch: Watch | None = None,
    ) -> Any:
        """Replace old by step(old, value) at each address in turn; return the old values.

        Addresses may repeat: the updates of one address happen one after the other.
        """
        at, data = np.asarray(addresses), np.asarray(values)
        old = poison(at.shape, data.dtype)
        live: Any = np.ones(at.shape, np.bool_) if mask is None else np.asarray(mask)
        live = np.broadcast_to(live, at.shape)
        chosen, new = np.atleast_1d(at[live]), np.atleast_1d(data[live])
        found = np.empty(chosen.shape, data.dtype)
        for segment, part in self._parts(chosen, operation):
            self._writable(segment, operation)
            select = np.arange(chosen.size) if part is True else np.flatnonzero(part)
            index = self._index(segment, chosen[select], data.dtype, operation)
            if watch is not None:
                where = _positions(live, at.shape, part)
                watch(segment, index, data.dtype.itemsize, "atomic", operation, where)
            view = segment.typed(data.dtype)[0]
            before = view[index]
            if np.unique(index).size == index.size:
                found[select] = before
                view[index] = step(before, new[select])
            else:
                for place, where in zip(select, index):
                    found[place] = view[where]
                    view[where] = step(found[place], new[place])
            if not _same(before, view[index]):
                self._changed()
        old[live] = found if at.ndim else found[0] if found.size else old[live]
        return old[()]

    def _inside(
        self,
        desc: Descriptor,
        offsets: tuple[int, ...],
        shape: tuple[int, ...],
        operation: Operation,
        *,
        beyond: bool = False,
    ) -> tuple[Segment, Array, tuple[slice, ...], Array] | None:
        """Return the part of a block that lies in its tensor: memory, tile slices, first index.

        `beyond`: memory may follow that of the argument, as far as its base array goes.
        """
        low = [max(0, -at) for at in offsets]
        high = [min(n, extent - at) for n, extent, at in zip(shape, desc.extents, offsets)]
        if any(stop <= start for start, stop in zip(low, high)):
            return None
        counts = [stop - start for start, stop in zip(low, high)]
        size = desc.dtype.itemsize
        first = desc.address + size * sum(
            (at + start) * stride for at, start, stride in zip(offsets, low, desc.strides)
        )
        spans = [(n - 1) * stride * size for n, stride in zip(counts, desc.strides)]
        ends = np.array(
            [
                first + sum(span for span in spans if span < 0),
                first + sum(span for span in spans if span > 0),
            ]
        )
        segment = self.segment(desc.address, operation)
        index = self._index(segment, ends, desc.dtype, operation, beyond=beyond)
        view, _ = segment.typed(desc.dtype, beyond=beyond)
        start = int(index[0]) - sum(span for span in spans if span < 0) // size
        # Through integers of the size: NumPy's interface has no name for some 8-bit floats.
        window = np.lib.stride_tricks.as_strided(
            view[start:].view(f"u{size}"),
            tuple(counts),
            tuple(stride * size for stride in desc.strides),
        ).view(desc.dtype)
        where = np.array(start)
        slices = tuple(slice(a, b) for a, b in zip(low, high))
        return segment, window, slices, where

    def _indices(self, desc: Descriptor, start: Array, counts: tuple[int, ...]) -> Array:
        index = start.reshape((1,) * len(counts))
        for dim, (count, stride) in enumerate(zip(counts, desc.strides)):
            steps = np.arange(count) * stride
            index = index + steps.reshape([-1 if d == dim else 1 for d in range(len(counts))])
        return index

    def read_block(
        self,
        desc: Descriptor,
        offsets: tuple[int, ...],
        shape: tuple[int, ...],
        operation: Operation,
        watch: Watch | None = None,
    ) -> Array:
        """Return the block of `shape` at `offsets`; elements outside the tensor are the padding.

        Of windows, `offsets` are those of `tile.desc_load`.
        """
        if desc.window is not None:
            return self._read_windows(desc, desc.window, offsets, shape, operation, watch)
        tile_ = padded(desc, shape)
        if (found := self._inside(desc, offsets, shape, operation)) is None:
            return tile_
        segment, window, slices, start = found
        if watch is not None:
            index = self._indices(desc, start, window.shape)
            where = _inner(shape, slices)
            watch(segment, index, desc.dtype.itemsize, "read", operation, where)
        tile_[slices] = window
        return tile_

    def _read_windows(
        self,
        desc: Descriptor,
        window: Window,
        offsets: tuple[int, ...],
        shape: tuple[int, ...],
        operation: Operation,
        watch: Watch | None = None,
    ) -> Array:
        """Return [windows, channels] of `shape`: what consecutive windows see through a tap.

        Raises LaunchError for a tap outside of the window, and for a window before the first.
        """
        first, channel, *numbers = offsets
        taps = numbers[: window.axes]
        if first < 0 or not all(0 <= tap < extent for tap, extent in zip(taps, window.size)):
            raise LaunchError(
                f"{operation.name} of window {first} at tap {tuple(taps)}",
                place=place_of(operation),
                why=f"windows are counted from 0, and have {'x'.join(map(str, window.size))} taps",
            )
        number, inside = np.arange(first, first + shape[0], dtype=np.int64), np.True_
        index = np.zeros(shape[0], np.int64)
        axes = list(zip(window.counts(desc.extents[1:-1]), window.stride, window.lower))
        for axis in reversed(range(window.axes)):
            count, stride, lower = axes[axis]
            if count == 0:
                return padded(desc, shape)
            at = number % count * stride + lower + taps[axis] * window.dilation[axis]
            inside = inside & (at >= 0) & (at < desc.extents[axis + 1])
            index += at * desc.strides[axis + 1]
            number = number // count
        inside = inside & (number < desc.extents[0])
        index += number * desc.strides[0]
        channels = channel + np.arange(shape[1])
        known = inside[:, None] & ((channels >= 0) & (channels < desc.extents[-1]))[None, :]
        places = desc.address + (index[:, None] + channels * desc.strides[-1]) * desc.dtype.itemsize
        outside = padded(desc, shape)
        return self.gather(places, desc.dtype, known, outside, operation, watch)

    def write_block(
        self,
        desc: Descriptor,
        offsets: tuple[int, ...],
        value: Array,
        operation: Operation,
        watch: Watch | None = None,
        combine: Callable[[Any, Any], Any] | None = None,
        *,
        by_tma: bool = False,
    ) -> None:
        """Store a block at `offsets`, or combine it with memory; the part outside is dropped.

        TMA drops what is outside in `CHUNK`s: it writes to the end of the last one of each row.
        """
        if by_tma:
            unit = CHUNK // desc.dtype.itemsize
            *slow, last = desc.extents
            desc = replace(desc, extents=(*slow, -(-last // unit) * unit))
        found = self._inside(desc, offsets, value.shape, operation, beyond=by_tma)
        if found is None:
            return
        segment, window, slices, start = found
        self._writable(segment, operation)
        new = value[slices] if combine is None else combine(window, value[slices])
        same = _same(window, new)
        if watch is not None:
            index = self._indices(desc, start, window.shape)
            changes = "rewrite" if same else "write"
            kind = changes if combine is None else "atomic"
            where = _inner(value.shape, slices)
            watch(segment, index, desc.dtype.itemsize, kind, operation, where)
        if not same:
            window[...] = new
            self._changed()


def _from_undefined(operation: Operation) -> str:
    """Return what is to be said where an address may be computed from elements without a value."""
    loads = [load for value in operation.operands for load in undefined_sources(value)]
    lines = sorted({line for load in loads if (line := line_of(load))})
    if not lines:
        return ""
    where = ", ".join(map(str, lines))
    return f"; they may come from line {where}, where a load has a mask and no `other`"


def _positions(mask: Any, shape: tuple[int, ...], part: Any) -> Any:
    """Return the flat positions in a tile of the accesses that `mask` and then `part` select."""
    if mask is None and part is True:
        return None
    live = np.flatnonzero(np.broadcast_to(np.True_ if mask is None else mask, shape))
    return live if part is True else live[np.ravel(part)]


def _inner(shape: tuple[int, ...], slices: tuple[slice, ...]) -> Array:
    """Return the flat positions in a tile of a part of it."""
    size = int(np.prod(shape, dtype=np.int64))
    return np.arange(size).reshape(shape)[slices].ravel()


def _same(old: Array, new: Array) -> bool:
    """Tell whether a store changes nothing."""
    return bool(
        np.array_equal(
            np.ascontiguousarray(old).view(np.uint8), np.ascontiguousarray(new).view(np.uint8)
        )
    )


def padded(desc: Descriptor, shape: tuple[int, ...]) -> Array:
    """Return a block of nothing but padding."""
    if desc.padding == "nan" and desc.dtype in FLOATS:
        return np.full(shape, convert(np.array(np.nan, F32), desc.dtype), desc.dtype)
    return np.zeros(shape, desc.dtype)


# --- loads that leave elements open ---------------------------------------------------------------


def open_loads(kernel: tile.Kernel) -> list[tile.Load]:
    """Return the loads that have a mask and no `other`."""
    return [load for load in all_of(kernel, tile.Load) if _is_open(load)]


def _is_open(load: tile.Load) -> bool:
    return load.mask is not None and load.other is None


def undefined_sources(value: SSAValue) -> list[tile.Load]:
    """Return the loads without `other` that a value is computed from, within its block."""

    def makers(made: object) -> list[object]:
        if not isinstance(made, Operation) or (isinstance(made, tile.Load) and _is_open(made)):
            return []
        return [operand.owner for operand in made.operands]

    found = reach([value.owner], makers)
    return [load for load in found if isinstance(load, tile.Load) and _is_open(load)]


# --- the memory of an argument --------------------------------------------------------------------


CHUNK = 16
"""Bytes that TMA writes where it writes any of them (seen on an H200 and an H100)."""


@dataclass(slots=True, eq=False)
class Segment:
    """The memory of one argument: bytes, the lowest of them `low` bytes from the first element,
    which has `size` bytes. The last `beyond` bytes follow the argument's own in its base array.
    """

    name: str
    low: int
    size: int
    data: Array
    beyond: int
    writable: bool
    views: dict[DType, Array] = field(default_factory=dict[DType, Array])

    @property
    def real(self) -> int:
        """The machine address of `data[0]`: equal where arguments alias."""
        return int(self.data.ctypes.data)

    def typed(self, dtype: DType, *, beyond: bool = False) -> tuple[Array, int]:
        """Return the bytes as elements, and the index of the first element in them.

        With `beyond` also those that follow the argument's own: TMA writes there.
        """
        phase = -self.low % dtype.itemsize
        if beyond:
            return self._elements(dtype, phase, self.data.size), (
                -self.low - phase
            ) // dtype.itemsize
        view = self.views.get(dtype)
        if view is None:
            view = self.views[dtype] = self._elements(dtype, phase, self.data.size - self.beyond)
        return view, (-self.low - phase) // dtype.itemsize

    def _elements(self, dtype: DType, phase: int, end: int) -> Array:
        count = (end - phase) // dtype.itemsize
        return self.data[phase : phase + max(count, 0) * dtype.itemsize].view(dtype)


def bytes_of(array: Any) -> tuple[Array, int, int]:
    """Return the bytes an array spans, the offset of the lowest one from its first element, and how
    many of the bytes, the last ones, only follow it in its base array: less than `CHUNK`.
    """
    if array.size == 0:
        return np.empty(0, np.uint8), 0, 0
    spans = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    low = sum(span for span in spans if span < 0)
    high = sum(span for span in spans if span > 0) + array.itemsize
    corner = (slice(-1, None) if step < 0 else slice(0, 1) for step in array.strides)
    lowest = array[(*corner, ...)]  # the ellipsis keeps an array of no dimensions an array
    # As bytes first: the array interface has no name for fp8 types of one byte.
    seed = lowest.reshape(1).view(np.uint8)
    end = array.ctypes.data + high
    beyond = min(CHUNK - 1, _end_of_base(array) - end)
    return np.lib.stride_tricks.as_strided(seed, (high - low + beyond,), (1,)), low, beyond


def _end_of_base(array: Any) -> int:
    """Return the machine address behind the memory of the array that an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = cast("Any", array.base)  # pyright: ignore[reportUnknownMemberType]
    spans = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    return array.ctypes.data + sum(span for span in spans if span > 0) + array.itemsize
