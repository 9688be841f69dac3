# JAX's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""`call`: a kernel as a function of JAX arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import numpy as np

from tawa.errors import ArgumentError, TypeMismatch
from tawa.jax.launches import Invocation, Spot, launch_p
from tawa.runtime.arrays import Placeholder, array, is_array
from tawa.runtime.decorators import wrap
from tawa.runtime.descriptors import TensorDescriptor, is_descriptor
from tawa.runtime.jit import Launchable
from tawa.runtime.written import stored_among


def form_of(value: Any) -> Placeholder:
    """Return the form of an array of JAX, or of what has its shape and type."""
    return array(value.shape, value.dtype)


def alike(*arrays: Any) -> list[Any]:
    """Return arrays, some of them None, that within `jax.shard_map` all vary over the axes of the
    mesh that one of them varies over, as what a launch takes does. The gradient by one that is the
    same on all devices is then their gradients' sum.
    """
    over = [frozenset[str]() if each is None else jax.typeof(each).mat.varying for each in arrays]
    every = frozenset[str]().union(*over)
    return [
        each if each is None else jax.lax.pcast(each, tuple(sorted(every - has)), to="varying")
        for each, has in zip(arrays, over)
    ]


def is_jax(value: object) -> bool:
    """Tell whether a value is an array of JAX, traced or not."""
    return isinstance(value, jax.Array)


def call(
    kernel: Any, *, grid: Any, out: Mapping[str, Any] | None = None, **constants: Any
) -> Callable[..., Any]:
    """Return a function of JAX arrays that launches a kernel, for use inside `jax.jit` and outside.

    Args:
        kernel: under `tawa.jit` or `triton.jit`, tuned or not; tuned ones take the first
            configuration that builds.
        grid: a tuple, or a function of the meta-parameters.
        out: the arrays that a call makes, by the parameter that takes them: a
            `jax.ShapeDtypeStruct`, or what has a shape and a dtype. What the kernel leaves
            unwritten of them is not defined.
        constants: the kernel's constants and options.

    The function takes the other parameters, by position or name: arrays, descriptors of arrays,
    None, and numbers, which are constants of the trace. It returns what it makes, in the order of
    `out`, then the new values of arrays that the kernel stores to: those given stay as they are,
    as all arrays of JAX. One array is returned alone.

        add = tawa.jax.call(add_kernel, grid=(8,), out={"out": x}, BLOCK=128)
        y = jax.jit(lambda x: add(x, x, n=x.size))(x)

    Raises `ArgumentError` for gradients and `jax.vmap`, and where nothing is stored to.
    """
    launchable = wrap(kernel)
    name = str(getattr(launchable, "__name__", launchable))
    if out is not None and not isinstance(out, Mapping):  # type: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"{name}: out is not a dictionary",
            why=f"it says which parameter takes an array: {', '.join(launchable.arg_names)}",
            remedy="out={'name': jax.ShapeDtypeStruct(shape, dtype)}",
        )
    made = {name: form_of(each) for name, each in (out or {}).items()}
    if unknown := [each for each in made if each not in launchable.arg_names]:
        raise ArgumentError(
            f"{name}: out names {', '.join(unknown)}",
            why=f"the kernel's parameters are {', '.join(launchable.arg_names)}",
        )

    def run(*args: Any, **keywords: Any) -> Any:
        taken = {*made, *constants}
        others = [each for each in launchable.arg_names if each not in taken]
        if len(args) > len(others):
            raise ArgumentError(
                f"{name} got {len(args)} arguments", why=f"it takes {', '.join(others)}"
            )
        given = {**dict(zip(others, args)), **keywords}
        if twice := [each for each in given if each in taken]:
            raise ArgumentError(
                f"{name}: {', '.join(twice)} is given twice, here and to tawa.jax.call"
            )
        results = launch(launchable, grid, given | constants, made)
        return results[0] if len(results) == 1 else tuple(results)

    return run


