"""The generated end of a launch: from addresses and numbers to one call of the driver.

For each compiled kernel and device a function is generated that takes what its form has read
(`tawa.runtime.forms`), evaluates the host expressions, packs the parameters into a prebuilt block
and calls ``cuLaunchKernelEx`` with three prebuilt addresses. Tensor maps are made once for each
address, shape and strides. Nothing is allocated and nothing waits, so a launch can be captured.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from tawa.codegen.parameters import (
    CounterParameter,
    GridParameter,
    Parameter,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from tawa.runtime.arrays import lies
from tawa.runtime.compiled import CompiledKernel, LaunchShape
from tawa.runtime.counters import Counters
from tawa.runtime.descriptors import is_descriptor
from tawa.runtime.dtypes import BITS, PACK
from tawa.runtime.expressions import Names, rewrite, value_of
from tawa.runtime.forms import Generated, generate, launch_names
from tawa.runtime.grid import launches, resolve_grid
from tawa.runtime.guards import Guards, facts_of
from tawa.runtime.maps import spell_map
from tawa.runtime.recent import Recent
from tawa.runtime.refusals import fail, refuse
from tawa.runtime.tensor_map import MapBuffer, NoContextError, describe, encode, moved
from tawa.target import PROGRAMS, WALKED

_MAPS_KEPT = 4096
_ONES = (None, (1, 1), (1,), ())  # what a grid of so many extents lacks
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_ATTRIBUTE = struct.Struct("<I4x3I52x")  # CUlaunchAttribute: id, padding, a union of 64 bytes
_CONFIG = struct.Struct("<7I4xQQI4x")  # CUlaunchConfig: grid, block, shared, stream, attributes


class Machine(Protocol):
    """What a launcher needs of the driver and of the library that owns the arrays."""

    launch_ex: Callable[..., int]
    encode_tiled: Callable[..., int]
    encode_im2col: Callable[..., int]
    replace_address: Callable[..., int]
    recent: Recent

    def current_device(self) -> int:
        """Return the device of the current context."""
        ...

    def enter(self, device: int) -> None:
        """Make a device current."""
        ...

    def leave(self) -> None:
        """Undo the latest `enter`."""
        ...

    def describe(self, code: int) -> str:
        """Return the name and meaning of an error."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launcher launches: the device, its current stream, the resident blocks, the counters
    that all launchers of the kernel there give out together.
    """

    device: int
    stream: Callable[[int], int]
    current_device: Callable[[], int]
    resident_blocks: int
    counters: Counters


class Block:
    """The memory a launch hands to the driver: configuration, parameter values, pointers to them.

    `config`, `pointers` are addresses; `words` and `slots` are writable views.
    """

    def __init__(self, launch: LaunchShape, count: int, layout: struct.Struct) -> None:
        attributes = [(_CLUSTER_DIMENSION, launch.cluster, 1, 1)] if launch.cluster > 1 else []
        attributes += [(_EARLY, 1, 0, 0)] if launch.early else []
        self._config = ctypes.create_string_buffer(_CONFIG.size)
        self._attributes = ctypes.create_string_buffer(_ATTRIBUTE.size * max(1, len(attributes)))
        self.values = ctypes.create_string_buffer(max(8, layout.size))
        self._pointers = ctypes.create_string_buffer(8 * max(1, count))
        for index, attribute in enumerate(attributes):
            _ATTRIBUTE.pack_into(self._attributes, index * _ATTRIBUTE.size, *attribute)
        _CONFIG.pack_into(
            self._config,
            0,
            *(1, 1, 1, launch.threads, 1, 1, launch.shared, 0),
            ctypes.addressof(self._attributes) if attributes else 0,
            len(attributes),
        )
        self.words = memoryview(self._config).cast("B").cast("I")
        self.wide = memoryview(self._config).cast("B").cast("Q")
        self.slots = memoryview(self._pointers).cast("B").cast("Q")
        self.config = ctypes.addressof(self._config)
        self.pointers = ctypes.addressof(self._pointers)

    @property
    def values_at(self) -> int:
        """Address of the packed parameter values."""
        return ctypes.addressof(self.values)


@dataclass(slots=True)
class MapCache:
    """Tensor maps of one parameter: `places` has their addresses by (address, extents, strides).

    `_checked` has one for all that differ in the address alone, by (extents, strides, how the
    array of the descriptor lies).
    """

    parameter: TensorMapParameter
    name: str
    machine: Machine
    places: dict[tuple[Any, ...], int] = field(default_factory=dict[Any, int])
    _maps: list[MapBuffer] = field(default_factory=list[MapBuffer])
    _checked: dict[tuple[Any, ...], MapBuffer] = field(default_factory=dict[Any, MapBuffer])

    def make(
        self, address: int, extents: Sequence[int], strides: Sequence[int], value: Any = None
    ) -> int:
        """Make and keep a map; return its address."""
        array = value.base if is_descriptor(value) else value
        key = extents, strides, None if array is None else lies(array)
        like = self._checked.get(key)
        if like is not None and not address & 15:
            buffer = moved(like, address, self.machine.replace_address)
        else:
            tensor = describe(self.name, address, extents, strides, value)
            buffer = encode(self.parameter, tensor, self.machine)
            if not tensor.empty:
                self._checked[key] = buffer
        if len(self._maps) >= _MAPS_KEPT:
            self.places.clear()
            self._maps.clear()
            self._checked.clear()
        self._maps.append(buffer)
        self.places[address, extents, strides] = buffer.address
        return buffer.address


class _Writer:
    """Collects the statements and objects of one generated launcher."""

    def __init__(self, kernel: CompiledKernel, names: Names, machine: Machine) -> None:
        self.names = names
        self.machine = machine
        self.namespace: dict[str, Any] = {}
        self.layout = "<"  # of the packed values, each at a multiple of 8 bytes
        self.packed: list[str] = []
        self.before: list[str] = []
        self.inside: list[str] = []
        for index, parameter in enumerate(kernel.parameters):
            self._parameter(index, parameter)

    def _parameter(self, index: int, parameter: Parameter) -> None:
        match parameter:
            case PointerParameter():
                self._value(rewrite(parameter.name, self.names), "u64")
            case ScalarParameter():
                self._value(rewrite(parameter.expression, self.names), parameter.dtype)
            case GridParameter():
                self._value(("__x", "__y", "__z")[parameter.axis], "i32")
            case CounterParameter():
                self._value("__counter(__stream(__device))", "i32")
            case TensorMapParameter():
                self._map(index, parameter)

    def _value(self, text: str, dtype: str) -> None:
        if (bits := BITS.get(dtype)) is not None:
            self.namespace[f"__{dtype}"] = bits
            text = f"__{dtype}({text})"
        letter = PACK[dtype]
        self.layout += f"{letter}{8 - struct.calcsize('<' + letter)}x"
        self.packed.append(text)

    def _map(self, index: int, parameter: TensorMapParameter) -> None:
        text = spell_map(parameter, self.names)
        address, shape, strides = text.address, text.extents, text.strides
        if not parameter.source:  # expressions: once, outside of the lock
            self.before += [f"__at{index} = {address}", f"__shape{index} = {shape}"]
            self.before += [f"__strides{index} = {strides}"]
            address, shape, strides = f"__at{index}", f"__shape{index}", f"__strides{index}"
        maps = MapCache(parameter, text.name, self.machine)
        self.namespace |= {f"__map{index}": maps.places.get, f"__make{index}": maps.make}
        facts = f"{address}, {shape}, {strides}"
        made = f"__make{index}({facts}, {text.value})"
        self.inside += [f"__slots[{index}] = __map{index}(({facts})) or {made}"]

    def values_layout(self) -> struct.Struct:
        """Return the layout of the packed values."""
        return struct.Struct(self.layout)

    def point(self, block: Block, parameters: Sequence[Parameter]) -> None:
        """Point each parameter that is a packed value at its place; maps are set at each launch."""
        place = block.values_at
        for index, parameter in enumerate(parameters):
            if not isinstance(parameter, TensorMapParameter):
                block.slots[index] = place
                place += 8


def make_launcher(
    kernel: CompiledKernel,
    values: Mapping[str, Any],
    place: Place,
    function: int,
    machine: Machine,
    otherwise: Callable[[], Callable[..., Any]],
) -> Generated:
    """Generate the launcher of a compiled kernel for arguments of the classes of `values`.

    `function` is the driver's handle of the kernel; `otherwise` gives the launcher for calls that a
    guard of the kernel refuses. The launcher returns the kernel that ran.
    """
    order, names = launch_names(values), names_of(values)
    writer = _Writer(kernel, names, machine)
    layout = writer.values_layout()
    block = Block(kernel.launch, len(kernel.parameters), layout)
    writer.point(block, kernel.parameters)
    facts = facts_of(kernel, names, order)
    guards = Guards(kernel, names, order)
    text = _text(kernel, values, order, writer, place, facts, guards)
    namespace = {
        **writer.namespace,
        "__kernel": kernel,
        "__block": block,  # keeps the memory alive
        "__values": block.values,
        "__slots": block.slots,
        "__words": block.words,
        "__wide": block.wide,
        "__config": block.config,
        "__pointers": block.pointers,
        "__pack": layout.pack_into,
        "__lock": threading.Lock(),
        "__otherwise": cache(otherwise),
        "__guards": guards,
        "__verdicts": guards.verdicts,
        "__ones": _ONES,
        "__resolve": resolve_grid,
        "__launches": launches,
        "__refuse": refuse,
        "__fail": fail,
        "__counter": place.counters,
        "__note": machine.recent.notes.append,
        "__facts_of": tuple(facts),
        "__machine": machine,
        "__submit": machine.launch_ex,
        "__function": function,
        "__device": place.device,
        "__current": place.current_device,
        "__stream": place.stream,
        "__no_context": NoContextError,
        "__misfits": (struct.error, OverflowError, TypeError, LookupError, ValueError),
    }
    return generate(text, kernel.name, namespace)


def names_of(values: Mapping[str, Any]) -> Names:
    """Return the arguments of a call by kind, as host expressions see them."""
    extra = launch_names(values)
    descriptors = {name.removesuffix("__shape") for name in extra if name.endswith("__shape")}
    arrays = {name.removesuffix("__at") for name in extra if name.endswith("__at")} - descriptors
    return Names(set(values) - arrays - descriptors, arrays, descriptors)


def _text(
    kernel: CompiledKernel,
    values: Mapping[str, Any],
    order: Sequence[str],
    writer: _Writer,
    place: Place,
    facts: Sequence[str],
    guards: Guards,
) -> str:
    names = "".join(f"{name}, " for name in order)
    meta = "{" + "".join(f"{name!r}: {value_of(name)}, " for name in values) + "**__options}"
    again = f"{kernel.name}(__grid, __options, {names})"
    packed = "".join(f", {text}" for text in writer.packed)
    noted = "".join(f"{name}, " for name in facts)
    lines = [
        f"def {kernel.name}(__grid, __options, {names}):",
        "    if type(__grid) is not tuple:",
        f"        __grid = __resolve(__kernel.name, __grid, {meta})",
        "    if __current() != __device:",
        "        __machine.enter(__device)",
        "        try:",
        f"            return {again}",
        "        finally:",
        "            __machine.leave()",
        "    try:",
        "        __x, __y, __z = *__grid, *__ones[len(__grid)]",
        *_blocks(kernel.launch, place),
        *(_guards(guards, names) if guards.any else ()),
        *(f"        {line}" for line in writer.before),
        "        with __lock:",
        *(f"            {line}" for line in writer.inside),
        f"            __pack(__values, 0{packed})",
        "            __words[0], __words[1], __words[2] = "
        + ("__blocks, 1, 1" if kernel.launch.persistent else "__x, __y, __z"),
        "            __wide[4] = __stream(__device)",
        "            __error = __submit(__config, __function, __pointers, None)",
        "    except __no_context:",
        "        __machine.enter(__device)  # this thread had none; a map needs one",
        f"        return {again}",
        "    except __misfits as __reason:",
        f"        __refuse(__reason, __kernel, __grid, {meta})",
        "    if __error:",
        "        if __error == 201 and __machine.current_device() < 0:",
        "            __machine.enter(__device)  # this thread had no context",
        f"            return {again}",
        f"        __fail(__error, __kernel, __machine, __grid, {meta})",
        f"    __note((__kernel, __facts_of, ({noted}), __grid))",
        "    return __kernel",
    ]
    return "\n".join(lines) + "\n"


def _guards(guards: Guards, given: str) -> list[str]:
    facts = "".join(f"{name}, " for name in guards.facts)
    return [
        f"        __facts = ({facts})",
        "        if not (",
        "            __verdicts.get(__facts)",
        f"            or __guards.hold(__facts, ({given}), (__x, __y, __z))",
        "        ):",
        f"            return __otherwise()(__grid, __options, {given})",
    ]


def _blocks(launch: LaunchShape, place: Place) -> list[str]:
    """Statements that check the grid and, for a persistent kernel, count its blocks."""
    x, y, z = PROGRAMS
    limits = f"0 < __x <= {x} and 0 < __y <= {y} and 0 < __z <= {z}"
    if launch.persistent:
        limits += f" and __x * __y * __z <= {WALKED}"
    lines = [
        f"        if not ({limits}) and not __launches(__kernel, __grid):",
        "            return __kernel",
    ]
    if launch.persistent and launch.cluster == 1:
        lines.append(f"        __blocks = min({place.resident_blocks}, __x * __y * __z)")
    elif launch.persistent:
        size = launch.cluster
        lines.append(
            f"        __blocks = min({place.resident_blocks},"
            f" -(-(__x * __y * __z) // {size}) * {size})"
        )
    elif launch.cluster > 1:
        lines += [
            f"        if __x % {launch.cluster} and not __launches(__kernel, __grid):",
            "            return __kernel",
        ]
    return lines
