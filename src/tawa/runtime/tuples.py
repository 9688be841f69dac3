"""Tuples as arguments of a launch: their items are arguments of their own.

A kernel that is given tuples is another kernel with a parameter for each item, nested ones too;
its signature says which of them make up which tuple (`TupleArg`), and the frontend puts them
together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tawa.frontend.signature import TupleArg
from tawa.runtime.kernel import REQUIRED, KernelFunction, Parameter

Shape: TypeAlias = tuple[tuple[str, ...], tuple[Any, ...]] | None
"""The names of a tuple's fields (none of a plain one) and its items' shapes; None: no tuple."""


def shape_of(value: Any) -> Shape:
    """Return how tuples are nested in a value."""
    if not isinstance(value, tuple):
        return None
    fields = tuple(str(name) for name in getattr(type(value), "_fields", ()))  # pyright: ignore
    return fields, tuple(shape_of(item) for item in value)  # pyright: ignore


def tuples_of(kernel: KernelFunction, values: Mapping[str, Any]) -> Mapping[str, Shape]:
    """Return the parameters that are given tuples, and their shapes; constants are none of them."""
    return {
        parameter.name: shape_of(values[parameter.name])
        for parameter in kernel.parameters
        if not parameter.constexpr and isinstance(values.get(parameter.name), tuple)
    }


def spread_kernel(kernel: KernelFunction, shapes: Mapping[str, Shape]) -> KernelFunction:
    """Return the kernel with a parameter for each item of the tuples."""
    taken, groups = set(kernel.names), dict[str, TupleArg]()
    parameters: list[Parameter] = []
    for parameter in kernel.parameters:
        shape = shapes.get(parameter.name)
        parameters += [parameter] if shape is None else _items(parameter, shape, groups, taken)
    return kernel.with_parameters(parameters, groups)


def _items(
    parameter: Parameter, shape: Shape, groups: dict[str, TupleArg], taken: set[str]
) -> Iterator[Parameter]:
    assert shape is not None, "a tuple has a shape"
    fields, items = shape
    names: list[str] = []
    for index, item in enumerate(items):
        name = f"{parameter.name}_{index}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
        one = replace(parameter, name=name, default=REQUIRED)
        if item is None:
            yield one
        else:
            yield from _items(one, item, groups, taken)
    groups[parameter.name] = TupleArg(tuple(names), fields)


def spread_values(groups: Mapping[str, TupleArg], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments by the parameters of `spread_kernel`, whose `groups` these are."""
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if name not in groups or not isinstance(value, tuple):
            found[name] = value
            return
        for item, inner in zip(groups[name].items, value, strict=True):  # pyright: ignore
            put(item, inner)

    for name, value in values.items():
        put(name, value)
    return found