def launch(
    kernel: Launchable, grid: Any, given: Mapping[str, Any], made: Mapping[str, Placeholder]
) -> list[Any]:
    """Launch a kernel on JAX arrays; return what it makes, then what it changes."""
    arrays: list[Any] = []
    numbers: dict[int, int] = {}

    def spot(value: Any, described: TensorDescriptor | None = None) -> Spot:
        number = numbers.setdefault(id(value), len(arrays))
        if number == len(arrays):
            arrays.append(value)
        return Spot(number, described)

    known = set(kernel.arg_names)
    arguments: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    for name, value in given.items():
        if is_descriptor(value):
            arguments[name] = spot(_array(name, value.base), _fixed(value))
        elif is_array(value):
            arguments[name] = spot(_array(name, value))
        else:
            (arguments if name in known else meta)[name] = value
    forms = [form_of(each) for each in arrays]
    arguments |= {name: Spot(len(arrays) + place) for place, name in enumerate(made)}
    try:
        results, changed = bind(kernel, grid, arguments, meta, arrays, [*forms, *made.values()])
    except TypeMismatch as error:
        scalars = [name for name, each in given.items() if is_jax(each) and not each.shape]
        if scalars:  # which the author of the call takes for numbers
            error.add_note(
                f"{', '.join(scalars)}: arrays of no dimension are pointers in a kernel; pass a "
                "Python number (static_argnames of jax.jit), or read it by tl.load"
            )
        raise
    return [*results, *(value for _, value in changed)]


def bind(
    kernel: Launchable,
    grid: Any,
    arguments: Mapping[str, Any],
    meta: Mapping[str, Any],
    arrays: list[Any],
    forms: list[Placeholder],
) -> tuple[list[Any], list[tuple[int, Any]]]:
    """Launch with `Spot`s among the arguments; `forms` go on with those of arrays to be made.

    Returns these, and the new values of given ones with their numbers.
    """
    ordered = {name: arguments[name] for name in kernel.arg_names if name in arguments}
    held = {
        name: each.put(forms[each.number]) if isinstance(each, Spot) else each
        for name, each in ordered.items()
    }
    stored = stored_among(kernel, {**held, **meta})
    written = {each.number for name, each in ordered.items() if name in stored and _is_spot(each)}
    name = str(getattr(kernel, "__name__", kernel))
    if not written:
        raise ArgumentError(f"{name} stores to no array", why="so a call of it has no result")
    if unwritten := set(range(len(arrays), len(forms))) - written:
        names = [
            each for each, spot in ordered.items() if _is_spot(spot) and spot.number in unwritten
        ]
        raise ArgumentError(
            f"{name} does not store to {', '.join(names)}",
            why="what a call makes must be written by the kernel",
        )
    changed = tuple(sorted(number for number in written if number < len(arrays)))
    invocation = Invocation(kernel, grid, ordered, tuple(forms), len(arrays), changed, dict(meta))
    arrays = alike(*arrays)
    # What a launch says of its results says nothing of the axes that they vary over.
    results = alike(*arrays, *launch_p.bind(*arrays, invocation=invocation))[len(arrays) :]
    made = len(forms) - len(arrays)
    return results[:made], list(zip(changed, results[made:]))


def _array(name: str, value: Any) -> Any:
    """Return an array as JAX's; those of NumPy are constants of the trace."""
    if is_jax(value):
        return value
    if not isinstance(value, np.ndarray):
        kind = cast("object", type(value))
        raise ArgumentError(
            f"the argument '{name}' is a {getattr(kind, '__name__', kind)}",
            why="a call of tawa.jax takes arrays of JAX and NumPy",
            remedy="pass jax.numpy.from_dlpack(array)",
        )
    return jax.numpy.asarray(value)


def _is_spot(value: object) -> bool:
    return isinstance(value, Spot)


def _fixed(value: Any) -> TensorDescriptor:
    held = TensorDescriptor(None, value.shape, value.strides, value.block_shape, value.padding)
    held.shape, held.strides = tuple(held.shape), tuple(held.strides)
    held.block_shape = tuple(held.block_shape)
    return held
