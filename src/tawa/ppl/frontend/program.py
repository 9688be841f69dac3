"""A model and its arguments to a program whose body is the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tawa.errors import ModelError
from tawa.ppl.frontend.arithmetic import Misfit
from tawa.ppl.frontend.lower import Lowering, Recursive
from tawa.ppl.frontend.model import Model
from tawa.ppl.frontend.values import Columns, Hole, flatten, is_record
from tawa.ppl.ir.core import I32, Builder, Kind, Program, Region, Type, Value


@dataclass(frozen=True, slots=True)
class Datum:
    """A parameter of a program that a model's argument, or an item of it, is."""

    type: Type
    name: str


@dataclass(frozen=True, slots=True)
class Given:
    """A model's arguments: their form, a tree of constants and `Datum`; and the data of these."""

    form: tuple[Any, ...]
    data: tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Lowered:
    """A program whose body is a model; `template` is the form of what it returns.

    `data` are the arguments of `program.params` after the seed.
    """

    program: Program
    low: Lowering
    template: Any
    data: tuple[Any, ...]


def given(model: Model, arguments: tuple[Any, ...], dtype: Kind) -> Given:
    """Divide arguments into what becomes part of a program, and data. Raises ModelError."""
    data: list[Any] = []

    def enter(item: Any, name: str) -> Any:
        if isinstance(item, (bool, int, str)) or item is None:
            return item
        if isinstance(item, tuple):
            return tuple(enter(part, f"{name}_{k}") for k, part in enumerate(item))  # type: ignore[reportUnknownArgumentType]
        array = np.asarray(_on_host(item))
        kinds: dict[str, Kind] = {"f": dtype, "i": "i32", "u": "i32", "b": "bool"}
        if array.dtype.kind not in kinds or 0 in array.shape:
            raise ModelError(
                f"{name}: {type(item).__name__} of {array.dtype}{list(array.shape)} is not data",
                why="a model's arguments are numbers, arrays of numbers, and tuples of them",
            )
        kind = kinds[array.dtype.kind]
        if kind == "i32" and (array.size and np.abs(array.astype(object)).max() >= 2**31):
            raise ModelError(f"{name} does not fit into 32 bits")
        if array.ndim == 0 and kind != dtype:
            return array.item()
        stored = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "bool": np.uint8}[kind]
        data.append(np.ascontiguousarray(array, dtype=stored) if array.ndim else float(array))
        return Datum(Type(kind, array.shape), name)

    names = model.function.__code__.co_varnames
    form = tuple(
        enter(item, names[k] if k < len(names) else f"argument{k}")
        for k, item in enumerate(arguments)
    )
    return Given(form, tuple(data))


def lower(model: Model, arguments: tuple[Any, ...] | Given, dtype: Kind) -> Lowered:
    """Lower a model for arguments: whole numbers and booleans become part of the program.

    Raises ModelError with the place of what is not in the subset.
    """
    if not isinstance(arguments, Given):
        arguments = given(model, arguments, dtype)
    recursive: frozenset[object] = frozenset()
    while True:
        try:
            return _lower(model, arguments, dtype, recursive)
        except Recursive as found:
            recursive = recursive | {found.key}


def _lower(model: Model, arguments: Given, dtype: Kind, recursive: frozenset[object]) -> Lowered:
    params = [Value(I32, "seed0"), Value(I32, "seed1")]

    def enter(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(map(enter, item))  # type: ignore[reportUnknownArgumentType]
        if not isinstance(item, Datum):
            return item
        params.append(Value(item.type, item.name))
        return params[-1]

    form = tuple(map(enter, arguments.form))
    body = Region()
    builder = Builder(dtype)
    program = Program(model.name, dtype, tuple(params), body)
    low = Lowering(program, builder, recursive)
    with builder.inside(body):
        try:
            result = low.call(model.function, form)
        except Misfit as misfit:
            raise ModelError(str(misfit), remedy=misfit.remedy) from None
        leaves: list[Any] = []
        template = flatten(result, leaves)
        if not _is_data(template):
            raise ModelError(
                f"{model.name} returns what is not a number, a vector or a record of them",
                remedy="ppl.to_vector(items, size, fill) makes a vector of a list",
            )
        body.yields = tuple(low.numbers.value(leaf) for leaf in leaves)
    return Lowered(program, low, template, arguments.data)


def _is_data(template: Any) -> bool:
    if is_record(template):
        return all(_is_data(item) for item in template)
    if isinstance(template, Columns):
        return _is_data(template.template)
    return template is None or isinstance(template, (Hole, str))


def on_gpu(arguments: tuple[Any, ...]) -> bool:
    """Whether an array of a model's arguments lies on a GPU."""
    return any(
        on_gpu(item) if is_record(item) else hasattr(item, "__cuda_array_interface__")
        for item in arguments
    )


def _on_host(item: Any) -> Any:
    given: Any = item
    if hasattr(given, "cpu"):  # of torch
        return given.cpu()
    return given.get() if on_gpu((given,)) and hasattr(given, "get") else given  # of CuPy
