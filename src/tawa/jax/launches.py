# JAX's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""A launch as a primitive of JAX: the handler on a GPU, the simulator for arrays of the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.extend as jex
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import ad, batching, mlir

from tawa.errors import ArgumentError
from tawa.jax.handler import Addresses, Handler, version_of, words
from tawa.runtime.arrays import Placeholder
from tawa.runtime.compiled import CompiledKernel
from tawa.runtime.descriptors import TensorDescriptor
from tawa.runtime.driver import LoadedKernel, connect
from tawa.runtime.dtypes import numpy_dtype
from tawa.runtime.grid import resolve_grid
from tawa.runtime.image import COUNTERS, Standing, complete, make_image
from tawa.runtime.jit import Launchable
from tawa.runtime.specialize import freeze

TARGET = "tawa_launch"


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of array `number` among a launch's arguments; `describe` makes its descriptor."""

    number: int
    described: TensorDescriptor | None = None

    def put(self, array: Any) -> Any:
        """Return the argument for an array."""
        return array if self.described is None else self.described.of(array)


@dataclass(frozen=True, slots=True, eq=False)
class Invocation:
    """A launch without its arrays: what JAX keeps of it as a parameter, equal where it is the same.

    `arguments` hold a `Spot` in the place of each array; `forms` are those of all arrays, first
    those that are given, then those that the launch makes. Of the given ones those of the numbers
    `changed` are stored to. A launch returns what it makes, then what it changes.
    """

    kernel: Launchable
    grid: Any
    arguments: Mapping[str, Any]
    forms: tuple[Placeholder, ...]
    given: int
    changed: tuple[int, ...]
    meta: Mapping[str, Any]
    key: Any = field(init=False)

    def __post_init__(self) -> None:
        held = [
            (name, ("array", each.number, _described(each)) if isinstance(each, Spot) else each)
            for name, each in self.arguments.items()
        ]
        facts = held, self.forms, self.given, self.changed, sorted(self.meta.items())
        key = (self.kernel, self.grid, freeze(facts))
        try:
            hash(key)
        except TypeError as error:
            raise ArgumentError(
                f"an argument of {self.name} cannot be kept by JAX",
                why=str(error),
                remedy="pass arrays, numbers, texts, types, functions, or tuples of them",
            ) from error
        object.__setattr__(self, "key", key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Invocation) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(getattr(self.kernel, "__name__", self.kernel))

    @property
    def results(self) -> list[Placeholder]:
        """The forms of what a launch returns."""
        return [*self.forms[self.given :], *(self.forms[number] for number in self.changed)]

    def on(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments with arrays in their places, all of `forms`."""
        return {
            name: each.put(arrays[each.number]) if isinstance(each, Spot) else each
            for name, each in self.arguments.items()
        }


def _described(spot: Spot) -> Any:
    held = spot.described
    if held is None:
        return None
    return tuple(held.shape), tuple(held.strides), tuple(held.block_shape), held.padding


def avals(forms: Sequence[Placeholder]) -> list[Any]:
    """Return what JAX says of arrays of these forms."""
    kinds: list[Any] = [numpy_dtype(form.dtype) for form in forms]
    return [jax.ShapeDtypeStruct(form.shape, kind) for form, kind in zip(forms, kinds)]


# --- on the CPU ---------------------------------------------------------------------------------


def simulate(*given: Any, invocation: Invocation) -> Sequence[Any]:
    """Run a launch in the simulator, in a callback of XLA's."""

    forms = invocation.forms

    def run(*arrays: Any) -> tuple[Any, ...]:
        held: list[Any] = [_as(np.asarray(each), form) for each, form in zip(arrays, forms)]
        for number in invocation.changed:
            held[number] = held[number].copy()
        made = forms[invocation.given :]
        kinds: list[Any] = [numpy_dtype(form.dtype) for form in made]
        held += [np.empty(form.shape, kind) for form, kind in zip(made, kinds)]
        invocation.kernel[invocation.grid](**invocation.on(held), **invocation.meta)
        changed = (held[number] for number in invocation.changed)
        return (*held[invocation.given :], *changed)

    return tuple(jax.pure_callback(run, tuple(avals(invocation.results)), *given))


def _as(value: Any, form: Placeholder) -> Any:
    """Return dense memory as the array that a launch sees in it."""
    if value.dtype != (kind := numpy_dtype(form.dtype)):
        value = value.view(kind)
    steps = tuple(step * value.itemsize for step in form.strides)
    return np.lib.stride_tricks.as_strided(value, form.shape, steps)


# --- on a GPU -----------------------------------------------------------------------------------


@cache
def handler() -> Handler:
    """Return the handler of this process, made and told to XLA when first asked for."""
    driver = connect()
    addresses = [
        ctypes.cast(each, ctypes.c_void_p).value  # type: ignore[arg-type]
        for each in (driver.launch_ex, driver.encode_tiled, driver.encode_im2col)
    ]
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    made = Handler(Addresses(*(each or 0 for each in addresses)), version_of(header))
    register(made, "CUDA")
    return made


def register(made: Handler, platform: str) -> None:
    """Tell XLA of a handler."""
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(made.address)
    capsule = jax.ffi.pycapsule(ctypes.cast(function, ctypes.c_void_p))
    jax.ffi.register_ffi_target(TARGET, capsule, platform=platform)


def _ordinals() -> list[int]:
    """Return the GPUs of this process as the driver counts them."""
    return [int(each.local_hardware_id) for each in jax.local_devices(backend="cuda")]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel on the GPUs: its handle, the blocks that run at once, and its streams' table."""

    kernel: LoadedKernel
    blocks: int
    counters: Any


class _Kernels:
    """What was loaded, for the life of the process: executables hold the handles."""

    def __init__(self) -> None:
        self._loaded: dict[CompiledKernel, Loaded] = {}

    def load(self, kernel: CompiledKernel, ordinals: Sequence[int]) -> Loaded:
        """Return a kernel that is ready on all GPUs; ArgumentError where they differ."""
        if (known := self._loaded.get(kernel)) is not None:
            return known
        driver = connect()
        loaded = LoadedKernel(driver, kernel.cubin, kernel.entry, kernel.launch)
        blocks: dict[int, int] = {}
        for ordinal in ordinals:
            driver.enter(ordinal)
            try:
                loaded.prepare(ordinal)
                blocks[ordinal] = loaded.resident_blocks(ordinal)
            finally:
                driver.leave()
        if len(set(blocks.values())) > 1:
            raise ArgumentError(
                f"{kernel.name} runs as {blocks} blocks at once on the GPUs of this process",
                why="one executable serves all of them",
                remedy="show JAX GPUs of one kind (CUDA_VISIBLE_DEVICES)",
            )
        made = Loaded(loaded, next(iter(blocks.values())), (ctypes.c_uint64 * COUNTERS)())
        return self._loaded.setdefault(kernel, made)


_KERNELS = _Kernels()


def attribute(invocation: Invocation, ordinals: Sequence[int]) -> tuple[list[int], bool]:
    """Return the words of a launch on GPUs, and whether there is anything to launch."""
    device = SimpleNamespace(id=ordinals[0])
    stand = [Standing(number, form, device, 0) for number, form in enumerate(invocation.forms)]
    given = invocation.on(stand)
    compiled = [invocation.kernel.compile(**given, **invocation.meta)]
    if compiled[0].guards:
        compiled.append(invocation.kernel.compile_plain(**given, **invocation.meta))
    arguments = complete(compiled[0], given)
    grid = resolve_grid(invocation.name, invocation.grid, {**invocation.meta, **arguments})
    loaded = [_KERNELS.load(each, ordinals) for each in compiled]
    image = make_image(compiled, arguments, grid, [each.blocks for each in loaded])
    if image is None:
        return [], False
    chosen = loaded[compiled.index(image.kernel)]
    table = ctypes.addressof(chosen.counters) if image.counted else 0
    arrays = invocation.given + len(invocation.results)
    return words(image, arrays, chosen.kernel.function, table, handler().token), True


def launch(*given: Any, invocation: Invocation) -> Sequence[Any]:
    """Launch on a GPU, by the handler."""
    found, any_program = attribute(invocation, _ordinals())
    if not any_program:
        made = [jax.numpy.zeros(each.shape, each.dtype) for each in avals(invocation.results)]
        count = len(invocation.forms) - invocation.given
        return (*made[:count], *(given[number] for number in invocation.changed))
    return foreign(*given, invocation=invocation, found=found)


def foreign(*given: Any, invocation: Invocation, found: Sequence[int]) -> Sequence[Any]:
    """Return the call of the handler for words of a launch."""
    first = len(invocation.forms) - invocation.given
    aliases = {number: first + place for place, number in enumerate(invocation.changed)}
    call = jax.ffi.ffi_call(TARGET, tuple(avals(invocation.results)), input_output_aliases=aliases)
    return tuple(call(*given, words=np.array(found, np.int64)))


# --- the primitive ------------------------------------------------------------------------------

launch_p: Any = jex.core.Primitive("tawa_launch")
launch_p.multiple_results = True


@launch_p.def_impl
def _eager(*given: Any, invocation: Invocation) -> Any:
    with jax.disable_jit(False):  # else this would call itself
        return jax.jit(launch_p.bind, static_argnames="invocation")(*given, invocation=invocation)


@launch_p.def_abstract_eval
def _shapes(*_: Any, invocation: Invocation) -> list[Any]:
    return [ShapedArray(each.shape, each.dtype) for each in avals(invocation.results)]


def _lowered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule that lowers a launch to what `function` does."""
    lower = mlir.lower_fun(function, multiple_results=True)

    def rule(context: Any, *given: Any, invocation: Invocation) -> Any:
        if context.module_context.lowering_parameters.for_export:
            raise ArgumentError(
                f"jax.export of a call of {invocation.name}",
                why="it holds addresses of this process, and no other has them",
                remedy="jax.jit it in each process; `tawa build` makes launchers without Python",
            )
        return lower(context, *given, invocation=invocation)

    return rule


mlir.register_lowering(launch_p, _lowered(simulate), platform="cpu")
mlir.register_lowering(launch_p, _lowered(launch), platform="cuda")


def _no_gradient(*_: Any, invocation: Invocation, **__: Any) -> Any:
    raise ArgumentError(
        f"no gradient of {invocation.name}",
        why="its kernel says nothing about one",
        remedy="give the function around the call one, by jax.custom_vjp",
    )


def _no_batch(*_: Any, invocation: Invocation) -> Any:
    raise ArgumentError(
        f"no jax.vmap of {invocation.name}",
        why="its grid and its arrays' strides are those of one call",
        remedy="give the kernel a batch axis, or map by jax.lax.map",
    )


ad.primitive_jvps[launch_p] = _no_gradient
batching.primitive_batchers[launch_p] = _no_batch
