"""A launch as data: all of it that is known before its addresses and its stream are.

Who runs compiled graphs (XLA) tells shapes and numbers while it traces, and addresses and the
stream at each launch. So the launcher runs once, on arrays that stand at addresses of our choice,
with a driver that keeps what it is handed; where an address went is known by the kernel's
parameters. What is left for each launch are sums of an address and a number, the encoding of tensor
maps, and the checks of what was promised.
"""

from __future__ import annotations

import ast
import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tawa.codegen.parameters import COUNTERS, CounterParameter, PointerParameter, TensorMapParameter
from tawa.errors import ArgumentError, InternalError
from tawa.frontend.signature import ConstantArg, DescriptorArg, PointerArg
from tawa.runtime.arrays import Placeholder, is_array
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.descriptors import is_descriptor
from tawa.runtime.dtypes import BYTES
from tawa.runtime.forms import launch_values
from tawa.runtime.grid import launches
from tawa.runtime.guards import pairs_of, span_of
from tawa.runtime.launcher import Place, make_launcher
from tawa.runtime.recent import Recent
from tawa.runtime.tensor_map import MAP_BYTES
from tawa.syntax import parse

_CONFIG_BYTES, _ATTRIBUTE_BYTES, _WORD = 56, 64, 8
_STREAM_AT, _ATTRIBUTES_AT, _COUNT_AT = 32, 40, 48  # in CUlaunchConfig
_BLOCK, _STREAM, _COUNTER = "block", "stream", "counter"
_FIRST, _APART = 1 << 44, 1 << 40
_PROMISED = 16


@dataclass(frozen=True, slots=True)
class Standing:
    """Stands for array `number` of a launch, at an address that only tells it from the others."""

    number: int
    form: Placeholder
    device: SimpleNamespace
    round: int

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.form.dtype

    @property
    def address(self) -> int:
        """An address that promises 16 bytes and nothing more."""
        return _FIRST + self.number * _APART + self.round * 4096 + _PROMISED

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        size = BYTES[self.form.dtype]
        return {
            "shape": self.form.shape,
            "typestr": f"|V{size}",
            "strides": tuple(step * size for step in self.form.strides),
            "data": (self.address, False),
            "version": 3,
        }


@dataclass(frozen=True, slots=True)
class Sum:
    """The word at byte `at` of the image: an address of `symbol`, plus `addend`.

    A symbol is the number of an array, or "block" (the image itself), "stream", "counter".
    """

    at: int
    symbol: int | str
    addend: int


@dataclass(frozen=True, slots=True)
class MapCall:
    """A call of cuTensorMapEncodeTiled, or with `windows` of cuTensorMapEncodeIm2col: into byte
    `at` of the image, of array `number` from byte `addend` on. `arguments` are those after the
    address, in the driver's order: of arrays, their places in the image.
    """

    at: int
    number: int
    addend: int
    dtype: int
    rank: int
    arguments: tuple[int, ...]
    windows: bool


@dataclass(frozen=True, slots=True)
class Distinct:
    """Two arrays that must share no byte: their numbers, and the bytes from `low` to before `high`
    of each that a launch may touch. `message` says why.
    """

    numbers: tuple[int, int]
    spans: tuple[tuple[int, int], tuple[int, int]]
    message: str


@dataclass(frozen=True, slots=True)
class Image:
    """A launch of `kernel`: CUlaunchConfig first in `content`, the parameters' addresses at
    `pointers`. `aligned` are the numbers of arrays that were promised to be aligned to 16 bytes.
    """

    kernel: CompiledKernel
    content: bytes
    pointers: int
    sums: tuple[Sum, ...]
    maps: tuple[MapCall, ...]
    aligned: tuple[int, ...]
    distinct: tuple[Distinct, ...]
    counted: bool


class _Refused(Exception):  # noqa: N818
    """A guard of the kernel does not hold."""


@dataclass(slots=True)
class _Kept:
    """A driver that keeps what it is handed."""

    recent: Recent = field(default_factory=Recent)
    encoded: dict[int, tuple[Any, ...]] = field(default_factory=dict[int, tuple[Any, ...]])
    config: bytes = b""
    attributes: bytes = b""
    slots: tuple[int, ...] = ()
    parameters: int = 0

    def launch_ex(self, config: int, _function: int, pointers: int, _extra: Any) -> int:
        """Keep a launch."""
        self.config = ctypes.string_at(config, _CONFIG_BYTES)
        place, count = struct.unpack_from("<QI", self.config, _ATTRIBUTES_AT)
        self.attributes = ctypes.string_at(place, _ATTRIBUTE_BYTES * count) if count else b""
        size = _WORD * self.parameters
        self.slots = struct.unpack(f"<{self.parameters}Q", ctypes.string_at(pointers, size))
        self.words = [
            None if slot in self.encoded or not slot else ctypes.string_at(slot, _WORD)
            for slot in self.slots
        ]
        return 0

    words: list[bytes | None] = field(default_factory=list[Any])

    def replace_address(self, *_given: Any) -> int:
        """Refuse to move a map: a launch that is kept is its launcher's first, which has none."""
        raise InternalError(
            "a kept launch moves a tensor map",
            remedy="this is a fault of the compiler: please report it",
        )

    def encode_tiled(self, at: int, dtype: int, rank: int, address: int, *given: int) -> int:
        """Keep a tensor map's description: numbers, and copies of what is pointed to."""
        sizes, strides, box, steps, *numbers = given
        arrays = ((sizes, _WORD * rank), (strides, _WORD * max(1, rank - 1)))
        boxes = ((box, 4 * rank), (steps, 4 * rank))
        self._keep(at, (dtype, rank, address), (*arrays, *boxes, *numbers), False)
        return 0

    def encode_im2col(self, at: int, dtype: int, rank: int, address: int, *given: int) -> int:
        """Keep the description of a map of windows."""
        sizes, strides, lower, upper, channels, pixels, steps, *numbers = given
        arrays = ((sizes, _WORD * rank), (strides, _WORD * (rank - 1)))
        corners = ((lower, 4 * (rank - 2)), (upper, 4 * (rank - 2)))
        told = (*arrays, *corners, channels, pixels, (steps, 4 * rank), *numbers)
        self._keep(at, (dtype, rank, address), told, True)
        return 0

    def _keep(
        self, at: int, what: Any, told: Sequence[int | tuple[int, int]], windows: bool
    ) -> None:
        copied = (x if isinstance(x, int) else ctypes.string_at(*x) for x in told)
        self.encoded[at] = (*what, tuple(copied), windows)

    def current_device(self) -> int:
        """Return the one device."""
        return 0

    def enter(self, device: int) -> None:
        """Change nothing."""

    def leave(self) -> None:
        """Change nothing."""

    def describe(self, code: int) -> str:
        """Return the code: nothing fails here."""
        return str(code)


def make_image(
    kernels: Sequence[CompiledKernel],
    arguments: Mapping[str, Any],
    grid: Sequence[int],
    resident_blocks: Sequence[int],
) -> Image | None:
    """Return the launch of the first kernel whose guards hold; None for a grid without programs.

    `arguments` are all of the kernel's, arrays as `Standing`s, `resident_blocks` those of each
    kernel. Raises what a launch raises, and ArgumentError where none of the guards can be told.
    """
    for kernel, blocks in zip(kernels, resident_blocks, strict=True):
        if not launches(kernel, grid):
            return None
        if _depends_on_addresses(kernel, arguments):
            continue
        try:
            return _write(kernel, arguments, tuple(grid), blocks)
        except _Refused:
            continue
    raise ArgumentError(
        f"no kernel of {kernels[0].name} can be launched",
        why="what it relies on is known only at each launch: "
        + ", ".join(guard.condition for guard in kernels[-1].guards),
        remedy="launch it eagerly",
    )


def _depends_on_addresses(kernel: CompiledKernel, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a condition, other than that arrays are apart, reads an address."""
    arrays = {name for name, value in arguments.items() if is_descriptor(value) or is_array(value)}
    texts = [item.condition for item in (*kernel.guards, *kernel.demands)]
    for text in texts:
        body = parse(text, "eval").body
        match body:
            case ast.Call(func=ast.Name("disjoint")):
                continue
            case _:
                pass
        sizes = {
            node.value.id
            for node in ast.walk(body)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr != "base"
        }
        named = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
        if named & (arrays - sizes):
            return True
    return False


def _moved(value: Any, round: int) -> Any:
    """Return an argument whose array stands elsewhere."""
    if is_descriptor(value):
        base = value.base
        return value.of(Standing(base.number, base.form, base.device, round))
    if isinstance(value, Standing):
        return Standing(value.number, value.form, value.device, round)
    return value


def _launch(
    kernel: CompiledKernel, arguments: Mapping[str, Any], grid: tuple[int, ...], blocks: int
) -> _Kept:
    def otherwise() -> Any:
        raise _Refused

    kept = _Kept(parameters=len(kernel.parameters))
    place = Place(0, lambda _: 0, lambda: 0, blocks, lambda _: 0)  # type: ignore[arg-type]
    generated = make_launcher(kernel, arguments, place, 0, kept, otherwise)
    generated.function(grid, {}, *launch_values(arguments))
    return kept


def _write(
    kernel: CompiledKernel, arguments: Mapping[str, Any], grid: tuple[int, ...], blocks: int
) -> Image:
    kept = _launch(kernel, arguments, grid, blocks)
    moved = _launch(
        kernel, {name: _moved(each, 1) for name, each in arguments.items()}, grid, blocks
    )
    content = bytearray(kept.config + kept.attributes)
    struct.pack_into("<Q", content, _STREAM_AT, 0)
    struct.pack_into("<Q", content, _ATTRIBUTES_AT, 0)
    sums = [Sum(_STREAM_AT, _STREAM, 0)]
    if kept.attributes:
        sums.append(Sum(_ATTRIBUTES_AT, _BLOCK, _CONFIG_BYTES))
    pointers = _append(content, bytes(_WORD * len(kernel.parameters)), _WORD)
    maps: list[MapCall] = []
    for index, parameter in enumerate(kernel.parameters):
        word = kept.words[index]
        match parameter:
            case TensorMapParameter():
                place = _append(content, bytes(MAP_BYTES), 64)
                if kept.slots[index] in kept.encoded:
                    maps.append(_map(content, place, kept, moved, index))
            case _:
                assert word is not None, "what is no map is a word"
                place = _append(content, bytes(_WORD), _WORD)
                match parameter:
                    case PointerParameter(name):
                        number, addend = _told(struct.unpack("<Q", word)[0])
                        assert number == arguments[name].number, "a pointer is its array's"
                        sums.append(Sum(place, number, addend))
                    case CounterParameter():
                        sums.append(Sum(place, _COUNTER, 0))
                    case _:
                        if word != moved.words[index]:
                            raise InternalError(
                                f"a number that {kernel.name} is passed depends on an address",
                                remedy="this is a fault of the compiler: please report it",
                            )
                        content[place : place + _WORD] = word
        sums.append(Sum(pointers + _WORD * index, _BLOCK, place))
    return Image(
        kernel,
        bytes(content),
        pointers,
        tuple(sums),
        tuple(maps),
        _aligned(kernel, arguments, maps),
        tuple(_distinct(kernel, arguments)),
        any(isinstance(each, CounterParameter) for each in kernel.parameters),
    )


def _append(content: bytearray, added: bytes, alignment: int) -> int:
    """Append bytes at a multiple of `alignment`; return where they begin."""
    content.extend(bytes(-len(content) % alignment))
    place = len(content)
    content.extend(added)
    return place


def _told(address: int) -> tuple[int, int]:
    """Return the number of the array that an address belongs to, and the bytes past its start."""
    number = (address - _FIRST + _APART // 2) // _APART
    return number, address - (_FIRST + number * _APART + _PROMISED)


def _map(content: bytearray, place: int, kept: _Kept, moved: _Kept, index: int) -> MapCall:
    dtype, rank, address, told, windows = kept.encoded[kept.slots[index]]
    number, addend = _told(address)
    other = moved.encoded[moved.slots[index]]
    if (*other[:2], *other[3:]) != (dtype, rank, told, windows) or other[2] - address != 4096:
        raise InternalError(
            "what a tensor map describes depends on an address",
            remedy="this is a fault of the compiler: please report it",
        )
    given = (x if isinstance(x, int) else _append(content, x, _WORD) for x in told)
    return MapCall(place, number, addend, dtype, rank, tuple(given), windows)


def _aligned(
    kernel: CompiledKernel, arguments: Mapping[str, Any], maps: Sequence[MapCall]
) -> tuple[int, ...]:
    found = {each.number for each in maps}
    for name, given in kernel.signature.items():
        match given:
            case PointerArg(divisible=True):
                found.add(arguments[name].number)
            case DescriptorArg():
                found.add(arguments[name].base.number)
            case _:
                pass
    return tuple(sorted(found))


def _distinct(kernel: CompiledKernel, arguments: Mapping[str, Any]) -> list[Distinct]:
    found: list[Distinct] = []
    for *names, reason in pairs_of(kernel):
        values = [arguments[name] for name in names]
        bases = [value.base if is_descriptor(value) else value for value in values]
        spans = [
            (span.start - base.address, span.stop - base.address)
            for base, span in zip(bases, map(span_of, values))
        ]
        message = f"{kernel.name}: {names[0]} and {names[1]} share memory; apart, {reason}"
        found.append(Distinct((bases[0].number, bases[1].number), (spans[0], spans[1]), message))
    return found


def complete(kernel: CompiledKernel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in the kernel's order, with the constants that it was compiled for."""
    found: dict[str, Any] = {}
    for name, argument in kernel.signature.items():
        if name in given:
            found[name] = given[name]
        elif isinstance(argument, ConstantArg):
            found[name] = argument.value
        else:
            raise ArgumentError(
                f"{kernel.name} is not given '{name}'",
                why="a default that is no constant is not known to the launch",
                remedy=f"pass {name}=...",
            )
    return found


__all__ = ["COUNTERS", "Distinct", "Image", "MapCall", "Standing", "Sum", "complete", "make_image"]
